"""The residual of a batch of arrays: their differences to the reference, most of which become 0.

A delta is mostly zeros, so nothing but the subtraction, two comparisons and the search for what
lies outside the dead zone is done for every component; all else is done for those few. What a
quantizer found while it was fitted is kept for the encoder, as far as a fixed memory allows.

A batch is one array of any size, which is looked at in pieces, or several small arrays that are one
piece together: a NumPy call costs as much as the work of a thousand elements.

Source: SPEC 7.7 (LCC-QNT-01).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self, TypeAlias

import numpy as np

from ..element_types import Array, ElementType, octaves, subtract
from ..parallel import PIECE, stretches

__all__ = ["NARROWEST", "Owner", "Residual", "Zone", "array_sums", "difference", "finite"]

_KEPT_DIFFERENCES: Final = 1 << 22  # at most, with their places 12 bytes each in float32
_STRETCHES: Final = 64  # of a large array that are looked at for an estimate, evenly spread
_STRETCH: Final = 1 << 12  # components of each

#: A zone is nowhere narrower than this share of it.
NARROWEST: Final = 0.7

#: Which array of a batch each component is of: int64, rising; 0 in a batch of one array.
Owner: TypeAlias = Array | int


@dataclass(frozen=True, eq=False)
class Zone:
    """The dead zone of each array of a batch: differences inside it become 0.

    Parameters
    ----------
    low, high
        Differences strictly between them are inside, ``kind.work`` of shape ``(arrays,)``.
    widths
        For a batch of one array: what the zone is multiplied by for components at given places, at
        least `NARROWEST`; ``None`` for 1.
    """

    low: Array
    high: Array
    widths: Callable[[Array], Array] | None = None

    @classmethod
    def within(
        cls, edges: Array, work: np.dtype[Any], widths: Callable[[Array], Array] | None = None
    ) -> Self:
        """Return the zone of differences smaller than an edge for each array, in type `work`."""
        with np.errstate(over="ignore", under="ignore"):
            high = np.asarray(edges).astype(work)
        return cls(-high, high, widths)

    @classmethod
    def joined(cls, zones: list[Zone]) -> Self:
        """Return the zone of a batch whose arrays have these."""
        return cls(np.concatenate([z.low for z in zones]), np.concatenate([z.high for z in zones]))

    def outside(self, differences: Array, owner: Owner, share: float = 1) -> Array:
        """Return the places of the differences that are not inside, NaN among them, rising (int64).

        With a `share`, of the zone multiplied by it; `widths` are not regarded.
        """
        low, high = self.low[owner], self.high[owner]
        if share != 1:
            low, high = low * share, high * share
        return self._beyond(differences, low, high)

    def outside_all(self, differences: Array, sizes: Array) -> Array:
        """Return the places of all differences of a batch of several arrays that are not inside."""
        high = np.repeat(self.high, sizes)  # takes less time than a look-up for each
        low = high if self.symmetric else np.repeat(self.low, sizes)
        return self._beyond(differences, low, high)

    def _beyond(self, differences: Array, low: Array, high: Array) -> Array:
        if self.symmetric:
            inside = np.abs(differences) < high  # takes less time than two comparisons
        else:
            inside = differences < high
            inside &= differences > low
        return np.flatnonzero(np.logical_not(inside, out=inside))  # a NaN compares false

    @cached_property
    def symmetric(self) -> bool:
        """Whether it is as wide on both sides of 0."""
        return bool((self.low == -self.high).all())


class Residual:
    """The differences of a batch of arrays to their reference, or the arrays themselves without one.

    Parameters
    ----------
    bits, reference
        Components (bit patterns), 1-D; ``None`` for no reference. The differences of a piece are
        taken from them until the piece has been looked at, and are only then free to change. `bits`
        of one array may change at any time. Then a piece has other differences at the next look.
    kind
        Their element type, a floating point one.
    ordered
        Whether differences are those of the order-preserving integers (:func:`difference`).
    sizes
        Components of each array, int64, none 0 and all together at most `PIECE`; of one array its
        size.
    """

    def __init__(
        self,
        bits: Array,
        reference: Array | None,
        kind: ElementType,
        ordered: bool = False,
        sizes: Array | None = None,
    ) -> None:
        self.bits = bits
        self.reference = reference
        self.kind = kind
        self.ordered = ordered
        self.sizes: Array = np.array([bits.size]) if sizes is None else sizes
        self.arrays = self.sizes.size
        self._owner = np.repeat(np.arange(self.arrays), self.sizes) if self.arrays > 1 else None
        self._last_owner: tuple[Array, Array] | None = None  # what was found by the fit, for the encoder
        self._all: Array | None = None  # differences of a batch of several arrays
        self._found: dict[int, tuple[Zone, Array, Array]] = {}
        self._kept = 0

    def pieces(self) -> range:
        """Return the first component of each piece."""
        return range(0, self.bits.size, PIECE)

    def owner(self, places: Array | None = None) -> Owner:
        """Return which array components at some places are of, or all components."""
        if self._owner is None:
            return 0
        if places is None:
            return self._owner
        if self._last_owner is None or self._last_owner[0] is not places:
            self._last_owner = places, self._owner.take(places)
        return self._last_owner[1]

    def each(self) -> Iterator[Residual]:
        """Yield each array as a batch of one."""
        start = 0
        for size in self.sizes.tolist():
            part = slice(start, start + size)
            reference = None if self.reference is None else self.reference[part]
            yield Residual(self.bits[part], reference, self.kind, self.ordered)
            start += size

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
            Their places in the piece (int64, rising) and their differences (``kind.work``).
            Differences that are not finite are always among them.
        """
        if start in self._found:
            known, places, d = self._found[start]
            if known is zone:
                return places, d
            few = self._few(start, places, d, zone)
            places, d = places.take(few), d.take(few)
            self._kept += d.size - self._found[start][2].size
        else:
            # Of a zone as wide on both sides the search reads once: there is no need of a copy for
            # it.
            differences = self._differences(start, PIECE, copy=not zone.symmetric)
            if self.arrays > 1:
                places = zone.outside_all(differences, self.sizes)
            else:
                places = zone.outside(differences, 0, NARROWEST if zone.widths else 1)
            d = differences.take(places, mode="clip")
            if zone.widths:
                few = self._few(start, places, d, zone)
                places, d = places.take(few), d.take(few)
            if self._kept + d.size > _KEPT_DIFFERENCES:
                return places, d
            self._kept += d.size
        self._found[start] = zone, places, d
        return places, d

    def finite_outside(self, start: int, zone: Zone) -> tuple[Array, Owner]:
        """Return the finite differences of the piece at `start` outside a zone, and whose they are."""
        places, d = self.outside(start, zone)
        return finite(d, self.owner(places))

    def forget(self) -> None:
        """Drop what was found, so that the next zone may be narrower than the last."""
        self._found.clear()
        self._kept = 0

    def _few(self, start: int, places: Array, d: Array, zone: Zone) -> Array:
        """Return which of some differences, of these places of a piece, are outside a zone."""
        if zone.widths is not None:
            d = d / zone.widths(places + start)
        return zone.outside(d, self.owner(places))

    def sample(self) -> Iterator[tuple[Array, Owner]]:
        """Yield differences and whose they are: all of small arrays, evenly spread ones of a large array."""
        if self.arrays > 1:
            yield self._differences(0, PIECE, copy=False), self.owner()
            return
        for part in stretches(self.bits.size, _STRETCHES, _STRETCH):
            yield self._differences(part.start, _STRETCH, copy=True), 0

    def _differences(self, start: int, count: int, copy: bool) -> Array:
        """Return the differences of some components; without a reference they are those, or a copy."""
        if self.arrays > 1:
            if self._all is None:
                self._all = difference(self.bits, self.reference, self.kind, self.ordered)
            return self._all
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


def finite(differences: Array, owner: Owner) -> tuple[Array, Owner]:
    """Return the differences that are finite, and whose they are."""
    kept = np.isfinite(differences)
    if kept.all():
        return differences, owner
    return differences[kept], owner if isinstance(owner, int) else owner[kept]


def array_sums(values: Array, owner: Owner, arrays: int) -> Array:
    """Return the sum of the values of each of some arrays, float64."""
    if isinstance(owner, int):
        return np.add.reduce(values, dtype=np.float64, keepdims=True)
    return np.bincount(owner, values, minlength=arrays)
