"""The bytes around payload and manifest: those of the HDF5 library, and trailers."""

from __future__ import annotations

import itertools
from pathlib import Path

import h5py
import pytest

from lccodec.constants import (
    FORMAT_MAJOR,
    FORMAT_MINOR,
    MANIFEST_DATASET,
    MAX_MANIFEST_BYTES,
    PAYLOAD_DATASET,
    PAYLOAD_OFFSET,
    TRAILER_MAGIC,
    TRAILER_SIZE,
)
from lccodec.container import envelope
from lccodec.container.envelope import Trailer, parse_trailer, skeleton
from lccodec.container.reader import open_bytes
from lccodec.errors import DataError, FormatError, LimitError, UnsupportedError

from ..support.checkpoints import FILE
from ..support.hdf5_library import ABOUT, library, written


def test_trailer_fields() -> None:
    trailer = Trailer(payload_length=0x1122334455, manifest_length=0x667788, root=bytes(range(32)))
    data = trailer.to_bytes()
    assert len(data) == TRAILER_SIZE
    assert data[:8] == TRAILER_MAGIC
    bounds = itertools.pairwise([8, 10, 12, *range(16, 57, 8)])
    numbers = [int.from_bytes(data[start:stop], "little") for start, stop in bounds]
    end = PAYLOAD_OFFSET + 0x1122334455
    assert numbers == [
        FORMAT_MAJOR,
        FORMAT_MINOR,
        1,
        PAYLOAD_OFFSET,
        0x1122334455,
        end,
        0x667788,
        end + 0x667788 + 88,
    ]
    assert data[56:] == bytes(range(32))
    assert parse_trailer(data, "here") == trailer


@pytest.mark.parametrize(
    ("offset", "value", "error", "rule"),
    [
        (0, b"LCCODEX\x1a", FormatError, "LCC-TRL-01"),
        (8, b"\2\0", UnsupportedError, "LCC-TRL-03"),
        (8, b"\0\0", UnsupportedError, "LCC-TRL-03"),
        (12, b"\0", UnsupportedError, "LCC-TRL-04"),
        (12, b"\2", UnsupportedError, "LCC-TRL-04"),
        (15, b"\1", UnsupportedError, "LCC-TRL-04"),
        (16, b"\0", FormatError, "LCC-TRL-06"),
        (24, b"\xff" * 8, FormatError, "LCC-TRL-06"),
        (32, b"\xff" * 8, FormatError, "LCC-TRL-06"),
        (40, (MAX_MANIFEST_BYTES + 1).to_bytes(8, "little"), LimitError, "LCC-LIM-04"),
        (48, b"\0", FormatError, "LCC-TRL-06"),
    ],
)
def test_hostile_trailers(offset: int, value: bytes, error: type[DataError], rule: str) -> None:
    data = bytearray(FILE[-TRAILER_SIZE:])
    data[offset : offset + len(value)] = value
    with pytest.raises(error) as caught:
        parse_trailer(bytes(data), "here")
    assert caught.value.rule == rule
    with pytest.raises(DataError):
        open_bytes(FILE[:-TRAILER_SIZE] + data)


def test_declared_sizes_do_not_become_allocations() -> None:
    huge = Trailer(payload_length=1 << 60, manifest_length=1 << 25).to_bytes()
    with pytest.raises(FormatError, match="says that the file has"):
        open_bytes(FILE[:-TRAILER_SIZE] + huge)


SPEC = Path(__file__).parents[2] / "spec" / "SPEC.md"
SIZES = [(0, 1), (0, 500), (1, 1), (3, 3000), (100_000, 500), (1072, 600)]
VAST = [(10**12, 500), (1 << 61, 1 << 26)]


@pytest.mark.skipif(library() is None, reason="two properties of HDF5 are not in h5py")
@pytest.mark.parametrize(("payload_size", "manifest_size"), [*SIZES, *VAST])
def test_the_library_writes_the_same_bytes(payload_size: int, manifest_size: int) -> None:
    trailer = Trailer(payload_size, manifest_size)
    assert written(payload_size, manifest_size) == (
        skeleton(trailer),
        trailer.manifest_offset + manifest_size,
    )


@pytest.mark.parametrize(("payload_size", "manifest_size"), SIZES)
def test_the_library_reads_both_datasets(tmp_path: Path, payload_size: int, manifest_size: int) -> None:
    payload = bytes(i * 7 % 256 for i in range(payload_size))
    manifest = bytes(i * 5 % 256 for i in range(manifest_size))
    trailer = Trailer(payload_size, manifest_size)
    path = tmp_path / "whole.h5"
    path.write_bytes(skeleton(trailer) + payload + manifest + trailer.to_bytes())
    with h5py.File(path, "r") as file:
        assert sorted(file) == [MANIFEST_DATASET, PAYLOAD_DATASET]
        assert dict(file.attrs) == {"about": ABOUT}
        for name, expected, offset in (
            (PAYLOAD_DATASET, payload, PAYLOAD_OFFSET if payload_size else None),
            (MANIFEST_DATASET, manifest, trailer.manifest_offset),
        ):
            dataset = file[name]
            assert (dataset.dtype.str, dataset.shape) == ("|u1", (len(expected),))
            assert dataset[()].tobytes() == expected
            assert dataset.id.get_offset() == offset
            assert not dataset.attrs


def test_the_text_lists_the_bytes() -> None:
    assert f"```{envelope._HEAD}```" in SPEC.read_text()


def test_checksum() -> None:
    assert envelope._checksum(b"Four score and seven years ago") == 0x17770551  # by the author of lookup3
