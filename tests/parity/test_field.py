"""Arithmetic of GF(256), against its definition and the package `galois`."""

import numpy as np
import pytest

from lccodec.parity.field import POLYNOMIAL, divide, double, inverse, multiply


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
