"""What is protected is kept up to date: after saves, prunes, rollbacks and compaction."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lccodec import Chain, Keep, bundle, unbundle
from lccodec.chain.life.prune import prune
from lccodec.chain.mend.protect import Redundancy, parse_redundancy, protect, recorded
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore

from ...support.damage import is_true, protected_names, protected_run
from ...support.mirrors import mirror_of
from ...support.segments import STATES, all_restore


@pytest.mark.parametrize("redundancy", [2, "20%"])
def test_parity_stays_true(tmp_path: Path, redundancy: object) -> None:
    protected_run(tmp_path / "run", redundancy, 9, newest="exact")
    chain = Chain(tmp_path / "run")
    asked = recorded(DirectoryStore(tmp_path / "run"))
    assert asked == parse_redundancy(redundancy)
    assert is_true(tmp_path / "run")
    chain.prune(Keep(latest=1, steps=[4]))
    assert chain.steps == [3, 4, 6, 7, 8]
    assert is_true(tmp_path / "run")
    chain.prune(Keep(latest=1, steps=[4, 7]), rewrite=True)
    assert chain.steps == [4, 7, 8]
    assert is_true(tmp_path / "run")
    chain.rollback(7)
    assert chain.steps == [4, 7]
    assert is_true(tmp_path / "run")
    chain.undo_rollback()
    assert chain.steps == [4, 7, 8]
    assert is_true(tmp_path / "run")
    chain.compact(keyframe_every=0)
    assert is_true(tmp_path / "run")
    assert recorded(DirectoryStore(tmp_path / "run")) == asked
    assert all_restore(tmp_path / "run")
    bundle(tmp_path / "run", tmp_path / "run.lcc")
    assert is_true(tmp_path / "run")
    unbundle(tmp_path / "run.lcc", tmp_path / "other")
    assert not (tmp_path / "other/.parity").exists()


def test_what_was_removed_does_not_come_back(tmp_path: Path) -> None:
    protected_run(tmp_path, 64, 6)
    chain = Chain(tmp_path)
    chain.rollback(3, delete=True)
    assert repair(DirectoryStore(tmp_path)).mended == ()
    assert chain.steps == [0, 1, 2, 3]


def test_while_a_chain_prunes_after_saves_it_is_not_worse_off(tmp_path: Path) -> None:
    protected_run(tmp_path, 64, 6)
    chain = Chain(tmp_path, keep=Keep(latest=1))
    chain.save(6, STATES[6])
    steps = chain.steps
    assert steps[0] > 0
    assert repair(DirectoryStore(tmp_path)).mended == ()
    assert chain.steps == steps


@pytest.mark.parametrize("newest", ["history", "exact"])
@pytest.mark.parametrize("parity", [None, 2])
def test_pruning_after_saves_keeps_parity_true(tmp_path: Path, newest: Any, parity: int | None) -> None:
    """Also where it was made by hand: what goes is forgotten, the rest is protected again."""
    protected_run(tmp_path, 2, 6, newest=newest)
    with Chain(tmp_path, keep=Keep(latest=2), parity=parity) as chain:
        for step in (6, 7, 8):
            chain.save(step, STATES[step])
    assert chain.steps[0] > 0
    assert recorded(DirectoryStore(tmp_path)) == Redundancy(files=2)
    found = repair(DirectoryStore(tmp_path), dry_run=True)
    assert (found.mended, found.lost) == ((), {})
    assert "000000000006.lcc.h5" in protected_names(tmp_path)  # from the last prune on: by hand
    assert is_true(tmp_path) or parity is None


def test_a_mirror_that_thins_out_keeps_its_parity_true(tmp_path: Path) -> None:
    with Chain(tmp_path / "run", "lossless", keyframe_every=0) as chain:
        for step in range(4):
            chain.save(step, STATES[step])
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    protect(DirectoryStore(tmp_path / "m"), Redundancy(files=1))
    thin = partial(prune, keep=Keep(latest=2), wait=False)
    mirror_of(tmp_path / "run", tmp_path / "m", thin_out=thin).bring()
    assert Chain(tmp_path / "m").steps == [2, 3]
    assert is_true(tmp_path / "m")
