"""The report of a run: all that a page, a terminal or another program shows of a chain.

A report is a value. :mod:`lccodec.inspect.examination` makes it. :func:`document` turns it into
JSON: names and metadata are as stored, so whoever shows them escapes them. What is not defined or
not finite is ``None``.

Where there are more arrays and steps than a page can hold, the largest arrays are shown, and evenly
spaced steps with the first and the last. The numbers that a user saves beside the arrays, such as a
loss, are in the metadata as text, where ``metrics=`` of a save puts them, or scalars of the state.

Pictures of fields show a slice as it was stored, what it is off by, and the spectrum of both. They
are small, so that a page can hold several: `SIDE` pixels at most along each axis, of a byte
each. Fill values and what is not finite have no colour, and count for no spectrum.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ..chain.read.info import ArrayInfo
from ..chain.read.replay import DecodedArray
from ..container.manifest import Figures
from ..container.tree import unescaped
from ..element_types import Array, stored_bytes
from ..policy.roles import Role
from ..quantizers.field import find_extent, wide
from .difference import Replacement

#: One number for each shown step; ``None`` where it is not defined or not finite.
Series: TypeAlias = Sequence[float | None]

#: What is measured of every array at every shown step: by its save, or of what is exact.
FIGURES: Final = (
    *("movement", "rms", "zeros", "minimum", "maximum", "not_finite", "rank"),
    *("error", "lag"),
)

#: Where the bytes of files go.
STREAMS: Final = ("container", "manifest", "raw", "planes", "codebook", "smooth", "exact file")

#: Significant digits of a number in a document: more would only make the page larger.
_DIGITS: Final = 5


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as it was found, also one that cannot be read."""

    step: int | None  # `None` for a single file without one
    kind: Literal["keyframe", "delta", "interpolated", "unreadable"]
    parent: int | None = None
    depth: int = 0  # deltas that a restore replays
    bytes: int = 0  # of the file
    nbytes: int = 0  # of all arrays
    policy: str = ""  # the name that was recorded
    metadata: Mapping[str, str] = field(default_factory=dict)  # the user's strings
    sound: bool = True  # whether all hashes hold, and what had to be decoded could be
    problems: Sequence[str] = ()  # in words
    exact: bool = False  # whether an exact file holds its state bit for bit
    pinned: bool = False
    protected: bool = False  # whether its file has parity
    # bytes in this file for the arrays of each role
    roles: Mapping[Role, int] = field(default_factory=dict)
    # what the save measured, by role; numbers by name in a document
    figures: Mapping[Role, Figures] = field(default_factory=dict)


@dataclass(frozen=True)
class ArrayRow:
    """An array of a run. Its type, role and quantizer are those of the newest step that has it.

    `stored_bytes` and `nbytes` are sums over all checkpoints: in files, and of the array itself.
    `of` is the weight whose moment it is, if that is known.
    """

    name: str
    role: Role
    why: str
    dtype: str
    shape: Sequence[int]
    size: int
    quantizer: str
    stored_bytes: int
    nbytes: int
    of: str | None = None

    @property
    def label(self) -> str:
        """Its name as the user knows it: of a moment, the weight that it belongs to."""
        if self.of is None:
            return unescaped(self.name)
        return f"{unescaped(self.of)}, {self.role.replace('_', ' ')}"


@dataclass(frozen=True)
class Histogram:
    """How the finite elements of an array are spread at each shown step, over the same bins.

    The bins have equal width, from `low` on; each is without its upper end. A step without values
    has no counts: its list is empty.
    """

    low: float
    high: float
    counts: Sequence[Sequence[int]]


FlagKind: TypeAlias = (
    Literal["dead", "frozen", "exploding", "not finite", "damaged", "missing", "coarse"]
    | (Literal["jumping", "changed", "shifting"])
)


@dataclass(frozen=True)
class Flag:
    """What should be looked at: of arrays, of a step, or of both."""

    severity: Literal["error", "warning", "note"]
    kind: FlagKind
    array: str | None  # of several, the first one
    step: int | None  # that shows it first; `None` if it is of no step
    sentence: str  # what it is, without the steps; arrays are named by their labels
    since: int | None = None  # the last step that does not show it
    arrays: Sequence[str] = ()  # all of its arrays

    @property
    def when(self) -> str:
        """Where it lies, such as "between steps 25 and 50"; empty if the sentence says it."""
        if self.step is None or self.kind in ("damaged", "missing"):
            return ""
        return f"step {self.step}" if self.since is None else f"between steps {self.since} and {self.step}"


@dataclass(frozen=True)
class RoleLoss:
    """What the arrays of a role lost together: means over the steps, and the error at each."""

    error: float | None
    bias: float | None
    steps: Series = ()


@dataclass(frozen=True)
class Loss:
    """What was lost, where originals are at hand. Each list has one row for each array."""

    against: str  # which originals, in words
    steps: Sequence[int]  # that have an original
    error: Sequence[Series]  # see :mod:`lccodec.inspect.loss`
    # correlation of error and movement; negative if errors point back in time
    bias: Sequence[Series]
    largest: Sequence[Series]  # absolute error
    bound: Series  # of absolute errors, that the quantizer guarantees
    roles: Mapping[Role, RoleLoss]


@dataclass(frozen=True)
class Verdict:
    """What a run looks like: with an error among its flags "broken", with a warning "look"."""

    state: Literal["healthy", "look", "broken"] = "healthy"
    sentence: str = ""


@dataclass(frozen=True)
class Run:
    """A chain, a bundle or a file.

    For each of `FIGURES`, `figures` has one series for each array. They are of the run itself, as
    its saves measured it, and where nothing was lost of the decoded state. Where something was
    lost, and the save measured nothing, they are of the decoded state, and have no movement, zeros
    and rank. ``movement`` is in root mean squares of the values before, ``error`` in movements,
    ``lag`` in intervals between saves.

    `histograms` has one for each array, of the steps at which all of its elements are known;
    ``None`` if there are none with a finite element. `quantiles` has for each array what its saves
    measured at the steps at which it lost something: the smallest value, those of the shares
    `lccodec.container.manifest.QUANTILES`, and the largest; of other steps nothing.
    """

    path: str
    kind: Literal["chain", "bundle", "file"]
    notes: Sequence[str]  # what was left out, or could not be read, in sentences
    checkpoints: Sequence[Checkpoint]  # by rising step
    arrays: Sequence[ArrayRow]  # in the order of the states
    steps: Sequence[int]  # the shown ones: figures and histograms are of these
    figures: Mapping[str, Sequence[Series]]
    histograms: Sequence[Histogram | None]
    streams: Mapping[str, int]  # bytes of all files by where they go (`STREAMS`)
    flags: Sequence[Flag] = ()
    loss: Loss | None = None
    # beside the arrays, one for each checkpoint; without those that never change
    scalars: Mapping[str, Series] = field(default_factory=dict)
    verdict: Verdict = Verdict()
    # of the largest fields, at the newest step, or that with an original
    pictures: Sequence[Picture] = ()
    quantiles: Sequence[Sequence[Sequence[float]] | None] = ()


@dataclass(frozen=True)
class Compared:
    """How one array differs between two states: see :mod:`lccodec.inspect.difference`."""

    name: str
    role: Role
    relative: float | None
    largest: float | None
    cosine: float | None
    share: float


@dataclass(frozen=True)
class Comparison:
    """Two states side by side. `rows` has the arrays that differ, the most moved one first."""

    left: str
    right: str
    rows: Sequence[Compared]
    unchanged: int
    appeared: Sequence[str]
    disappeared: Sequence[str]
    replaced: Sequence[Replacement]
    scalars: Sequence[Replacement]


@dataclass(frozen=True)
class Report:
    """One run, or two beside each other."""

    lccodec: str
    notes: Sequence[str]
    runs: Sequence[Run]
    comparison: Comparison | None = None


def document(report: Report) -> dict[str, Any]:
    """Return a report as a JSON document: dicts, lists, strings, integers and finite floats.

    Floats are rounded to five significant digits.

    >>> run = Run("run", "chain", [], [], [], [0], {"rms": [[1.23456789, float("inf")]]}, [], {})
    >>> document(Report("1.0", [], [run]))["runs"][0]["figures"]
    {'rms': [[1.2346, None]]}
    """
    plain: dict[str, Any] = _plain(report)
    return plain


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, int | str):  # the most by far, with floats
        return value
    if isinstance(value, float):
        near = float(f"{value:.{_DIGITS}g}")
        number = near if math.isfinite(near) else value  # the largest are rounded to infinity
        return number if math.isfinite(number) else None
    if isinstance(value, list | tuple):
        return list(map(_plain, value))
    if isinstance(value, Mapping):
        return {key: _plain(child) for key, child in value.items()}
    if isinstance(value, Figures):
        return _plain(value.numbers())
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


#: The first ones are shown: a state may have a counter for each of its arrays.
MAX_SERIES: Final = 24


def series_of(
    numbers: Sequence[Mapping[str, float]], steps: Sequence[int | None]
) -> dict[str, list[float | None]]:
    """Return numbers over checkpoints, by name; ``None`` where a checkpoint does not have it.

    A number that never changes is not among them, nor is the step. Of names that always have the
    same number, the first one stands for all.

    >>> numbers = [{"loss": 2.0, "lr": 0.1, "step": 5}, {"loss": 1.5, "lr": 0.1, "step": 10}]
    >>> series_of(numbers, [5, 10])
    {'loss': [2.0, 1.5]}
    """
    by_name: dict[str, list[float | None]] = {}
    seen = {repr([None if step is None else float(step) for step in steps])}
    for name in dict.fromkeys(name for known in numbers for name in known):
        series = [known.get(name) for known in numbers]
        text = repr([None if number is None else float(number) for number in series])  # NaN is NaN
        if len(set(map(repr, series)) - {"None"}) < 2 or text in seen:
            continue
        seen.add(text)
        by_name[name] = series
        if len(by_name) == MAX_SERIES:
            break
    return by_name


MAX_ARRAYS: Final = 300
#: Arrays times steps: 300 arrays at 200 steps.
MAX_CELLS: Final = 60_000
MAX_STEPS: Final = 1000
#: Checkpoints that are listed.
MAX_CHECKPOINTS: Final = 5000


def largest(rows: Sequence[ArrayRow], count: int = MAX_ARRAYS) -> list[ArrayRow]:
    """Return the largest arrays in their order; of equal ones the first."""
    chosen = sorted(range(len(rows)), key=lambda i: (-rows[i].size, i))[:count]
    return [rows[i] for i in sorted(chosen)]


def step_limit(arrays: int) -> int:
    """Return how many steps of so many arrays are shown."""
    return min(MAX_STEPS, max(2, MAX_CELLS // max(arrays, 1)))


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
    """Numbers as bytes."""

    rows: int
    columns: int  # of pixels
    low: float  # of the byte 1; 0 stands for a pixel without a number
    high: float  # of the byte 255
    pixels: str  # Base64 of the bytes, row by row


@dataclass(frozen=True)
class Picture:
    """What a field looks like at a step: a slice in the middle of all axes but the two longest.

    A pixel of `values` is one of its elements, a pixel of `error` (restored less original) the
    farthest from 0 of its elements; the colours reach as far on both sides. Powers are means of
    rings around the zero frequency, of the slice less its mean under a Hann window, in squares of
    its range.
    """

    name: str
    step: int
    place: str  # the slice, as an index
    values: Raster  # as restored
    error: Raster | None  # `None` without an original
    largest: float | None  # absolute error of the slice
    measured: float | None  # root mean square of the error of the array, as its save measured it
    frequencies: Sequence[float]  # cycles per element
    power: Sequence[float]
    original_power: Sequence[float] | None


def is_pictured(array: ArrayInfo) -> bool:
    """Return whether an array has a picture: by what it is coded with, and by its shape."""
    shape = array.shape
    return "Smooth(" in array.quantizer and 2 <= len(shape) <= 4 and sorted(shape)[-2] >= _MIN_SIDE


def picture(
    name: str, step: int, array: DecodedArray, original: Array | None, measured: float | None
) -> Picture | None:
    """Return the picture of an array beside an original's components; ``None`` without a number."""
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
    """Return the frequencies of rings, and the mean power of each, of a plane of float64.

    A large one is cut to its middle. What is not `known` is put at the mean; `unit` is what the
    numbers are divided by.

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
