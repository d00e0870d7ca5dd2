"""Bundles: the index and the trailer, what is refused, and files that come out as they went in."""

import json
import os
import struct
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lccodec.constants import BUNDLE_MAGIC, BUNDLE_TRAILER_SIZE
from lccodec.container.bundle import (
    Bundle,
    BundledFile,
    BundleIndex,
    BundleTrailer,
    BundleWriter,
    check_index_size,
    is_bundle,
    parse_bundle_trailer,
    parse_index,
)
from lccodec.container.checkpoint import to_bytes
from lccodec.container.manifest import Parent
from lccodec.container.source import BytesSource
from lccodec.errors import (
    ArgumentError,
    ChainError,
    DataError,
    FormatError,
    LccodecError,
    LimitError,
    StorageError,
    TruncatedError,
    UnsupportedError,
)

from ..support.checkpoints import DELTA, FILE, FRAMES, KEYFRAME, listing, read_all

ROOT = bytes(range(32))
INDEX = BundleIndex({3: BundledFile(10, ROOT), 2**53 - 1: BundledFile(500, bytes(32))}, BundledFile(7, ROOT))


@pytest.mark.parametrize("index", [INDEX, BundleIndex(INDEX.checkpoints)])
def test_an_index_comes_back(index: BundleIndex) -> None:
    data = index.to_bytes()
    assert parse_index(data, "index") == index
    assert parse_index(data, "index").to_bytes() == data
    assert ("exact" in json.loads(data)) == (index.exact is not None)


def test_where_files_lie() -> None:
    assert (INDEX.files_length, INDEX.offsets) == (517, [8, 18, 518])
    assert [file.length for file in INDEX.files] == [10, 500, 7]


@pytest.mark.parametrize("size", range(len(INDEX.to_bytes())))
def test_every_prefix_of_an_index_is_refused(size: int) -> None:
    with pytest.raises(DataError):
        parse_index(INDEX.to_bytes()[:size], "index")


@pytest.mark.parametrize("entry", [None, 1, [], [1], [1, 2], [1, 2, "x", 3], [True, 1, "A" * 43]])
@pytest.mark.parametrize("member", ["checkpoints", "exact"])
def test_other_entries_are_refused(member: str, entry: Any) -> None:
    document = json.loads(INDEX.to_bytes())
    document[member] = [entry] if member == "checkpoints" else entry
    with pytest.raises(FormatError) as caught:
        parse_index(json.dumps(document, separators=(",", ":")).encode(), "index")
    assert caught.value.rule == "LCC-BUN-06"
    assert caught.value.where.startswith(f"index: {member}")


def test_a_trailer_comes_back() -> None:
    trailer = BundleTrailer(1000, 50, ROOT)
    data = trailer.to_bytes()
    assert len(data) == BUNDLE_TRAILER_SIZE
    assert data.startswith(BUNDLE_MAGIC)
    assert trailer.bundle_length == 8 + 1000 + 50 + 64
    assert parse_bundle_trailer(data, trailer.bundle_length, "trailer") == trailer
    newer = BundleTrailer(1000, 50, ROOT, minor=9)
    assert parse_bundle_trailer(newer.to_bytes(), trailer.bundle_length, "trailer") == newer


@pytest.mark.parametrize(
    ("place", "value", "error"),
    [
        (0, 0, TruncatedError),
        (8, 2, UnsupportedError),
        (12, 1, UnsupportedError),
        (16, 1, FormatError),
        (23, 255, FormatError),
        (24, 1, FormatError),
        (31, 255, LimitError),
    ],
)
def test_other_trailers_are_refused(place: int, value: int, error: type[DataError]) -> None:
    trailer = BundleTrailer(1000, 50, ROOT)
    data = bytearray(trailer.to_bytes())
    data[place] = value
    with pytest.raises(error) as caught:
        parse_bundle_trailer(bytes(data), trailer.bundle_length, "trailer")
    assert type(caught.value) is error
    with pytest.raises(TruncatedError):
        parse_bundle_trailer(trailer.to_bytes(), 71, "trailer")


CHILD = to_bytes(FRAMES[1:2], replace(DELTA, parent=Parent(7, FILE[-32:])))
EXACT = to_bytes(FRAMES, replace(KEYFRAME, step=8, exact=CHILD[-32:]))


def written(path: Path, exact: bool = False, steps: tuple[int, int] = (7, 8)) -> Path:
    with BundleWriter(path) as writer:
        entries = [writer.add(BytesSource(data), data[-32:]) for data in (FILE, CHILD)]
        last = writer.add(BytesSource(EXACT), EXACT[-32:]) if exact else None
        writer.commit_index(BundleIndex(dict(zip(steps, entries, strict=True)), last))
    return path


def test_files_are_read_in_place(tmp_path: Path) -> None:
    path = written(tmp_path / "run.lcc", exact=True)
    assert is_bundle(path)
    with Bundle(path) as bundle:
        assert (bundle.steps, bundle.size) == ([7, 8], path.stat().st_size)
        for step, data in ((7, FILE), (8, CHILD), (None, EXACT)):
            assert bundle.file(step).read(0, len(data)) == data
        keyframe, child, exact = bundle.open(7), bundle.open(8), bundle.open(None)
        assert keyframe.name == str(path / "000000000007.lcc.h5")
        assert (keyframe.manifest.step, child.manifest.step, exact.manifest.step) == (7, 8, 8)
        assert (keyframe.root, child.root, exact.root) == (FILE[-32:], CHILD[-32:], EXACT[-32:])
        keyframe.rest()
        assert read_all(keyframe) == FRAMES
        assert read_all(exact) == FRAMES
        assert read_all(child) == FRAMES[1:2]  # the others are closed: this one is not
    bundle.close()
    for call in (lambda: bundle.open(7), lambda: bundle.open(None), lambda: bundle.file(8)):
        with pytest.raises(ArgumentError, match="closed"):
            call()


def test_what_is_not_there(tmp_path: Path) -> None:
    with Bundle(written(tmp_path / "run.lcc")) as bundle:
        with pytest.raises(ChainError, match="has no step 9"):
            bundle.open(9)
        for call in (bundle.open, bundle.file):
            with pytest.raises(ChainError, match="no exact file"):
                call(None)
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "none", "."):
        assert not is_bundle(tmp_path / name)
        with pytest.raises((StorageError, FormatError)):
            Bundle(tmp_path / name)


def test_a_file_of_another_step_is_refused(tmp_path: Path) -> None:
    with Bundle(written(tmp_path / "run.lcc", steps=(6, 8))) as bundle:
        with pytest.raises(FormatError) as caught:
            bundle.open(6)
        assert (caught.value.rule, caught.value.message) == ("LCC-BUN-07", "holds step 7")


@pytest.mark.slow
def test_every_prefix_is_refused(tmp_path: Path) -> None:
    data = written(tmp_path / "run.lcc").read_bytes()
    path = tmp_path / "part.lcc"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(DataError) as caught:
            Bundle(path)
        assert caught.value.rule == "LCC-BUN-01"
        assert is_bundle(path) == (size >= 8)


@pytest.mark.slow
def test_any_changed_bit_is_found(tmp_path: Path) -> None:
    """A bit of the head, index or trailer when the bundle is opened; of a file, when it is read."""
    data = written(tmp_path / "run.lcc", exact=True).read_bytes()
    path = tmp_path / "changed.lcc"
    for place in range(0, len(data), 5):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(LccodecError), Bundle(path) as bundle:
            for step in bundle.steps:
                read_all(bundle.open(step))
            read_all(bundle.open(None))


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
