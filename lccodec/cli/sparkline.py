"""Sparklines: a series of numbers as one line of characters of rising height."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Final

from ..inspect.report import evenly_spaced

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_PLAIN: Final = "_.-=+*%#"  # where the output has no other characters

#: Most characters of a line.
WIDTH: Final = 60


def sparkline(values: Sequence[float | None], *, logarithmic: bool = False, width: int = WIDTH) -> str:
    """Return one character for each number, from the lowest to the highest.

    Blanks stand for ``None`` and what is not finite. Of a longer series, evenly spaced numbers are
    shown. On a `logarithmic` scale, what is not above 0 has the lowest character.

    Examples
    --------
    >>> len(sparkline([1, 2, None, 8])), sparkline([1, None])[1]
    (4, ' ')
    """
    shown = evenly_spaced(values, width)
    numbers = [_scaled(value, logarithmic) for value in shown]
    finite = [number for number in numbers if number is not None and number > -math.inf]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    levels = _levels()
    return "".join(" " if number is None else levels[_level(number, low, high)] for number in numbers)


def _scaled(value: float | None, logarithmic: bool) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    if not logarithmic:
        return value
    return math.log(value) if value > 0 else -math.inf


def _level(number: float, low: float, high: float) -> int:
    if number == -math.inf or not high > low:
        return 0
    return round((len(_BLOCKS) - 1) * ((number / 2 - low / 2) / (high / 2 - low / 2)))


def _levels() -> str:
    """Return the characters that standard output can show."""
    try:
        _BLOCKS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return _PLAIN
    return _BLOCKS
