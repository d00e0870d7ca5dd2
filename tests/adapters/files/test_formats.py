"""A file's format is told by its suffix or content: a state and its metadata go in and come out.

HDF5 files that packages ship come back as they were; under a bound, too, but for values.
"""

import io
import json
import os
import pickle
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
import torch

import lccodec
from lccodec.adapters import hdf5, npz, safetensors
from lccodec.adapters.files.formats import KINDS, check_suffix, files_below, recognize
from lccodec.adapters.files.states import load_file, load_with_roles, save_file
from lccodec.errors import ArgumentError, LccodecWarning, StorageError
from lccodec.policy.declared import DECLARED, ENTRY, parse

from ...support.hdf5_contents import contents, without_values
from ...support.profiles import LONG

STATE = {"m/w": np.arange(6, dtype=np.float32), "n": np.array(3)}
METADATA = {"format": "pt"}


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("a.npz", {}),
        *((f"a{suffix}", METADATA) for suffix in (".safetensors", ".lcc.h5", ".h5", ".hdf5")),
        ("m.safetensors.index.json", METADATA),
    ],
)
def test_a_state_comes_back_from_every_format(tmp_path, name, kept):
    assert save_file(STATE, tmp_path / name, METADATA) == kept
    state, metadata = load_file(tmp_path / name)
    metadata.pop("total_size", None)  # of an index
    assert metadata == kept
    assert {key: (a.dtype, a.tolist()) for key, a in sorted(state.items())} == {
        key: (a.dtype, a.tolist()) for key, a in sorted(STATE.items())
    }


def test_a_checkpoint_keeps_a_state_as_it_is(tmp_path):
    state = {"a": [1, ("text", None)], "b": np.ones(2)}
    save_file(state, tmp_path / "a.lcc.h5", {"epoch": 3})
    found, metadata = load_file(tmp_path / "a.lcc.h5")
    assert found["a"] == state["a"]
    assert metadata == {"epoch": "3"}


def test_bfloat16_comes_as_bits(tmp_path):
    values = np.ones(3, ml_dtypes.bfloat16)
    save_file({"x": values}, tmp_path / "a.lcc.h5", {})
    found, _ = load_file(tmp_path / "a.lcc.h5")
    assert found["x"].dtype == lccodec.BFLOAT16_BITS
    assert found["x"].tobytes() == values.tobytes()


def test_files_of_torch_are_read_and_written(tmp_path):
    for suffix in (".pt", ".pth", ".ckpt"):
        path = tmp_path / f"a{suffix}"
        torch.save({"w": torch.arange(3.0), "note": "x"}, path)
        state, metadata = load_file(path)
        assert (state["w"].tolist(), state["note"], metadata) == ([0, 1, 2], "x", {})
        if suffix == ".ckpt":
            with pytest.raises(
                ArgumentError, match=r"write \.pt for torch.load: not one of \.npz, .*\.pt, \.pth$"
            ):
                save_file(state, path, {})
            continue
        assert save_file(state, path, {"author": "me", "lccodec.types": "{}"}) == {"lccodec.types": "{}"}
        assert torch.load(path, weights_only=True)["w"].tolist() == [0, 1, 2]


def test_the_structure_of_a_file_of_torch_says_roles(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {"state_dict": model.state_dict(), "optimizer_states": [optimizer.state_dict()]}
    torch.save(state, tmp_path / "last.ckpt")
    _, _, known = load_with_roles(tmp_path / "last.ckpt")
    roles = {name: assignment.role for name, assignment in known.items()}
    assert roles["optimizer_states/0/state/0/exp_avg_sq"] == "second_moment"
    assert roles["state_dict/weight"] == "weight"
    assert load_with_roles_of(tmp_path, STATE) == {}


def load_with_roles_of(directory, state):
    save_file(state, directory / "a.npz", {})
    return load_with_roles(directory / "a.npz")[2]


@pytest.mark.parametrize("name", ["last.ckpt", "a.pt", "a.h5", "a.hdf5"])
def test_a_checkpoint_is_known_by_its_bytes(tmp_path, name):
    lccodec.save_file(STATE, tmp_path / "a.lcc.h5", METADATA)
    (tmp_path / "a.lcc.h5").rename(tmp_path / name)
    state, metadata = load_file(tmp_path / name)
    assert (set(state), metadata) == (set(STATE), METADATA)


@pytest.mark.parametrize("name", ["a", "a.bin", "a.npz.gz", "a.h4", "a.index.json", ".npz.", "a.NPZ"])
def test_other_suffixes_are_refused(tmp_path, name):
    for call in (load_file, check_suffix, lambda path: save_file(STATE, path, {})):
        with pytest.raises(ArgumentError, match=r"not one of \.npz"):
            call(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a.npz", "x.y.safetensors", "a.lcc.h5", "m.safetensors.index.json"])
def test_a_path_becomes_absolute(name):
    assert check_suffix(f"run/{name}") == Path.cwd() / "run" / name


@pytest.mark.parametrize(
    "name", ["a.npz", "a.safetensors", "a.lcc.h5", "a.safetensors.index.json", "a.h5", "a.pt"]
)
def test_a_file_that_is_missing(tmp_path, name):
    with pytest.raises(StorageError):
        load_file(tmp_path / name)


def _hdf5_file(path):
    with h5py.File(path, "w") as file:
        file["g/x"] = np.linspace(0, 1, 50)
        file["names"] = np.array([b"one", b"two"])
        file["g/x"].attrs["units"] = "m"
    return path


@pytest.mark.parametrize("name", ["a.nc", "a.chk", "a.restart.7", "a", "a.npz", "a.pt"])
def test_hdf5_files_are_known_by_their_content(tmp_path, name):
    path = _hdf5_file(tmp_path / name)
    state, metadata = load_file(check_suffix(path))
    assert list(state["g"]) == ["x"]
    assert metadata == {"g/x@units": "m"}


@pytest.mark.parametrize("suffix", [".nc", ".chk", ".nxs", ".hdf", ".h5ad", ".mat", ".h5"])
def test_hdf5_files_of_many_suffixes_are_written(tmp_path, suffix):
    path = _hdf5_file(tmp_path / "a.nc")
    state, metadata = load_file(path)
    assert save_file(state, tmp_path / f"b{suffix}", metadata) == metadata
    assert contents(tmp_path / f"b{suffix}") == contents(path)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".pt"])
def test_other_files_get_the_arrays_alone(tmp_path, suffix):
    state, metadata = load_file(_hdf5_file(tmp_path / "a.nc"))
    with pytest.warns(LccodecWarning, match="left out what an HDF5 file has besides arrays"):
        save_file(state, tmp_path / f"b{suffix}", metadata if suffix == ".safetensors" else {})
    back = load_file(tmp_path / f"b{suffix}")[0]
    back = back.get("g/x") if suffix == ".npz" else back["g"]["x"]
    assert back.tolist() == state["g"]["x"].tolist()


def test_a_netcdf_3_file_has_advice(tmp_path):
    (tmp_path / "a.nc").write_bytes(b"CDF\1" + bytes(40))
    with pytest.raises(ArgumentError, match=r"a\.nc is a netCDF-3 file: convert it with nccopy -4"):
        load_file(tmp_path / "a.nc")
    (tmp_path / "step1.npz").touch()
    assert files_below(tmp_path) == [tmp_path / "step1.npz"]
    _hdf5_file(tmp_path / "step2.nc")
    _hdf5_file(tmp_path / "step3.restart")
    assert [path.name for path in files_below(tmp_path)] == ["step1.npz", "step2.nc", "step3.restart"]


def test_the_error_of_a_suffix_says_what_a_file_is(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(2))
    with pytest.raises(
        ArgumentError, match=r"a single NumPy array: write it into an archive with numpy\.savez"
    ):
        load_file(tmp_path / "a.npy")
    np.savez(tmp_path / "b.npz", w=np.ones(2))
    (tmp_path / "b.npz").rename(tmp_path / "b.data")
    with pytest.raises(ArgumentError, match=r"an archive of NumPy arrays: give it the suffix \.npz"):
        load_file(tmp_path / "b.data")


ARRAYS = {"w": np.ones(3, np.float32)}


def torch_bytes(old: bool = False) -> bytes:
    data = io.BytesIO()
    torch.save({"w": torch.ones(3)}, data, _use_new_zipfile_serialization=not old)
    return data.getvalue()


def script_bytes() -> bytes:
    return archive("m/data.pkl", "m/constants.pkl", "m/code/x.py")


def archive(*names: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        for name in names:
            file.writestr(name, b"x")
    return data.getvalue()


def written(write, path) -> bytes:
    write(ARRAYS, path)
    return path.read_bytes()


def hdf5_bytes(path, block: int = 0, name: str = "w") -> bytes:
    with h5py.File(path, "w", userblock_size=block) as file:
        file[name] = ARRAYS["w"]
    return path.read_bytes()


def bundle_bytes(path) -> bytes:
    with lccodec.Chain(path) as chain:
        chain.save(0, ARRAYS)
    lccodec.bundle(path, path / "run.lcc")
    return (path / "run.lcc").read_bytes()


KNOWN = {
    "checkpoint": lambda _: lccodec.save(ARRAYS),
    "bundle": bundle_bytes,
    "safetensors": lambda path: written(safetensors.save_file, path.with_suffix(".safetensors")),
    "safetensors-index": lambda _: json.dumps({"metadata": {}, "weight_map": {}}).encode(),
    "npz": lambda path: written(npz.save_file, path.with_suffix(".npz")),
    "torch": lambda _: torch_bytes(),
    "torchscript": lambda _: script_bytes(),
    "keras": lambda _: archive("metadata.json", "config.json", "model.weights.h5"),
    "hdf5": hdf5_bytes,
    "netcdf3": lambda _: b"CDF\2\0\0\0\0",
    "npy": lambda _: b"\x93NUMPY\1\0",
    "pickle": lambda _: pickle.dumps({"w": 1}, protocol=4),
    "zip": lambda _: archive("readme.txt"),
    "empty": lambda _: b"",
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind(tmp_path, name):
    data = KNOWN[name](tmp_path / "made")
    path = tmp_path / "file.bin"
    path.write_bytes(data)
    assert recognize(path) == KINDS[name]


def test_other_forms(tmp_path):
    path = tmp_path / "file"
    for name, data in [
        ("torch", torch_bytes(old=True)),
        ("hdf5", hdf5_bytes(tmp_path / "block", block=1024)),
        ("checkpoint", lccodec.save(ARRAYS)[:-1]),
        ("checkpoint", lccodec.save(ARRAYS) + b"!"),
        ("hdf5", hdf5_bytes(tmp_path / "named", name="payload")),
        ("zip", b"PK\x03\x04 and then something else"),
        ("npz", archive()),
        (None, b"hello"),
        (None, bytes(100)),
        (None, b"{}"),
        (None, b"\xff" * 8 + b"{"),
    ]:
        path.write_bytes(data)
        found = recognize(path)
        assert (found.name if found else None) == name, data[:20]


def test_every_prefix_of_a_known_file_is_some_kind_or_none(tmp_path):
    path = tmp_path / "file"
    for name in ("npz", "torch", "hdf5", "safetensors", "checkpoint"):
        data = KNOWN[name](tmp_path / f"made-{name}")
        for size in {*range(0, 100), *range(100, len(data), 97)}:
            path.write_bytes(data[:size])
            recognize(path)


def test_every_kind_is_read_or_has_advice():
    for kind in KINDS.values():
        assert bool(kind.suffixes) != bool(kind.advice), kind.name
        for suffix in kind.suffixes:
            assert check_suffix(f"a{suffix}")


def test_what_is_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "missing", "."):
        with pytest.raises(StorageError):
            recognize(tmp_path / name)


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
