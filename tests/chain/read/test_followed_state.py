"""The state of a follower: what fails leaves it as it was, and memory is used again.

What differs between two arrays of any type leads from one to the other, in any memory.

From a state at hand to a checkpoint, and when a root is not enough to know a state.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lccodec import BFLOAT16_BITS, ArgumentError, Chain, ChainError, FormatError
from lccodec.chain.life.compact import rewrite
from lccodec.chain.read import followed_state as changes
from lccodec.chain.read.checkpoint import open_step
from lccodec.chain.read.follow_crew import Tellers
from lccodec.chain.read.followed_state import (
    SPARSE_RATIO,
    ArrayChange,
    CancelledError,
    FollowedState,
    Prepared,
    change_of,
    check_target,
    difference,
    write_into,
)
from lccodec.chain.read.follower import is_state_of, open_since
from lccodec.chain.read.links import Link
from lccodec.chain.read.replay import DecodedArray
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.checkpoint import open_checkpoint
from lccodec.element_types import Array, components
from lccodec.errors import ChecksumError

from ...support.strategies import ALL_DTYPES, arrays, bits_of, installed, random_array
from ...support.tuning import tuned
from ...support.walks import NAMES, chain_of, lossy_chain, save_all

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
        save_all(chain, STATES)
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


def decoded(array: Array) -> DecodedArray:
    kind, bits = components(array)
    return DecodedArray(kind, array.shape, bits)


@st.composite
def before_and_after(draw: st.DrawFn) -> tuple[Array, Array]:
    before = np.asarray(draw(arrays()))  # and no scalar
    after = before.copy().reshape(-1)
    other = random_array(before.dtype.name, (before.size,), draw(st.integers(0, 2**32)))
    share = draw(st.sampled_from([0.0, 0.001, 0.04, 0.5, 1.0]))
    chosen = np.random.default_rng(draw(st.integers(0, 2**32))).random(before.size) < share
    after[chosen] = other[chosen]
    return before, after.reshape(before.shape)


@given(before_and_after())
@example((np.zeros((), bool), np.ones((), bool)))
def test_a_change_leads_from_one_to_the_other(pair: tuple[Array, Array]) -> None:
    before, after = pair
    change = difference(decoded(before), decoded(after))
    for kept in (before.copy(), np.asfortranarray(before), np.repeat(before, 2, -1)[..., ::2])[
        : 3 if before.ndim else 2
    ]:
        if change is not None:
            for _ in range(2):  # again is no harm
                write_into(kept, change)
        np.testing.assert_array_equal(bits_of(kept), bits_of(after))
    if change is None:
        assert bits_of(before).tobytes() == bits_of(after).tobytes()
    elif change.places is not None:
        assert (np.diff(change.places) > 0).all()
        assert change.places.size * SPARSE_RATIO <= before.size


@given(before_and_after())
def test_words_are_compared_as_components_are(pair: tuple[Array, Array]) -> None:
    found = []
    for least in (0, 1 << 30):
        with tuned(few_changed_bytes=least):
            found.append(difference(*map(decoded, pair)))
    one, other = found
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        np.testing.assert_array_equal(one.places, other.places)
        np.testing.assert_array_equal(one.bits, other.bits)


@given(before_and_after())
def test_what_is_known_to_change_is_what_is_found(pair: tuple[Array, Array]) -> None:
    before, after = map(decoded, pair)
    where = np.flatnonzero(before.bits != after.bits)
    if before.kind.components > 1:
        return  # places are those of elements, so no frame tells
    known, found = change_of(before, where, after.bits[where]), difference(before, after)
    if known is None or found is None:
        assert known is found
    else:
        assert (known.places is None) == (found.places is None)
        if known.places is not None:
            np.testing.assert_array_equal(known.places, found.places)
        np.testing.assert_array_equal(known.bits, found.bits)


@pytest.mark.parametrize("name", installed(ALL_DTYPES))
def test_bit_patterns_count_not_numbers(name: str) -> None:
    array = random_array(name, (3000,), 5, special=1.0)
    assert difference(decoded(array), decoded(array.copy())) is None  # NaN is NaN
    zeros = np.zeros(3000, array.dtype)
    if zeros.dtype.kind not in "biu":
        changed = zeros.copy()
        changed[7] = -changed[7]
        assert difference(decoded(zeros), decoded(changed)) is not None


def test_few_places_or_the_whole_array() -> None:
    size = 1 << 18  # several pieces
    before = np.zeros(size, "f4")
    few, many = before.copy(), before.copy()
    few[[0, 5, size - 1]] = 1, 2, 3
    many[: size // (SPARSE_RATIO - 1)] = 1
    change = difference(decoded(before), decoded(few))
    assert change is not None
    assert change.places is not None
    assert change.places.tolist() == [0, 5, size - 1]
    assert change.values(None).tolist() == [1, 2, 3]
    assert change.nbytes == 12
    whole = difference(decoded(before), decoded(many))
    assert whole is not None
    assert (whole.places, whole.nbytes) == (None, 4 * size)


@pytest.mark.parametrize("other", [None, np.zeros(40, "f8"), np.zeros((4, 10), "f4"), np.zeros(41, "f4")])
def test_without_an_array_of_its_kind_all_is_new(other: Array | None) -> None:
    change = difference(None if other is None else decoded(other), decoded(np.zeros(40, "f4")))
    assert change is not None
    assert (change.places, change.shape, change.bits.size) == (None, (40,), 40)


def test_other_byte_order_and_bits() -> None:
    kind, bits = components(np.array([1, 2], np.uint16).view(BFLOAT16_BITS))
    change = ArrayChange(kind, (2,), np.array([1]), np.array([9], np.uint16))
    array = bits.view(BFLOAT16_BITS)
    write_into(array, change)
    assert bits.tolist() == [1, 9]
    kind, bits = components(np.array([1.0, 2.0], "f4"))
    swapped = np.array([1.0, 2.0], np.dtype("f4").newbyteorder())
    write_into(swapped, ArrayChange(kind, (2,), np.array([0]), np.array([5], "f4").view("u4")))
    assert swapped.tolist() == [5, 2]


def test_targets_that_do_not_fit() -> None:
    array = np.zeros(4, "f4")
    kind, bits = components(array)
    change = ArrayChange(kind, (4,), None, bits)
    assert check_target("w", change, array) is array
    locked = np.zeros(4, "f4")
    locked.flags.writeable = False
    for wrong, message in [
        ([0.0], "must be a NumPy array; got list"),
        (np.ma.masked_array([1.0]), "must be a NumPy array"),
        (np.zeros(4), r"must be float32 of shape \(4,\); got float64 of shape \(4,\)"),
        (np.zeros((2, 2), "f4"), r"got float32 of shape \(2, 2\)"),
        (locked, "cannot be written to"),
    ]:
        with pytest.raises(ArgumentError, match=f"array 'w': .*{message}"):
            check_target("w", change, wrong)


def steps_since(directory: Path, base: Link, name: str) -> list[int | None] | None:
    with ExitStack() as opened:
        store = DirectoryStore(directory)
        links = open_since(store.open(name), base, store, opened)
        if links is None:
            return None
        assert links[0].parent is base
        return [link.manifest.step for link in links]


def link_of(directory: Path, step: int) -> Link:
    with open_step(DirectoryStore(directory), step) as file:
        return file.links[-1]


def test_only_what_lies_behind_is_opened(tmp_path: Path) -> None:
    chain_of(tmp_path, 7)  # keyframes at 0, 3, 6
    base = link_of(tmp_path, 3)
    (tmp_path / NAMES[3]).unlink()
    assert steps_since(tmp_path, base, NAMES[4]) == [4]
    assert steps_since(tmp_path, base, NAMES[5]) == [4, 5]
    (tmp_path / NAMES[4]).unlink()
    with pytest.raises(ChainError, match="its parent, step 4, is missing"):
        steps_since(tmp_path, base, NAMES[5])


def test_what_does_not_go_on_from_there(tmp_path: Path) -> None:
    chain_of(tmp_path, 7)
    assert steps_since(tmp_path, link_of(tmp_path, 1), NAMES[5]) is None  # behind a keyframe
    assert steps_since(tmp_path, link_of(tmp_path, 5), NAMES[4]) is None  # before it
    other = tmp_path / "other"
    chain_of(other, 4)[0].rollback(0)
    with open_checkpoint(other / NAMES[0]) as reader:
        same = Link(reader)
    assert steps_since(tmp_path, same, NAMES[1]) == [1]  # the same bytes, the same root
    base = link_of(tmp_path, 4)
    rewrite(DirectoryStore(tmp_path), 4, None)
    assert steps_since(tmp_path, base, NAMES[5]) == [5]  # it names the old root


@pytest.mark.parametrize("lossy", [False, True])
def test_a_rewritten_checkpoint_has_the_same_state_where_nothing_may_get_lost(
    tmp_path: Path, lossy: bool
) -> None:
    """After a lossy policy it may stand for a settled one, which had other values."""
    if lossy:
        lossy_chain(tmp_path)
        step, name = 10, "000000000010.lcc.h5"
    else:
        chain_of(tmp_path)
        step, name = 1, NAMES[1]
    with open_checkpoint(tmp_path / name) as before:
        rewrite(DirectoryStore(tmp_path), step, None)
        with open_checkpoint(tmp_path / name) as after:
            assert is_state_of(before, before)
            assert is_state_of(after, before) != lossy
            assert not is_state_of(before, after)


def test_a_step_that_is_its_own_parent_is_refused(tmp_path: Path) -> None:
    chain_of(tmp_path)
    base = link_of(tmp_path, 0)
    with open_checkpoint(tmp_path / NAMES[2]) as reader, ExitStack() as opened:
        object.__setattr__(reader.manifest, "step", 1)
        with pytest.raises(FormatError, match="LCC-CHN-02"):
            open_since(reader, base, DirectoryStore(tmp_path), opened)
