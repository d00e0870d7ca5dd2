import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.cursor import Cursor
from lccodec.entropy import stream_writer
from lccodec.entropy.runs import Packed, Sparse, as_sparse
from lccodec.entropy.stream_reader import read_stream
from lccodec.entropy.stream_writer import write_run, write_stream

from ..support.oracle import order0_entropy_bits
from ..support.streams import read


def round_trip(symbols: np.ndarray) -> bytes:
    """The stream of symbols, once it was read."""
    stored = b"".join(write_stream(symbols))
    np.testing.assert_array_equal(read(stored, symbols.size), symbols)
    return stored


def draw_symbols(count: int, alphabet: int, zeros: float, seed: int, skew: float = 1.0) -> np.ndarray:
    weights = skew ** np.arange(alphabet - 1)
    shares = np.concatenate([[zeros], (1 - zeros) * weights / weights.sum()])
    return np.random.default_rng(seed).choice(alphabet, count, p=shares).astype(np.uint8)


@given(
    st.integers(0, 3000),
    st.sampled_from([2, 3, 4, 5, 16, 17, 256]),
    st.sampled_from([0.0, 0.3, 0.6, 0.9, 0.99, 1.0]),
    st.sampled_from([0.5, 1.0]),
    st.integers(0, 2**32),
)
def test_round_trip(count: int, alphabet: int, zeros: float, skew: float, seed: int) -> None:
    round_trip(draw_symbols(count, alphabet, zeros, seed, skew))


@pytest.mark.parametrize("alphabet", [4, 8])
@pytest.mark.parametrize("skew", [0.5, 1.0])
@pytest.mark.parametrize("zeros", [0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995])
def test_within_three_percent_of_order_0_entropy(alphabet: int, skew: float, zeros: float) -> None:
    symbols = draw_symbols(1_000_000, alphabet, zeros, 0, skew)
    stored = b"".join(write_stream(symbols))
    whole_frame = len(stored) + 47  # what a frame of float32 adds for an alphabet of 4, see test_frame
    assert whole_frame * 8 <= 1.03 * order0_entropy_bits(symbols)


def test_far_apart_symbols_are_joined_by_symbols_of_value_zero() -> None:
    symbols = np.zeros(1_000_000, np.uint8)
    symbols[[0, 1, 2, 3, 700_000, 999_999]] = 7
    assert len(round_trip(symbols)) < 64


def rows_of(count: int, columns: int, share: float, seed: int) -> np.ndarray:
    """Symbols of a table of which some rows are not 0; in these, few symbols are."""
    rng = np.random.default_rng(seed)
    symbols = np.zeros((count, columns), np.uint8)
    chosen = rng.random(count) < share
    symbols[chosen] = rng.integers(0, 256, (int(chosen.sum()), columns))
    return symbols.reshape(-1)


@given(
    st.integers(1, 600),
    st.sampled_from([1, 15, 16, 64, 256, 700]),
    st.sampled_from([0.0005, 0.01, 0.1, 0.3]),
    st.integers(0, 2**32),
)
def test_rows_round_trip(count: int, columns: int, share: float, seed: int) -> None:
    round_trip(rows_of(count, columns, share, seed))


@pytest.mark.parametrize(
    ("columns", "share", "most"),
    [(64, 0.01, 1.025), (256, 0.0005, 1.03), (256, 0.01, 1.012), (256, 0.1, 1.01), (768, 0.01, 1.012)],
)
def test_rows_of_a_table_take_little_more_than_their_symbols(columns: int, share: float, most: float) -> None:
    symbols = rows_of((1 << 21) // columns, columns, share, 0)
    assert len(round_trip(symbols)) < most * np.count_nonzero(symbols)


def test_rows_that_begin_anywhere_take_little_more_than_their_symbols() -> None:
    """They are no rows of a matrix of a power of two, so the gaps between them are coded."""
    symbols = rows_of(7000, 300, 0.01, 0)
    assert len(round_trip(symbols)) < 1.12 * np.count_nonzero(symbols)


@pytest.mark.parametrize("value", [1, 255])
def test_rows_of_equal_symbols_are_within_the_limit_of_places(value: int) -> None:
    symbols = np.zeros((1000, 1024), np.uint8)
    symbols[::7] = value
    round_trip(symbols.reshape(-1))


@pytest.mark.parametrize("distance", [10**4, 10**5, 10**6])
def test_rows_that_are_far_apart_are_within_the_limit_of_places(distance: int) -> None:
    symbols = np.zeros(4 * distance, np.uint8)
    for start in range(0, symbols.size, distance):
        symbols[start + 3 : start + 67] = np.arange(1, 65)
    assert len(round_trip(symbols)) < 4 * 64 * 3


def test_forms() -> None:
    def form(symbols: np.ndarray) -> type:
        return type(read_stream(Cursor(memoryview(b"".join(write_stream(symbols))), "s"), symbols.size))

    assert form(np.zeros(100, np.uint8)) is Sparse
    assert form(draw_symbols(100_000, 4, 0.5, 0)) is Packed
    assert form(draw_symbols(10_000, 4, 0.99, 0)) is Sparse
    assert form(draw_symbols(10_000, 200, 0.1, 0)) is np.ndarray


@pytest.mark.parametrize("period", [2, 3, 4, 8, 64])
def test_places_of_a_pattern_are_within_their_limit(period: int) -> None:
    """Equal gaps and equal values take no bytes: a low bit of each gap makes up for that."""
    symbols = np.zeros(1 << 20, np.uint8)
    symbols[period - 1 :: period] = 5
    for run in (symbols, as_sparse(symbols, symbols.size)):
        stored = b"".join(write_run(run, symbols.size))
        np.testing.assert_array_equal(read(stored, symbols.size), symbols)


def test_classes_of_equal_symbols_are_within_their_limit() -> None:
    symbols = np.zeros((1024, 1024), np.uint8)
    symbols[:300, :300] = 5
    stored = b"".join(write_run(symbols.reshape(-1), symbols.size, 1024))
    np.testing.assert_array_equal(read(stored, symbols.size), symbols.reshape(-1))


@given(st.integers(0, 2100), st.sampled_from([0.0, 0.02, 0.4, 1.0]), st.integers(0, 2**32))
def test_forms_of_gaps(count: int, share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    symbols = (rng.integers(1, 256, count) * (rng.random(count) < share)).astype(np.uint8)
    gaps, values = stream_writer._gaps_between(symbols)
    for form in (stream_writer._gaps_between_loop, stream_writer.gaps_between):
        with np.errstate(over="ignore"):
            found = form(symbols)
        assert [each.dtype for each in found] == [np.uint32, np.uint8]
        assert (found[0].tolist(), found[1].tolist()) == (gaps.tolist(), values.tolist())
    if gaps.size:
        expected = stream_writer._totals(gaps)
        assert expected == stream_writer._totals_loop(gaps) == stream_writer.totals_of(gaps)


@pytest.mark.parametrize("columns", [4, 16, 63])
def test_a_noisy_column_is_not_taken_for_noise(columns: int) -> None:
    """A sample at equal distances would see that column alone."""
    cells = np.zeros((1 << 18, columns), np.uint8)[: (1 << 20) // columns]
    cells[:, 0] = np.random.default_rng(0).integers(0, 256, len(cells))
    symbols = cells.reshape(-1)
    for run in (symbols, as_sparse(symbols, symbols.size)):
        stored = b"".join(write_run(run, symbols.size))
        np.testing.assert_array_equal(read(stored, symbols.size), symbols)
        assert len(stored) < 1.6 * len(cells) + 200
