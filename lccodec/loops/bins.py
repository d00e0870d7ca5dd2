"""Uniform bins around a dead zone: which one a difference lies in. Source: SPEC 7.7.

Bin j of sign s has the symbol zigzag(s * j). Lengths are in steps, the widths of a bin. The first
bin begins where the zone ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..element_types import Array
from . import kernel


def zigzags(
    differences: Array, reciprocals: Any, ends: Any, edge: float, wide: bool, narrowed: bool
) -> tuple[Array, Array | None]:
    """Return the symbols of differences, and which lie past the last bin, bool or ``None``.

    Parameters
    ----------
    differences
        Finite numbers.
    reciprocals
        Steps for each unit, at least float32: a number, or one for each difference.
    ends
        Where the last bin ends, behind the zone, plus 1; an integer, or one for each difference.
        Past it the symbol is 0.
    edge
        Where the zone ends.
    wide
        Whether symbols are uint16, and not uint8.
    narrowed
        Whether differences in the zone go to the first bin.
    """
    symbols = np.empty(differences.size, np.uint16 if wide else np.uint8)
    past = np.empty(differences.size, np.uint8)
    form = _zigzags if differences.dtype.char in "fd" and np.ndim(ends) == 0 else zigzags_numpy
    some = form(differences, reciprocals, ends, edge, narrowed, symbols, past)
    return symbols, past.view(np.bool_) if some else None


def zigzags_numpy(
    differences: Array, reciprocals: Any, ends: Any, edge: float, narrowed: bool, symbols: Array, past: Array
) -> bool:
    """Write symbols, and which differences lie past the last bin; return whether any does."""
    work = reciprocals.dtype
    with np.errstate(over="ignore"):
        scaled = np.multiply(differences, reciprocals, dtype=work)
    if narrowed:
        np.copysign(np.maximum(np.abs(scaled), edge), scaled, out=scaled)
    # Round away from zero above the zone: add the rest of a step with the sign, then truncate.
    # Making the signed constant from bits is several times as fast as copysign.
    pattern = np.dtype(f"u{work.itemsize}")
    offset = scaled.view(pattern) & pattern.type(1 << (8 * work.itemsize - 1))
    offset |= work.type(1 - edge).view(pattern)
    scaled += offset.view(work)
    some = False
    if np.ndim(ends) or not _are_below(scaled, ends):
        outside = np.logical_not(np.abs(scaled) < ends, out=past.view(np.bool_))
        some = bool(outside.any())
        scaled[outside] = 0
    index = scaled.astype(np.int8 if symbols.itemsize == 1 else np.int32)
    index = (index << 1) ^ (index >> (8 * index.itemsize - 1))
    symbols[:] = index.view(np.uint8) if symbols.itemsize == 1 else index
    return some


def _are_below(scaled: Array, end: Any) -> bool:
    # The ufunc's reduce takes half the time of the array's max, which matters for a few numbers.
    largest = np.maximum.reduce(scaled, initial=0), -np.minimum.reduce(scaled, initial=0)
    return bool(max(largest) < end)


def _zigzags_loop(
    differences: Array, reciprocals: Any, ends: Any, edge: float, narrowed: bool, symbols: Array, past: Array
) -> bool:
    kind = differences.dtype.type
    near, rest, end = kind(edge), kind(1 - edge), kind(ends)
    some = 0
    for i in range(differences.size):
        scaled = differences[i] * reciprocals
        size = abs(scaled)
        if narrowed:
            size = max(size, near)
        size += rest
        inside = size < end
        past[i] = not inside
        some |= not inside
        index = np.int32(size if inside else kind(0))
        symbols[i] = 2 * index - (index > 0 and np.signbit(scaled))
    return some != 0


_zigzags = kernel(
    zigzags_numpy,
    _zigzags_loop,
    *(f"in {t}, {t}, i8, f8, b1, out {s}, out u1" for s in ("u1", "u2") for t in ("f4", "f8")),
)
