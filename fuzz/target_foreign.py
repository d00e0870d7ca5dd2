"""Invariant: reading returns or raises a LccodecError, nothing else, in bounded time and memory.

The input is a file of another format: of NumPy, of safetensors with or without an index, of
torch.save, or a seal. HDF5 is left out: its library has no bounds (`lccodec.adapters.hdf5`).

The first byte of an input says what the rest is, modulo 10:

0. an .npz file, as it is;
1. an array with NumPy's header: put into an .npz file, whose sums are right;
2. an .npz file whose directory is made anew for the members that are found in it;
3. a .safetensors file, as it is;
4. the header of a .safetensors file, its length (u32) before it, and then the values;
5. the index of shards;
6. a file of torch.save, as it is;
7. the pickle in a file of torch.save, whose other members are sound;
8. a seal;
9. a seal whose last line is made anew.

Without torch, the two of torch.save are skipped.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import struct
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from outcomes import Outcomes
from scratch import new_directory

from lccodec.adapters.files.formats import recognize
from lccodec.adapters.files.states import load_file
from lccodec.adapters.safetensors import save_file as save_safetensors
from lccodec.adapters.seals import Listing, seal
from lccodec.adapters.seals import check as check_seal

outcomes = Outcomes()

HAS_TORCH = importlib.util.find_spec("torch") is not None
_SUFFIXES = (*[".npz"] * 3, *[".safetensors"] * 2, ".safetensors.index.json", *[".pt"] * 2, *[".sha256"] * 2)
_TORCH, _SEALS = (6, 7), (8, 9)
_LOCAL = struct.Struct("<4s5H3L2H")

if HAS_TORCH:  # now, as it takes seconds
    import torch

    from lccodec.adapters.torch import archive as _  # noqa: F401

#: Bytes worth writing over or between others.
TOKENS = (
    *(value.to_bytes(size, "little") for size in (2, 4, 8) for value in (0, 1, 8, 0xFFFF)),
    *(value.to_bytes(4, "little") for value in (1 << 20, 1 << 30, (1 << 32) - 1)),
    *(b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\6\7", b"\x93NUMPY\1\0", b"\x93NUMPY\2\0"),
    *(
        token.encode()
        for token in (
            *("'descr':'<f4'", "'descr':'|O'", "'fortran_order':True", "'shape':(9999999999,)", "(,)", "()"),
            *('"dtype":"F32"', '"dtype":"F4"', '"shape":[4294967296]', '"data_offsets":[0,8]', "null", "-1"),
            *('"__metadata__":{"a":"b"}', '"weight_map":{"a":"../x"}', "{}", "[]", "[" * 70, "9" * 4097),
            *("# lccodec seal 1\n", "# tensor ", "# end ", "a" * 64, "  ../x\n", "\\", "../", "/"),
            *("ccollections\nOrderedDict\n", "ctorch._utils\n_rebuild_tensor_v2\n", "cos\nsystem\n"),
        )
    ),
    *(bytes([code]) for code in b"().0aulqrhjKJM\x80\x85\x86\x87\x8aRtsbQ}]"),
)


def check(data: bytes) -> None:
    """Read an input as what it may be; an exception from here breaks the invariant."""
    mode, rest = (data[0] if data else 0) % len(_SUFFIXES), data[1:]
    if mode in _TORCH and not HAS_TORCH:
        return
    made = {1: _archive_of, 2: _with_directory, 4: _with_header, 7: _with_pickle, 9: _with_end}
    file = made[mode](rest) if mode in made else rest
    path = _directory() / f"input{_SUFFIXES[mode]}"
    path.write_bytes(file)
    try:
        with outcomes.counted(f"{_SUFFIXES[mode]} "), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of files of other versions
            if mode in _SEALS:
                _look_at_seal(file, path)
            else:
                recognize(path)
                load_file(path)
    finally:
        path.unlink()


def _look_at_seal(text: bytes, path: Path) -> None:
    for name in list(Listing(text, "seal"))[:3]:
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise AssertionError(f"a seal names {name}")
    check_seal(path.parent / "input")


def _with_end(text: bytes) -> bytes:
    lines = text[: max(text.rfind(b"# end "), 0)]
    return lines + b"# end " + hashlib.sha256(lines).hexdigest().encode() + b"\n"


def _archive_of(array: bytes) -> bytes:
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo("a.npy"), array)
        return file.getvalue()


def _with_directory(archive: bytes) -> bytes:
    """Return an archive with the directory that its members' headers make."""
    entries, at, end = [], 0, archive.find(b"PK\1\2")
    body = archive[: end if end >= 0 else len(archive)]
    while at + _LOCAL.size <= len(body) and body.startswith(b"PK\3\4", at):
        fields = _LOCAL.unpack_from(body, at)
        name = body[at + _LOCAL.size : at + _LOCAL.size + fields[9]]
        extra = body[at + _LOCAL.size + fields[9] :][: fields[10]]
        head = struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, *fields[1:9], *fields[9:], 0, 0, 0, 0, at)
        entries.append(head + name + extra)
        at += _LOCAL.size + fields[9] + fields[10] + fields[7]
    table = b"".join(entries)
    count, start = len(entries) & 0xFFFF, len(body)
    return body + table + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(table), start, 0)


def _with_header(data: bytes) -> bytes:
    size = int.from_bytes(data[:4], "little")
    text = data[4 : 4 + size]
    return struct.pack("<Q", len(text)) + text + data[4 + size :]


def _with_pickle(text: bytes) -> bytes:
    """Return the file of torch.save of `_torch_file` with another pickle, as torch writes it."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(io.BytesIO(_torch_file())) as sound, zipfile.ZipFile(file, "w") as archive:
            for member in sound.namelist():
                own = text if member.endswith("data.pkl") else sound.read(member)
                archive.writestr(zipfile.ZipInfo(member), own)
        return file.getvalue()


@cache
def _torch_file() -> bytes:
    state = {"w": torch.arange(6.0).reshape(2, 3), "b": [torch.zeros(2, dtype=torch.bfloat16), 7, None, "x"]}
    with io.BytesIO() as file:
        torch.save(state, file)
        return file.getvalue()


@cache
def _directory() -> Path:
    """Return a directory for the input, with what it may name, made once."""
    path = new_directory()
    for number in (1, 2):
        _write_shard(path / f"model-{number:05d}-of-00002.safetensors", number)
    (path / "input").write_bytes(b"sealed")
    return path


def _write_shard(path: Path, number: int) -> None:
    text = b'{"%d":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' % number
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))


def _npz(packed: bool) -> bytes:
    with io.BytesIO() as file:
        arrays = {"w": np.arange(12, dtype="<f4").reshape(3, 4), "n": np.int64(7), "f": np.eye(2, 3).T}
        (np.savez_compressed if packed else np.savez)(file, **arrays)
        return file.getvalue()


def seeds() -> Iterator[bytes]:
    """Yield inputs of every kind."""
    for packed in (False, True):
        yield b"\0" + _npz(packed)
    yield b"\2" + _with_zip32()
    for array in (np.arange(6.0), np.zeros((0, 3), np.int8), np.array(True)):
        with io.BytesIO() as file:
            np.lib.format.write_array(file, array)
            yield b"\1" + file.getvalue()
    text = (
        b'{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},'
        b'"h":{"dtype":"BF16","shape":[2],"data_offsets":[16,20]},'
        b'"q":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[20,24]}}'
    )
    yield b"\3" + _with_header(struct.pack("<I", len(text)) + text + bytes(24))
    yield b"\4" + struct.pack("<I", len(text)) + text + bytes(24)
    yield from _with_structure()
    names = ",".join(f'"{number}":"model-{number:05d}-of-00002.safetensors"' for number in (1, 2))
    yield b"\5" + f'{{"metadata":{{"total_size":16}},"weight_map":{{{names}}}}}'.encode()
    if HAS_TORCH:
        yield b"\6" + _torch_file()
        with zipfile.ZipFile(io.BytesIO(_torch_file())) as archive:
            yield b"\7" + archive.read(next(n for n in archive.namelist() if n.endswith("data.pkl")))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "input")
        path.write_bytes(b"sealed")
        shard = Path(name, "w.safetensors")
        _write_shard(shard, 1)
        for each in (path, shard):
            text = seal(each).path.read_bytes()
            yield b"\x08" + text
            yield b"\x09" + text


def _with_structure() -> Iterator[bytes]:
    """Yield a .safetensors file whose metadata say what its names do not."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "w.safetensors")
        state = {"a": [np.ones(2), (3, None, "x")], "b": {"~": b"\xff", "n": float("nan")}}
        save_safetensors(state, path)
        file = path.read_bytes()
    size = int.from_bytes(file[:8], "little")
    yield b"\3" + file
    yield b"\4" + struct.pack("<I", size) + file[8:]


def _with_zip32() -> bytes:
    """Return an archive of two arrays, without fields of 64 bits."""
    parts = []
    for name in (b"a.npy", b"b.npy"):
        with io.BytesIO() as file:
            np.lib.format.write_array(file, np.arange(4, dtype="<i2"))
            data = file.getvalue()
        head = _LOCAL.pack(b"PK\3\4", 20, 0, 0, 0, 33, zlib.crc32(data), len(data), len(data), len(name), 0)
        parts.append(head + name + data)
    return _with_directory(b"".join(parts))
