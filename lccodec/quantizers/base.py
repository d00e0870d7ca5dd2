"""What a quantizer is: it chooses a partition of differences, and a representative for each part.

A quantizer is a small frozen dataclass. It is fitted to a *batch*: one array, or several small
arrays together. The result is a *partition*, which turns differences into symbols. The decoder sees
only symbols and representatives.

Other modules use only the members of `Quantizer`. So a user's own quantizer can do all that those
of the package do. It implements `fit_one`. It may implement `fit` instead, to handle many small
arrays in one call. `lccodec.quantizers.registry.register` gives it a name in the JSON of policies.

**Guarantee** is what a quantizer guarantees of every decoded value: one property, as numbers, words
and a check. Whoever codes an array asks its guarantee, and whoever codes it again asks what is left
of it. A value that is coded twice loses twice: bounds add up, and so do steps of the logarithm.

For every array that loses something, one rule holds without being named: an array without negative
numbers decodes without negative numbers, and its zeros stay 0. A variance below 0 makes the numbers
that are computed with it NaN. A denominator of 0 does the same if its numerator was 0 and decodes
to another number. Quantizers do not prevent this, so the encoder checks the decoded values. -0.0
counts as 0, and NaN does not count as negative.

Two quantizers choose no bins: `Lossless` stores every bit, as byte planes, and `AsReference` only
what no reference may change.

Source: SPEC 7.5, 7.7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeAlias

import numpy as np

from ..constants import ElementType
from ..element_types import Array, has_negative, negative, octaves, stored_view, stretches, work, zero, zigzag
from ..entropy.lanes import entropy_bits
from ..errors import ArgumentError
from .field import Extent, FieldPlan, find_extent
from .residual import Owner, Residual, Zone

#: Half the width of the dead zone, in steps (widths of a bin), unless a quantizer has another.
DEAD_ZONE: Final = 0.6


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


#: See `Partition`. It has the arguments of :func:`lccodec.loops.whole.settle_whole`, but `parts`.
Settles: TypeAlias = Callable[..., Array]


class Partition(Protocol):
    """What a quantizer chose for the arrays of a batch.

    Attributes
    ----------
    counts
        Number of representatives of each array, int64 of shape ``(arrays,)``.
    representatives
        Representatives of the first array, of the second, and so on, ``kind.work``. Symbol 1 of an
        array stands for its first representative.
    zone
        Differences inside it have symbol 0.
    max_error
        Upper bound on ``|decoded - original|``; ``None`` for no bound.
    """

    @property
    def counts(self) -> Array: ...  # noqa: D102 - described above

    @property
    def representatives(self) -> Array: ...  # noqa: D102 - described above

    @property
    def zone(self) -> Zone: ...  # noqa: D102 - described above

    @property
    def max_error(self) -> float | None: ...  # noqa: D102 - described above

    def symbols(self, differences: Array, owner: Owner) -> tuple[Array, Array | None]:
        """Return the symbols of finite differences outside the zone, and which are stored exactly.

        Parameters
        ----------
        differences
            Differences of all arrays, in the order of the arrays, ``kind.work``.
        owner
            Index of the array of each difference, int64 of the same shape; 0 in a batch of one
            array.

        Returns
        -------
        tuple
            Symbols: uint8, or uint16 where an array has more than 255 representatives. And a bool
            array that is true for each difference stored exactly; ``None`` if there is no such
            difference.
        """

    # A partition of one array may also have an attribute `settles`: a function that writes the
    # symbols of a whole piece, and what they decode to, as `lccodec.loops.whole.settle_whole`; or
    # ``None`` if no compiled loop is there for that. Where many differences lie outside the zone,
    # it takes less time than a search for them. `misses` is the same of `miss_whole`, beside it.


class Trigger(Protocol):
    """Lets an array of a chain wait, stored as unchanged, until it has moved far enough."""

    @property
    def then(self) -> Quantizer:
        """The quantizer of an array that no longer waits."""

    def waits(self, bits: Array, reference: Array, kind: ElementType) -> bool:
        """Return whether an array stays as in its reference; both are components."""


class Quantizer:
    """Chooses a partition for the arrays of a batch. Subclasses are frozen dataclasses.

    Attributes
    ----------
    ordered
        Whether differences and representatives are taken of the order-preserving integers (SPEC
        7.6).
    lossy
        Whether a decoded value may differ from the original.
    absolute
        Whether the values themselves are quantized, without a reference.
    max_error
        Bound on the error of every value; ``None`` if there is none.
    dead_zone
        Where the dead zone of bins ends, in steps.
    keeps_sums
        Whether sums of rows of matrices are kept (`.residual.RowSums`).
    in_keyframes
        Whether it also codes the keyframes of an array that a pattern of a policy gives it. Others
        leave such an array exact there.
    resolve
        Returns the quantizer that codes an array, given as components, its shape and type; and why,
        in a few words. ``None`` if the quantizer itself codes all arrays.
    trigger
        What lets an array wait, stored as unchanged; ``None`` if it never waits.
    stands_alone
        Returns whether an array is coded without its reference, given both as components. ``None``
        if only `absolute` says so.
    field
        Returns how an array, given as components of a floating point type, is coded as a field
        (SPEC 6.4), or ``None`` to code it by symbols. ``None`` if no array is coded as one.
    """

    ordered: ClassVar[bool] = False
    lossy: ClassVar[bool] = True
    in_keyframes: ClassVar[bool] = False
    absolute: bool = False
    max_error: float | None = None
    resolve: Callable[[Array, tuple[int, ...], ElementType], tuple[Quantizer, str]] | None = None
    trigger: Trigger | None = None
    stands_alone: Callable[[Array, Array, ElementType], bool] | None = None
    field: Callable[[Array, ElementType], FieldPlan | None] | None = None
    dead_zone: float = DEAD_ZONE
    keeps_sums: bool = False

    def bin_width(self, differences: Array) -> float | None:  # noqa: ARG002
        """Return the width of the bins for differences like these; ``None`` if it is fixed."""
        return None

    @property
    def guarantee(self) -> Guarantee:
        """What holds for every decoded value; of a quantizer of your own, it may be its words."""
        return Guarantee(max_error=self.max_error) if self.lossy else EXACT

    def finer(self, max_error: float) -> Quantizer | None:  # noqa: ARG002
        """Return the quantizer with another bound on the error; ``None`` if it cannot have one."""
        return None

    def extent(self, bits: Array, kind: ElementType) -> Extent | None:
        """Return the extent of an array of floats, whose range a bound may be a share of."""
        return find_extent(bits, kind)

    def with_fills(
        self,
        fills: tuple[float, ...],  # noqa: ARG002
        minimum: float | None = None,  # noqa: ARG002
        maximum: float | None = None,  # noqa: ARG002
    ) -> Quantizer | None:
        """Return the quantizer that keeps fill values exact, and limits; ``None`` if none does."""
        return None if self.lossy else self

    def shares_frames(self, size: int) -> bool:  # noqa: ARG002
        """Return whether an array of so many components may share a frame with others."""
        return True

    @property
    def for_rewriting(self) -> Quantizer:
        """The quantizer of an array that is decoded, changed in part, and coded again and again."""
        return self

    def settled(self, bits: Array, reference: Array | None, kind: ElementType) -> Quantizer:  # noqa: ARG002
        """Return the quantizer that codes an array in a keyframe; both arrays are components.

        The reference is the array of the last checkpoint as decoded; ``None`` if there is none. The
        frame will not have a reference.
        """
        return self

    def foreseen(self, bits: Array, following: Array, kind: ElementType) -> Quantizer:  # noqa: ARG002
        """Return the quantizer for a first keyframe, given the array of the state that follows.

        Both are components.
        """
        return self

    def widest_factor(self, differences: Array, step: float) -> float:  # noqa: ARG002
        """Return the largest factor of steps that are at most `step` for such differences.

        It is infinite unless the step follows from a share of the differences.
        """
        return math.inf

    def scaled(self, factor: float) -> Quantizer:  # noqa: ARG002
        """Return the quantizer with steps multiplied by a factor; itself if they are fixed."""
        return self

    def sampled(self, parts: Sequence[slice]) -> Quantizer:  # noqa: ARG002
        """Return the quantizer for a sample of its array, made of these parts end to end."""
        return self

    def fit(self, batch: Residual) -> Partition | None:
        """Return the partition of a batch; ``None`` to store all of its arrays exactly."""
        return fit_each(self.fit_one, batch)

    def fit_one(self, residual: Residual) -> Partition | None:
        """Return the partition of a batch of one array; ``None`` to store it exactly."""
        raise NotImplementedError(f"{type(self).__name__} has no method fit or fit_one")


def guarantee_of(quantizer: Quantizer) -> Guarantee:
    """Return what a quantizer guarantees; words of a quantizer of the user's own are kept whole."""
    found: object = quantizer.guarantee
    if isinstance(found, Guarantee):
        return found
    return Guarantee(further=(str(found),) if found else ())


def check_quantizer(quantizer: object) -> Quantizer:
    """Return a quantizer; raise ``ArgumentError`` for anything else."""
    if isinstance(quantizer, Quantizer):
        return quantizer
    made = f": make one of it, as {quantizer.__name__}(...)" if isinstance(quantizer, type) else ""
    raise ArgumentError(f"{quantizer!r} is not a quantizer{made}")


@dataclass(frozen=True)
class Exact:
    """The partition of arrays that are stored exactly, in a batch with others that are not.

    Parameters
    ----------
    representatives
        An empty array, ``kind.work``.
    arrays
        Number of arrays.
    """

    representatives: Array
    arrays: int = 1
    max_error: None = None

    @property
    def counts(self) -> Array:
        """Return 0 for each array."""
        return np.zeros(self.arrays, np.int64)

    @property
    def zone(self) -> Zone:
        """Return a zone that contains no difference."""
        return Zone.within(np.zeros(self.arrays), self.representatives.dtype)

    def symbols(self, differences: Array, owner: Owner) -> tuple[Array, Array]:  # noqa: ARG002
        """Return that every difference is stored exactly."""
        return np.zeros(differences.size, np.uint8), np.ones(differences.size, bool)


@dataclass(frozen=True)
class _Joined:
    """The partitions of single arrays, joined into the partition of a batch."""

    parts: list[Partition]
    counts: Array
    representatives: Array
    zone: Zone
    max_error: float | None

    def symbols(self, differences: Array, owner: Owner) -> tuple[Array, Array | None]:
        ends = np.searchsorted(owner, np.arange(len(self.parts) + 1))
        found = np.zeros(differences.size, np.uint8 if self.counts.max() < 256 else np.uint16)
        unfit = np.zeros(differences.size, bool)
        for part, first, last in zip(self.parts, ends[:-1], ends[1:], strict=True):
            if first < last:
                found[first:last], outside = known_symbols(part, differences[first:last])
                if outside is not None:
                    unfit[first:last] = outside
        return found, unfit if unfit.any() else None


def known_symbols(partition: Partition, differences: Array) -> tuple[Array, Array | None]:
    """Return what `Partition.symbols` returns, without symbols that have no representative.

    The partition is of one array. Readers refuse a symbol that has no representative in a frame.
    So a difference with such a symbol is stored exactly.
    """
    symbols, unfit = partition.symbols(differences, 0)
    if symbols.max(initial=0) > partition.counts[0]:
        past = symbols > partition.counts[0]
        symbols = np.where(past, symbols.dtype.type(0), symbols)
        unfit = past if unfit is None else unfit | past
    return symbols, unfit


def check_partition(partition: Partition, quantizer: Quantizer, arrays: int) -> None:
    """Raise ``ArgumentError`` for a partition that no frame can hold."""
    counts = partition.counts
    if (
        counts.shape != (arrays,)
        or not 0 <= counts.min() <= counts.max() < 1 << 16
        or counts.sum() != partition.representatives.size
    ):
        raise ArgumentError(
            f"{quantizer!r} made a partition of {arrays} arrays with {counts!r:.100} representatives"
            f" each and {partition.representatives.size} in all"
        )


def fit_each(fit_one: Callable[[Residual], Partition | None], batch: Residual) -> Partition | None:
    """Fit each array of a batch alone; return their joined partition, ``None`` if all are exact."""
    if batch.arrays == 1:
        return fit_one(batch)
    fitted = [fit_one(residual) for residual in batch.each()]
    if all(part is None for part in fitted):
        return None
    exact = Exact(np.empty(0, batch.kind.work))
    parts = [exact if part is None else part for part in fitted]
    bounds = [part.max_error for part in parts if part.max_error is not None]
    return _Joined(
        parts,
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.representatives for part in parts]),
        Zone.joined([part.zone for part in parts]),
        min(bounds, default=None),
    )


_SAMPLE_STRETCHES: Final = 8  # of one array, evenly spread
_STRETCH_COMPONENTS: Final = 256  # of each


@dataclass(frozen=True)
class Lossless(Quantizer):
    """Store every bit pattern exactly, as byte planes (SPEC 7.5)."""

    lossy: ClassVar[bool] = False

    def fit(self, batch: Residual) -> None:  # noqa: ARG002
        """Return ``None``: every array is stored exactly."""
        return

    def stands_alone(self, bits: Array, reference: Array, kind: ElementType) -> bool:
        """Return whether a sample of an array takes fewer bytes without its reference.

        A first moment forgets its past in about ten steps. Its difference to an older one then has
        the sum of both variances, and its exponents vary more.
        """
        return plane_bits(bits, None, kind) < plane_bits(bits, reference, kind)


def plane_bits(bits: Array, reference: Array | None, kind: ElementType) -> float:
    """Return about how many bits a component takes in byte planes, by the entropy of a sample."""
    parts = list(stretches(bits.size, _SAMPLE_STRETCHES, _STRETCH_COMPONENTS))
    sampled = np.concatenate([bits[part] for part in parts])
    before = None if reference is None else np.concatenate([reference[part] for part in parts])
    codes = zigzag(sampled, before, kind.is_float)
    symbols = stored_view(codes).reshape(-1, kind.size) + np.arange(0, 256 * kind.size, 256)
    counts = np.bincount(symbols.reshape(-1), minlength=256 * kind.size).reshape(kind.size, 256)
    return float(entropy_bits(counts).sum()) / codes.size


@dataclass(frozen=True)
class AsReference(Quantizer):
    """Leaves an array as its reference is, but for what no reference may change.

    Exact are numbers that are not finite, and those that would become negative, or no longer be 0,
    in an array without negative numbers.
    """

    def fit(self, batch: Residual) -> Partition:
        """Return a zone that holds all finite differences."""
        return _Unchanged(np.empty(0, batch.kind.work), batch.arrays)


@dataclass(frozen=True)
class _Unchanged(Exact):
    """The partition of `AsReference`."""

    @property
    def zone(self) -> Zone:
        """Return a zone that contains every finite difference."""
        return Zone.within(np.full(self.arrays, np.inf), self.representatives.dtype)
