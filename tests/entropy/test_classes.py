import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.cursor import Cursor
from lccodec.entropy.classes import Classes, find_classes, row_length
from lccodec.entropy.runs import Sparse
from lccodec.entropy.stream_reader import read_stream
from lccodec.entropy.stream_writer import write_run
from lccodec.errors import FormatError

from ..support.streams import read


def matrix(rows: int, columns: int, share: float, spread: float, seed: int, alphabet: int = 8) -> np.ndarray:
    """Symbols of a matrix whose rows and columns differ in activity by powers of two."""
    rng = np.random.default_rng(seed)
    activity = np.multiply.outer(2 ** rng.normal(0, spread, rows), 2 ** rng.normal(0, spread, columns))
    active = rng.random((rows, columns)) < share * activity
    return (active * rng.integers(1, alphabet, (rows, columns))).astype(np.uint8).reshape(-1)


def write(symbols: np.ndarray, columns: int) -> bytes:
    """The stream of a matrix, which does not depend on the form of the symbols in memory."""
    places = np.flatnonzero(symbols)
    stored = b"".join(write_run(Sparse(places, symbols[places]), symbols.size, columns))
    assert b"".join(write_run(symbols, symbols.size, columns)) == stored
    return stored


levels = st.lists(st.integers(0, 15), min_size=1, max_size=12)


@given(levels, levels, st.sets(st.integers(0, 40), min_size=1, max_size=5))
def test_cells_are_dealt_out_as_the_specification_says(
    rows: list[int], columns: list[int], bounds: set[int]
) -> None:
    classes = Classes(
        np.array(rows, np.uint8), np.array(columns, np.uint8), np.array(sorted(bounds), np.uint8)
    )
    expected: list[list[int]] = [[] for _ in range(len(bounds) + 1)]
    for cell in range(len(rows) * len(columns)):
        level = rows[cell // len(columns)] + columns[cell % len(columns)]
        expected[sum(bound <= level for bound in bounds)].append(cell)
    assert classes.sizes == [len(cells) for cells in expected]
    positions = np.arange(len(rows) * len(columns))
    for number, ((few, places), cells) in enumerate(zip(classes.deal(positions), expected, strict=True)):
        assert few.tolist() == cells
        assert places.tolist() == list(range(len(cells)))
        np.testing.assert_array_equal(classes.collect(number, places[::3]), cells[::3])


@given(
    st.integers(2, 80),
    st.integers(2, 80),
    st.integers(0, 79),
    st.sampled_from([0.05, 0.3, 0.8]),
    st.sampled_from([0.0, 1.0, 3.0]),
    st.integers(0, 2**32),
)
def test_round_trip_with_a_last_row_that_is_not_full(
    rows: int, columns: int, less: int, share: float, spread: float, seed: int
) -> None:
    symbols = matrix(rows, columns, share, spread, seed)[: rows * columns - less % columns]
    np.testing.assert_array_equal(read(write(symbols, columns), symbols.size), symbols)


@pytest.mark.parametrize("share", [0.03, 0.1, 0.4])
def test_rows_and_columns_that_differ_make_a_stream_smaller(share: float) -> None:
    symbols = matrix(300, 200, share, 1.5, 0)
    classed, plain = write(symbols, 200), write(symbols, 0)
    assert classed[0] == 5
    assert plain[0] != 5
    assert len(classed) < 0.95 * len(plain)
    np.testing.assert_array_equal(read(classed, symbols.size), symbols)


def test_rows_and_columns_that_do_not_differ_have_no_classes() -> None:
    symbols = matrix(300, 200, 0.1, 0.0, 0)
    assert find_classes(symbols, symbols.size, 200) is None
    assert write(symbols, 200) == write(symbols, 0)


@pytest.mark.slow
def test_classes_of_a_sample_of_a_large_matrix() -> None:
    symbols = matrix(3000, 1000, 0.2, 1.0, 1)  # more symbols than are looked at
    stored = write(symbols, 1000)
    assert stored[0] == 5
    assert len(stored) < 0.95 * len(write(symbols, 0))
    np.testing.assert_array_equal(read(stored, symbols.size), symbols)


@pytest.mark.parametrize(
    ("shape", "components", "columns"),
    [
        *(((), 1, 0), ((7,), 1, 0), ((3, 5), 1, 5), ((3, 5), 2, 10), ((16, 6, 5, 5), 1, 25)),
        *(((12, 768, 3072), 1, 3072), ((0, 4), 1, 0), ((1, 9), 1, 9)),
    ],
)
def test_row_length_parts_an_array_where_it_is_squarest(
    shape: tuple[int, ...], components: int, columns: int
) -> None:
    assert row_length(shape, components) == columns


def classed(columns: int, bounds: list[int], sizes: list[int], streams: bytes, classes: int = 0) -> bytes:
    head = struct.pack("<BHB", 5, columns, classes or len(bounds) + 1) + bytes(bounds)
    return head + struct.pack(f"<{len(sizes)}I", *sizes) + streams


ZEROS = b"\x00\x00"


@pytest.mark.parametrize(
    "stored",
    [
        classed(0, [1], [0], ZEROS * 4),  # no columns
        classed(7, [1], [0], ZEROS * 4),  # more columns than symbols
        classed(3, [], [], ZEROS * 3, classes=1),
        classed(3, [*range(17)], [0] * 17, ZEROS * 20),  # too many classes
        classed(3, [2, 2], [0, 0], ZEROS * 5),  # bounds that do not rise
        classed(3, [1], [7], ZEROS * 4),  # more cells than the matrix has
        classed(3, [1], [2], ZEROS * 4),  # not the cells that the levels give
        classed(3, [1], [0], b"\x00\x10" + ZEROS * 3),  # a level above 15
        classed(3, [1], [6], ZEROS * 2 + b"\x00\x01" + ZEROS),  # a symbol behind the last
        b"\x04\x04" + classed(1, [1], [3], ZEROS * 4),  # inside another stream
    ],
)
def test_broken_classes_name_their_rule(stored: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        read_stream(Cursor(memoryview(stored), "stream"), 5)
    assert caught.value.rule == "LCC-STR-07"


def test_a_joint_of_value_zero_may_lie_behind_the_last_symbol() -> None:
    sparse = struct.pack("<BBI", 3, 0, 2) + b"\x01\x00\x04" + b"\x01\x07\x00"  # 7 in cell 0, 0 in cell 5
    stored = classed(3, [1], [6], ZEROS * 2 + sparse + ZEROS)
    assert read(stored, 5).tolist() == [7, 0, 0, 0, 0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
def test_effort_changes_the_bytes_of_a_frame_and_not_what_it_decodes_to(dtype: type) -> None:
    rng = np.random.default_rng(0)
    shape = (90, 120)
    activity = np.multiply.outer(2 ** rng.normal(0, 1.5, shape[0]), 2 ** rng.normal(0, 1.5, shape[1]))
    before = rng.normal(size=shape).astype(dtype)
    after = (before + activity * rng.normal(size=shape) / 64).astype(dtype)
    quantizer = lccodec.UniformDeadzone(relative_step=1.0)
    normal = lccodec.encode(after, quantizer, before)
    high = lccodec.encode(after, quantizer, before, effort="high")
    assert len(high) < 0.97 * len(normal)
    np.testing.assert_array_equal(lccodec.decode(high, before), lccodec.decode(normal, before))


def test_more_rows_than_there_may_be_have_no_classes() -> None:
    symbols = matrix(70_000, 3, 0.3, 2.0, 0)
    assert write(symbols, 3)[0] != 5
    with pytest.raises(FormatError, match="LCC-STR-07"):
        read_stream(Cursor(memoryview(classed(1, [1], [0], ZEROS * 4)), "stream"), 65_536)
