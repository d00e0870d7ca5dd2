"""An independent oracle: the paper's quantizer as straightforward loops over elements.

LC-Checkpoint (Chen et al., ICML 2020, sections 3.1 and 3.2), written from its definition only:
nothing of lccodec is imported and NumPy does no arithmetic here. Every finite value of an IEEE-754
format is an integer multiple of the format's smallest subnormal, so sums and differences are exact
Python integers ("ulps" below), and each operation of the definition is rounded exactly once.
"""

import math
import struct
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np

__all__ = ["lc_reconstruct", "order0_entropy_bits"]


@dataclass(frozen=True)
class Format:
    """One IEEE-754 binary format: the widths of its fields and the struct code of its pattern."""

    exponent_bits: int
    mantissa_bits: int
    code: str

    @property
    def infinity(self) -> int:
        """The pattern of +Inf; what is larger, the sign bit aside, is NaN."""
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @property
    def sign_bit(self) -> int:
        """The pattern of -0.0."""
        return 1 << (self.exponent_bits + self.mantissa_bits)

    def exponent(self, pattern: int) -> int:
        """Return the biased exponent field; 0 for zeros and subnormals."""
        return (pattern & ~self.sign_bit) >> self.mantissa_bits

    def is_finite(self, pattern: int) -> bool:
        """Tell whether `pattern` is neither NaN nor an infinity."""
        return (pattern & ~self.sign_bit) < self.infinity

    def to_ulps(self, pattern: int) -> int:
        """Return a finite value as a multiple of the smallest subnormal; both zeros give 0."""
        exponent = self.exponent(pattern)
        ulps = pattern & ((1 << self.mantissa_bits) - 1)
        if exponent > 0:
            ulps = (ulps | 1 << self.mantissa_bits) << (exponent - 1)
        return -ulps if pattern & self.sign_bit else ulps

    def round_half_ulps(self, halves: int) -> int:
        """Round a number of half ulps once, to nearest, ties to even; zero gives +0.0."""
        sign = self.sign_bit if halves < 0 else 0
        halves = abs(halves)
        # Half an ulp has one bit below the subnormal's, so at least one bit is dropped.
        drop = max(1, halves.bit_length() - (self.mantissa_bits + 1))
        kept, rest = halves >> drop, halves & ((1 << drop) - 1)
        if rest > 1 << (drop - 1) or (rest == 1 << (drop - 1) and kept & 1):
            kept += 1
        # `kept` carries the implicit one where the value is normal, and adding it to the exponent
        # before this one makes both that one and the carry of a round-up come out right.
        return sign | min(kept + ((drop - 1) << self.mantissa_bits), self.infinity)


FORMATS = {
    "float16": Format(5, 10, "H"),
    "bfloat16": Format(8, 7, "H"),
    "float32": Format(8, 23, "I"),
    "float64": Format(11, 52, "Q"),
}


def lc_reconstruct(values: np.ndarray, reference: np.ndarray | None, bits: int, dtype: str) -> np.ndarray:
    """Return what the paper's quantizer reconstructs.

    Parameters
    ----------
    values, reference
        Arrays of `dtype`, bfloat16 as uint16 bit patterns; without a reference it is +0.0.
    bits
        The paper's x: the 2^x - 1 occupied buckets of largest exponent are promoted, of two with
        equal exponent the positive one first.
    dtype
        ``"float16"``, ``"bfloat16"``, ``"float32"`` or ``"float64"``.

    Returns
    -------
    numpy.ndarray
        The reconstruction, of the dtype and shape of `values`.
    """
    fmt = FORMATS[dtype]
    x = _patterns(values, fmt)
    r = [0] * len(x) if reference is None else _patterns(reference, fmt)
    differences = [_difference(fmt, x_i, r_i) for x_i, r_i in zip(x, r, strict=True)]

    # Exact elements, zeros and subnormals are in no bucket.
    buckets: dict[tuple[int, bool], list[int]] = {}
    for d in differences:
        if d is not None and fmt.exponent(d) > 0:
            buckets.setdefault(_bucket(fmt, d), []).append(fmt.to_ulps(d))

    # A key is (exponent, is positive), so the largest keys are the rule with its tie.
    promoted = sorted(buckets, reverse=True)[: 2**bits - 1]
    # (max + min) / 2 ulps is max + min half ulps.
    representative = {key: fmt.round_half_ulps(max(buckets[key]) + min(buckets[key])) for key in promoted}

    result = []
    for x_i, r_i, d in zip(x, r, differences, strict=True):
        if d is None:
            result.append(x_i)
        elif _bucket(fmt, d) in representative:
            value = representative[_bucket(fmt, d)]
            if reference is not None:
                value = fmt.round_half_ulps(2 * (fmt.to_ulps(r_i) + fmt.to_ulps(value)))
            result.append(value if fmt.is_finite(value) else x_i)
        else:
            result.append(r_i)
    packed = struct.pack(f"={len(result)}{fmt.code}", *result)
    return np.frombuffer(packed, values.dtype).reshape(values.shape)


def order0_entropy_bits(symbols: Iterable[Hashable]) -> float:
    """Return the Shannon entropy of the whole sequence in bits (not per symbol)."""
    counts = Counter(symbols)
    total = sum(counts.values())
    return sum(count * math.log2(total / count) for count in counts.values())


def _patterns(array: np.ndarray, fmt: Format) -> tuple[int, ...]:
    """Return the bit pattern of every element in C order."""
    return struct.unpack(f"={array.size}{fmt.code}", array.tobytes())


def _difference(fmt: Format, x: int, r: int) -> int | None:
    """Return x - r rounded once, or None where the element has to be exact."""
    if not (fmt.is_finite(x) and fmt.is_finite(r)):
        return None
    d = fmt.round_half_ulps(2 * (fmt.to_ulps(x) - fmt.to_ulps(r)))
    return d if fmt.is_finite(d) else None


def _bucket(fmt: Format, d: int) -> tuple[int, bool]:
    """Return (exponent, is positive); exponent 0 is in no bucket that can be promoted."""
    return fmt.exponent(d), not d & fmt.sign_bit
