"""Checkpoints are removed, children before their parents."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from lccodec import Chain, StorageError
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.lineage import Lineage, remove_steps

from ...support.directories import entries
from ...support.systems import Faulty
from ...support.walks import chain_of


def test_waves(tmp_path: Path) -> None:
    chain_of(tmp_path, 8)  # 0 1 2, 3 4 5, 6 7
    store = DirectoryStore(tmp_path)
    steps = store.checkpoints()
    assert [sorted(group) for group in Lineage.named(store).waves()] == [[2, 5, 7], [1, 4, 6], [0, 3]]
    assert [sorted(group) for group in Lineage.named(store, (0, 2, 4, 5)).waves()] == [
        [0, 2, 5],
        [4],
    ]
    assert Lineage.named(store, ()).waves() == []
    (tmp_path / steps[1]).write_bytes(b"damaged")  # it cannot be restored, and what needs it neither
    assert sorted(step for group in Lineage.named(store).waves() for step in group) == list(range(8))


def test_what_is_removed(tmp_path: Path) -> None:
    chain, _ = chain_of(tmp_path, 8)
    system = Faulty()
    store = DirectoryStore(tmp_path, system)
    steps = store.checkpoints()
    (tmp_path / steps[4]).unlink()
    with store.locked() as held:
        remove_steps(store, held, {step: steps[step] for step in (3, 4, 5, 6, 7)})
    assert Chain(tmp_path).steps == [0, 1, 2]
    assert system.log.count("unlink") == 5
    assert system.log.count("fsync") == 2  # 4 is not there to say that it needs 3
    assert chain.restore(2)["epoch"] == 2


def test_errors(tmp_path: Path) -> None:
    chain_of(tmp_path)
    system = Faulty(errno.EIO, lambda name, _: name == "unlink")
    store = DirectoryStore(tmp_path, system)
    with store.locked() as held, pytest.raises(StorageError, match="cannot remove files"):
        remove_steps(store, held, store.checkpoints())
    assert len(entries(tmp_path)) == 4
