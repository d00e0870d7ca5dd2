"""Element types as bit patterns: components, arithmetic in the type, and their bytes as stored.

Below the frame, the codec works on *components*: a 1-D array in C order of native-endian unsigned
integers that hold the bit patterns of the elements. A complex number is two components, first the
real part, then the imaginary part. bfloat16 is handled on its bit patterns, so that the codec needs
no package for it. Only returning NumPy's native type needs one (the extra ``bfloat16``).

The format stores numbers little-endian, whatever the byte order of the host is. No other module of
the format takes the bytes of numbers that are larger than one byte: ``tests/test_element_types.py``
checks this in the syntax trees. Nothing is copied for it on a little-endian host.

Sources: SPEC 2 and 5.2 (element types), SPEC 7.5 (zigzag codes), SPEC 7.6 (reconstruction), IEEE
754-2019.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .constants import ELEMENT_TYPES, ElementType
from .errors import ArgumentError
from .parallel import slices

Array = npt.NDArray[Any]

#: The dtype of a bfloat16 array without ml_dtypes: ``bits.view(BFLOAT16_BITS)``, of uint16.
BFLOAT16_BITS: Final = np.dtype([("bfloat16", np.uint16)])

_BY_NAME: Final = {kind.name: kind for kind in ELEMENT_TYPES}
#: What to store in the place of arrays of a kind that the format lacks.
_INSTEAD: Final = {
    **dict.fromkeys("SU", ": save its tolist()"),
    **dict.fromkeys("mM", ": save its view of int64"),
}


def is_bfloat16_bits(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is :data:`BFLOAT16_BITS`, in either byte order."""
    return dtype.names is not None and dtype.newbyteorder("=") == BFLOAT16_BITS


@lru_cache  # NumPy builds a dtype's name on each access, and a state may have thousands of arrays
def element_type(dtype: np.dtype[Any]) -> ElementType:
    """Return the element type of a NumPy dtype; raise ``ArgumentError`` if there is none."""
    if is_bfloat16_bits(dtype):
        return _BY_NAME["bfloat16"]
    found = _BY_NAME.get(dtype.name)
    if found is None:
        instead = _INSTEAD.get(dtype.kind, "")
        raise ArgumentError(f"dtype {dtype} cannot be stored{instead}; the format has {', '.join(_BY_NAME)}")
    return found


def components(array: Array) -> tuple[ElementType, Array]:
    """Return the element type and the components of `array`: 1-D, of ``type.bits``, in C order.

    They are a view if `array` is contiguous and native-endian, and a copy otherwise.
    """
    kind = element_type(array.dtype)
    if kind.kind == "b":
        array = array.view(np.uint8) != 0  # as in NumPy, every byte but 0 is true
    native = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    return kind, np.ascontiguousarray(array, native).reshape(-1).view(kind.bits)


def in_host_order(array: Array) -> Array:
    """Return an array with its numbers in the host's byte order; itself if they are."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def held_beside(array: object) -> str:
    """Return what a subclass of NumPy's arrays has beside numbers, and what to do; empty for none.

    Units, as of unyt and astropy, would be lost without a word. NumPy's own classes have nothing to
    keep: a memory map has its file, a matrix nothing.
    """
    kind = type(array)
    if kind is np.ndarray or not isinstance(array, np.ndarray) or kind.__module__.startswith("numpy"):
        return ""
    slots = (vars(base).get("__slots__", ()) for base in kind.__mro__)
    names = [name for each in slots for name in ([each] if isinstance(each, str) else each)]
    names = [*getattr(array, "__dict__", {}), *names]
    held = ", ".join(name for name in dict.fromkeys(names) if getattr(array, name, None) is not None)
    what = f"a {kind.__module__}.{kind.__qualname__}, which is more than its numbers"
    return f"{what}: give numpy.asarray(value), and keep beside it: {held}" if held else ""


def check_dtype(dtype: object) -> None:
    """Raise ``ArgumentError`` for a `dtype` that :func:`from_components` does not accept."""
    if dtype is not None and not (isinstance(dtype, str) and dtype in ("float32", "bits")):
        raise ArgumentError(
            f"dtype must be 'float32' or 'bits', which say how bfloat16 is returned; got {dtype!r};"
            " convert the returned array instead"
        )


def from_components(bits: Array, kind: ElementType, shape: tuple[int, ...], dtype: str | None) -> Array:
    """Return components as an array of `shape`; the inverse of :func:`components`.

    A `dtype` of ``"float32"`` widens bfloat16 exactly, and ``"bits"`` returns it as
    :data:`BFLOAT16_BITS`. Both leave every other type as it is.
    """
    check_dtype(dtype)
    if kind.name == "bfloat16" and dtype is not None:
        return widen(bits).reshape(shape) if dtype == "float32" else bits.view(BFLOAT16_BITS).reshape(shape)
    return bits.view(kind.native).reshape(shape)


def widen(bits: Array) -> Array:
    """Return bfloat16 bit patterns (uint16) as float32. This is exact."""
    wide = bits.astype(np.uint32)
    np.left_shift(wide, 16, out=wide)
    return wide.view(np.float32)


def narrow(values: Array) -> Array:
    """Return float32 values as bfloat16 bit patterns (uint16), rounded once to nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    odd = (bits >> 16) & 1
    rounded = ((bits + (odd + 0x7FFF)) >> 16).astype(np.uint16)
    nan = np.isnan(values)
    if nan.any():  # rounding could turn a NaN into infinity: keep its top bits, make it quiet
        rounded[nan] = (bits[nan] >> 16).astype(np.uint16) | 0x0040
    return rounded


def work(bits: Array, kind: ElementType) -> Array:
    """Return components as floating point numbers (`kind.work`), as a view where possible."""
    return widen(bits) if kind.name == "bfloat16" else bits.view(kind.work)


def unwork(values: Array, kind: ElementType) -> Array:
    """Return floating point numbers as components, rounded once to the element type."""
    if kind.name == "bfloat16":
        return narrow(values)
    return values.astype(kind.work, copy=False).view(kind.bits)


def subtract(bits: Array, reference: Array | None, kind: ElementType) -> Array:
    """Return ``x - r`` in `kind.work`, by one IEEE subtraction in the element type (LCC-QNT-01).

    Without a reference the result is ``x``. A bfloat16 difference is rounded to bfloat16: float32
    has more than twice as many digits, so that rounding twice gives the same as rounding once.
    """
    x = work(bits, kind)
    if reference is None:
        return x
    with np.errstate(all="ignore"):
        d: Array = np.subtract(x, work(reference, kind))
    return widen(narrow(d)) if kind.name == "bfloat16" else d


def add(reference: Array, representatives: Array, kind: ElementType, out: Array) -> None:
    """Write ``r + c`` into `out`, by one IEEE addition in the element type (LCC-REC-03).

    `reference` and `out` are components, `representatives` has `kind.work`. Adding -0.0 changes no
    pattern but a signaling NaN, so that symbol 0 keeps its reference. Representatives of type
    ``kind.bits`` are added to the order-preserving integers instead (LCC-REC-04).
    """
    if representatives.dtype == kind.bits:
        out[:] = from_ordered(to_ordered(reference) + representatives)
        return
    with np.errstate(all="ignore"):
        if kind.name == "bfloat16":
            out[:] = narrow(widen(reference) + representatives)
        else:
            np.add(reference.view(kind.work), representatives, out=out.view(kind.work))


def add_at(bits: Array, places: Array, representatives: Array, kind: ElementType) -> None:
    """Do the same as :func:`add`, in place, at a few places (int64, rising) of `bits`."""
    if representatives.dtype == kind.bits or kind.work.itemsize < 4 or kind.name == "bfloat16":
        values = np.empty(places.size, bits.dtype)
        add(bits.take(places, mode="clip"), representatives, kind, values)
        bits[places] = values
    else:  # NumPy has a special loop for these types, which is twice as fast
        with np.errstate(all="ignore"):
            np.add.at(bits.view(kind.work), places, representatives)


def interpolate(low: Array, high: Array, weight: float, kind: ElementType, out: Array) -> None:
    """Write ``l - (l - h) * w`` into `out`, or ``l`` where that is not finite (LCC-INT-04).

    Each operation is rounded to the element type. `low`, `high` and `out` are components of one
    floating-point type; `out` may be one of the two. The type has the number `weight`.
    """
    with np.errstate(all="ignore"):
        first = work(low, kind)
        r = _rounded(first - work(high, kind), kind)
        r *= kind.work.type(weight)
        r = _rounded(np.subtract(first, _rounded(r, kind), out=r), kind)
    finite = np.isfinite(r)
    found = unwork(r, kind)
    out[:] = found if finite.all() else np.where(finite, found, low)


def _rounded(values: Array, kind: ElementType) -> Array:
    """Return what was computed in `kind.work` rounded to the element type."""
    return widen(narrow(values)) if kind.name == "bfloat16" else values


def rounded_copy(bits: Array, kind: ElementType, out: Array) -> None:
    """Write float32 numbers as numbers of `kind`, float16 or bfloat16 (LCC-CPY-03).

    `bits` and `out` are components. Each number is rounded once, to nearest even. A NaN keeps its
    sign and its top bits, and becomes quiet.
    """
    values = bits.view(np.float32)
    if kind.name == "bfloat16":
        out[:] = narrow(values)
        return
    with np.errstate(all="ignore"):
        out[:] = values.astype(np.float16).view(np.uint16)
    nan = np.isnan(values)
    if nan.any():  # machines differ in the bits of a NaN
        own = bits[nan]
        out[nan] = (own >> 16 & 0x8000 | 0x7E00 | own >> 13 & 0x3FF).astype(np.uint16)


def negative(bits: Array, kind: ElementType) -> Array:
    """Return which floating point components are numbers below 0."""
    sign = 1 << (8 * kind.size - 1)
    infinity = sign - (1 << kind.mantissa)
    # The patterns of the negative numbers become 0, 1, 2, and so on, below infinity's pattern. All
    # other patterns become larger ones.
    below: Array = bits - kind.bits.type(sign + 1) < kind.bits.type(infinity)
    return below


def zero(bits: Array) -> Array:
    """Return which floating point components are 0.0 or -0.0."""
    found: Array = bits << 1 == 0
    return found


def has_negative(bits: Array, kind: ElementType) -> bool:
    """Return whether an array has a number below 0; most arrays have one in their first piece."""
    found = False
    for part in slices(bits.size):
        if found := bool(negative(bits[part], kind).any()):
            break
    return found


def to_ordered(bits: Array) -> Array:
    """Map floating point patterns to unsigned integers in the order of the numbers (LCC-PLN-02)."""
    top = 8 * bits.itemsize - 1
    keys: Array = (bits.view(f"i{bits.itemsize}") >> top).view(bits.dtype)  # all zeros or ones
    keys |= bits.dtype.type(1 << top)
    keys ^= bits
    return keys


def from_ordered(keys: Array) -> Array:
    """Map order-preserving integers back to patterns; the inverse of :func:`to_ordered`."""
    bits: Array = ~(keys.view(f"i{keys.itemsize}") >> (8 * keys.itemsize - 1)).view(keys.dtype)
    bits |= keys.dtype.type(1 << (8 * keys.itemsize - 1))
    bits ^= keys
    return bits


def zigzag(bits: Array, reference: Array | None, is_float: bool) -> Array:
    """Return the zigzag of the ordered difference to the reference (LCC-PLN-02, LCC-PLN-03).

    Small differences of either sign become small unsigned integers. Without a reference the
    reference is zero, which for floating point is a rotation of the pattern by one bit: the sign
    comes last and the exponent fills the top byte.
    """
    width = 8 * bits.itemsize
    if reference is None:
        if is_float:
            return (bits << 1) | (bits >> (width - 1))
        difference = bits
    elif is_float:
        difference = to_ordered(bits)
        np.subtract(difference, to_ordered(reference), out=difference)
    else:
        difference = bits - reference
    codes: Array = (difference.view(f"i{bits.itemsize}") >> (width - 1)).view(bits.dtype)
    codes ^= difference << 1
    return codes


def unzigzag(codes: Array, reference: Array | None, is_float: bool, out: Array) -> None:
    """Write the components that :func:`zigzag` coded into `out` (which may be `reference`)."""
    if reference is None and is_float:
        np.bitwise_or(codes >> 1, codes << (8 * codes.itemsize - 1), out=out)
        return
    difference = (codes >> 1) ^ (codes.dtype.type(0) - (codes & codes.dtype.type(1)))
    if reference is None:
        out[:] = difference
    elif is_float:
        np.add(difference, to_ordered(reference), out=difference)
        out[:] = from_ordered(difference)
    else:
        np.add(difference, reference, out=out)


def octaves(bits: Array, reference: Array, kind: ElementType) -> Array:
    """Return about ``log2(x / r)`` as float32 or float64: how many powers of two `x` lies from `r`.

    This is the difference of the order-preserving integers, divided by ``2**mantissa``. Within a
    power of two the logarithm is taken as a straight line, with an error of at most 0.0861; the
    arithmetic is exact. 0 where the patterns are equal, otherwise NaN unless both are positive
    normal numbers.
    """
    signed = f"i{kind.size}"
    wide = np.promote_types(kind.work, np.float32).type
    d: Array = (bits.view(signed) - reference.view(signed)).astype(wide)
    d *= wide(2.0**-kind.mantissa)
    least = kind.bits.type(1 << kind.mantissa)
    count = kind.bits.type((1 << (8 * kind.size - 1)) - (2 << kind.mantissa))
    normal = bits - least < count
    normal &= reference - least < count
    if not normal.all():
        d[~normal & (bits != reference)] = np.nan
    return d


def ordered_steps(octaves: Array, kind: ElementType) -> Array:
    """Return finite differences, as :func:`octaves` returns them, as components for :func:`add`."""
    steps = np.rint(octaves.astype(np.float64) * 2.0**kind.mantissa)
    # The middle of an empty bin can lie past the last step.
    most = min(2.0 ** (8 * kind.size - 1) - 1, np.nextafter(2.0**63, 0))
    return np.clip(steps, -most, most).astype(f"i{kind.size}").view(kind.bits)


def scattered(size: int, count: int) -> Array:
    """Return places of a sample (int64), rising: one in each of `count` stretches, anywhere in it.

    At equal distances a sample might see one column of a matrix and take it for the whole. Of fewer
    than twice as many components, all are in the sample.
    """
    if size < 2 * count:
        count = size
    return _anywhere(count, size // max(count, 1))


def stretches(size: int, count: int, length: int) -> Iterator[slice]:
    """Yield slices of `length` elements, one in each of `count` parts; all of a small array.

    They lie anywhere in these parts (`scattered`): the columns of a matrix are sampled alike.
    """
    if size <= count * length:
        yield from slices(size, length)
        return
    for number, gap in enumerate(_anywhere(count, size // count - length).tolist()):
        start = number * length + gap
        yield slice(start, start + length)


@lru_cache(maxsize=16)
def _anywhere(count: int, distance: int) -> Array:
    """Return a number in each of `count` parts of a range, each of so many numbers."""
    part = np.arange(count)
    found: Array = part * distance + ((part * _GOLDEN & 0xFFFF) * distance >> 16)
    found.flags.writeable = False
    return found


_GOLDEN: Final = 40503  # 2**16 over the golden ratio: its multiples lie evenly


def little_endian(numbers: Array) -> Array:
    """Return an array with its numbers in little-endian order; itself if they are."""
    return numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)


def stored_bytes(numbers: Array) -> bytes:
    """Return the bytes that the format stores for numbers of any dtype and byte order (C order)."""
    return little_endian(numbers).tobytes()


def stored_view(numbers: Array) -> Array:
    """Return the bytes of :func:`stored_bytes` as uint8, the lowest byte of each number first.

    The last dimension, which must be contiguous, gets as many times longer as a number has bytes.
    The result is the same memory if the numbers are little-endian, else a copy.
    """
    return little_endian(numbers).view(np.uint8)


def read_numbers(data: Any, dtype: npt.DTypeLike) -> Array:
    """Return numbers (1-D, in the host's byte order) from bytes; inverse of :func:`stored_bytes`.

    The byte order of `dtype` is ignored. On a little-endian host the result is memory of `data`.
    """
    stored = np.dtype(dtype).newbyteorder("<")
    return np.frombuffer(data, stored).astype(stored.newbyteorder("="), copy=False)
