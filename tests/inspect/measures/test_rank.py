"""The effective rank of a change: by definition for small matrices, near it for large ones."""

import numpy as np
import pytest

from lccodec.element_types import components
from lccodec.inspect.trajectory import DIRECTIONS, change_rank, random_signs


def rank(change, dtype="f4", rows=0):
    before = np.ones(change.shape, dtype)
    after = (before + change).astype(dtype)
    kind, bits = components(after)
    return change_rank(bits, components(before)[1], kind, change.shape, rows)


def by_definition(matrix):
    values = np.linalg.svd(matrix, compute_uv=False)
    shares = values / values.sum()
    return np.exp(-np.sum(shares * np.log(shares)))


@pytest.mark.parametrize("shape", [(40, 300), (300, 40), (7, 3), (48, 48), (5, 4, 3, 3)])
def test_small_matrices_by_definition(shape):
    change = np.random.default_rng(1).normal(size=shape)
    assert rank(change, "f8") == pytest.approx(by_definition(change.reshape(shape[0], -1)), rel=1e-6)


def test_a_large_matrix_is_projected():
    change = np.random.default_rng(2).normal(size=(150, 100))
    projection = np.zeros((DIRECTIONS, 150))
    projection[np.arange(150) % DIRECTIONS, np.arange(150)] = random_signs(150)
    expected = by_definition(projection @ change)
    assert rank(change, "f8") == rank(change.T, "f8") == pytest.approx(expected, rel=1e-6)
    assert expected < DIRECTIONS


@pytest.mark.parametrize("true", [1, 3, 8])
def test_low_ranks_are_found(true):
    rng = np.random.default_rng(true)
    change = np.linalg.qr(rng.normal(size=(500, true)))[0] @ np.linalg.qr(rng.normal(size=(300, true)))[0].T
    assert rank(change, "f8") == pytest.approx(true, rel=0.1)


def test_some_rows_of_a_very_large_matrix():
    rng = np.random.default_rng(3)
    change = rng.normal(size=(1000, 2)) @ rng.normal(size=(2, 30))
    assert rank(change, "f8", rows=100) == pytest.approx(by_definition(change[::10]), rel=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_extreme_scales(scale):
    change = np.diag([1.0, 1.0, 0.0]) * scale
    kind, bits = components(change)
    assert change_rank(bits, np.zeros_like(bits), kind, change.shape) == pytest.approx(2)


def test_there_is_none():
    assert rank(np.zeros((3, 3))) is None
    assert rank(np.full((3, 3), np.nan)) is None
    assert rank(np.ones(9)) is None
    assert rank(np.ones((1, 9))) is None
    assert rank(np.ones((9, 1))) is None
    assert rank(np.ones((0, 9))) is None
    assert rank(np.ones((3, 3)), "i4") is None
    assert rank(np.ones((3, 3)), "c8") is None
