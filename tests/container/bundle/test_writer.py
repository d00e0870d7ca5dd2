"""A bundle is a function of its files, and is committed whole."""

from __future__ import annotations

import struct
from hashlib import sha256
from pathlib import Path

import pytest

from lccodec.constants import BUNDLE_MAGIC
from lccodec.container.bundle.index import BundledFile, BundleIndex
from lccodec.container.bundle.writer import BundleWriter, check_index_size
from lccodec.container.disk.source import BytesSource
from lccodec.errors import ArgumentError

from ...support.checkpoints import FILE, listing


def test_the_bytes_of_a_bundle(tmp_path: Path) -> None:
    path = tmp_path / "run.lcc"
    path.write_bytes(b"an older one")
    with BundleWriter(path) as writer:
        entry = writer.add(BytesSource(FILE), FILE[-32:])
        root = writer.commit_index(index := BundleIndex({7: entry}))
    text = index.to_bytes()
    trailer = BUNDLE_MAGIC + struct.pack("<HHIQQ", 1, 0, 0, len(FILE), len(text))
    assert root == sha256(BUNDLE_MAGIC + text + trailer).digest()
    assert path.read_bytes() == BUNDLE_MAGIC + FILE + text + trailer + root
    assert writer.size == path.stat().st_size
    assert listing(tmp_path) == ["run.lcc"]


def test_an_index_of_other_files_is_refused(tmp_path: Path) -> None:
    for index in (BundleIndex({7: BundledFile(len(FILE) + 1, FILE[-32:])}), BundleIndex({})):
        with pytest.raises(ArgumentError, match="does not list"), BundleWriter(tmp_path / "a") as writer:
            writer.add(BytesSource(FILE), FILE[-32:])
            writer.commit_index(index)
    with pytest.raises(ArgumentError, match="does not list"), BundleWriter(tmp_path / "a") as writer:
        writer.commit_index(BundleIndex({}))
    assert listing(tmp_path) == []


def test_the_size_of_an_index_is_bounded_before_files_are_copied() -> None:
    most = BundledFile(2**53 - 1, bytes(32))
    entry = len(BundleIndex({2**53 - 1: most, 2**53 - 2: most}).to_bytes())
    entry -= len(BundleIndex({2**53 - 1: most}).to_bytes())
    check_index_size(2**26 // entry - 1)
    with pytest.raises(ArgumentError, match="LCC-LIM-04"):
        check_index_size(2**26 // entry + 1)
