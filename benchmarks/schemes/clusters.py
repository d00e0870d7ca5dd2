"""Clusters of values by weighted k-means, for the schemes that quantize to centres."""

from __future__ import annotations

import numpy as np

__all__ = ["centres", "nearest"]

ACCURACY = 0.01  # relative, of the sketch's buckets (DDSketch)
ROUNDS = 25


def centres(values: np.ndarray, count: int, blend: float = 1.0) -> np.ndarray:
    """Return at most `count` cluster centres, rising: weighted k-means over a log-bucket sketch.

    Parameters
    ----------
    values
        Finite and not 0, float32.
    count
        Of the clusters.
    blend
        Weight of a bucket: that much of its share of the values, the rest of its centre's share of
        all magnitudes. 1 is plain k-means.
    """
    growth = np.log((1 + ACCURACY) / (1 - ACCURACY))
    keys = np.rint(np.log(np.abs(values)) / growth).astype(np.int64)
    least = keys.min()
    sides = []
    for sign in (-1, 1):
        counts = np.bincount(keys[np.sign(values) == sign] - least)
        held = np.flatnonzero(counts)
        sides.append((sign * np.exp((held + least) * growth), counts[held]))
    points = np.concatenate([sides[0][0][::-1], sides[1][0]])
    counts = np.concatenate([sides[0][1][::-1], sides[1][1]])
    weights = blend * counts / counts.sum() + (1 - blend) * np.abs(points) / np.abs(points).sum()
    if points.size <= count:
        return points.astype(np.float32)
    found = np.interp((np.arange(count) + 0.5) / count, np.cumsum(weights) / weights.sum(), points)
    for _ in range(ROUNDS):
        nearest = np.searchsorted((found[1:] + found[:-1]) / 2, points)
        mass = np.bincount(nearest, weights, count)
        mean = np.bincount(nearest, weights * points, count) / np.where(mass > 0, mass, 1)
        found = np.sort(np.where(mass > 0, mean, found))
    return found.astype(np.float32)


def nearest(values: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Return the number of the nearest centre, uint8."""
    return np.searchsorted((found[1:] + found[:-1]) / 2, values).astype(np.uint8)
