"""Numbers of any size: what is written is read, in few bytes; what breaks a rule is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.cursor import Cursor
from lccodec.entropy.numbers import read_numbers, signed, unsigned, write_numbers
from lccodec.errors import FormatError, TruncatedError


def stored(numbers: np.ndarray) -> bytes:
    return b"".join(write_numbers(numbers))


@given(st.integers(0, 3000), st.integers(0, 53), st.integers(0, 2**32))
def test_round_trip(count: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 1 << width, count, np.uint64)
    cursor = Cursor(memoryview(stored(numbers)), "here")
    np.testing.assert_array_equal(read_numbers(cursor, count), numbers)
    assert cursor.remaining == 0
    if width <= 8:
        small = numbers.astype(np.uint8)
        found = read_numbers(Cursor(memoryview(stored(small)), "here"), count)
        np.testing.assert_array_equal(found, small)


@pytest.mark.parametrize(
    ("usual", "largest", "bits"),
    [(0, 255, 8), (0, 256, 16), (0, 65_535, 16), (0, 65_536, 32), (100, 2**17 - 1, 32), (0, 2**32, 64)],
)
def test_numbers_take_the_memory_that_the_widest_needs(usual: int, largest: int, bits: int) -> None:
    numbers = np.full(1000, usual, np.uint64)
    numbers[::3] = largest
    found = read_numbers(Cursor(memoryview(stored(numbers)), "here"), 1000)
    assert found.dtype == f"u{bits // 8}"
    np.testing.assert_array_equal(found, numbers)


@given(st.lists(st.integers(-(2**52), 2**52 - 1), max_size=50))
def test_signs_are_restored(numbers: list[int]) -> None:
    codes = unsigned(np.array(numbers, np.int64))
    assert codes.tolist() == [2 * n if n >= 0 else -2 * n - 1 for n in numbers]
    assert signed(codes).tolist() == numbers


def test_every_number_of_one_byte() -> None:
    numbers = np.arange(-128, 128).astype(np.int8)
    codes = unsigned(numbers)
    assert codes.dtype == np.uint8
    assert codes.tolist() == unsigned(numbers.astype(np.int64)).tolist()
    assert signed(codes).tolist() == numbers.tolist()
    assert not np.signbit(signed(np.zeros(1, np.uint64)))[0]


@pytest.mark.parametrize("scale", [40, 1000, 30_000, 10**7])
def test_near_the_entropy(scale: int) -> None:
    numbers = unsigned(np.rint(np.random.default_rng(0).standard_normal(200_000) * scale).astype(np.int64))
    entropy = np.log2(scale * np.sqrt(2 * np.pi * np.e)) / 8  # of a bell, bytes a number
    assert len(stored(numbers)) < 1.02 * entropy * numbers.size + 500


def test_refused() -> None:
    for head in (0x00, 0x0F, 0x80, 0x18, 0xFF):
        with pytest.raises(FormatError, match="LCC-SMO-07"):
            read_numbers(Cursor(memoryview(bytes([head, *bytes(40)])), "here"), 2)
    whole = stored(np.array([1, 300, 70_000], np.uint64))
    for end in range(len(whole)):
        with pytest.raises(TruncatedError):
            read_numbers(Cursor(memoryview(whole[:end]), "here"), 3)
