"""Sums that guard bytes: both forms, and zlib."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.loops import sums

MASK = (1 << 64) - 1


@given(st.lists(st.integers(0, MASK), max_size=40), st.integers(0, 1 << 50))
def test_the_weighted_sum(numbers: list[int], first: int) -> None:
    words = np.array(numbers, np.uint64)
    expected = sum((2 * (first + i) + 1) * word for i, word in enumerate(numbers)) & MASK
    for form in (sums._weighted_sum, sums._weighted_sum_loop, sums.weighted_sum):
        with np.errstate(over="ignore"):
            assert int(form(words, first)) & MASK == expected


@pytest.mark.parametrize("size", [2048, 2049, (1 << 17) + 2047])
def test_the_weighted_sum_of_rows(size: int) -> None:
    words = np.random.default_rng(size).integers(0, 1 << 63, size, np.uint64)
    with np.errstate(over="ignore"):
        expected = int((words * np.arange(1, 2 * size, 2, dtype=np.uint64)).sum())
    assert int(sums._weighted_sum(words, 0)) & MASK == int(sums.weighted_sum(words, 0)) & MASK == expected


@pytest.mark.parametrize("beyond", [1, 1927, 40_000])
def test_folded_words_have_the_crc_of_all(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(beyond).bytes(8 * (sums._FAR + beyond) + 5)
    monkeypatch.setattr(sums, "_MIN_FOLDED_BYTES", 0)
    monkeypatch.setattr(sums, "is_compiled", lambda _: True)
    forms = [sums._folded, sums._folded_numpy]
    if beyond == 1:  # in Python it takes long
        forms.append(sums._folded_loop)
    for form in forms:
        monkeypatch.setattr(sums, "_folded", form)
        assert sums.crc32(data) == zlib.crc32(data)
        assert sums.crc32(memoryview(data)[3:], 77) == zlib.crc32(data[3:], 77)


def test_few_bytes_are_left_to_zlib() -> None:
    assert sums.crc32(b"abc", 5) == zlib.crc32(b"abc", 5)
