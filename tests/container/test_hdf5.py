"""The HDF5 part: the library writes the same bytes, and reads the file around them (LCC-H5)."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest

from lccodec.constants import MANIFEST_DATASET, PAYLOAD_DATASET, PAYLOAD_OFFSET
from lccodec.container import hdf5
from lccodec.container.hdf5 import skeleton
from lccodec.container.trailer import Trailer

from ..support.hdf5_library import ABOUT, library, written

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
    assert f"```{hdf5._HEAD}```" in SPEC.read_text()


def test_checksum() -> None:
    assert hdf5._checksum(b"Four score and seven years ago") == 0x17770551  # by the author of lookup3
