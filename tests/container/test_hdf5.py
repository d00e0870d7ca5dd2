"""The HDF5 part: the library writes the same bytes, and reads the file around them (LCC-H5)."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest

from lccodec.constants import MANIFEST_DATASET, PAYLOAD_DATASET
from lccodec.container import hdf5
from lccodec.container.hdf5 import skeleton
from lccodec.container.trailer import Trailer

from ..support.hdf5_library import library, written

SPEC = Path(__file__).parents[2] / "spec" / "SPEC.md"
SIZES = [(0, 1), (0, 500), (1, 1), (3, 3000), (100_000, 500), (1072, 600)]
VAST = [(10**12, 500), (1 << 61, 1 << 26)]

any_version = pytest.mark.parametrize("minor", [0, 1])
not_in_h5py = pytest.mark.skipif(library() is None, reason="two properties of HDF5 are not in h5py")


@pytest.mark.parametrize(("payload_size", "manifest_size"), [*SIZES, *VAST])
@pytest.mark.parametrize("minor", [0, pytest.param(1, marks=not_in_h5py)])
def test_the_library_writes_the_same_bytes(payload_size: int, manifest_size: int, minor: int) -> None:
    trailer = Trailer(payload_size, manifest_size, minor=minor)
    end = trailer.manifest_offset + manifest_size
    assert written(payload_size, manifest_size, minor) == (skeleton(trailer), end)


@any_version
@pytest.mark.parametrize(("payload_size", "manifest_size"), SIZES)
def test_the_library_reads_both_datasets(
    tmp_path: Path, payload_size: int, manifest_size: int, minor: int
) -> None:
    payload = bytes(i * 7 % 256 for i in range(payload_size))
    manifest = bytes(i * 5 % 256 for i in range(manifest_size))
    trailer = Trailer(payload_size, manifest_size, minor=minor)
    made, head = skeleton(trailer), trailer.payload_offset
    path = tmp_path / "whole.h5"
    path.write_bytes(made[:head] + payload + made[head:] + manifest + trailer.to_bytes())
    with h5py.File(path, "r") as file:
        assert sorted(file) == [MANIFEST_DATASET, PAYLOAD_DATASET]
        assert not file.attrs
        for name, expected, offset in (
            (PAYLOAD_DATASET, payload, head if payload_size else None),
            (MANIFEST_DATASET, manifest, trailer.manifest_offset),
        ):
            dataset = file[name]
            assert (dataset.dtype.str, dataset.shape) == ("|u1", (len(expected),))
            assert dataset[()].tobytes() == expected
            assert dataset.id.get_offset() == offset
            assert not dataset.attrs


def test_the_text_lists_the_bytes() -> None:
    assert f"```{hdf5._HEAD}```" in SPEC.read_text()


def test_checksum() -> None:
    assert hdf5._checksum(b"Four score and seven years ago") == 0x17770551  # by the author of lookup3
