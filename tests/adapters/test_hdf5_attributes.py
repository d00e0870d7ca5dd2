"""Attributes and dimension scales of HDF5 files, as netCDF-4 has them, through a chain and back."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import Chain, fields
from lccodec.adapters import hdf5

from ..support.commands import run

TYPES = "lccodec.attributes"  # the entry of the metadata with types
X = np.linspace(0, 3, 50)
FIELD = np.float32(280) + np.sin(X)[:, None].astype(np.float32) * np.cos(X).astype(np.float32)


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    """A variable, a coordinate and a dimension without a variable, as netCDF-4 has them."""
    path = tmp_path / "step7.h5"
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "2020"  # a string that looks like a number
        file.attrs["version"] = np.int16(3)
        field = file.create_dataset("run/temperature", data=FIELD[:, :-1])
        field.attrs.update({"units": "K", "_FillValue": np.array([1e20], "f4"), "scale_factor": 1.0})
        field.attrs["valid_range"] = np.array([200, 350], "f4")
        field.attrs["flags"] = np.array([True, False])
        file["latitude"] = X
        file["latitude"].attrs["units"] = "degrees_north"
        file["columns"] = np.zeros(49, "f4")
        file["more"] = FIELD
        for name, label in {"latitude": "latitude", "columns": "no variable"}.items():
            file[name].make_scale(label)
        for axis, name in enumerate(("latitude", "columns")):
            field.dims[axis].attach_scale(file[name])
    return path


def check(path: Path, bound: float) -> None:
    with h5py.File(path) as file:
        field = file["run/temperature"]
        assert np.abs(field[...] - FIELD[:, :-1]).max() <= bound
        assert [[scale.name for scale in axis.values()] for axis in field.dims] == [
            ["/latitude"],
            ["/columns"],
        ]
        assert [file[name].is_scale for name in ("latitude", "columns")] == [True, True]
        assert [bytes(file[name].attrs["NAME"]) for name in ("latitude", "columns")] == [
            b"latitude",
            b"no variable",
        ]
        assert (field.attrs["units"], file["latitude"].attrs["units"]) == ("K", "degrees_north")
        fill = field.attrs["_FillValue"]
        assert (fill.dtype, fill.tolist()) == (np.float32, [float(np.float32(1e20))])
        assert (field.attrs["scale_factor"].dtype, field.attrs["scale_factor"]) == (np.float64, 1.0)
        assert field.attrs["valid_range"].tolist() == [200, 350]
        assert field.attrs["flags"].tolist() == [True, False]
        assert file.attrs["title"] == "2020"
        assert (file.attrs["version"].dtype, file.attrs["version"]) == (np.int16, 3)


def test_a_file_comes_back_with_its_attributes_and_scales(path: Path) -> None:
    state, metadata = hdf5.load_state(path)
    hdf5.save_file(state, path, metadata)
    check(path, 0)
    assert hdf5.load_state(path)[1] == metadata


def test_they_survive_a_chain(path: Path, tmp_path: Path) -> None:
    run("save", tmp_path / "run", path, "--relative-error", 1e-3, "--newest", "history")
    run("restore", tmp_path / "run", "-o", tmp_path / "back.h5")
    check(tmp_path / "back.h5", 1e-3 * float(np.ptp(FIELD)))
    run("restore", tmp_path / "run", "-o", tmp_path / "part.h5", "--key", "run/temperature")
    check(tmp_path / "part.h5", 1e-3 * float(np.ptp(FIELD)))  # its scales come along
    with h5py.File(tmp_path / "part.h5") as file:
        assert "more" not in file
    state, metadata = hdf5.load_state(path)
    with Chain(tmp_path / "other", fields(relative_error=1e-3)) as chain:
        chain.save(0, state, metadata)
        hdf5.save_file(chain.restore(0), tmp_path / "newest.h5", chain.info(0).metadata)
    check(tmp_path / "newest.h5", 0)  # the newest state is exact


@given(st.text(max_size=20) | st.sampled_from(['[["a"]]', "DIMENSION_SCALE", "[[]]", "1", "{"]))
def test_metadata_that_do_not_fit_write_a_file(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("odd") / "a.h5"
    text = text.replace("\0", "")
    metadata = {
        "a@DIMENSION_LIST": text,
        "a@CLASS": text,
        "a@REFERENCE_LIST": text,
        "a@units": text,
        "nowhere@units": text,
        TYPES: text,
    }
    hdf5.save_file({"a": np.ones((2, 3))}, path, metadata)
    with h5py.File(path) as file:
        assert dict(file["a"].attrs) == {"units": text}
        assert file.attrs["nowhere@units"] == text


@pytest.mark.parametrize("types", ['{"a@x": "<f4"}', '{"a@x": "O"}', '{"a@x": 3}', "[1]", "{"])
def test_a_type_that_does_not_fit_leaves_a_string(tmp_path: Path, types: str) -> None:
    hdf5.save_file({"a": np.ones(2)}, tmp_path / "a.h5", {"a@x": "text", TYPES: types})
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["a"].attrs["x"] == "text"
