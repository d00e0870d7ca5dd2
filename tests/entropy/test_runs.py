"""Symbols in memory mean the same in every form: dense, sparse and packed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.entropy.bits import pack
from lccodec.entropy.runs import Form, Packed, Sparse, as_sparse, dense

symbols_of = st.lists(st.sampled_from([0, 0, 0, 1, 2, 3]), max_size=60).map(lambda v: np.array(v, np.uint8))


def forms_of(symbols: np.ndarray) -> dict[str, Form]:
    """The same symbols in every form; one of them names places whose symbol is 0."""
    return {
        "dense": symbols,
        "sparse": as_sparse(symbols, symbols.size),
        "sparse with zeros": Sparse(np.arange(symbols.size), symbols),
        "packed": Packed(pack(symbols, 2), 2),
    }


@given(symbols_of)
def test_every_form_means_the_same_symbols(symbols: np.ndarray) -> None:
    for form in forms_of(symbols).values():
        found = dense(form, symbols.size)
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, symbols)


@given(symbols_of)
def test_every_form_has_the_same_places(symbols: np.ndarray) -> None:
    expected = [place for place, symbol in enumerate(symbols) if symbol]
    for form in forms_of(symbols).values():
        found = as_sparse(form, symbols.size)
        assert found.positions.tolist() == expected
        assert found.positions.dtype == np.int64
        np.testing.assert_array_equal(found.values, symbols[expected])


def test_what_is_sparse_already_is_not_made_again() -> None:
    run = as_sparse(np.array([0, 3, 0, 1], np.uint8), 4)
    assert as_sparse(run, 4) is run


def test_what_is_dense_already_is_not_copied() -> None:
    symbols = np.array([0, 3, 0, 1], np.uint8)
    assert dense(symbols, 4) is symbols


@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_last_group_that_is_not_full_has_no_symbols_behind_the_last(width: int) -> None:
    symbols = np.ones(13, np.uint8)
    assert dense(Packed(pack(symbols, width), width), 13).tolist() == [1] * 13
