"""The residual of an array: its differences to the reference, most of them so small that they become 0.

A delta is mostly zeros, so nothing but the subtraction, two comparisons and the search for what lies
outside the dead zone is done for every component; all else is done for those few. What a quantizer
found while it was fitted is kept for the encoder, as far as a fixed memory allows.

Source: SPEC 7.7 (LCC-QNT-01).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np

from ..element_types import Array, ElementType, octaves, subtract

__all__ = ["NARROWEST", "PIECE", "Residual", "Zone", "difference", "finite"]

#: Components handled at a time: differences, symbols and results of a piece stay in the cache.
PIECE: Final = 1 << 16

_KEPT: Final = 1 << 22  # differences kept at a time, with their places 12 bytes each in float32
_SAMPLES: Final = 64  # evenly spread stretches of an array that are looked at for an estimate
_SAMPLE: Final = 1 << 12  # components of each

#: A zone is nowhere narrower than this share of it.
NARROWEST: Final = 0.7

#: Differences strictly between the two numbers (``kind.work``) become 0.
Zone: TypeAlias = tuple[np.floating, np.floating]


class Residual:
    """The differences of an array to its reference, or the array itself where there is none.

    Parameters
    ----------
    bits, reference
        Components (bit patterns), 1-D; ``None`` for no reference. The differences of a piece are taken
        from them until the piece has been looked at, and are only then free to change. `bits` may change
        at any time. Then a piece has other differences at the next look.
    kind
        Their element type, a floating point one.
    ordered
        Whether differences are those of the order-preserving integers (:func:`difference`).
    """

    def __init__(
        self, bits: Array, reference: Array | None, kind: ElementType, ordered: bool = False
    ) -> None:
        self.bits = bits
        self.reference = reference
        self.kind = kind
        self.ordered = ordered
        #: What a zone is multiplied by for these components, at least `NARROWEST`; `None` for 1.
        self.widths: Callable[[Array], Array] | None = None
        self._found: dict[int, tuple[Zone, Array, Array]] = {}
        self._kept = 0

    def pieces(self) -> range:
        """Return the first component of each piece."""
        return range(0, self.bits.size, PIECE)

    def outside(self, start: int, zone: Zone) -> tuple[Array, Array]:
        """Return the components of the piece at `start` whose differences are not inside a zone.

        Parameters
        ----------
        start
            First component of the piece.
        zone
            Not wider at one look at a piece than at the next.

        Returns
        -------
        tuple of ndarray
            Their places in the piece (int64, rising) and their differences (``kind.work``). Differences
            that are not finite are always among them.
        """
        if start in self._found:
            known, places, d = self._found[start]
            if known == zone:
                return places, d
            few = self._few(start, places, d, zone)
            places, d = places.take(few), d.take(few)
            self._kept += d.size - self._found[start][2].size
        else:
            # Of a zone as wide on both sides the search reads once: there is no need of a copy for it.
            differences = self._differences(start, PIECE, copy=zone[0] != -zone[1])
            least = NARROWEST if self.widths else 1
            places = _outside(differences, (zone[0] * least, zone[1] * least))
            d = differences.take(places, mode="clip")
            if self.widths:
                few = self._few(start, places, d, zone)
                places, d = places.take(few), d.take(few)
            if self._kept + d.size > _KEPT:
                return places, d
            self._kept += d.size
        self._found[start] = zone, places, d
        return places, d

    def _few(self, start: int, places: Array, d: Array, zone: Zone) -> Array:
        """Return which of some differences, of these places of a piece, are outside a zone."""
        if self.widths is None:
            return _outside(d, zone)
        return _outside(d / self.widths(places + start), zone)

    def sample(self) -> Iterator[Array]:
        """Yield the differences of evenly spread stretches; of a small array, all."""
        distance = max(-(-self.bits.size // (_SAMPLES * _SAMPLE)), 1) * _SAMPLE
        for start in range(0, self.bits.size, distance):
            yield self._differences(start, _SAMPLE, copy=True)

    def _differences(self, start: int, count: int, copy: bool) -> Array:
        """Return the differences of some components; without a reference they are those, or a copy."""
        part = slice(start, start + count)
        if self.reference is None:
            bits = self.bits[part].copy() if copy else self.bits[part]
            return difference(bits, None, self.kind, self.ordered)
        return difference(self.bits[part], self.reference[part], self.kind, self.ordered)


def difference(bits: Array, reference: Array | None, kind: ElementType, ordered: bool) -> Array:
    """Return differences to a reference: `subtract` them, or count `octaves` (both are of floats)."""
    if ordered and reference is not None:
        return octaves(bits, reference, kind)
    return subtract(bits, reference, kind)


def finite(differences: Array) -> Array:
    """Return the differences that are finite."""
    kept = np.isfinite(differences)
    return differences if kept.all() else differences[kept]


def _outside(d: Array, zone: Zone) -> Array:
    if zone[0] == -zone[1]:
        inside = np.abs(d) < zone[1]  # takes less time than two comparisons
    else:
        inside = d < zone[1]
        inside &= d > zone[0]
    # A NaN compares false, so that it counts as outside.
    return np.flatnonzero(np.logical_not(inside, out=inside))
