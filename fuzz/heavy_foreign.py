"""The heaviest files of other programs: HDF5, ``torch.save``, and versions of weights."""

from __future__ import annotations

import io
import json
import pickle
import re
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np

_CHUNKS = 100_000_000


def _hdf5(write: Callable[[h5py.File], object], form: str = "latest") -> bytes:
    """Return the bytes of an HDF5 file; the newest form has the smallest objects."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.h5"
        with h5py.File(path, "w", libver=form) as file:
            write(file)
        return path.read_bytes()


def hdf5_files(size: int) -> Iterator[tuple[str, bytes]]:
    """Yield HDF5 files of about so many bytes or fewer."""

    def deflated_twice(file: h5py.File) -> None:
        space = h5py.h5s.create_simple((1000 * size,))
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        how.set_chunk((1000 * size,))
        how.set_deflate(9)
        how.set_deflate(9)
        made = h5py.h5d.create(file.id, b"a", h5py.h5t.NATIVE_UINT8, space, how)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.zeros(1000 * size, np.uint8))

    def links(file: h5py.File) -> None:
        first = file.create_dataset("a", data=np.zeros(1))
        for number in range(size // 24):
            file[f"{number}"] = first

    def as_large(file: h5py.File) -> h5py.File:
        file["b"] = np.zeros(size - 4096, np.uint8)
        return file

    writers: dict[str, Callable[[h5py.File], object]] = {
        "nothing is stored": lambda f: as_large(f).create_dataset("a", (3900 * (size - 4096),), "u1"),
        "deflated twice": lambda f: deflated_twice(as_large(f)),
        "chunks of one element": lambda f: as_large(f).create_dataset("a", (_CHUNKS,), "u1", chunks=(1,)),
        "many datasets": lambda f: [f.create_dataset(f"{n}", data=np.uint8(0)) for n in range(size // 130)],
        "one dataset of many names": links,
        "many attributes": lambda f: [f.attrs.create(f"{n}", np.uint8(0)) for n in range(size // 80)],
    }
    for what, write in writers.items():
        yield f"HDF5, {what}", _hdf5(write)
    yield "HDF5, strings in one place", _strings(size)
    yield "HDF5, scales of many axes", _scales(size)


def _strings(size: int) -> bytes:
    """Return a file with an attribute whose many strings are all the same long one."""
    count, text = size // 34, "x" * (size // 2)
    kind = h5py.string_dtype()

    def write(file: h5py.File) -> None:
        file.attrs.create("a", np.array([text] + ["y"] * (count - 1), object), (count,), kind)

    return _aimed_at_first(_hdf5(write, "earliest"), len(text), 1)


def _scales(size: int) -> bytes:
    """Return a file of datasets each of whose axes has many scales, which are stored once."""
    count, datasets = size // 32, size // 1000

    def write(file: h5py.File) -> None:
        scale = file.create_dataset("s", data=np.zeros(1))
        scale.make_scale("s")
        kind = h5py.vlen_dtype(h5py.ref_dtype)
        for number in range(datasets):
            made = file.create_dataset(f"{number}", data=np.zeros(1))
            value = np.empty(1, object)
            value[0] = np.array([scale.ref] * (count if not number else 1), h5py.ref_dtype)
            made.attrs.create("DIMENSION_LIST", value, (1,), kind)

    return _aimed_at_first(_hdf5(write, "earliest"), count, 1)


def _aimed_at_first(data: bytes, length: int, other: int) -> bytes:
    """Return a file whose sequences of `other` elements are all the first one, of `length`."""

    def number(start: int, end: int) -> int:
        return int.from_bytes(data[start:end], "little")

    def places(count: int) -> Iterator[int]:
        for match in re.finditer(b"(?=%b)" % re.escape(struct.pack("<I", count)), data):
            place = match.start()
            if (address := number(place + 4, place + 12)) and data.startswith(b"GCOL", address):
                yield place

    at = next(place for place in places(length) if 0 < number(place + 12, place + 16) < 1 << 16)
    found = bytearray(data)
    for place in places(other):
        found[place : place + 16] = data[at : at + 16]
    return bytes(found)


def _archive(pickled: bytes, storage: bytes) -> bytes:
    """Return a file of ``torch.save``."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("a/data.pkl", pickled)
            archive.writestr("a/byteorder", "little")
            archive.writestr("a/data/0", storage)
            archive.writestr("a/version", "3\n")
        return file.getvalue()


def _integer(number: int) -> bytes:
    return b"J" + struct.pack("<i", number)


def _tensor(count: int, length: int, stride: int) -> bytes:
    """Return the opcodes that make a float32 vector of a storage of `count` elements."""
    parts = b"storage", b"0", b"cpu"
    kind, key, device = (b"X" + struct.pack("<I", len(part)) + part for part in parts)
    return b"".join(
        [
            b"ctorch._utils\n_rebuild_tensor_v2\n((" + kind + b"ctorch\nFloatStorage\n" + key + device,
            _integer(count) + b"tQK\0" + _integer(length) + b"\x85" + _integer(stride) + b"\x85\x89",
            b"ccollections\nOrderedDict\n)RtR",
        ]
    )


def torch_files(size: int) -> Iterator[tuple[str, bytes]]:
    """Yield files of ``torch.save``."""
    half = size // 2
    room = (size - 1024) // 4 * 4
    wide = _tensor(room // 4, 1000 * room, 0)
    yield "torch.save, a tensor of one value", _archive(b"\x80\x02" + wide + b".", bytes(room))
    far = _tensor(1 << 28, 1 << 28, 1)
    yield "torch.save, a storage that ends early", _archive(b"\x80\x02" + far + b".", bytes(half))
    many = [b"X\x04\0\0\0%04x" % n + _tensor(half // 16, 1, 1) for n in range(half // 120)]
    yield "torch.save, many tensors", _archive(b"\x80\x02}(" + b"".join(many) + b"u.", bytes(half // 4))
    lists: list[object] = []
    for _ in range(8):
        lists = [lists] * 16
    yield "torch.save, lists of lists", _archive(pickle.dumps(lists, 2), bytes(half))
    deep = b"]" * half + b"a" * (half - 1)
    yield "torch.save, deep lists", _archive(b"\x80\x02" + deep + b".", b"")


def weight_versions(size: int) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield directories of weight versions, by the paths of their files."""
    import zstandard

    def index(version: int, weights: dict[str, str], encoding: str = "xor") -> bytes:
        metadata = {"version": f"{version}", "base_version": f"{version - 1}", "delta_encoding": encoding}
        metadata |= {"compression_format": "zstd", "checksum_format": "adler32"}
        return json.dumps({"metadata": metadata, "weight_map": weights}).encode()

    def tensors(data: bytes, **digests: str) -> bytes:
        tensor = {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}
        text = json.dumps({"__metadata__": digests, "w": tensor}).encode()
        return struct.pack("<Q", len(text)) + text + data

    name = "weight_v%06d/model.safetensors%s"
    empty = {name % (n, ".index.json"): index(n, {}) for n in range(1, size // 200)}
    yield "weights, no base", empty
    base = {name % (1, ""): tensors(bytes(size // 2))}
    packed = zstandard.ZstdCompressor(level=19).compress(bytes(size // 2))
    delta = tensors(packed, w="00000000")
    sound = tensors(packed, w=f"{zlib.adler32(bytes(size // 2)):08x}")
    steps = range(2, 2 + size // 2 // 450)
    for title, broken in (("the last", steps[-1]), ("the middle one", steps[len(steps) // 2])):
        files = dict(base)
        for n in steps:
            files[name % (n, ".index.json")] = index(n, {"w": "d.safetensors"})
            files[f"weight_v{n:06d}/d.safetensors"] = delta if n == broken else sound
        yield f"weights, {title} of many is damaged", files
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(size * 5000))
    for encoding in ("xor", "overwrite"):
        files = {name % (2, ".index.json"): index(2, {"w": "d.safetensors"}, encoding)}
        files["weight_v000002/d.safetensors"] = tensors(bomb, w="00000000")
        yield f"weights, {encoding}, a bomb", base | files
    files = {name % (2, ".index.json"): b"[" * (size // 2)}
    yield "weights, a deep index", base | files
