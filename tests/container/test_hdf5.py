"""The HDF5 skeleton: where everything lies, and that HDF5 reads the file around it (LCC-H5)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import pytest

from lccodec.constants import MANIFEST_DATASET, PAYLOAD_DATASET, PAYLOAD_OFFSET, SKELETON_SIZE
from lccodec.container import hdf5
from lccodec.container.hdf5 import skeleton
from lccodec.errors import ArgumentError, DependencyError

SIZES = [(0, 1), (0, 500), (1, 1), (3, 3000), (100_000, 500), (1072, 600)]


@pytest.mark.parametrize(("payload_size", "manifest_size"), [*SIZES, (10**12, 500), (1 << 61, 1 << 28)])
def test_layout(payload_size: int, manifest_size: int) -> None:
    head, middle = skeleton(payload_size, manifest_size)
    assert (len(head), len(middle)) == (PAYLOAD_OFFSET, SKELETON_SIZE - PAYLOAD_OFFSET)
    assert head.startswith(b"\x89HDF\r\n\x1a\n")


@pytest.mark.parametrize(("payload_size", "manifest_size"), SIZES)
def test_hdf5_reads_both_datasets(tmp_path: Path, payload_size: int, manifest_size: int) -> None:
    payload = bytes(i * 7 % 256 for i in range(payload_size))
    manifest = bytes(i * 5 % 256 for i in range(manifest_size))
    head, middle = skeleton(payload_size, manifest_size)
    path = tmp_path / "whole.h5"
    path.write_bytes(head + payload + middle + manifest + b"bytes behind the end of the HDF5 file")
    with h5py.File(path, "r") as file:
        assert sorted(file) == [MANIFEST_DATASET, PAYLOAD_DATASET]
        assert not file.attrs
        for name, expected, offset in (
            (PAYLOAD_DATASET, payload, PAYLOAD_OFFSET if payload_size else None),
            (MANIFEST_DATASET, manifest, payload_size + SKELETON_SIZE),
        ):
            dataset = file[name]
            assert (dataset.dtype.str, dataset.shape) == ("|u1", (len(expected),))
            assert dataset[()].tobytes() == expected
            assert dataset.id.get_offset() == offset


def test_two_processes_write_the_same_bytes() -> None:
    program = "from lccodec.container.hdf5 import skeleton\nprint(b''.join(skeleton(12345, 678)).hex())"
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert runs == [b"".join(skeleton(12345, 678)).hex() + "\n"] * 2


@pytest.mark.parametrize(("payload_size", "manifest_size"), [(-1, 1), (0, 0), (1 << 62, 1), (0, 1 << 62)])
def test_sizes_that_cannot_be(payload_size: int, manifest_size: int) -> None:
    with pytest.raises(ArgumentError):
        skeleton(payload_size, manifest_size)


def test_another_layout_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    original = hdf5._create

    def with_a_group(root: h5py.File, name: str, size: int) -> Any:
        root.require_group("more")
        return original(root, name, size)

    monkeypatch.setattr(hdf5, "_create", with_a_group)
    with pytest.raises(DependencyError, match="in another way than rule LCC-H5-05 says; it puts"):
        skeleton.__wrapped__(5, 6)


@pytest.mark.parametrize("operation", ["seek", "tell", "truncate", "write"])
@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_no_error_of_the_file_object_is_lost(
    monkeypatch: pytest.MonkeyPatch, operation: str, count: int
) -> None:
    original = getattr(hdf5._MetadataFile, operation)
    calls = 0

    def failing(self: Any, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > count:
            raise OSError("injected")
        return original(self, *arguments)

    monkeypatch.setattr(hdf5._MetadataFile, operation, failing)
    # h5py goes on calling after an error, and what surfaces need not be the first one; but
    # something does.
    try:
        made = skeleton.__wrapped__(100, 10)
    except DependencyError:
        assert calls > count
    else:
        monkeypatch.undo()
        assert calls <= count
        assert made == skeleton(100, 10)
