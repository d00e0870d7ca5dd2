"""What a quantizer guarantees of every decoded value: one property, as numbers, words and a check.

Whoever codes an array asks its guarantee, and whoever codes it again asks what is left of it. A
value that is coded twice loses twice: bounds add up, and so do steps of the logarithm.

For every array that loses something, one rule holds without being named: an array without negative
numbers decodes without negative numbers, and its zeros stay 0. A variance below 0 makes the numbers
that are computed with it NaN. A denominator of 0 does the same if its numerator was 0 and decodes
to another number. Quantizers do not prevent this, so the encoder checks the decoded values. -0.0
counts as 0, and NaN does not count as negative.

Source: SPEC 7.7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..element_table import ElementType
from ..element_types import Array, has_negative, negative, octaves, work, zero


def spoiled(decoded: Array, original: Array, kind: ElementType) -> Array:
    """Return which elements decode to a negative number, or were 0 and decode to something else."""
    return negative(decoded, kind) | (zero(original) & ~zero(decoded))


#: For a fraction f from 0 to 1, log2(1 + f) - f is at most this; the slope of log2(1 + f) is at
#: most 1 / ln 2.
_MAX_LINE_ERROR_OCTAVES: Final = 0.0861


@dataclass(frozen=True)
class Guarantee:
    """What holds for every decoded value, against the original. All that is ``None`` is not said.

    Parameters
    ----------
    exact
        Whether all is as it was, bit for bit. Then nothing else needs to be said.
    max_error
        Bound on ``|decoded - original|``, in the units of the array.
    range_share
        The same as a share of the range of the original, as in `Smooth`.
    max_octaves
        Bound on the distance of the order-preserving patterns, in powers of two (:func:`octaves`).
        What is not a positive normal number is exact, and only 0 decodes as 0.
    max_growth
        A value decodes as 0, or with the sign of the original and at most so many times its size,
        within the rounding of the element type.
    minimum, maximum
        Limits of decoded values, where the original is a finite number within them.
    keeps_zeros
        Whether 0 stays 0 in an array without negative numbers.
    further
        What else holds of the array, in words. Nobody can check it without the original.
    """

    exact: bool = False
    max_error: float | None = None
    range_share: float | None = None
    max_octaves: float | None = None
    max_growth: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    keeps_zeros: bool = True
    further: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The guarantee in words, with numbers that are rounded up; empty if nothing is said."""
        if self.exact:
            return "exact"
        bounds = [] if self.max_error is None else [_up(self.max_error, 6)]
        if self.range_share is not None:
            bounds.append(f"{_up(self.range_share, 6)} of the range")
        told = [f"error at most {' and '.join(bounds)}"] if bounds else []
        if self.max_ratio is not None:
            told.append(f"at most {_up(self.max_ratio, 3)} times too large or too small")
        if self.max_growth is not None:
            told.append(f"0, or of the same sign and at most {_up(self.max_growth, 3)} times as large")
        if self.minimum is not None:
            told.append(f"at least {self.minimum!r}")
        if self.maximum is not None:
            told.append(f"at most {self.maximum!r}")
        return ", and ".join([", ".join(told), *self.further]) if told else ", and ".join(self.further)

    @property
    def max_ratio(self) -> float | None:
        """Bound on decoded / original and its inverse, that follows from `max_octaves`."""
        if self.max_octaves is None:
            return None
        return float(2.0 ** min(self.max_octaves / math.log(2), self.max_octaves + _MAX_LINE_ERROR_OCTAVES))

    @property
    def is_strict(self) -> bool:
        """Whether nothing more may be lost of what has lost something under it."""
        return self.exact or bool(self.further) or (self.max_error, self.range_share) != (None, None)

    def after(self, lost: Guarantee) -> Guarantee:
        """Return what holds of a value that is coded under this, after it has lost under another.

        Bounds of an error add up, and the range of what was decoded is wider by twice the bound.
        """
        if self.exact or lost.exact:
            return lost if self.exact else self
        share = _both(self.range_share, lost.range_share)
        if self.range_share is not None and lost.range_share is not None:
            share = lost.range_share + self.range_share * (1 + 2 * lost.range_share)
        growth = _both(self.max_growth, lost.max_growth)
        if self.max_growth is not None and lost.max_growth is not None:
            growth = self.max_growth * lost.max_growth
        return Guarantee(
            False,
            _sum(self.max_error, lost.max_error),
            share,
            _sum(self.max_octaves, lost.max_octaves),
            growth,
            _least(self.minimum, lost.minimum),
            _most(self.maximum, lost.maximum),
            self.keeps_zeros and lost.keeps_zeros,
            tuple(each for each in self.further if each in lost.further),
        )

    def either(self, other: Guarantee) -> Guarantee:
        """Return what holds of a value that is coded under this or under another."""
        if self.exact or other.exact:
            return other if self.exact else self
        return Guarantee(
            False,
            _most(self.max_error, other.max_error),
            _most(self.range_share, other.range_share),
            _most(self.max_octaves, other.max_octaves),
            _most(self.max_growth, other.max_growth),
            _least(self.minimum, other.minimum),
            _most(self.maximum, other.maximum),
            self.keeps_zeros and other.keeps_zeros,
            tuple(each for each in self.further if each in other.further),
        )

    def follows_from(self, other: Guarantee) -> bool:
        """Return whether the bounds of this hold where those of another one do."""
        if other.exact:
            return True
        pairs = [(getattr(self, name), getattr(other, name)) for name in _BOUNDS]
        return not self.exact and all(a is None or (b is not None and b <= a) for a, b in pairs)

    def broken(self, decoded: Array, original: Array, kind: ElementType) -> Array:
        """Return which components break the guarantee, bool of shape ``(n,)``.

        Parameters
        ----------
        decoded, original
            Components of an array, of a floating point type.
        """
        differs: Array = decoded != original
        if self.exact or not differs.any():
            return differs
        found = np.zeros(decoded.shape, bool)
        if not has_negative(original, kind):
            found |= spoiled(decoded, original, kind) if self.keeps_zeros else negative(decoded, kind)
        with np.errstate(all="ignore"):
            now, was = (work(bits, kind).astype(np.longdouble) for bits in (decoded, original))
            finite = np.isfinite(was)
            found |= (~finite & differs) | (finite & ~np.isfinite(now))
            if self.max_error is not None:
                found |= ~(np.abs(now - was) <= self.max_error) & differs
            if self.range_share is not None:
                numbers = was[finite]
                wide = float(np.ptp(numbers)) if numbers.size else 0.0
                found |= ~(np.abs(now - was) <= self.range_share * wide) & differs
            if self.max_octaves is not None:
                found |= ~(np.abs(octaves(decoded, original, kind)) <= self.max_octaves)
            if self.max_growth is not None:
                rounded = self.max_growth * (1 + 2.0 ** (2 - kind.mantissa)) + 0.0
                found |= (now != 0) & ((now * was < 0) | ~(np.abs(now) <= rounded * np.abs(was))) & differs
            inside = finite & (was >= _known(self.minimum, -1)) & (was <= _known(self.maximum, 1))
            found |= inside & ~((now >= _known(self.minimum, -1)) & (now <= _known(self.maximum, 1)))
        return found


#: Nothing is lost.
EXACT: Final = Guarantee(exact=True)

_BOUNDS: Final = ("max_error", "range_share", "max_octaves", "max_growth")


def _known(limit: float | None, sign: int) -> float:
    return sign * math.inf if limit is None else limit


def _both(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _most(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)


def _least(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else min(one, other)


def _up(number: float, digits: int) -> str:
    """Return a positive number as text of a few digits that is not below it.

    Examples
    --------
    >>> _up(1.1611, 3), _up(0.001, 6), _up(1 / 3, 6)
    ('1.17', '0.001', '0.333334')
    """
    text = f"{number:.{digits}g}"
    if float(text) < number:
        unit = 10.0 ** (math.floor(math.log10(number)) + 1 - digits)
        text = f"{float(text) + unit:.{digits}g}"
    return text
