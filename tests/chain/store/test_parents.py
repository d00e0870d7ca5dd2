"""What checkpoints need, as their manifests say; each is read once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lccodec import Chain, Keep, StorageError
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.parents import Ancestry
from lccodec.container.reader import CheckpointReader

from ...support.walks import chain_of


def test_needed(tmp_path: Path) -> None:
    chain_of(tmp_path, 8)  # 0 1 2, 3 4 5, 6 7
    store = DirectoryStore(tmp_path)
    steps, ancestry = store.checkpoints(), Ancestry(store)
    assert ancestry.needed([5], steps) == {3: 5, 4: 5}
    assert ancestry.needed([5, 4, 1], steps) == {0: 1, 3: 4}
    assert ancestry.needed([0, 3, 6], steps) == {}
    assert ancestry.needed(steps, steps) == {}
    assert ancestry.parents(3, steps) == ()
    assert ancestry.parents(4, steps) == (3,)


def test_numbers(tmp_path: Path) -> None:
    chain = Chain(tmp_path, policy="lossless", keyframe_every=2)
    for step, loss in enumerate((0.5, 0.25, 2.0, 1.0)):
        state = {"w": np.arange(100.0) + step, "log": {"loss": loss}, "epoch": step // 2}
        chain.save(step, state, metrics={"lr": 0.1 / (1 + step)})
    chain.save(4, {"w": np.arange(100.0), "loss": 7.0}, {"loss": "8", "note": "none"})  # metadata first
    store = DirectoryStore(tmp_path)
    steps, ancestry = store.checkpoints(), Ancestry(store)
    for _ in range(2):
        assert ancestry.numbers(1, steps) == {"lr": 0.05, "log/loss": 0.25, "epoch": 0}  # names of step 0
        assert ancestry.numbers(3, steps) == {"lr": 0.025, "log/loss": 1.0, "epoch": 1}
        assert ancestry.numbers(4, steps) == {"loss": 8.0}
    orphan = {1: steps[1]}
    assert Ancestry(store).numbers(1, orphan) == {"lr": 0.05}
    kept = chain.prune(Keep(best=(1, "log/loss", "min"))).kept
    assert list(kept) == [1, 4]  # the newest step stays


def test_a_file_is_read_once_while_it_is_the_same(tmp_path: Path) -> None:
    chain, states = chain_of(tmp_path, 8)
    opened: list[str] = []

    class Counting(DirectoryStore):
        def open(self, name: str) -> CheckpointReader:
            opened.append(name)
            return super().open(name)

    store = Counting(tmp_path)
    steps, ancestry = store.checkpoints(), Ancestry(store)
    for _ in range(3):
        ancestry.needed([5], steps)
        ancestry.numbers(5, steps)
    assert len(opened) == 3
    chain.rollback(4)
    chain.save(5, states[7])
    opened.clear()
    ancestry.needed([5], steps)
    assert opened == [steps[5]]


@pytest.mark.parametrize("data", [b"", b"damaged"])
def test_a_file_that_cannot_be_read_needs_the_one_before(tmp_path: Path, data: bytes) -> None:
    chain_of(tmp_path, 8)
    store = DirectoryStore(tmp_path)
    steps, ancestry = store.checkpoints(), Ancestry(store)
    (tmp_path / steps[5]).write_bytes(data)
    assert ancestry.needed([5], steps) == {3: 5, 4: 5}
    assert "000000000005.lcc.h5" in ancestry.unreadable[5]
    assert ancestry.numbers(5, steps) == {}
    (tmp_path / steps[5]).unlink()
    with pytest.raises(StorageError):
        ancestry.parents(5, steps)


def test_a_parent_that_is_gone(tmp_path: Path) -> None:
    chain_of(tmp_path, 8)
    (tmp_path / "000000000004.lcc.h5").unlink()
    store = DirectoryStore(tmp_path)
    assert Ancestry(store).needed([5], store.checkpoints()) == {}
    assert Chain(tmp_path).steps == [0, 1, 2, 3, 5, 6, 7]
