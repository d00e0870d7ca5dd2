"""Invariant: both forms give the same; LccodecError, nothing else, in bounded time and memory.

The forms are those of :mod:`lccodec.loops`: what they decode and encode is the same, byte for byte.
With ``LCCODEC_KERNELS=numba`` one is compiled; otherwise both are NumPy. The input is a byte for
the mode, then a frame as of the target `frame`; or the seed of a case of `cases`; or what says
which array is coded and how, and the bytes of an array and of its reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import cases
import numpy as np
import target_frame
from outcomes import Outcomes, TooLargeError

import lccodec
from lccodec import loops
from lccodec.constants import ELEMENT_TYPES
from lccodec.element_types import from_components

TOKENS = target_frame.TOKENS

_MADE = 2  # the mode of a case from a seed
_SEEDS = 500

outcomes = Outcomes()

QUANTIZERS = (
    lccodec.Lossless(),
    lccodec.ExponentBuckets(2),
    lccodec.ExponentBuckets(3),
    lccodec.UniformDeadzone(step=0.5),
    lccodec.UniformDeadzone(max_error=0.002),
    lccodec.LogSteps(0.5),
    lccodec.Smooth(max_error=0.01),
)


def check(data: bytes) -> None:
    """Run an input in both forms; an exception from here is a violation of the invariant."""
    if not data:
        return
    call = _decoded if data[0] & 1 else _made if data[0] == _MADE else _encoded
    found, _ = _outcome(call, data[1:])
    with loops.numpy_forms():
        expected, error = _outcome(call, data[1:])
    if found != expected:
        raise AssertionError(f"compiled: {found[:200]!r}; NumPy: {expected[:200]!r}")
    with outcomes.counted():
        if error is not None:
            raise error


def _outcome(call: Callable[[bytes], bytes], data: bytes) -> tuple[bytes, Exception | None]:
    """Return what a call returns, or the text of its error and the error."""
    try:
        return call(data), None
    except (lccodec.LccodecError, TooLargeError) as error:
        return str(error).encode(), error


def _decoded(data: bytes) -> bytes:
    """Return what a frame decodes to."""
    return target_frame.decoded(target_frame.sealed(data)).tobytes()


def _made(data: bytes) -> bytes:
    """Return what a case from a seed comes to."""
    return cases.outcome(int.from_bytes(data[:8], "little"))


def _encoded(data: bytes) -> bytes:
    """Return the frame of an array of any bytes, and what it is decoded to."""
    if len(data) < 4:
        return b""
    kind, quantizer = ELEMENT_TYPES[data[0] % len(ELEMENT_TYPES)], QUANTIZERS[data[1] % len(QUANTIZERS)]
    bits = np.frombuffer(data[4 : 4 + (len(data) - 4) // (2 * kind.size) * 2 * kind.size], kind.bits)
    bits = bits & kind.bits.type(1) if kind.kind == "b" else bits
    own, before = (each[: each.size // kind.components * kind.components] for each in np.split(bits, 2))
    before = np.where(np.arange(own.size) % (data[2] + 1) < data[2], own, before)  # so that some are equal
    shape = (own.size // kind.components,)
    array, reference = (from_components(each, kind, shape, "bits") for each in (own, before))
    frame = lccodec.encode(array, quantizer, reference if data[3] & 1 else None)
    return frame + lccodec.decode(frame, reference if data[3] & 1 else None, dtype="bits").tobytes()


def vectors() -> Iterator[bytes]:
    """Yield the frames among the vectors of the specification, valid or not."""
    for frame in target_frame.vectors():
        yield b"\1" + frame


def seeds() -> Iterator[bytes]:
    """Yield frames, seeds of cases, and arrays of every type, with every quantizer."""
    rng = np.random.default_rng(0)
    for seed in range(_SEEDS):
        yield bytes([_MADE]) + seed.to_bytes(8, "little")
    for frame in islice(target_frame.seeds(), 0, None, 5):
        yield b"\1" + frame
    for kind in range(len(ELEMENT_TYPES)):
        for quantizer in range(len(QUANTIZERS)):
            for size in (0, 40, 3000):
                numbers = rng.standard_normal(size).astype(np.float32)
                for equal, relative in ((0, 0), (0, 1), (3, 1), (99, 1)):
                    yield bytes([0, kind, quantizer, equal, relative]) + numbers.tobytes()
