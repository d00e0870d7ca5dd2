"""GF(256): bytes as polynomials over GF(2), modulo x^8 + x^4 + x^3 + x^2 + 1.

Sums are XOR. Single numbers are multiplied by logarithms. Arrays are doubled eight bytes at a time.

Source: SPEC 9 (LCC-PAR-05); H. P. Anvin, The mathematics of RAID-6 (2004), for the doubling.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

POLYNOMIAL: Final = 0x11D  # LCC-PAR-05: 2 generates all numbers but 0
_ORDER: Final = 255  # of the multiplicative group

Words = npt.NDArray[np.uint64]

_LOW_BIT: Final = np.uint64(0x0101010101010101)
_LOW_SEVEN: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_REDUCTION: Final = np.uint64(POLYNOMIAL & 0xFF)
_SEVEN: Final = np.uint64(7)


def _powers() -> tuple[list[int], list[int]]:
    """Return the powers of 2, twice in a row, and the logarithm of each number."""
    powers, logarithms, value = [0] * (2 * _ORDER), [0] * 256, 1
    for exponent in range(_ORDER):
        powers[exponent] = powers[exponent + _ORDER] = value
        logarithms[value] = exponent
        value <<= 1
        if value > _ORDER:
            value ^= POLYNOMIAL
    return powers, logarithms


_POWERS, _LOGARITHMS = _powers()


def multiply(a: int, b: int) -> int:
    """Return the product of two numbers."""
    return _POWERS[_LOGARITHMS[a] + _LOGARITHMS[b]] if a and b else 0


def divide(a: int, b: int) -> int:
    """Return the quotient of two numbers; `b` is not 0."""
    return _POWERS[_LOGARITHMS[a] + _ORDER - _LOGARITHMS[b]] if a else 0


def inverse(matrix: list[list[int]]) -> list[list[int]]:
    """Return the inverse of a square matrix that has one, by elimination."""
    size = len(matrix)
    rows = [[*row, *(int(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for column in range(size):
        pivot = next(i for i in range(column, size) if rows[i][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [divide(value, rows[column][column]) for value in rows[column]]
        for i, row in enumerate(rows):
            if i != column and (factor := row[column]):
                rows[i] = [a ^ multiply(factor, b) for a, b in zip(row, rows[column], strict=True)]
    return [row[size:] for row in rows]


def double(words: Words, spare: Words) -> None:
    """Double every byte of an array in place. `spare` is memory of the same shape.

    Bytes do not depend on each other, so the byte order of the host does not matter.
    """
    out: dict[str, Any] = {"out": spare}
    np.right_shift(words, _SEVEN, **out)
    np.bitwise_and(spare, _LOW_BIT, **out)
    np.multiply(spare, _REDUCTION, **out)
    np.bitwise_and(words, _LOW_SEVEN, out=words)
    np.add(words, words, out=words)
    np.bitwise_xor(words, spare, out=words)
