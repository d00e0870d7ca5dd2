"""What checkpoints need, as their manifests say; each is read once."""

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from lccodec import Chain, Keep, StorageError
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.lineage import Ancestry, Lineage
from lccodec.container.checkpoint import CheckpointReader

from ...support.walks import chain_of


def test_needed(tmp_path: Path) -> None:
    chain_of(tmp_path, 8)  # 0 1 2, 3 4 5, 6 7
    store = DirectoryStore(tmp_path)
    steps, ancestry = store.checkpoints(), Ancestry(store)
    assert ancestry.lineage(steps).needed([5]) == {3: 5, 4: 5}
    assert ancestry.lineage(steps).needed([5, 4, 1]) == {0: 1, 3: 4}
    assert ancestry.lineage(steps).needed([0, 3, 6]) == {}
    assert ancestry.lineage(steps).needed(steps) == {}
    assert ancestry.lineage(steps).parents(3) == ()
    assert ancestry.lineage(steps).parents(4) == (3,)


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
        ancestry.lineage(steps).needed([5])
        ancestry.numbers(5, steps)
    assert len(opened) == 3
    chain.rollback(4)
    chain.save(5, states[7])
    opened.clear()
    ancestry.lineage(steps).needed([5])
    assert opened == [steps[5]]


@pytest.mark.parametrize("data", [b"", b"damaged"])
def test_a_file_that_cannot_be_read_needs_the_one_before(tmp_path: Path, data: bytes) -> None:
    chain_of(tmp_path, 8)
    store = DirectoryStore(tmp_path)
    steps, ancestry = store.checkpoints(), Ancestry(store)
    (tmp_path / steps[5]).write_bytes(data)
    assert ancestry.lineage(steps).needed([5]) == {3: 5, 4: 5}
    assert "000000000005.lcc.h5" in ancestry.unreadable[5]
    assert ancestry.numbers(5, steps) == {}
    (tmp_path / steps[5]).unlink()
    with pytest.raises(StorageError):
        ancestry.lineage(steps).parents(5)


def test_a_parent_that_is_gone(tmp_path: Path) -> None:
    chain_of(tmp_path, 8)
    (tmp_path / "000000000004.lcc.h5").unlink()
    store = DirectoryStore(tmp_path)
    assert Ancestry(store).lineage(store.checkpoints()).needed([5]) == {}
    assert Chain(tmp_path).steps == [0, 1, 2, 3, 5, 6, 7]


@st.composite
def graphs(draw: st.DrawFn) -> dict[int, tuple[int, ...]]:
    """Steps and parents: deltas, keyframes, spans, and what a damaged or hostile file may name."""
    steps = sorted(draw(st.sets(st.integers(0, 15), max_size=12)))
    found: dict[int, tuple[int, ...]] = {}
    for step in steps:
        above = st.sampled_from([other for other in steps if other != step] or [99])
        anything = st.one_of(st.just(()), st.tuples(above), st.tuples(above, above), st.just((77,)))
        lower = [other for other in steps if other < step]
        found[step] = draw(anything if draw(st.booleans()) or not lower else st.just((lower[-1],)))
    return found


@given(graphs(), st.sets(st.integers(0, 15)))
def test_a_lineage_agrees_with_walks_by_hand(parents: dict[int, tuple[int, ...]], some: set[int]) -> None:
    lineage = Lineage(parents, lambda step: parents.get(step, ()))
    some &= parents.keys()
    reach = {step: closure(parents, step) for step in parents}
    assert sorted(lineage.reached(sorted(some))) == sorted(some.union(*(reach[step] for step in some)))
    needed = {above for step in some for above in reach[step]} & parents.keys() - some
    assert list(lineage.needed(some)) == sorted(needed)
    assert all(step in some and each in reach[step] for each, step in lineage.needed(some).items())
    assert set(lineage.children(3)) == {step for step, above in parents.items() if 3 in above}
    spans = {step: above for step, above in parents.items() if len(above) == 2}
    assert lineage.interpolated() == spans
    assert lineage.inside() == {s for s in parents for low, high in spans.values() if low < s < high}


@given(graphs())
def test_orders_of_a_lineage(parents: dict[int, tuple[int, ...]]) -> None:
    lineage = Lineage(parents, lambda step: parents.get(step, ())).well_formed()
    for order in (lineage.parents_first(lineage.steps), lineage.depth_first()):
        assert sorted(order) == sorted(parents)
        place = {step: index for index, step in enumerate(order)}
        assert all(place[above] < place[step] for step in order for above in lineage.parents(step))
    groups = {step: index for index, group in enumerate(lineage.waves()) for step in group}
    assert groups.keys() == parents.keys()
    assert all(groups[above] > groups[step] for step in groups for above in lineage.parents(step))


def closure(parents: dict[int, tuple[int, ...]], step: int) -> set[int]:
    """Return all that a step needs, there or not, by brute force."""
    found = set(parents[step])
    while not found.issuperset(more := {above for each in found for above in parents.get(each, ())}):
        found |= more
    return found
