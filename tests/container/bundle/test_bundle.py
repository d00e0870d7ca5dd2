"""Bundles are read by positioned reads; files that are not those of the index are refused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from lccodec.container.bundle.bundle import Bundle, is_bundle
from lccodec.container.bundle.index import BundleIndex
from lccodec.container.bundle.writer import BundleWriter
from lccodec.container.disk.source import BytesSource
from lccodec.container.manifest import Parent
from lccodec.container.writer import to_bytes
from lccodec.errors import ArgumentError, ChainError, DataError, FormatError, LccodecError, StorageError

from ...support.checkpoints import DELTA, FILE, FRAMES, KEYFRAME, read_all

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
