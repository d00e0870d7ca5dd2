"""The state of a follower: what fails leaves it as it was, and memory is used again."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import Chain
from lccodec.chain.read import followed_state as changes
from lccodec.chain.read.checkpoint import open_step
from lccodec.chain.read.follow_crew import Tellers
from lccodec.chain.read.followed_state import CancelledError, FollowedState, Prepared
from lccodec.chain.read.follower import open_since
from lccodec.chain.store.directory import DirectoryStore
from lccodec.element_types import Array
from lccodec.errors import ChecksumError

STATES = [
    {"a": np.arange(40000.0), "b": np.arange(20000.0), "small": np.zeros(5), "tiny": np.ones(4)},
]
for _step in range(1, 4):
    STATES.append({name: array.copy() for name, array in STATES[-1].items()})
    STATES[-1]["a"][_step] = -1
    STATES[-1]["small"][0] = _step
STATES.append({name: array + 1 for name, array in STATES[-1].items()})


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    with Chain(tmp_path, "lossless") as chain:
        for step, state in enumerate(STATES):
            chain.save(step, state)
    return DirectoryStore(tmp_path)


def prepared(held: FollowedState, store: DirectoryStore, step: int, *names: str) -> Prepared:
    """The way to a step, from the held one if there is one."""
    with ExitStack() as opened:
        if held.link is None:
            links = list(opened.enter_context(open_step(store, step)).links)
        else:
            found = open_since(store.open(store.checkpoints()[step]), held.link, store, opened)
            assert found is not None
            links = found
        chosen = names or tuple(STATES[0])
        assert held.link is None or held.reaches(links, chosen)
        return held.prepare(links, chosen, held.link is not None, lambda: True, Tellers())


def state_of(held: FollowedState) -> dict[str, Any]:
    return {name: array.array().tolist() for name, array in held.arrays.items()}


def expected(step: int) -> dict[str, Any]:
    return {name: array.tolist() for name, array in STATES[step].items()}


def test_nothing_is_seen_before_the_commit(store: DirectoryStore) -> None:
    held = FollowedState()
    held.commit(prepared(held, store, 1), Tellers())
    way = prepared(held, store, 4)
    assert state_of(held) == expected(1)
    held.commit(way, Tellers())
    held.commit(way, Tellers())  # after an interrupt
    assert state_of(held) == expected(4)


def test_an_array_with_few_new_values_stays_where_it_is(store: DirectoryStore) -> None:
    held = FollowedState()
    held.commit(prepared(held, store, 0), Tellers())
    memory = {name: array.bits for name, array in held.arrays.items()}
    way = prepared(held, store, 3)
    assert way.changes.keys() == {"a", "small"}
    assert way.decoded.keys() == {"small"}
    held.commit(way, Tellers())
    assert [held.arrays[name].bits is bits for name, bits in memory.items()] == [True, True, False, True]
    held.commit(prepared(held, store, 4), Tellers())
    assert state_of(held) == expected(4)
    assert not np.shares_memory(held.arrays["a"].bits, held.arrays["b"].bits)


def test_it_does_not_keep_the_checkpoints_that_there_were(store: DirectoryStore) -> None:
    held = FollowedState()
    for step in range(4):
        held.commit(prepared(held, store, step), Tellers())
        assert held.link is not None
        assert held.link.parents == ()


def test_what_is_not_followed_is_not_kept_when_it_is_outdated(store: DirectoryStore) -> None:
    held = FollowedState()
    held.commit(prepared(held, store, 0, "a", "b"), Tellers())
    assert held.arrays.keys() == {"a", "b"}
    held.commit(prepared(held, store, 1, "b"), Tellers())
    assert held.arrays.keys() == {"b"}  # step 1 has new values of "a"
    assert state_of(held) == {"b": expected(1)["b"]}


def test_it_reaches_only_what_it_has_references_for(store: DirectoryStore) -> None:
    held = FollowedState()
    held.commit(prepared(held, store, 0, "b"), Tellers())
    with ExitStack() as opened:
        assert held.link is not None
        links = open_since(store.open(store.checkpoints()[4]), held.link, store, opened)
        assert links is not None
        assert held.reaches(links, ["b"])
        assert not held.reaches(links, ["a"])


def test_it_can_be_given_up(store: DirectoryStore) -> None:
    held, asked = FollowedState(), []

    def wanted() -> bool:
        asked.append(None)
        return len(asked) < 2

    with open_step(store, 4) as file, pytest.raises(CancelledError):
        held.prepare(list(file.links), STATES[0], False, wanted, Tellers())
    assert (len(asked), held.arrays) == (2, {})


def test_one_step_behind_no_array_is_compared(store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The frame of an array says what it changes; behind several frames, arrays are compared."""
    compared: list[int] = []

    def counted(one: Array, other: Array) -> Array:
        compared.append(one.size)
        return differing(one, other)

    differing = changes.differing
    monkeypatch.setattr(changes, "differing", counted)
    held = FollowedState()
    held.commit(prepared(held, store, 0), Tellers())
    compared.clear()
    way = prepared(held, store, 1, "a")
    assert compared == []
    assert way.changes["a"].places is not None
    assert way.changes["a"].places.tolist() == [1]
    assert way.changes["a"].values(None).tolist() == [-1.0]
    way = prepared(held, store, 2, "a")
    assert sum(compared) == STATES[0]["a"].size
    assert way.changes["a"].places is not None
    assert way.changes["a"].places.tolist() == [1, 2]


@pytest.mark.parametrize("place", [1, 7])  # that step 1 changes, and that it does not
def test_sums_go_on_from_those_of_the_state_before(store: DirectoryStore, place: int) -> None:
    held = FollowedState()
    held.commit(prepared(held, store, 0), Tellers())
    held.arrays["a"].bits[place] += 5
    with pytest.raises(ChecksumError, match=r"^0+1\..*'a'.*LCC-FRM-09"):
        prepared(held, store, 1, "a")


def test_sums_go_on_through_steps_of_every_kind(tmp_path: Path) -> None:
    """Few values change, none, many, a type; then few again."""
    rng = np.random.default_rng(0)
    array = rng.integers(0, 2**16, 50_000, np.uint16)
    states = [array]
    for share in (0.01, 0.0, 0.2, 0.01, 1.0, 0.02, 0.03):
        array = array.copy()
        array[rng.random(array.size) < share] += 2
        states.append(array)
    states += [array.astype(np.float32), array.astype(np.float32)]
    states[-1][[5, 700]] = -1
    with Chain(tmp_path, "lossless", keyframe_every=100) as chain:
        for step, array in enumerate(states):
            chain.save(step, {"a": array})
    store, held, forms = DirectoryStore(tmp_path), FollowedState(), []
    for step, array in enumerate(states):
        way = prepared(held, store, step, "a")
        forms += [None if each.places is None else each.places.size for each in way.changes.values()]
        held.commit(way, Tellers())
        np.testing.assert_array_equal(held.arrays["a"].array(), array)
    assert len(forms) == 9  # a step without changes makes none
    assert [form is None for form in forms] == [True, False, True, False, True, False, False, True, False]
