"""What acts after a commit: which changes it is told, in which order it ends, and its rounds."""

import threading
from pathlib import Path

import numpy as np
import pytest

from lccodec import Chain, ChainError, Keep
from lccodec.chain.behind import AllBehind, Change, Rounds


class Noting:
    """Notes what it is told; gives back checkpoints of some names."""

    def __init__(self, told: list[str], name: str, *, acts: bool = True, gives: str = "") -> None:
        self.told, self.name, self.acts, self.gives = told, name, acts, gives
        self.changes: list[Change] = []
        self.fails = False

    def after(self, change: Change) -> None:
        self.told.append(f"{self.name} after")
        self.changes.append(change)

    def gives_back(self, name: str) -> bool:
        self.told.append(f"{self.name} asked")
        return name == self.gives

    def close(self) -> None:
        self.told.append(f"{self.name} closed")
        if self.fails:
            raise ChainError(self.name)


def test_all_that_acts_is_told_in_its_order_and_all_are_asked() -> None:
    told: list[str] = []
    parts = [Noting(told, "a"), Noting(told, "b", acts=False, gives="x"), Noting(told, "c")]
    behind = AllBehind(parts)
    behind.after(Change((1,)))
    assert told == ["a after", "c after"]
    told.clear()
    assert behind.gives_back("x")
    assert not behind.gives_back("y")
    assert told == ["a asked", "b asked", "a asked", "b asked", "c asked"]


def test_all_are_closed_in_their_order_if_one_fails() -> None:
    told: list[str] = []
    parts = [Noting(told, "a"), Noting(told, "b"), Noting(told, "c")]
    parts[0].fails = True
    with pytest.raises(ChainError, match="a"):
        AllBehind(parts).close()
    assert told == ["a closed", "b closed", "c closed"]


def test_what_a_chain_tells_of_its_changes(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless", keyframe_every=9) as chain:
        noting = Noting([], "a")
        chain._behind._acting.append(noting)
        for step in range(6):
            chain.save(step, {"w": np.arange(50.0) * step})
        assert [(list(c.added), c.is_save) for c in noting.changes] == [([s], True) for s in range(6)]
        noting.changes.clear()
        chain.rollback(3)
        chain.undo_rollback()
        chain.prune(Keep(latest=1), rewrite=True)
        back, again, anew = noting.changes
        assert (back.removed, back.rolled_back, back.is_save) == ((4, 5), 3, False)
        assert (again.added, again.rolled_back, again.is_save) == ((4, 5), 3, False)
        assert (list(anew.added), sorted(anew.removed), anew.is_save) == ([5], list(range(6)), False)


def test_what_is_asked_for_during_a_round_is_done_by_one_more() -> None:
    begun, go_on, count = threading.Event(), threading.Event(), 0

    def act() -> None:
        nonlocal count
        count += 1
        begun.set()
        go_on.wait(60)

    rounds = Rounds(act)
    rounds.ask()
    assert begun.wait(60)
    for _ in range(5):
        rounds.ask()
    assert not rounds.wait(0)
    go_on.set()
    assert rounds.wait()
    assert count == 2


def test_a_round_may_ask_for_another_one() -> None:
    left = [3]

    def act() -> None:
        left[0] -= 1
        if left[0]:
            rounds.again()

    rounds = Rounds(act, daemon=True)
    rounds.ask()
    assert rounds.wait()
    assert left == [0]
