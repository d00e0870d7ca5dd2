"""What is told before it is read, of files that are far."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec.chain.read.checkpoint import open_step
from lccodec.chain.read.replay import frames_ahead, headers_of
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.source import FileSource, Source
from lccodec.parallel import PIECE

from ...support.tuning import tune
from ...support.walks import chain_of


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Source, int, int]]:
    """What sources are told, once files of the disk count as far."""
    found: list[tuple[Source, int, int]] = []

    def ahead(_: FileSource, wanted: Iterable[tuple[Source, int, int]]) -> None:
        found.extend(wanted)

    monkeypatch.setattr(FileSource, "far", True)
    monkeypatch.setattr(FileSource, "ahead", ahead)
    return found


def test_the_frames_of_an_array_in_all_links(tmp_path: Path, told: list[tuple[Source, int, int]]) -> None:
    chain, _ = chain_of(tmp_path, steps=3)
    chain.close()
    with open_step(DirectoryStore(tmp_path), 2) as file:
        links, index = file.links, file.links[-1].names["layer/weight"]
        found = list(frames_ahead(links, [index]))
        expected = [link.reader.span(link.frame_of(link.names["layer/weight"]) or 0) for link in links]
        assert found == expected
        assert len({id(source) for source, _, _ in found}) == 3
        told.clear()
        file.get("layer/weight")
        assert told == expected  # a read tells it


def test_an_array_that_did_not_change_has_one_frame(tmp_path: Path) -> None:
    chain, _ = chain_of(tmp_path, steps=3)
    chain.close()
    with open_step(DirectoryStore(tmp_path), 2) as file:
        (span,) = frames_ahead(file.links, [file.links[-1].names["fixed"]] * 2)
        assert span[0] is file.links[0].reader.source


def test_headers_are_the_starts_of_frames(tmp_path: Path, told: list[tuple[Source, int, int]]) -> None:
    with lccodec.Chain(tmp_path, "lossless") as chain:
        chain.save(0, {"a": [0.5] * 3, "b": 1})
        chain.save(1, chain_of(tmp_path / "other", steps=1)[1][0])
    with open_step(DirectoryStore(tmp_path), 1) as file:
        told.clear()
        file.info()
        expected = [span for link in file.links for span in headers_of(link.reader)]
        assert told == expected
        for link in file.links:
            spans = [link.reader.span(number) for number in range(len(link.manifest.frames))]
            for (_, start, size), (_, begin, whole) in zip(headers_of(link.reader), spans, strict=True):
                assert start == begin
                assert size <= whole


def test_files_of_the_disk_are_told_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileSource, "ahead", pytest.fail)
    chain, states = chain_of(tmp_path)
    assert chain.restore(2)["epoch"] == states[2]["epoch"]
    assert lccodec.validate(tmp_path, deep=True) == []


def test_what_rows_need(
    tmp_path: Path, told: list[tuple[Source, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers, tables and pieces are told before they are read, and nothing else is read."""
    tune(monkeypatch, block_log2=PIECE.bit_length() - 1)
    values = np.random.default_rng(0).standard_normal((4000, 100), np.float32)
    with lccodec.Chain(tmp_path, "lossless") as chain:
        for step in range(3):
            chain.save(step, {"w": values + np.float32(step / 100)})
    with open_step(DirectoryStore(tmp_path), 2) as file:
        read, found = FileSource.read, list[tuple[Source, int, int]]()

        def counted(source: FileSource, offset: int, size: int) -> bytes:
            found.append((source, offset, size))
            return read(source, offset, size)

        monkeypatch.setattr(FileSource, "read", counted)
        told.clear()
        np.testing.assert_array_equal(
            file.get("w", rows=slice(2000, 2010)), values[2000:2010] + np.float32(0.02)
        )
    for source, offset, size in found:
        assert any(s is source and o <= offset and offset + size <= o + n for s, o, n in told)
    assert sum(size for *_, size in found) < sum(file.stat().st_size for file in tmp_path.glob("*.h5")) / 2
