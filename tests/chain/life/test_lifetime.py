"""The methods of a chain's life together: they pass on what they are given."""

from __future__ import annotations

from pathlib import Path

from lccodec import Chain

from ...support.walks import assert_restores, assert_same, chain_of


def test_a_run_that_goes_astray(tmp_path: Path) -> None:
    chain, states = chain_of(tmp_path / "run", 6)
    chain.pin(3)
    assert chain.fork(tmp_path / "fork", 5) == [3, 4, 5]
    assert chain.rollback(2).steps == (3, 4, 5)
    assert chain.pins == []
    chain.save(3, states[5])
    chain.rollback(2, delete=True)
    assert [each.steps for each in chain.rolled_back] == [(3, 4, 5)]
    chain.undo_rollback()
    assert chain.pins == [3]
    assert chain.unpin(3)
    assert chain.delete_rolled_back() == []
    assert_restores(chain, states, range(6))
    assert_same(Chain(tmp_path / "fork").restore(), states[5])
    chain.save(6, states[0])
    assert chain.info(6).parent is None
