"""Pins: made, removed, listed; refused where there is nothing to pin."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from lccodec import ArgumentError, Chain, ChainError, StorageError, validate
from lccodec.chain.life.pins import pin, unpin
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.disk.system import SYSTEM

from ...support.walks import chain_of


def test_pins(tmp_path: Path) -> None:
    chain, _ = chain_of(tmp_path)
    assert chain.pins == []
    chain.pin(2)
    chain.pin(1)
    chain.pin(2)
    assert chain.pins == [1, 2]
    assert (tmp_path / "000000000002.pin").read_bytes() == b""
    assert chain.unpin(1)
    assert not chain.unpin(1)
    assert Chain(tmp_path).pins == [2]
    assert chain.steps == [0, 1, 2, 3]
    assert validate(tmp_path) == []
    assert Chain(tmp_path / "nothing").pins == []


def test_what_cannot_be_pinned(tmp_path: Path) -> None:
    chain, _ = chain_of(tmp_path)
    with pytest.raises(ChainError, match="no step 9"):
        chain.pin(9)
    with pytest.raises(ArgumentError):
        chain.pin("1")  # type: ignore[arg-type]
    (tmp_path / "000000000000.lcc.h5").unlink()
    with pytest.raises(ChainError, match="its parent, step 0"):
        chain.pin(1)
    with pytest.raises(ChainError, match="has no step 0"):
        pin(DirectoryStore(tmp_path / "nothing"), 0)
    assert chain.pins == []
    assert not unpin(DirectoryStore(tmp_path / "nothing"), 0)


def test_a_directory_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain, _ = chain_of(tmp_path)
    really = os.open

    def refuse(path: Any, flags: int, *more: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EACCES, "Permission denied")
        return really(path, flags, *more)

    monkeypatch.setattr(SYSTEM, "open", refuse)
    with pytest.raises(StorageError, match="cannot pin"):
        chain.pin(1)
    assert chain.pins == []


def test_one_works_at_a_time(tmp_path: Path) -> None:
    """The lock of a directory is one of its own: it does not keep a chain from being read."""
    chain, states = chain_of(tmp_path)
    with DirectoryStore(tmp_path).locked():
        assert chain.restore()["epoch"] == states[-1]["epoch"]
        chain.save(9, states[0])
