"""The kind of a file is told by its bytes, whatever its suffix is."""

import io
import json
import os
import pickle
import zipfile

import h5py
import numpy as np
import pytest
import torch

import lccodec
from lccodec.adapters import npz, safetensors
from lccodec.adapters.files.formats import check_suffix
from lccodec.adapters.files.signature import KINDS, recognize
from lccodec.errors import StorageError

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
