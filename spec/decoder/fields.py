"""Smooth frames (6.4 and 7.8): blocks of a field, numbers of steps, prediction."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from itertools import product
from math import prod

from .streams import Cursor, Refused, packed, stream

Shape = tuple[int, ...]


def block_shapes(shape: Shape, block: int) -> Iterator[Shape]:
    """The shape of each block of a field (LCC-SMO-01); `block` is B."""
    shape = shape or (1,)
    if 0 in shape:
        return
    a = 0
    while prod(shape[a + 1 :]) > 1 << block:
        a += 1
    most = (1 << block) // prod(shape[a + 1 :])
    rows = -(-shape[a] // -(-shape[a] // most))
    for _ in range(prod(shape[:a])):
        for start in range(0, shape[a], rows):
            yield (min(rows, shape[a] - start), *shape[a + 1 :])


def numbers(cursor: Cursor, n: int) -> list[int]:
    """Numbers of steps (LCC-SMO-07)."""
    b, low = divmod(cursor.integer(1), 16)
    if not 1 <= b <= 7 or low > 7:
        raise Refused("LCC-SMO-07", f"numbers of {b} bytes and {low} bits")
    z = list(packed(cursor, n, low, "LCC-SMO-07")) if low else [0] * n
    for k in range(b):
        for i, symbol in enumerate(stream(cursor, n)):
            z[i] += symbol << (low + 8 * k)
    if any(number >> 53 for number in z):
        raise Refused("LCC-SMO-07", "a number of more than 53 bits")
    return [-(number + 1) // 2 if number & 1 else number // 2 for number in z]


def passes(shape: Shape) -> list[list[tuple[int, int, list[Shape]]]]:
    """The passes of each level: stride, axis, and the elements that are predicted (LCC-SMO-06)."""
    found = []
    for power in reversed(range((max(shape) - 1).bit_length())):
        h, level = 1 << power, []
        for axis, extent in enumerate(shape):
            if extent > h:
                along = [range(0, n, h if k < axis else 2 * h) for k, n in enumerate(shape)]
                along[axis] = range(h, extent, 2 * h)
                level.append((h, axis, list(product(*along))))
        found.append(level)
    return found


def predicted(known: Callable[[int], float], j: int, c: int, predictor: int, origin: float) -> float:
    """p between K_j and K_(j+1), or behind the last of c known values (LCC-SMO-05)."""
    if predictor == 0:
        return origin
    if c < 4:
        predictor = 1
    if predictor == 1:
        if j < c - 1:
            return (known(j) + known(j + 1)) * 0.5
        return known(j) * 1.5 + known(j - 1) * -0.5 if j else known(0)
    if j == c - 1:
        return (known(j) * 1.875 + known(j - 1) * -1.25) + known(j - 2) * 0.375
    if j in (0, c - 2):
        first, step = (0, 1) if j == 0 else (c - 1, -1)
        p = known(first) * 0.3125 + known(first + step) * 0.9375
        return (p + known(first + 2 * step) * -0.3125) + known(first + 3 * step) * 0.0625
    inner, outer = known(j) + known(j + 1), known(j - 1) + known(j + 2)
    if predictor == 3 and c >= 6 and 1 < j < c - 3:
        p = inner * 0.5859375 + outer * -0.09765625
        return p + (known(j - 2) + known(j + 3)) * 0.01171875
    return inner * 0.5625 + outer * -0.0625


def decoded(
    shape: Shape, step: float, origin: float, parts: list[int], predictors: bytes, steps: Iterator[int]
) -> list[float]:
    """The values of a block before they are rounded (LCC-SMO-06), in C order."""
    weights = [prod(shape[k + 1 :]) for k in range(len(shape))]
    values = [0.0] * prod(shape)

    def place(index: Shape) -> int:
        return sum(i * weight for i, weight in zip(index, weights, strict=True))

    values[0] = origin + next(steps) * step
    chosen = iter(predictors)
    for level, f in zip(passes(shape), parts, strict=True):
        s = step * (f / 256)  # LCC-SMO-04
        for h, axis, targets in level:
            predictor, apart = next(chosen), 2 * h * weights[axis]
            c = -(-shape[axis] // (2 * h))
            for index in targets:
                start = place((*index[:axis], 0, *index[axis + 1 :]))

                def known(j: int, start: int = start, apart: int = apart) -> float:
                    return values[start + j * apart]

                p = predicted(known, index[axis] // (2 * h), c, predictor, origin)
                values[place(index)] = p + next(steps) * s
    return values


def smooth_values(cursor: Cursor, shape: Shape) -> tuple[list[float], float | None, tuple[float, float], int]:
    """The values of a block, its offset, its limits and its flags, read up to the escapes."""
    flags = cursor.integer(1)
    if flags & ~7:
        raise Refused("LCC-SMO-02", f"flags {flags} of a block")
    step, origin = (struct.unpack("<d", cursor.take(8))[0] for _ in range(2))
    if not (0 < step < math.inf and math.isfinite(origin)):
        raise Refused("LCC-SMO-02", f"a step of {step} from {origin}")
    limits, offset = (-math.inf, math.inf), None
    if flags & 2:
        limits = struct.unpack("<2d", cursor.take(16))
        if not limits[0] <= limits[1]:
            raise Refused("LCC-SMO-02", f"limits {limits}")
    if flags & 4:
        (offset,) = struct.unpack("<d", cursor.take(8))
        if not math.isfinite(offset):
            raise Refused("LCC-SMO-02", f"an offset of {offset}")
    levels = passes(shape)
    parts = [byte + 1 for byte in cursor.take(len(levels))]
    predictors = bytes(cursor.take(sum(map(len, levels))))
    if any(predictor > 3 for predictor in predictors):
        raise Refused("LCC-SMO-05", "an unknown predictor")
    joined = cursor.integer(1)
    if joined > len(levels):
        raise Refused("LCC-SMO-03", f"{joined} of {len(levels)} levels are joined")
    sizes = [sum(len(targets) for _, _, targets in level) for level in levels]
    steps = numbers(cursor, 1 + sum(sizes[:joined]))
    for size in sizes[joined:]:
        steps += numbers(cursor, size)
    return decoded(shape, step, origin, parts, predictors, iter(steps)), offset, limits, flags


def finished(y: float, offset: float | None, r: float | None, limits: tuple[float, float]) -> float:
    """What is rounded to the element type (LCC-SMO-08)."""
    if offset is not None:
        y += offset
    if r is not None:
        y += r
    if y < limits[0]:
        return limits[0]
    return limits[1] if y > limits[1] else y
