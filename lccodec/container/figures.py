"""The figures of a manifest: what a save measured of each array (SPEC 8, LCC-FIG).

A figure has one bfloat16 number for each array, or seven: three digits are enough.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ..errors import FormatError, UnsupportedError
from ..policy.roles import Role
from .scalars import Json, parse_base64, write_base64

if TYPE_CHECKING:
    from ..element_types import Array

#: The figures, in the order of LCC-FIG-01.
FIGURES: Final = (
    *("spread", "movement", "error", "lag"),
    *("rms", "minimum", "maximum", "zeros", "not_finite", "quantiles"),
)

#: The shares of elements that are not above each number of ``quantiles`` (LCC-FIG-05).
QUANTILES: Final = (0.0668, 0.1587, 0.3085, 0.5, 0.6915, 0.8413, 0.9332)

_NUMBERS: Final = {"quantiles": len(QUANTILES)}  # of each array; one, if it is not here
OF_LOST: Final = frozenset(FIGURES[4:])  # only of arrays that lost something (LCC-FIG-03)
OF_MOVEMENT: Final = frozenset({"movement", "lag"})  # those that need the save before
_SIGNED: Final = frozenset({"lag", "minimum", "maximum", "quantiles"})
UNKNOWN_PATTERN: Final = 0x7FC0  # LCC-FIG-04
_INFINITE: Final = 0x7F80
NEGATIVE_ZERO: Final = 0x8000
# First bytes of numbers that may be, whatever the second is.
_PLAIN: Final = bytes(range(0x7F))
_PLAIN_SIGNED: Final = bytes((*range(0x7F), *range(0x81, 0xFF)))


@dataclass(frozen=True)
class StoredFigures:
    """The figures of a checkpoint, as stored."""

    since: int | None  # the step of the save before; ``None`` if no figure needs it
    # By name, in the order of `FIGURES`, the bytes of a figure: bfloat16, by array; from ``rms``
    # on, only of arrays that lost something.
    numbers: Mapping[str, bytes]

    def read(self, name: str, arrays: int) -> Array:
        """Return the number of each array, float32; NaN where it is not known.

        ``quantiles`` have a row for each array.
        """
        import numpy as np

        from ..element_types import widen

        numbers: Array = np.full((arrays, _NUMBERS.get(name, 1)), np.nan, np.float32)
        if name in self.numbers:
            own = have_lost(self._patterns("error")) if name in OF_LOST else slice(None)
            numbers[own] = widen(self._patterns(name)).reshape(-1, numbers.shape[1])
        return numbers if name in _NUMBERS else numbers[:, 0]

    def _patterns(self, name: str) -> Array:
        from ..byteorder import read_numbers

        return read_numbers(self.numbers[name], "u2")

    def to_json(self) -> Json:
        """Return the member of the manifest."""
        document: dict[str, Json] = {} if self.since is None else {"since": self.since}
        for name, data in self.numbers.items():
            document[name] = write_base64(data)
        return document


def have_lost(errors: Array) -> Array:
    """Return which arrays lost something, by the patterns of their errors (LCC-FIG-03)."""
    lost: Array = (errors != 0) & (errors != UNKNOWN_PATTERN)
    return lost


def parse_figures(document: Json, arrays: int, step: int | None, where: str) -> StoredFigures:
    """Read the member of a manifest of `arrays` arrays; `step` is ``None`` where it must not be.

    Raises ``FormatError`` or ``UnsupportedError`` for another form (LCC-FIG-01 to LCC-FIG-04).
    """
    if type(document) is not dict:
        raise FormatError("LCC-FIG-01", where, "not an object")
    if unknown := [name for name in document if name not in ("since", *FIGURES)]:
        raise UnsupportedError("LCC-FIG-01", where, f"unknown figure {unknown[0]!r}")
    names = [name for name in FIGURES if name in document]
    needed = ["since"] if OF_MOVEMENT.intersection(names) else []
    if not names or list(document) != [*needed, *names]:
        raise FormatError("LCC-FIG-01", where, "empty, or figures out of order, or 'since' out of place")
    if step is None:
        raise FormatError("LCC-FIG-01", where, "not of a step, or of an exact file")
    since = document.get("since")
    if needed and not (type(since) is int and 0 <= since < step):
        raise FormatError("LCC-FIG-02", f"{where}: since", "not a step before this one")
    numbers: dict[str, bytes] = {}
    lost = 0  # how many arrays
    for name in names:
        count, which = (lost, "arrays that lost something") if name in OF_LOST else (arrays, "arrays")
        size = 2 * _NUMBERS.get(name, 1)
        data = parse_base64(document[name], size * count)
        if data is None:
            if numbers:
                _check_numbers(numbers, where)
            message = f"not {size} bytes for each of {count} {which}"
            raise FormatError("LCC-FIG-03", f"{where}: {name}", message)
        numbers[name] = data
        if name == "error":
            patterns = _numbers(data)
            lost = arrays - patterns.count(0) - patterns.count(UNKNOWN_PATTERN)  # as `have_lost` says
    _check_numbers(numbers, where)
    return StoredFigures(since, numbers)


def _check_numbers(numbers: Mapping[str, bytes], where: str) -> None:
    """Raise ``FormatError`` for the first figure with a number that may not be (LCC-FIG-04)."""
    for name, data in numbers.items():
        first, signed = data[1::2], name in _SIGNED  # of each number the byte with its sign
        if first and not first.translate(None, _PLAIN_SIGNED if signed else _PLAIN):
            continue
        known = set(_numbers(data)) - {UNKNOWN_PATTERN}
        most = NEGATIVE_ZERO | _INFINITE if signed else _INFINITE
        if not known or any(n >= most or n == NEGATIVE_ZERO or _INFINITE <= n < NEGATIVE_ZERO for n in known):
            message = "not finite, or negative, or nothing is known"
            raise FormatError("LCC-FIG-04", f"{where}: {name}", message)


def _numbers(data: bytes) -> tuple[int, ...]:
    """Return the patterns of a figure. NumPy takes longer for a few of them."""
    return struct.unpack(f"<{len(data) // 2}H", data)


@dataclass(frozen=True)
class Figures:
    """What a save measured of an array or, combined, of the arrays of a role; ``None`` if unknown.

    They have three digits. All but the extremes and `not_finite` are estimates by a sample. What
    follows `lag` is kept of arrays that lost something: of others, restored values tell it. Spread,
    movement, error and rms have the unit of the values. They are root mean squares over elements,
    also where arrays are combined.

    Parameters
    ----------
    spread
        How far the values lie from their mean; combined, from the mean of their array. Of equal
        values, their size.
    movement
        How far the values moved since the save before.
    error
        How far restored values lie from the values that were saved.
    lag
        How far restored values lie behind, along the last movement, in intervals between saves: 1
        where they are those of the save before, 0 where they are not behind.
    rms
        The root mean square of the values.
    minimum, maximum
        The least and the greatest value that is finite.
    zeros
        The share of values that are 0.
    not_finite
        How many values are NaN or infinite.
    quantiles
        The values that the shares `QUANTILES` of the array are not above: those of a normal
        distribution at -1.5, -1, ..., 1.5 standard deviations. Of one array only.
    """

    spread: float | None = None
    movement: float | None = None
    error: float | None = None
    lag: float | None = None
    rms: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    zeros: float | None = None
    not_finite: float | None = None
    quantiles: tuple[float, ...] | None = None

    @property
    def relative_movement(self) -> float | None:
        """The movement over the root mean square of the values."""
        return 0.0 if self.movement == 0 else _ratio(self.movement, self.rms)

    @property
    def error_in_movements(self) -> float | None:
        """The error in movements: 1 is as far as the values moved since the save before."""
        return _ratio(self.error, self.movement)

    @property
    def bias(self) -> float | None:
        """The correlation of error and movement about 0: below 0, restored values lie behind."""
        lag = None if self.lag is None else -self.lag
        ratio = _ratio(lag, self.error_in_movements)
        return None if ratio is None else min(max(ratio, -1.0), 1.0)

    @property
    def error_in_spreads(self) -> float | None:
        """The error in spreads: 1 is as far as the values lie from their mean."""
        return _ratio(self.error, self.spread)

    def numbers(self) -> dict[str, float | Sequence[float] | None]:
        """Return all numbers by name: those that are stored, and the error in both other units.

        Examples
        --------
        >>> Figures(spread=2.0, error=0.5).numbers()["error_in_spreads"]
        0.25
        """
        ratios = {"error_in_movements": self.error_in_movements, "error_in_spreads": self.error_in_spreads}
        return {**vars(self), **ratios}


#: The figures of an array that nothing is known of.
UNKNOWN: Final = Figures()


def _ratio(number: float | None, unit: float | None) -> float | None:
    return None if number is None or not unit else number / unit


def read_figures(stored: StoredFigures | None, arrays: int) -> list[Figures]:
    """Return the figures of each array of a checkpoint."""
    if stored is None:
        return [UNKNOWN] * arrays
    columns = {name: map(_known, stored.read(name, arrays).tolist()) for name in stored.numbers}
    return [Figures(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def _known(number: Any) -> Any:
    """Return a number, or numbers as a tuple; ``None`` for what is not known."""
    if isinstance(number, list):
        return None if any(map(math.isnan, number)) else tuple(number)
    return None if math.isnan(number) else number


def numbers_by_role(roles: Mapping[Role, Figures]) -> dict[str, float]:
    """Return what is known of error, lag and movement of weights and moments, by name.

    Other arrays, such as counters, have no common unit. The names are ``checkpoint/error/ROLE``, in
    movements, ``checkpoint/lag/ROLE``, in intervals, and ``checkpoint/movement/ROLE``, in the unit
    of the values.

    Examples
    --------
    >>> numbers_by_role({"weight": Figures(movement=2.0, error=0.5)})
    {'checkpoint/error/weight': 0.25, 'checkpoint/movement/weight': 2.0}
    """
    by_place: dict[str, float] = {}
    for role, figures in roles.items():
        if role == "other":
            continue
        numbers = {"error": figures.error_in_movements, "lag": figures.lag, "movement": figures.movement}
        by_place |= {
            f"checkpoint/{name}/{role}": number for name, number in numbers.items() if number is not None
        }
    return by_place


def combined(arrays: Iterable[tuple[Figures, int]]) -> Figures:
    """Return the figures of several arrays together; each array comes with its number of elements.

    Their movement and lag are known only if those of all are. What is left of a role after a
    restart without the original may be its exact arrays, and their 0 is not the error of the role.
    """
    weighted = list(arrays)
    if any(figures.movement is None for figures, _ in weighted):
        weighted = [(replace(figures, movement=None, lag=None), count) for figures, count in weighted]

    def known(name: str) -> list[tuple[float, int]]:
        numbers = [(getattr(figures, name), count) for figures, count in weighted]
        return [(number, count) for number, count in numbers if number is not None]

    def size(name: str) -> float | None:
        total = sum(count for _, count in known(name))
        return math.sqrt(sum(n * n * count for n, count in known(name)) / total) if total else None

    lags = [(f.lag, (f.movement or 0) ** 2 * count) for f, count in weighted if f.lag is not None]
    moved = sum(weight for _, weight in lags)
    zeros, bad = known("zeros"), known("not_finite")
    return Figures(
        spread=size("spread"),
        movement=size("movement"),
        error=size("error"),
        lag=sum(lag * weight for lag, weight in lags) / moved if moved else None,
        rms=size("rms"),
        minimum=min((n for n, _ in known("minimum")), default=None),
        maximum=max((n for n, _ in known("maximum")), default=None),
        zeros=_ratio(sum(n * count for n, count in zeros), sum(count for _, count in zeros)),
        not_finite=sum(n for n, _ in bad) if bad else None,
    )
