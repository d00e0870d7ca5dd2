"""Invariant: writing returns or raises a LccodecError, nothing else, in bounded time and memory.

The input is what a checkpoint may hold of an HDF5 file: a skeleton, its runs, declarations, and
arrays that may not fit. What is written is read again.

The first byte of an input says what the rest is, modulo 4:

0. the runs: int64, little-endian;
1. the skeleton, as one run; or of the size of the file's own, with its runs and without an array;
2. the text of the declarations, with which the arrays are coded, too;
3. for each array a byte: it is left out, cut, of another type, or as it was.

The skeletons are of the newest form, whose structures have checksums: the HDF5 library refuses most
that are broken. What it makes of others is not bounded (`lccodec.adapters.hdf5`).
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from outcomes import Outcomes
from scratch import new_directory

import lccodec
from lccodec.adapters import hdf5
from lccodec.policy.declared import DECLARED, ENTRY

outcomes = Outcomes()

_NAMES = ("chunked", "contiguous", "sparse")
#: Bytes worth writing over or between others.
TOKENS = (
    *(value.to_bytes(8, "little", signed=True) for value in (-1, 0, 1, 8, 1 << 31, 1 << 62)),
    *(b"\x89HDF\r\n\x1a\n", b"OHDR", b"FRHP", b"BTHD", b"\xff" * 8),
    *(b'{"chunked":["",true,[],null,null]}', b"[-9999.0]", b"1e999", b"null", b'"', b"[" * 70),
)


def check(data: bytes) -> None:
    """Write an input as what it may be; an exception from here breaks the invariant."""
    mode, rest = (data[0] if data else 0) % 4, data[1:]
    state = {key: dict(value) if key == ENTRY else value for key, value in _state().items()}
    entry: Any = state[ENTRY]
    if mode == 0:
        entry["runs"] = np.frombuffer(rest[: len(rest) // 8 * 8], "<i8").astype(np.int64)
    elif mode == 1:
        if len(rest) == entry["skeleton"].size:  # its runs fit, and an array is left out
            del state["contiguous"]
        else:
            entry["runs"] = np.array([len(rest)], np.int64)
        entry["skeleton"] = np.frombuffer(rest, np.uint8)
    elif mode == 2:
        entry[DECLARED[1]] = rest.decode("utf-8", "replace")
    else:
        state = _changed(state, rest)
    path = _directory() / "input.h5"
    with outcomes.counted(), warnings.catch_warnings(action="ignore", category=lccodec.LccodecWarning):
        if mode == 2:
            lccodec.save(state, policy=lccodec.fields(max_error=1e-3))
        hdf5.save_file(state, path)
        hdf5.load_state(path)


def _changed(state: dict[str, Any], choices: bytes) -> dict[str, Any]:
    for name, choice in zip(_NAMES, choices, strict=False):
        if choice % 4 == 0:
            del state[name]
        elif choice % 4 == 1:
            state[name] = state[name][1:]
        elif choice % 4 == 2:
            state[name] = state[name].astype("f4")
    return state


@cache
def _directory() -> Path:
    return new_directory()


@cache
def _state() -> dict[str, Any]:
    """Return the state of a file with arrays of each kind, and an attribute of text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.h5"
        with h5py.File(path, "w", libver="latest") as file:
            file.attrs["title"] = "a file"
            file.create_dataset("chunked", data=np.arange(35.0).reshape(7, 5), chunks=(3, 2), compression=1)
            file["contiguous"] = np.arange(40.0)
            file["contiguous"].attrs["_FillValue"] = -9999.0
            file["axis"] = np.arange(40.0)
            file["axis"].make_scale("axis")
            file["contiguous"].dims[0].attach_scale(file["axis"])
            file.create_dataset("sparse", (40, 4), "f8", chunks=(4, 4), fillvalue=-1)[5] = 2
        state: dict[str, Any] = hdf5.load_state(path)[0]
    return state


def seeds() -> Iterator[bytes]:
    """Yield inputs of every kind."""
    entry: Any = _state()[ENTRY]
    yield b"\0" + entry["runs"].astype("<i8").tobytes()
    yield b"\1" + entry["skeleton"].tobytes()
    yield b"\2" + entry[DECLARED[1]].encode()
    for choices in (b"\3\3\3", b"\0\1\2", b"\2"):
        yield b"\3" + choices
