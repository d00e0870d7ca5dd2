"""Cases of both forms of the loops: an array, its reference and a quantizer, from a seed.

An array may be larger than a piece. After it, bytes of its frame are changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import numpy as np
import target_frame
from mutation import mutate

import lccodec
from lccodec.element_types import ELEMENT_TYPES, Array, from_components, unwork
from lccodec.errors import LccodecError
from lccodec.frame.decode import checked_header
from lccodec.quantizers import Quantizer
from lccodec.quantizers.clusters import Clusters
from lccodec.quantizers.logarithmic import LogSteps
from lccodec.quantizers.uniform import KeyframeSteps, weighted

_FLOATS: Final = ("float16", "bfloat16", "float32", "float32", "float32", "float64", "float64", "complex64")
_OTHERS: Final = ("uint8", "int16", "int32", "int64", "bool")
_LARGE: Final = 0.02  # share of the cases that are larger than a piece
_BROKEN: Final = 3  # of each frame


@np.errstate(all="ignore")
def outcome(seed: int) -> bytes:
    """Return what a case comes to: its frame, the decoded array, and what broken frames come to."""
    rng = np.random.default_rng(seed)
    name = str(rng.choice(_FLOATS if rng.random() < 0.9 else _OTHERS))
    kind = next(kind for kind in ELEMENT_TYPES if kind.name == name)
    shape = _shape_of(rng)
    bits = _components_of(name, int(np.prod(shape, dtype=np.int64)), rng)
    array = from_components(bits, kind, shape, "bits")
    reference = None
    if rng.random() < 0.7:
        reference = from_components(_reference_of(name, bits, rng), kind, shape, "bits")
    quantizer = _quantizer_of(bits, name, rng)
    effort = "high" if rng.random() < 0.1 else "normal"
    frame = lccodec.encode(array, quantizer, reference, effort=effort)

    def decode(stored: bytes) -> bytes:
        out = reference.copy() if reference is not None and seed % 2 else None
        base = reference if out is None else out
        return lccodec.decode(stored, base, out, dtype="bits").tobytes()

    found = [frame, decode(frame)]
    if array.nbytes > 1 << 16:
        return b"".join(found)
    rest = random.Random(seed)
    for _ in range(_BROKEN):
        broken = target_frame.sealed(mutate(frame, [frame], target_frame.TOKENS, rest))
        try:
            header = checked_header(broken)
            if header.kind is kind and header.shapes == (shape,) and not header.run:
                found.append(decode(broken))
        except LccodecError as error:
            found.append(f"{type(error).__name__} {getattr(error, 'rule', '')}".encode())
    return b"".join(found)


def _shape_of(rng: np.random.Generator) -> tuple[int, ...]:
    """Return a shape of up to four axes; many are small, a few larger than a piece."""
    if rng.random() < _LARGE:
        return ((1 << 17) + int(rng.integers(0, 1 << 17)),) if rng.random() < 0.6 else (70, 60, 50)
    most = int(rng.choice([3, 9, 60, 400]))
    axes = int(rng.integers(0, 5)) if most < 10 else 1 if most == 400 else int(rng.integers(1, 3))
    return tuple(int(n) for n in rng.integers(0 if rng.random() < 0.05 else 1, most + 1, axes))


def _components_of(name: str, size: int, rng: np.random.Generator) -> Array:
    """Return components: ordinary numbers, with some of any pattern."""
    kind = next(kind for kind in ELEMENT_TYPES if kind.name == name)
    count = size * kind.components
    patterns = rng.integers(0, np.iinfo(kind.bits).max, count, kind.bits, endpoint=True)
    if kind.kind == "b":
        return patterns & kind.bits.type(1)
    if not kind.is_float:
        return rng.integers(0, 40, count).astype(kind.bits)
    number = rng.choice([0, 1, 2, 2, 3])
    ordinary = rng.standard_normal(count)
    if number == 0:
        ordinary = np.cumsum(ordinary) / 30
    elif number == 1:
        ordinary = np.round(ordinary * 4) / 4 + 0.0
    elif number == 2:
        ordinary = np.exp(3 * ordinary)
    ordinary *= 10.0 ** rng.integers(-6, 4)
    with np.errstate(all="ignore"):
        bits = unwork(ordinary.astype(kind.work), kind)
    special = rng.random(count) < rng.choice([0.0, 0.0, 0.0, 0.002, 0.05, 1.0])
    few = rng.integers(0, np.iinfo(kind.bits).max, dtype=kind.bits)
    odd = np.where(rng.random(count) < 0.3, patterns & kind.bits.type(3), patterns ^ few)
    return np.where(special, odd, bits)


def _reference_of(name: str, bits: Array, rng: np.random.Generator) -> Array:
    """Return components that differ from others in a little, a few, all, or nothing."""
    kind = next(kind for kind in ELEMENT_TYPES if kind.name == name)
    how = rng.integers(0, 6)
    if how == 0 or not kind.is_float:
        return np.where(
            rng.random(bits.size) < rng.random(), bits, _components_of(name, bits.size, rng)[: bits.size]
        )
    if how == 1:
        return bits.copy()
    values = bits.view(kind.work) if name != "bfloat16" else (bits.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(all="ignore"):
        size = np.where(
            rng.random(bits.size) < rng.choice([0.02, 0.3, 1.0]), 10.0 ** rng.integers(-5, 0), 1e-9
        )
        near = values * (1 + size * rng.standard_normal(bits.size)) if how < 4 else values + size
        return unwork(near.astype(kind.work), kind)


def _quantizer_of(bits: Array, name: str, rng: np.random.Generator) -> Quantizer | str:
    """Return a quantizer for an array."""
    kind = next(kind for kind in ELEMENT_TYPES if kind.name == name)
    step = float(10.0 ** rng.integers(-6, 3)) * float(rng.uniform(0.5, 2))
    makers: list[Callable[[], Quantizer | str]] = [
        lambda: lccodec.ExponentBuckets(int(rng.integers(1, 9)), str(rng.choice(["midpoint", "mean"]))),
        lambda: lccodec.ExponentBuckets(3),
        lambda: lccodec.UniformDeadzone(step=step, absolute=bool(rng.integers(0, 2))),
        lambda: lccodec.UniformDeadzone(max_error=step),
        lambda: lccodec.UniformDeadzone(
            relative_step=float(rng.uniform(0.01, 3)), absolute=bool(rng.integers(0, 2))
        ),
        lambda: lccodec.UniformDeadzone(share=float(rng.uniform(0.001, 0.9))),
        lambda: LogSteps(float(rng.choice([0.003, 0.1, 1.0, 8.0]))),
        lambda: Clusters(int(rng.integers(2, 20))),
        KeyframeSteps,
        lambda: lccodec.Smooth(max_error=step, conserve="sum" if rng.random() < 0.2 else None),
        lambda: lccodec.Smooth(relative_error=float(10.0 ** rng.integers(-6, 0)), rough="steps"),
        lambda: lccodec.Smooth(relative_error=float(10.0 ** rng.integers(-6, 0)), minimum=-1.0, fill=(0.0,)),
        lambda: "lossless",
    ]
    if kind.is_float and kind.components == 1 and bits.size and rng.random() < 0.15:
        moment = _components_of("float32", bits.size, rng) & np.uint32(
            0x7FFFFFFF if rng.random() < 0.7 else 0xFFFFFFFF
        )
        of = next(kind for kind in ELEMENT_TYPES if kind.name == "float32")
        then = lccodec.UniformDeadzone(share=float(rng.uniform(0.01, 0.6)))
        return weighted(then, moment, of, float(10.0 ** rng.integers(-8, 2)))
    return makers[int(rng.integers(0, len(makers)))]()
