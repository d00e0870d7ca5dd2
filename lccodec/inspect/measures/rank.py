"""The effective rank of a change: along how many directions an array moved, in bounded time.

The effective rank is ``exp(H)``, where H is the entropy of the singular values, divided by their
sum. It is 1 if all rows moved along one direction, and n if n directions moved by the same amount.
Source: Roy and Vetterli, "The effective rank" (EUSIPCO 2007).

A matrix of more than 48 rows and columns is projected to 48 rows first: each is a sum of evenly
spaced rows with random signs, always the same ones. So a low rank is found about as it is, and a
high one is at most 48. Of a matrix of more than a million elements, evenly spaced rows are taken.

OpenBLAS uses threads for larger products, and waits for them busily. Where other processes use the
cores, as in training, that takes 20 to 200 times as long. So products are cut into small ones.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np

from ...element_table import ElementType
from ...element_types import Array, work

DIRECTIONS: Final = 48
_MAX_ELEMENTS: Final = 1 << 20
_ROWS: Final = 64  # of a product; of 64 columns at most
_SEED: Final = 20200713  # any number: reports of the same chain must be equal


def change_rank(
    bits: Array, before: Array, kind: ElementType, shape: tuple[int, ...], rows: int = 0
) -> float | None:
    """Return the effective rank of the difference of two arrays, given by their components.

    Parameters
    ----------
    shape
        Of the arrays. The first dimension is that of the rows, all others are columns.
    rows
        Most rows to take; by default as many as have a million elements.

    Returns
    -------
    float or None
        ``None`` if the array has less than two dimensions that are not 1, is not of floating point
        numbers, did not change, or has an element that is not finite.

    Examples
    --------
    >>> from lccodec.element_types import components
    >>> kind, before = components(np.zeros((200, 100)))
    >>> after = np.outer(np.arange(200.0), np.ones(100))
    >>> round(change_rank(components(after)[1], before, kind, after.shape), 3)
    1.0
    """
    if not kind.is_float or kind.kind == "c" or len(shape) < 2 or math.prod(shape) == 0:
        return None
    height, width = shape[0], math.prod(shape[1:])
    if height == 1 or width == 1:
        return None
    step = -(-height // max(rows or _MAX_ELEMENTS // width, 1))
    with np.errstate(invalid="ignore", over="ignore"):
        now, then = (work(a.reshape(height, width)[::step], kind) for a in (bits, before))
        change = np.subtract(now, then, dtype=np.float64)
        peak = float(np.abs(change).max())
    if not (math.isfinite(peak) and peak > 0):
        return None
    return effective_rank(np.ldexp(change, -math.frexp(peak)[1]))


def effective_rank(matrix: Array) -> float:
    """Return the effective rank of a matrix (float64) that is not 0 and has no large elements."""
    if matrix.shape[0] < matrix.shape[1]:
        matrix = np.ascontiguousarray(matrix.T)
    if matrix.shape[1] > DIRECTIONS:
        matrix = project(matrix).T
    values = np.sqrt(np.clip(np.linalg.eigvalsh(_products(matrix)), 0, None))
    shares = values[values > 0] / values.sum()
    return math.exp(float(-(shares * np.log(shares)).sum()))


def project(matrix: Array) -> Array:
    """Return 48 rows: row i is the sum of rows i, i + 48 and so on, with random signs."""
    whole = len(matrix) // DIRECTIONS * DIRECTIONS
    signs = random_signs(len(matrix))
    blocks = matrix[:whole].reshape(-1, DIRECTIONS, matrix.shape[1])
    rows: Array = np.einsum("br,brc->rc", signs[:whole].reshape(-1, DIRECTIONS), blocks)
    rows[: len(matrix) - whole] += signs[whole:, None] * matrix[whole:]
    return rows


@lru_cache(maxsize=32)
def random_signs(size: int) -> Array:
    """Return 1.0 and -1.0 in a random order, which is always the same."""
    return np.random.default_rng([_SEED, size]).integers(0, 2, size) * 2.0 - 1.0


def _products(matrix: Array) -> Array:
    """Return ``matrix.T @ matrix``, as a sum of products that OpenBLAS computes in this thread."""
    height, width = matrix.shape
    whole = height // _ROWS * _ROWS
    blocks = matrix[:whole].reshape(-1, _ROWS, width)
    products: Array = np.matmul(blocks.transpose(0, 2, 1), blocks).sum(axis=0)
    rest = matrix[whole:]
    products += rest.T @ rest
    return products
