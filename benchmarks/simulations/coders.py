"""Ways to code a field with a bound, behind one function, and what each takes.

Each way gets the bound itself, or whatever comes nearest to the error that `Smooth` made and does
not exceed it. What a file marks as missing must come back exactly. SZ3, ZFP and SPERR are not made
for such fields: they get them filled up along rows, with the places beside, if that takes fewer
bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import lccodec
from lccodec.element_types import components

from ..compressors.bounded import sperr, sz3, zfp
from ..compressors.compressor import Compressor
from ..compressors.lossless import blosc2, pcodec, zstd

__all__ = ["CODERS", "Coded", "code", "error_of", "missing"]

FAR = 1e15  # numbers beyond it stand for nothing
TIMED_SECONDS = 0.2  # a call that takes longer is timed twice, a shorter one five times
ZFP_OCTAVES = 8  # by which its tolerance may exceed the error that it makes
NARROWING = 0.97  # of SZ3's bound, where rounding to the type of the field exceeds it


@dataclass(frozen=True)
class Coded:
    """One field by one coder.

    Parameters
    ----------
    bytes
        Of the coded field alone.
    error
        Largest ``|decoded - original|``.
    decoded
        The field.
    encode, decode
        Seconds of the processor in the best call, which other programs do not lengthen much.
    """

    bytes: int
    error: float
    decoded: np.ndarray
    encode: float
    decode: float


def missing(field: np.ndarray) -> np.ndarray:
    """Return where a field has no value, bool."""
    return ~(np.abs(field) < FAR)


def error_of(decoded: np.ndarray, field: np.ndarray) -> float:
    """Return the largest error; infinite if a missing value is not exact."""
    gone = missing(field)
    if not np.array_equal(decoded[gone], field[gone], equal_nan=True):
        return np.inf
    difference = decoded[~gone].astype(np.float64) - field[~gone]
    return float(np.abs(difference).max(initial=0))


Coder = Callable[[np.ndarray, float, np.ndarray | None], Coded]


def code(name: str, field: np.ndarray, bound: float, reference: np.ndarray | None = None) -> Coded:
    """Code a field by a coder of `CODERS`, against a reference if there is one."""
    return CODERS[name](field, bound, reference)


def _ours(
    quantizer: Callable[..., lccodec.Quantizer], field: np.ndarray, bound: float, reference: np.ndarray | None
) -> Coded:
    coder = quantizer(max_error=bound)
    base = reference
    if reference is not None:  # as a chain decides
        kind, bits = components(field)
        alone = coder.stands_alone
        base = None if alone and alone(bits, components(reference)[1], kind) else reference
    compressor = Compressor(
        lambda array: lccodec.encode(array, coder, reference=base),
        lambda data, _: lccodec.decode(data, reference=base),
    )
    return _timed(compressor, field, field)


def _sz3(field: np.ndarray, bound: float, reference: np.ndarray | None) -> Coded:
    if reference is not None:
        return _difference(_sz3, field, bound, reference)
    found = []
    for shown, places in _shown(field):
        tried = bound
        coded = _timed(sz3(tried, shown), shown, field, places)
        while coded.error > bound and tried > bound / 4:
            tried *= NARROWING
            coded = _timed(sz3(tried, shown), shown, field, places)
        found.append(coded)
    return min(found, key=lambda each: (each.error > bound, each.bytes))


def _zfp(field: np.ndarray, bound: float, reference: np.ndarray | None) -> Coded:
    if reference is not None:
        return _difference(_zfp, field, bound, reference)
    shown, places = _shown(field)[-1]
    for octave in reversed(range(ZFP_OCTAVES)):
        coded = _timed(zfp(bound * 2**octave, shown), shown, field, places)
        if coded.error <= bound:
            return coded
    return coded


def _sperr(field: np.ndarray, bound: float, reference: np.ndarray | None) -> Coded:
    if reference is not None:
        return _difference(_sperr, field, bound, reference)
    shown, places = _shown(field)[-1]
    tried = bound
    coded = _timed(sperr(tried, shown), shown, field, places)
    while coded.error > bound and tried > bound / 4:
        tried *= NARROWING
        coded = _timed(sperr(tried, shown), shown, field, places)
    return coded


def _steps(
    make: Callable[[], Compressor], field: np.ndarray, bound: float, reference: np.ndarray | None
) -> Coded:
    """Code the multiples of twice the bound by a lossless compressor."""
    if reference is not None:
        return _difference(partial(_steps, make), field, bound, reference)
    shown, places = _shown(field)[-1]
    step, lossless = 2 * bound * (1 - 1e-9), make()
    least = float(shown.min())
    wide = (float(shown.max()) - least) / step >= np.iinfo(np.int32).max

    def encode(array: np.ndarray) -> bytes:
        multiples = np.rint((array.astype(np.float64) - least) / step)
        return lossless.encode(multiples.astype(np.int64 if wide else np.int32).reshape(-1))

    def decode(data: bytes, size: int) -> np.ndarray:
        found: Any = lossless.decode(data, size)
        multiples = np.frombuffer(found, np.int64 if wide else np.int32)
        return (multiples * step + least).astype(field.dtype).reshape(field.shape)

    coded = _timed(Compressor(encode, decode), shown, field, places)
    if coded.error <= bound:
        return coded
    exact = Compressor(  # the type of the field has no numbers so near to each other
        lambda array: lossless.encode(array.reshape(-1)),
        lambda data, size: np.frombuffer(lossless.decode(data, size), field.dtype).reshape(field.shape),
    )
    return _timed(exact, shown, field, places)


CODERS: Mapping[str, Coder] = {
    "Smooth": partial(_ours, lccodec.Smooth),
    "UniformDeadzone": partial(_ours, lccodec.UniformDeadzone),
    "SZ3": _sz3,
    "ZFP": _zfp,
    "SPERR": _sperr,
    "steps, pcodec": partial(_steps, pcodec),
    "steps, blosc2": partial(_steps, partial(blosc2, 5)),
    "steps, zstd": partial(_steps, partial(zstd, 3)),
}


def _difference(coder: Coder, field: np.ndarray, bound: float, reference: np.ndarray) -> Coded:
    """Code what a field has moved by; its missing places are those of its reference."""
    gone = missing(field)
    moved = np.where(gone, 0, field - np.where(gone, 0, reference)).astype(field.dtype)
    tried = bound
    while True:
        coded = coder(moved, tried, None)
        decoded = np.where(gone, field, reference + coded.decoded).astype(field.dtype)
        error = error_of(decoded, field)
        if error <= bound or tried < bound / 4:
            return Coded(coded.bytes, error, decoded, coded.encode, coded.decode)
        tried *= NARROWING


def _shown(field: np.ndarray) -> list[tuple[np.ndarray, int]]:
    """Return a field as it is; and filled up, with the bytes of the places that were."""
    gone = missing(field)
    if not gone.any():
        return [(field, 0)]
    last = np.maximum.accumulate(np.where(gone, 0, np.arange(field.shape[-1])), axis=-1)
    filled = np.take_along_axis(field, last, -1)
    filled[missing(filled)] = np.mean(field[~gone], dtype=np.float64)
    places = len(zstd(19).encode(np.packbits(gone)))
    return [(field, 0), (filled, places)]


def _timed(compressor: Compressor, shown: np.ndarray, field: np.ndarray, places: int = 0) -> Coded:
    """Code what is shown to a compressor; the places are those that are put back after it."""
    encode, data = _best(lambda: compressor.encode(shown))
    decode, decoded = _best(lambda: compressor.decode(data, shown.size))
    if places:
        gone = missing(field)
        decoded = np.where(gone, field, decoded)
    return Coded(len(data) + places, error_of(decoded, field), decoded, encode, decode)


def _best(call: Callable[[], Any]) -> tuple[float, Any]:
    times: list[float] = []
    while len(times) < (2 if times and times[0] > TIMED_SECONDS else 5):
        start = time.process_time()
        found = call()
        times.append(time.process_time() - start)
    return min(times), found
