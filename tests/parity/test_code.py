"""Any blocks of a row come back from as many parity blocks: against `galois`, and by examples.

Arithmetic of GF(256), against its definition and the package `galois`.
"""

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ArgumentError
from lccodec.constants import MAX_DATA_COLUMNS, MAX_PARITY_COLUMNS
from lccodec.parity import (
    POLYNOMIAL,
    Block,
    coefficients,
    combine,
    divide,
    double,
    encode,
    inverse,
    multiply,
    points,
    rebuild,
)


def row_of(
    columns: int, parities: int, size: int = 16, seed: int = 0
) -> tuple[dict[int, Block], dict[int, Block]]:
    """Random data blocks, and their parity blocks."""
    rng = np.random.default_rng(seed)
    data = {j: rng.integers(0, 256, size, dtype=np.uint8) for j in range(columns)}
    parity = {i: np.empty(size, np.uint8) for i in range(parities)}
    encode(data, parity)
    return data, parity


def assert_rebuilt(data: dict[int, Block], parity: dict[int, Block], lost: list[int]) -> None:
    found = {j: np.empty_like(data[j]) for j in lost}
    rebuild({j: block for j, block in data.items() if j not in lost}, parity, found)
    assert all(np.array_equal(found[j], data[j]) for j in lost)


def test_points_are_different() -> None:
    data, parity = points()
    assert (len(data), len(parity)) == (MAX_DATA_COLUMNS, MAX_PARITY_COLUMNS)
    assert len({*data, *parity}) == len(data) + len(parity)


def test_coefficients_by_their_definition() -> None:
    found = coefficients(range(MAX_PARITY_COLUMNS), range(MAX_DATA_COLUMNS))
    assert set(found[0]) == {1}
    bits = [number.bit_count() for number in found[1]]
    assert bits == sorted(bits)
    assert all(number for row in found for number in row)


def test_parity_of_another_implementation() -> None:
    """Made with ``galois`` 0.4.11: the matrix of coefficients times the matrix of data."""
    data = np.random.default_rng(1).integers(0, 256, (20, 16), dtype=np.uint8)
    parity = {i: np.empty(16, np.uint8) for i in range(5)}
    encode(dict(enumerate(data)), parity)
    starts = [[253, 65, 19, 127], [100, 152, 95, 192], [220, 132, 95, 42], [233, 47, 117, 251]]
    assert [parity[i][:4].tolist() for i in range(4)] == starts
    digest = hashlib.sha256(b"".join(block.tobytes() for block in parity.values())).hexdigest()
    assert digest == "2029880f28ff62a81841fbdb8b04625cb298aad43572af755c6394815381ca2b"


@pytest.mark.parametrize(("columns", "parities"), [(1, 1), (2, 2), (5, 3), (6, 4)])
def test_all_losses_of_small_groups(columns: int, parities: int) -> None:
    data, parity = row_of(columns, parities)
    for lost in itertools.combinations(range(columns + parities), parities):
        left = {i: block for i, block in parity.items() if columns + i not in lost}
        assert_rebuilt(data, left, [j for j in lost if j < columns])


@pytest.mark.parametrize("pair", [(0, 1), (0, 63), (31, 32), (62, 63)])
def test_pairs_of_a_large_group(pair: tuple[int, int]) -> None:
    data, parity = row_of(64, 2, size=1 << 18)  # more than one piece
    assert_rebuilt(data, parity, list(pair))


@given(st.data())
def test_any_losses_up_to_the_limit_are_mended(draw: st.DataObject) -> None:
    columns = draw.draw(st.integers(1, MAX_DATA_COLUMNS))
    parities = draw.draw(st.integers(1, min(MAX_PARITY_COLUMNS, 12)))
    data, parity = row_of(columns, parities, seed=columns)
    order = draw.draw(st.permutations(range(columns + parities)))
    lost = order[: draw.draw(st.integers(0, parities))]
    left = {i: block for i, block in parity.items() if columns + i not in lost}
    assert_rebuilt(data, left, [j for j in lost if j < columns])


@given(st.sets(st.integers(0, MAX_PARITY_COLUMNS - 1), min_size=1, max_size=8), st.integers(0, 99))
def test_any_parity_columns_serve(chosen: set[int], seed: int) -> None:
    data, parity = row_of(20, MAX_PARITY_COLUMNS, size=8, seed=seed)
    lost = np.random.default_rng(seed).choice(20, len(chosen), replace=False).tolist()
    assert_rebuilt(data, {i: parity[i] for i in chosen}, lost)


def test_columns_that_are_left_out_are_zeros() -> None:
    data, parity = row_of(4, 2)
    data[2][:] = 0
    encode(data, parity)
    del data[2]
    again = {i: np.empty(16, np.uint8) for i in range(2)}
    encode(data, again)
    assert all(np.array_equal(again[i], parity[i]) for i in range(2))
    assert_rebuilt(data, parity, [1, 3])


def test_more_losses_than_parity_are_refused() -> None:
    data, parity = row_of(4, 1)
    with pytest.raises(ArgumentError, match="1 parity blocks cannot replace 2 data blocks"):
        rebuild({0: data[0], 1: data[1]}, parity, {2: data[2], 3: data[3]})


def test_blocks_are_whole_words() -> None:
    with pytest.raises(ArgumentError, match="multiple of 8 bytes; got 7"):
        row_of(2, 1, size=7)


def test_no_coefficient_gives_zeros() -> None:
    out = np.ones(8, np.uint8)
    combine([[0, 0]], [np.ones(8, np.uint8)] * 2, [out])
    assert not out.any()


def slow_product(a: int, b: int) -> int:
    """The product by its definition: of polynomials, and its remainder."""
    product = 0
    for bit in range(8):
        product ^= (a << bit) * (b >> bit & 1)
    for bit in reversed(range(8, 15)):
        product ^= (POLYNOMIAL << (bit - 8)) * (product >> bit & 1)
    return product


def test_all_products() -> None:
    assert all(multiply(a, b) == slow_product(a, b) for a in range(256) for b in range(256))


def test_all_quotients() -> None:
    assert all(multiply(divide(a, b), b) == a for a in range(256) for b in range(1, 256))


def test_every_byte_is_doubled_in_every_place() -> None:
    values = np.arange(256, dtype=np.uint8)
    data = np.concatenate([np.roll(values, shift) for shift in range(8)])
    words = data.view(np.uint64).copy()
    double(words, np.empty_like(words))
    assert words.view(np.uint8).tolist() == [slow_product(int(value), 2) for value in data]


@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_an_inverse_undoes(size: int) -> None:
    rng = np.random.default_rng(size)
    matrix = np.zeros((size, size), int)
    for _ in range(40):  # sums of rows of the identity: it has an inverse
        matrix = np.eye(size, dtype=int) if not matrix.any() else matrix
        i, j = rng.integers(0, size, 2)
        if i != j:
            factor = int(rng.integers(1, 256))
            matrix[i] ^= [multiply(factor, int(value)) for value in matrix[j]]
    found = inverse(matrix.tolist())
    for i in range(size):
        for j in range(size):
            total = 0
            for k in range(size):
                total ^= multiply(found[i][k], int(matrix[k, j]))
            assert total == int(i == j)


def test_products_of_another_implementation() -> None:
    """Made with ``galois.GF(2**8, irreducible_poly=0x11D)`` 0.4.11."""
    products = {(87, 131): 49, (255, 255): 226, (2, 142): 1, (200, 29): 221, (91, 174): 12}
    assert {pair: multiply(*pair) for pair in products} == products
