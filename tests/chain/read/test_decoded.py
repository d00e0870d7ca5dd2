"""Arrays of a frame as views of its components: taken apart, and joined again."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.chain.read.replay import joined, split
from lccodec.element_types import components

from ...support.strategies import ALL_DTYPES, bits_of, installed, random_array

shapes_of = st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=5)


@given(shapes_of, st.sampled_from(installed(ALL_DTYPES)))
def test_arrays_are_joined_as_they_were_split(shapes: list[tuple[int, ...]], name: str) -> None:
    whole = random_array(name, (sum(map(math.prod, shapes)),), 0)
    kind, bits = components(whole)
    bits = bits.copy()  # a buffer of its own, as frames are decoded into
    parts = split(bits, kind, shapes)
    assert [part.shape for part in parts] == shapes
    assert all(part.kind is kind for part in parts)
    np.testing.assert_array_equal(joined(parts), bits)
    arrays = [part.array() for part in parts]
    assert [(array.dtype, array.shape) for array in arrays] == [(whole.dtype, shape) for shape in shapes]
    np.testing.assert_array_equal(np.concatenate([bits_of(array) for array in arrays]), bits_of(whole))


@pytest.mark.parametrize("sizes", [(5,), (3, 4), (1, 1, 1)])
def test_what_is_of_one_buffer_is_not_copied(sizes: tuple[int, ...]) -> None:
    kind, _ = components(np.zeros(1, np.float32))
    bits = np.arange(sum(sizes), dtype=np.uint32)
    assert joined(split(bits, kind, [(size,) for size in sizes])) is bits


@pytest.mark.parametrize("order", [(1, 0), (0, 0), (0,), (0, 2)])
def test_what_is_not_the_whole_buffer_in_its_order_is_copied(order: tuple[int, ...]) -> None:
    kind, _ = components(np.zeros(1, np.float32))
    bits = np.arange(9, dtype=np.uint32)
    parts = split(bits, kind, [(2,), (3,), (4,)])
    chosen = [parts[index] for index in order]
    np.testing.assert_array_equal(joined(chosen), np.concatenate([part.bits for part in chosen]))
    other = split(bits.copy(), kind, [(2,), (3,), (4,)])
    mixed = joined([parts[0], other[1], parts[2]])
    assert not np.shares_memory(mixed, bits)
    np.testing.assert_array_equal(mixed, bits)
