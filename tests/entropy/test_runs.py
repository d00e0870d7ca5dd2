"""Symbols in memory mean the same in every form: dense, sparse and packed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.entropy.runs import Form, Gathered, Packed, Sparse, as_sparse, dense, pack, parts
from lccodec.parallel import PIECE

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


@given(
    st.lists(st.lists(st.sampled_from([0, 0, 0, 0, 1, 2, 300]), max_size=20), max_size=8),
    st.sampled_from([np.uint8, np.uint16]),
    st.booleans(),
)
def test_a_run_that_comes_in_pieces(
    given_pieces: list[list[int]], dtype: type[np.unsignedinteger], zeros: bool
) -> None:
    """It is what it would be if it came at once, also with places whose symbol is 0."""
    pieces = [np.array(piece, np.uint16).astype(dtype) for piece in given_pieces]
    whole = np.concatenate([np.zeros(0, dtype), *pieces])
    gathered, start = Gathered(whole.size, dtype), 0
    for piece in pieces:
        places = np.arange(piece.size) if zeros else np.flatnonzero(piece)
        gathered.add(start, places, piece[places])
        start += piece.size
    run = gathered.run()
    few = 4 * (whole.size if zeros else np.count_nonzero(whole)) <= whole.size
    assert isinstance(run, Sparse) == few
    found = np.zeros_like(whole)
    if isinstance(run, Sparse):
        assert run.values.all()
        found[run.positions] = run.values
    else:
        found = run
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, whole)


@pytest.mark.parametrize("share", [0.01, 0.9])
def test_the_parts_of_a_run_are_the_run(share: float) -> None:
    rng = np.random.default_rng(0)
    symbols = ((rng.random(PIECE * 3 + 5) < share) * rng.integers(1, 9, PIECE * 3 + 5)).astype(np.uint8)
    for run in (symbols, as_sparse(symbols, symbols.size)):
        found = list(parts(run))
        assert all(part.positions.size <= PIECE for part in found)
        np.testing.assert_array_equal(np.concatenate([p.positions for p in found]), np.flatnonzero(symbols))
        np.testing.assert_array_equal(np.concatenate([p.values for p in found]), symbols[symbols != 0])
