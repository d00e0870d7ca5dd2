"""HDF5 files that packages ship come back as they were; under a bound, too, but for values."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import lccodec
from lccodec.adapters import hdf5
from lccodec.adapters.files.formats import recognize
from lccodec.policy.declared import DECLARED, ENTRY, parse

from ...support.hdf5_contents import contents, without_values
from ...support.profiles import LONG

BOUND = 1e-4  # of the range


def files_of(package: Any) -> list[Path]:
    """The HDF5 files in the folder of a package."""
    folder = Path(package.__file__).parent
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size < 1 << 22)
    return [path for path in found if (kind := recognize(path)) is not None and kind.name == "hdf5"]


def arrays_of(state: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in state.items():
        if isinstance(value, dict):
            yield from arrays_of(value, f"{name}{key}/")
        elif isinstance(value, np.ndarray) and not name.startswith(ENTRY):
            yield f"{name}{key}", value


def check(paths: Iterable[Path], folder: Path) -> int:
    """Save and restore each file, exactly and under a bound; return how many arrays lost."""
    lossy = 0
    for number, path in enumerate(paths):
        before = contents(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lccodec.LccodecWarning)  # of filters that h5py does not have
            state, metadata = hdf5.load_state(path)
        with lccodec.Chain(folder / f"{number}", lccodec.fields(relative_error=BOUND)) as chain:
            for step in range(2):  # the newest is exact
                chain.save(step, state, metadata)
            plan = {each.name: each for each in chain.plan(state)}
            back, exact = chain.restore(0), chain.restore(1)
        hdf5.save_file(exact, folder / "exact.h5", metadata)
        assert contents(folder / "exact.h5") == before, path
        hdf5.save_file(back, folder / "back.h5", metadata)
        lost = {name for name, each in plan.items() if each.lossy}
        assert without_values(contents(folder / "back.h5"), {f"/{name}" for name in lost}) == without_values(
            before, {f"/{name}" for name in lost}
        ), path
        declared = parse(state[ENTRY].get(DECLARED[1], "{}"))
        assert not any(declared[name].exact for name in lost & declared.keys())
        restored = dict(arrays_of(back))
        for name, values in arrays_of(state):
            if name in lost:
                keeps(values, restored[name], declared.get(name))
                lossy += 1
    return lossy


def keeps(values: Any, found: Any, declared: Any) -> None:
    """No element is beyond the bound, and what stands for nothing is as it was."""
    values, found = values.astype("f8"), found.astype("f8")
    valid = np.isfinite(values)
    if declared is not None:
        valid &= ~np.isin(values, declared.fills)
        valid &= (values >= (declared.minimum or -np.inf)) & (values <= (declared.maximum or np.inf))
    assert np.array_equal(values[~valid], found[~valid], equal_nan=True)
    assert np.abs(values[valid] - found[valid]).max() <= BOUND * np.ptp(values[valid])


def test_files_of_h5py(tmp_path: Path) -> None:
    paths = files_of(h5py)
    assert len(paths) >= 4
    check(paths, tmp_path)


@pytest.mark.slow
def test_files_of_iris(tmp_path: Path) -> None:
    import iris_sample_data

    paths = files_of(iris_sample_data)
    assert len(paths) >= 12
    assert check(paths[:: 1 if LONG else 2], tmp_path) >= 2


@pytest.mark.slow
def test_files_of_pytables(tmp_path: Path) -> None:
    import tables

    paths = files_of(tables)
    assert len(paths) >= 45
    check(paths[:: 1 if LONG else 5], tmp_path)
