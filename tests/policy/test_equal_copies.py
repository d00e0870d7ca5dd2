"""Equal arrays are found by their values, all of them; the one that changed least is the source."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.element_types import BFLOAT16_BITS, narrow
from lccodec.policy.copies import mark_copies
from lccodec.policy.policy import Candidate

from ..support.candidates import candidate

VALUES = np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)


def sources(*arrays: Candidate) -> dict[str, str]:
    mark_copies(arrays)
    return {c.name: c.source for c in arrays if c.source is not None}


@pytest.mark.parametrize("dtype", ["u1", "i2", "f2", "f4", "f8", "c8", "c16", "i8"])
def test_an_equal_array_is_a_copy(dtype: str) -> None:
    array = (VALUES * 100).astype(dtype)
    assert sources(candidate("a", array), candidate("b", array.copy())) == {"b": "a"}


@given(st.integers(0, VALUES.size - 1), st.integers(0, 31))
def test_one_other_bit_makes_it_none(place: int, bit: int) -> None:
    other = VALUES.copy()
    other.view(np.uint32).reshape(-1)[place] ^= np.uint32(1 << bit)
    assert sources(candidate("a", VALUES), candidate("b", other)) == {}


def test_bits_are_compared() -> None:
    """0 is not -0, and NaN is NaN."""
    values = VALUES.copy()
    values[3], values[4] = np.nan, 0.0
    negative = values.copy()
    negative[4] = -0.0
    names = ("a", values), ("b", negative), ("c", values.copy())
    assert sources(*(candidate(*each) for each in names)) == {"c": "a"}


def test_what_else_is_none() -> None:
    for name, other in (
        ("another shape", VALUES.reshape(30, 20)),
        ("another type", VALUES.view(np.int32)),
        ("few bytes", VALUES[0, :15].copy()),
        ("a constant", np.ones_like(VALUES)),
        ("nothing", VALUES[:0]),
        ("a scalar", np.float32(7).reshape(())),
    ):
        arrays = candidate("a", other.copy()), candidate("b", other), candidate("w", VALUES)
        assert sources(*arrays) == ({"b": "a"} if name in ("another shape", "another type") else {}), name


def test_what_a_save_leaves_out_is_no_source() -> None:
    left = candidate("a", VALUES, before=VALUES, inherited=True)
    assert sources(left, candidate("b", VALUES.copy())) == {}


@pytest.mark.parametrize("count", [2, 4, 5, 8, 9])
def test_a_source_has_one_copy(count: int) -> None:
    found = sources(*(candidate(f"{i}", VALUES.copy()) for i in range(count)))
    half = (count + 1) // 2
    assert found == {f"{half + i}": f"{i}" for i in range(count - half)}


def test_the_source_is_what_changed_least() -> None:
    near, far = VALUES + np.float32(1e-6), VALUES[::-1].copy()
    some = VALUES.copy()
    some[0] += 1
    arrays = {"new": None, "far": far, "near": near, "some": some, "same": VALUES}
    while len(arrays) > 1:
        found = sources(*(candidate(name, VALUES.copy(), before=before) for name, before in arrays.items()))
        best = list(arrays)[-1]
        assert best not in found
        assert set(found.values()) == set(list(arrays)[::-1][: len(arrays) // 2])
        del arrays[best]


def test_hashes_say_what_changed() -> None:
    arrays = [candidate(f"{i}", VALUES.copy(), changed=share) for i, share in enumerate((0.5, 0.1, 0.9))]
    assert sources(*arrays) == {"2": "1"}


def test_what_has_a_rounding_is_a_source() -> None:
    rounded = narrow(VALUES).view(BFLOAT16_BITS)
    arrays = candidate("ema", VALUES.copy()), candidate("w", rounded), candidate("other/w", VALUES.copy())
    assert sources(*arrays) == {"w": "other/w", "ema": "other/w"}
    two = candidate("again", rounded.copy()), candidate("w", rounded), candidate("master", VALUES)
    assert sources(*two) == {"again": "master"}  # a rounding is no source


def test_many_arrays_alike_in_the_sample_are_not_compared_with_all() -> None:
    different = []
    for i in range(20):
        array = VALUES.reshape(-1).copy()
        array[1] += i // 2  # not in the sample
        different.append(candidate(f"{i}", array))
    found = sources(*different)
    assert found == {"1": "0", "3": "2", "5": "4", "7": "6"}
