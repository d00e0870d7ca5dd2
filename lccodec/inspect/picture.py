"""Pictures of fields: a slice as it was stored, what it is off by, and the spectrum of both.

A picture is small, so that a page can hold several: `SIDE` pixels at most along each axis, of a
byte each. Fill values and what is not finite have no colour, and count for no spectrum.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..byteorder import stored_bytes
from ..chain.read.info import ArrayInfo
from ..chain.read.replay import DecodedArray
from ..element_types import Array
from ..quantizers.field import find_extent, wide

#: Pixels along an axis, at most.
SIDE: Final = 128
#: How many arrays of a run have pictures.
MAX_PICTURES: Final = 8

_MIN_SIDE: Final = 8  # of a slice: less is no picture
_MAX_TRANSFORMED: Final = 1024  # elements along an axis that a spectrum is of
_MAX_RINGS: Final = 64  # of frequencies
_GREYS: Final = 254  # distances from the darkest to the brightest pixel


@dataclass(frozen=True)
class Raster:
    """Numbers as bytes.

    Parameters
    ----------
    rows, columns
        Of pixels.
    low, high
        What the bytes 1 and 255 stand for. 0 stands for a pixel without a number.
    pixels
        Base64 of the bytes, row by row.
    """

    rows: int
    columns: int
    low: float
    high: float
    pixels: str


@dataclass(frozen=True)
class Picture:
    """What a field looks like at a step.

    Parameters
    ----------
    name, step
        Which array, and when.
    place
        The slice, as an index: the middle of all axes but the two longest.
    values
        The slice as restored. A pixel is one of its elements.
    error
        Restored less original. A pixel is the farthest from 0 of its elements; the colours reach as
        far on both sides. ``None`` without an original.
    largest
        The largest absolute error of the slice.
    measured
        The root mean square of the error of the array, as its save measured it on a sample.
    frequencies
        Cycles per element: means of rings around the zero frequency.
    power, original_power
        Mean power of each ring, of the slice less its mean under a Hann window, in squares of the
        range of the slice.
    """

    name: str
    step: int
    place: str
    values: Raster
    error: Raster | None
    largest: float | None
    measured: float | None
    frequencies: Sequence[float]
    power: Sequence[float]
    original_power: Sequence[float] | None


def is_pictured(array: ArrayInfo) -> bool:
    """Return whether an array has a picture: by what it is coded with, and by its shape."""
    shape = array.shape
    return "Smooth(" in array.quantizer and 2 <= len(shape) <= 4 and sorted(shape)[-2] >= _MIN_SIDE


def picture(
    name: str, step: int, array: DecodedArray, original: Array | None, measured: float | None
) -> Picture | None:
    """Return the picture of an array; ``None`` if its slice has no number.

    `original` has components, as the array has.
    """
    index, place = _middle(array.shape)
    extent = find_extent(array.bits, array.kind)
    fills = () if extent is None else extent.fills

    def plane(bits: Array) -> Array:
        values: Array = wide(bits.reshape(array.shape)[index], array.kind)
        values[np.isin(values, fills) | ~np.isfinite(values)] = np.nan
        return values

    values = plane(array.bits)
    known = np.isfinite(values)
    exact = None if original is None else plane(original)
    if exact is not None:
        known &= np.isfinite(exact)
    if not known.any():
        return None
    values[~known] = np.nan
    low, high = float(values[known].min()), float(values[known].max())
    power = None if exact is None else spectrum(exact, known, high - low)[1]
    frequencies, own = spectrum(values, known, high - low)
    error, largest = None, None
    if exact is not None:
        with np.errstate(all="ignore"):
            off = np.where(known, values - exact, np.nan)
        largest = float(np.nanmax(np.abs(off)))
        error = _raster(_farthest(off), -largest, largest)
    shown = _raster(values[np.ix_(*map(_sampled, values.shape))], low, high)
    return Picture(name, step, place, shown, error, largest, measured, frequencies, own, power)


def _middle(shape: Sequence[int]) -> tuple[Any, str]:
    """Return the index of the slice in the middle of all axes but the two longest, and its text."""
    longest = sorted(sorted(range(len(shape)), key=lambda axis: (shape[axis], axis))[-2:])
    index = tuple(slice(None) if axis in longest else n // 2 for axis, n in enumerate(shape))
    return index, f"[{', '.join(':' if isinstance(part, slice) else str(part) for part in index)}]"


def _edges(extent: int) -> Array:
    """Return where the pixels of an axis begin, and the end."""
    pixels = min(extent, SIDE)
    return np.arange(pixels + 1) * extent // pixels


def _sampled(extent: int) -> Array:
    edges = _edges(extent)
    return (edges[:-1] + edges[1:] - 1) // 2


def _farthest(plane: Array) -> Array:
    """Return of the elements of each pixel the one that is farthest from 0; NaN if all are NaN."""
    for axis in (0, 1):
        starts = _edges(plane.shape[axis])[:-1]
        most = np.fmax.reduceat(plane, starts, axis=axis)
        least = np.fmin.reduceat(plane, starts, axis=axis)
        plane = np.where(most >= -least, most, least)
    return plane


def _raster(plane: Array, low: float, high: float) -> Raster:
    """Return numbers from `low` to `high` as bytes; NaN are 0."""
    with np.errstate(all="ignore"):
        shares = (plane / 2 - low / 2) / (high / 2 - low / 2) if high > low else np.zeros_like(plane)
        greys = 1 + np.rint(np.clip(shares, 0, 1) * _GREYS)
    pixels = np.where(np.isfinite(plane), greys, 0).astype(np.uint8)
    rows, columns = pixels.shape
    return Raster(rows, columns, low, high, base64.b64encode(stored_bytes(pixels)).decode())


def spectrum(plane: Array, known: Array, unit: float) -> tuple[list[float], list[float]]:
    """Return the frequencies of rings, and the mean power of each.

    Parameters
    ----------
    plane
        The numbers (float64), two axes. A large one is cut to its middle.
    known
        Which of them count, bool; the others are put at the mean.
    unit
        What the numbers are divided by.

    Examples
    --------
    >>> wave = np.sin(2 * np.pi * np.arange(64) / 8) + np.zeros((64, 1))
    >>> frequencies, power = spectrum(wave, np.ones(wave.shape, bool), 2.0)
    >>> frequencies[int(np.argmax(power))]
    0.125
    """
    cut = tuple(
        slice(max(n - _MAX_TRANSFORMED, 0) // 2, max(n - _MAX_TRANSFORMED, 0) // 2 + _MAX_TRANSFORMED)
        for n in plane.shape
    )
    plane, known = plane[cut], known[cut]
    if not (unit > 0 and np.isfinite(unit) and known.any()):
        return [], []
    values = np.where(known, plane / unit, 0.0)
    mean = float(values[known].mean())
    # A window takes away the jump from one border to the other, which is at all frequencies.
    window = np.outer(*(np.hanning(n + 2)[1:-1] for n in plane.shape))
    powers = np.abs(np.fft.rfft2(np.where(known, values - mean, 0.0) * window)) ** 2
    powers /= (window**2).sum()
    radius = np.hypot(np.fft.fftfreq(plane.shape[0])[:, None], np.fft.rfftfreq(plane.shape[1]))
    rings = min(max(plane.shape) // 2, _MAX_RINGS)
    ring = np.ceil(radius * (2 * rings) - 0.5).astype(np.int64)  # ring k: k / (2 * rings) in its middle
    counts = np.bincount(ring.reshape(-1), minlength=rings + 1)[1 : rings + 1]
    power = np.bincount(ring.reshape(-1), powers.reshape(-1), minlength=rings + 1)[1 : rings + 1]
    some = counts > 0
    middles = np.arange(1, rings + 1) / (2 * rings)
    return middles[some].tolist(), (power[some] / counts[some]).tolist()
