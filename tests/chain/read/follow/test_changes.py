"""What differs between two arrays of any type leads from one to the other, in any memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lccodec import BFLOAT16_BITS, ArgumentError
from lccodec.chain.read.followed_state import (
    SPARSE_RATIO,
    ArrayChange,
    change_of,
    check_target,
    difference,
    write_into,
)
from lccodec.chain.read.replay import DecodedArray
from lccodec.element_types import Array, components

from ....support.strategies import ALL_DTYPES, arrays, bits_of, installed, random_array
from ....support.tuning import tuned


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
