"""Exact storage, for arrays that must not lose a bit: byte planes of bit patterns (SPEC 7.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from ..constants import ElementType
from ..element_types import Array, stored_view, zigzag
from ..entropy.lanes import entropy_bits
from ..parallel import stretches
from .base import Quantizer
from .residual import Residual

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
