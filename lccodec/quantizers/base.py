"""What a quantizer is: it chooses a partition of differences, and a representative for each part.

A quantizer is a small frozen dataclass. Fitted to a batch of arrays it gives a *partition*, which
turns differences into symbols. The decoder knows nothing of this: it sees symbols and
representatives.

Everything that others want to know of a quantizer is a member of `Quantizer`, so that one that a
user writes is as good as those of the package. It implements `fit_one` and, where it can handle
many small arrays at a time, `fit`; `lccodec.quantizers.registry.register` gives it a name in the
JSON of policies.

Source: SPEC 7.7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from ..element_types import Array, ElementType
from ..errors import ArgumentError
from .residual import Owner, Residual, Zone

__all__ = ["Exact", "Partition", "Quantizer", "check_quantizer", "fit_each"]


class Partition(Protocol):
    """What a quantizer chose for the arrays of a batch.

    Attributes
    ----------
    counts
        Representatives of each array, int64 of shape ``(arrays,)``.
    representatives
        Those of the first array, of the second, ...: ``kind.work``; symbol 1 of an array is its
        first one.
    zone
        Differences inside it have symbol 0.
    max_error
        Largest ``|decoded - original|`` that may stay; ``None`` where any may.
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
        """Return the symbols of finite differences outside the zone, and which of them fit no part.

        Parameters
        ----------
        differences
            ``kind.work``, of the arrays in their order.
        owner
            Which array each difference is of: int64 of the same shape, or 0 in a batch of one.

        Returns
        -------
        tuple
            Symbols (uint8, or uint16 where an array has more than 255 representatives), and a bool
            array of what is stored exactly, ``None`` where nothing is.
        """


class Quantizer:
    """Chooses a partition for the arrays of a batch. Subclasses are frozen dataclasses.

    Attributes
    ----------
    ordered
        Whether differences and representatives are those of the order-preserving integers (SPEC
        7.6).
    lossy
        Whether a decoded value may differ from the original.
    """

    ordered: ClassVar[bool] = False
    lossy: ClassVar[bool] = True

    @property
    def absolute(self) -> bool:
        """Whether the values are quantized, and not their differences to a reference."""
        return False

    @property
    def bin_width(self) -> float | None:
        """Width of the bins as a multiple of the rms difference, in octaves if `ordered`; ``None``: other."""
        return None

    @property
    def guarantee(self) -> str:
        """What holds for every decoded value, in words; empty where nothing does."""
        return "" if self.lossy else "exact"

    @property
    def awake(self) -> Quantizer:
        """The quantizer of an array that does not wait: another one where `waits` may be true."""
        return self

    def waits(self, bits: Array, reference: Array, kind: ElementType) -> bool:  # noqa: ARG002
        """Return whether an array may stay as it is stored in the reference (components of both)."""
        return False

    def stands_alone(self, bits: Array, reference: Array, kind: ElementType) -> bool:  # noqa: ARG002
        """Return whether an array is better coded without its reference (components of both)."""
        return self.absolute

    def scaled(self, factor: float) -> Quantizer:  # noqa: ARG002
        """Return the quantizer with its steps multiplied; itself where they are fixed."""
        return self

    def fit(self, batch: Residual) -> Partition | None:
        """Return the partition for the arrays of a batch, or ``None`` to store all of them exactly."""
        return fit_each(self.fit_one, batch)

    def fit_one(self, residual: Residual) -> Partition | None:
        """Return the partition for a batch of one array, or ``None`` to store it exactly."""
        raise NotImplementedError(f"{type(self).__name__} has neither fit nor fit_one")


def check_quantizer(quantizer: object) -> Quantizer:
    """Return a quantizer; raise ``ArgumentError`` for anything else."""
    if isinstance(quantizer, Quantizer):
        return quantizer
    made = f": make one of it, as {quantizer.__name__}(...)" if isinstance(quantizer, type) else ""
    raise ArgumentError(f"{quantizer!r} is no quantizer{made}")


@dataclass(frozen=True)
class Exact:
    """The partition of arrays that are stored exactly, in a batch with others that are not.

    Parameters
    ----------
    representatives
        None of them, ``kind.work``.
    arrays
        How many arrays there are.
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
        """Return a zone that no difference is inside of."""
        return Zone.within(np.zeros(self.arrays), self.representatives.dtype)

    def symbols(self, differences: Array, owner: Owner) -> tuple[Array, Array]:  # noqa: ARG002
        """Return that no difference has a symbol."""
        return np.zeros(differences.size, np.uint8), np.ones(differences.size, bool)


@dataclass(frozen=True)
class _Joined:
    """Partitions of one array each, as one of all."""

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
                found[first:last], outside = part.symbols(differences[first:last], 0)
                if outside is not None:
                    unfit[first:last] = outside
        return found, unfit if unfit.any() else None


def fit_each(fit_one: Callable[[Residual], Partition | None], batch: Residual) -> Partition | None:
    """Fit each array of a batch by itself, and return the partition of all; ``None`` if none has one."""
    if batch.arrays == 1:
        return fit_one(batch)
    fitted = [fit_one(residual) for residual in batch.each()]
    if all(part is None for part in fitted):
        return None
    nothing = Exact(np.empty(0, batch.kind.work))
    parts = [nothing if part is None else part for part in fitted]
    bounds = [part.max_error for part in parts if part.max_error is not None]
    return _Joined(
        parts,
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.representatives for part in parts]),
        Zone.joined([part.zone for part in parts]),
        min(bounds, default=None),
    )
