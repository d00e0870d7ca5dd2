"""The smooth method: fields that are predicted from decoded neighbours. Source: SPEC 6.4 and 7.8.

A block is some rows of an array, which are a field of their own. All numbers of a block are read
before the first element is predicted.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ..constants import (
    ELEMENT_TYPES,
    MAX_NUMBER_BITS,
    MAX_SMOOTH_BLOCK_LOG2,
    MIN_SMOOTH_BLOCK_LOG2,
    ElementType,
)
from ..cursor import Cursor
from ..element_types import Array, narrow, stored_bytes
from ..entropy.runs import Form, Sparse, as_sparse, dense, is_filled, pack, packed_size, unpack
from ..entropy.stream_reader import read_stream
from ..entropy.stream_writer import Piece, write_stream
from ..errors import FormatError
from ..loops import kernel
from ..loops.prediction import PREDICTORS
from ..loops.representatives import is_native
from ..parallel import slices
from ..quantizers.field import LARGEST, LATTICE_ORIGIN, MOST_LATTICE_STEPS, FieldPlan, wide
from ..quantizers.lattice import Coded, Shape, decode_block, encode_block, levels
from . import planes
from .content import Content, array_sum
from .header import block_shapes

_ESCAPES, _LIMITS, _OFFSET = 1, 2, 4  # flags of a block (LCC-SMO-02)
_JOINED: Final = 1 << 12  # numbers of coarse levels that share streams (an encoder's choice)
_KEPT_FOR_OFFSET: Final = (1 / 64, 1 / 16, 1 / 4, 1 / 2)  # of the bound, tried in turn
_OFFSET_ROUNDS: Final = 8  # where many elements lie at a limit, the first ones are not enough
_MAX_JUMPS: Final = 4.0  # from a fill value to a neighbour, in usual differences
_BFLOAT16: Final = next(kind for kind in ELEMENT_TYPES if kind.name == "bfloat16")


def block_log2(size: int) -> int:
    """Return the binary logarithm of the components in a block for an array of a size.

    This is an encoder's choice: fields are predicted best in one block.
    """
    return min(max((size - 1).bit_length(), MIN_SMOOTH_BLOCK_LOG2), MAX_SMOOTH_BLOCK_LOG2)


@dataclass(frozen=True, eq=False)
class SmoothCoder:
    """Writes blocks of a field, and their decoded values into `out`."""

    content: Content
    plan: FieldPlan
    out: Array | None
    _shapes: dict[int, Shape] = field(default_factory=dict)  # of each block, by its end

    def blocks(self, log2: int) -> list[slice]:
        """Return the components of each block."""
        shapes = list(block_shapes(self.content.shapes[0], log2, 0))
        ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()
        self._shapes.update(zip(ends, shapes, strict=True))
        return [slice(end - math.prod(shape), end) for end, shape in self._shapes.items()]

    def write_block(self, part: slice) -> tuple[list[Piece], int]:
        """Return a block and its part of the array sum; write its decoded components into `out`."""
        content, plan, kind = self.content, self.plan, self.content.kind
        shape = self._shapes[part.stop]
        own = content.bits[part]
        base = None if content.reference is None else content.reference[part]
        values = own.view(kind.work) if is_native(kind) else wide(own, kind)
        moved = values
        if base is not None:
            with np.errstate(all="ignore"):
                moved = wide(own, kind) - wide(base, kind)
        hidden = spared = None
        if not self._is_plain(values, moved):
            values = wide(own, kind)
            moved = values if base is None else moved
            masked, spared = self._masked(values, moved, shape)
            if masked.any():
                hidden = masked.reshape(shape)
                moved = np.where(masked, 0.0, moved)
        coding = self._conserving if plan.keeps_sum else self._bounded
        coded, limits, result, kept = coding(moved.reshape(shape), hidden, base, own)
        if spared is not None:
            kept &= ~spared | (result == own)
        escapes = np.flatnonzero(~kept)
        result[escapes] = own[escapes]
        if self.out is not None:
            self.out[part] = result
        pieces = _write(coded, limits, escapes, result[escapes], kind, own.size)
        return [b"".join(pieces)], placed_sum(result, part.start)

    def _is_plain(self, values: Array, moved: Array) -> bool:
        """Return whether no element needs care."""
        plan = self.plan
        if plan.keeps_sum or plan.span is None:
            return False
        low, high = plan.span
        most = MOST_LATTICE_STEPS * plan.step if plan.on_lattice else LARGEST
        if not (plan.lower <= low and high <= plan.upper and max(-low, high) < most):
            return False
        return moved is values or bool(np.abs(moved).max() < LARGEST)

    def _masked(self, values: Array, moved: Array, shape: Shape) -> tuple[Array, Array | None]:
        """Return which elements are stored apart, and which fill values may be predicted."""
        plan = self.plan
        masked = ~(np.abs(moved) < LARGEST)
        filled = np.isin(values, plan.fills)
        # A fill value may be a number of the field, too: 0, where it changes its sign.
        apart = plan.keeps_sum or not _is_of_the_field(values.reshape(shape), filled.reshape(shape))
        if apart:
            masked |= filled
        if plan.lower > -math.inf or plan.upper < math.inf:
            masked |= (values < plan.lower) | (values > plan.upper)
        if plan.on_lattice:
            masked |= ~(np.abs(values) < MOST_LATTICE_STEPS * plan.step)
        return masked, None if apart else filled

    def _is_near(self, decoded: Array, own: Array) -> Array:
        """Return which components keep the bound, bool."""
        near, kind = np.empty(own.size, np.uint8), self.content.kind
        one, other = (
            each.view(kind.work) if is_native(kind) else wide(each, kind) for each in (decoded, own)
        )
        _mark_near(one, other, math.nextafter(self.plan.bound, 0), near)
        return near.view(np.bool_)

    def _bounded(
        self, moved: Array, hidden: Array | None, base: Array | None, own: Array
    ) -> tuple[Coded, _Limits, Array, Array]:
        """Code a block; return it, the limits, what is decoded, and which elements are kept."""
        plan, kind = self.plan, self.content.kind
        # On a lattice the sums and products of predictions are rounded to it, and so are those of
        # the decoder: nothing else is asked of it than to take back the origin.
        origin = LATTICE_ORIGIN * plan.step if plan.on_lattice else None
        placed = moved if origin is None else np.add(moved, origin, dtype=np.float64)
        limits = _Limits(plan.lower, plan.upper, None if origin is None else -origin)
        result, kept = np.empty_like(own), np.empty(own.size, bool)
        at = 0

        def use(piece: Array) -> None:
            nonlocal at
            part = slice(at, at := at + piece.size)
            limits.finish(piece, None if base is None else base[part], kind, result[part])
            kept[part] = self._is_near(result[part], own[part])

        coded = encode_block(placed, plan.step, hidden, use, refines=origin is None)
        if hidden is not None:
            kept &= ~hidden.reshape(-1)
        return coded, limits, result, kept

    def _conserving(
        self, moved: Array, hidden: Array | None, base: Array | None, own: Array
    ) -> tuple[Coded, _Limits, Array, Array]:
        """Code a block, with the offset that takes back its mean error.

        A part of the bound is kept for the offset: more each time that it was not enough. If the
        sum cannot be kept, no element is.
        """
        plan, kind = self.plan, self.content.kind
        unmasked = np.ones(own.size, bool) if hidden is None else ~hidden.reshape(-1)
        values, result = wide(own, kind), np.empty_like(own)
        for share in _KEPT_FOR_OFFSET:
            pieces: list[Array] = []
            coded, offset = encode_block(moved, plan.step * (1 - share), hidden, pieces.append), 0.0
            decoded = np.concatenate(pieces)
            for _ in range(_OFFSET_ROUNDS):
                limits = _Limits(plan.lower, plan.upper, offset)
                limits.finish(decoded.copy(), base, kind, result)
                found = wide(result, kind)
                kept = unmasked & self._is_near(result, own)
                missed = _missed(found[kept], values[kept], kind)
                # What lies at a limit does not move with the offset.
                free = np.count_nonzero(kept & (found > plan.lower) & (found < plan.upper))
                if not missed or not free:
                    break
                offset += missed / free
                if not abs(offset) <= plan.step / 2 * share:
                    break
            if not missed:
                return coded, limits, result, kept
        coded = encode_block(np.zeros(moved.shape), plan.step, hidden, lambda _: None)
        return coded, _Limits(), result, np.zeros(own.size, bool)


def _is_of_the_field(values: Array, filled: Array) -> bool:
    """Return whether fill values differ from their neighbours about as much as others do."""
    if not filled.any():
        return False
    totals = np.zeros((2, 2))  # sums of absolute differences, and their numbers: usual ones; to a fill
    with np.errstate(all="ignore"):
        for axis in range(values.ndim):
            differences, to_fill = np.abs(np.diff(values, axis=axis)), np.diff(filled, axis=axis)
            for row, place in enumerate((~to_fill, to_fill)):
                some = differences[place & np.isfinite(differences)]
                totals[row] += some.sum(), some.size
        (usual, count), (jumps, jumped) = totals
        return bool(jumps * count <= _MAX_JUMPS * usual * jumped)


@dataclass(frozen=True)
class _Limits:
    """What happens to predicted values before they are rounded (LCC-SMO-08)."""

    lower: float = -math.inf
    upper: float = math.inf
    offset: float | None = None

    @property
    def limited(self) -> bool:
        """Whether the limits are stored."""
        return self.lower > -math.inf or self.upper < math.inf

    def finish(self, field: Array, base: Array | None, kind: ElementType, out: Array) -> None:
        """Write the components of a field (float64), which is overwritten, into `out`.

        `base` has the components of the reference. It may be `out`.
        """
        offset = -0.0 if self.offset is None else self.offset  # the sum with -0.0 is the same number
        numbers = out.view(kind.work) if is_native(kind) else field
        before = numbers[:0]
        if base is not None:
            before = base.view(kind.work) if is_native(kind) else wide(base, kind)
        _finish(field, before, offset, self.lower, self.upper, numbers)
        with np.errstate(over="ignore"):
            if kind == _BFLOAT16:
                out[:] = narrow(numbers.astype(np.float32))
            elif not is_native(kind):
                out.view(kind.work)[:] = numbers


def _finish_numpy(field: Array, base: Array, offset: float, lower: float, upper: float, out: Array) -> None:
    with np.errstate(all="ignore"):
        if offset or math.copysign(1, offset) > 0:
            field += offset
        if base.size:
            field += base
        if lower > -math.inf or upper < math.inf:
            np.copyto(field, lower, where=field < lower)
            np.copyto(field, upper, where=field > upper)
        np.copyto(out, field, casting="same_kind")


def _finish_loop(field: Array, base: Array, offset: float, lower: float, upper: float, out: Array) -> None:
    for i in range(field.size):
        value = field[i] + offset
        if base.size:
            value += np.float64(base[i])
        value = lower if value < lower else value
        out[i] = upper if value > upper else value


_finish = kernel(_finish_numpy, _finish_loop, *(f"out f8, in f{n}, f8, f8, f8, out f{n}" for n in (4, 8)))


def _mark_near_numpy(decoded: Array, exact: Array, limit: float, near: Array) -> None:
    with np.errstate(all="ignore"):
        distance = np.subtract(decoded, exact, dtype=np.float64)
    np.less_equal(np.abs(distance, out=distance), limit, out=near.view(np.bool_))


def _mark_near_loop(decoded: Array, exact: Array, limit: float, near: Array) -> None:
    for i in range(near.size):
        near[i] = abs(np.float64(decoded[i]) - np.float64(exact[i])) <= limit


_mark_near = kernel(_mark_near_numpy, _mark_near_loop, *(f"in f{n}, in f{n}, f8, out u1" for n in (4, 8)))


def _missed(decoded: Array, values: Array, kind: ElementType) -> float:
    """Return what the decoded numbers lack to the sum of the original; 0 within the rounding."""
    missed = float((values - decoded).sum())
    rounding = 2.0 ** -(kind.mantissa + 1) * float(np.abs(values).sum())
    return missed if abs(missed) > rounding else 0.0


def placed_sum(bits: Array, first: int) -> int:
    """Return the part of an array sum of components that begin at component `first`."""
    joined = 8 // bits.itemsize
    if before := first % joined:
        bits = np.concatenate([np.zeros(before, bits.dtype), bits])
    return array_sum(bits, first // joined)


def _write(
    coded: Coded, limits: _Limits, escapes: Array, exact: Array, kind: ElementType, count: int
) -> list[Piece]:
    flags = _ESCAPES * (escapes.size > 0) | _LIMITS * limits.limited | _OFFSET * (limits.offset is not None)
    pieces: list[Piece] = [struct.pack("<Bdd", flags, coded.step, coded.origin)]
    if limits.limited:
        pieces.append(struct.pack("<dd", limits.lower, limits.upper))
    if limits.offset is not None:
        pieces.append(struct.pack("<d", limits.offset))
    pieces += [bytes(each - 1 for each in coded.refinements), bytes(coded.predictors)]
    numbers, joined = coded.numbers, 0
    while joined + 1 < len(numbers) and sum(map(len, numbers[: joined + 2])) <= _JOINED:
        joined += 1
    pieces.append(bytes([joined]))
    for group in (np.concatenate(numbers[: joined + 1]), *numbers[joined + 1 :]):
        pieces += write_numbers(group)
    if escapes.size:
        mask = np.zeros(count, np.uint8)
        mask[escapes] = 1
        pieces += [*write_stream(mask), *planes.write_block(exact, None, kind)[0]]
    return pieces


# An encoder's choice: the middle one of the numbers has about so many bits above the low bits.
_KEPT_NUMBER_BITS: Final = 6
_SAMPLED_NUMBERS: Final = 1 << 12


def write_numbers(numbers: Array) -> list[Piece]:
    """Code unsigned integers below 2**53, uint8 or uint64, 1-D (LCC-SMO-07)."""
    if numbers.dtype == np.uint8:
        return [b"\x10", *write_stream(numbers)]
    largest = int(numbers.max(initial=0))
    low = 0
    if largest > 255:
        sample = np.sort(numbers[:: max(numbers.size // _SAMPLED_NUMBERS, 1)])
        low = max(int(sample[sample.size // 2]).bit_length() - _KEPT_NUMBER_BITS, 0) % 8
    planes = max(-(-(largest.bit_length() - low) // 8), 1)
    pieces: list[Piece] = [bytes([planes << 4 | low])]
    if low:
        pieces.append(stored_bytes(pack((numbers & ((1 << low) - 1)).astype(np.uint8), low)))
    for plane in range(planes):
        pieces += write_stream((numbers >> (low + 8 * plane)).astype(np.uint8))
    return pieces


def read_numbers(cursor: Cursor, count: int) -> Array:
    """Return `count` numbers: uint8, uint16, uint32 or uint64, as the widest of them needs."""
    head = cursor.integer("B", "form of numbers")
    planes, low = head >> 4, head & 15
    if not 1 <= planes <= 7 or low > 7:
        raise FormatError("LCC-SMO-07", cursor.where, f"numbers of {planes} bytes and {low} bits")
    parts = None
    if low:
        stored = cursor.take(packed_size(count, low), "low bits of numbers")
        if not is_filled(stored, count, low):
            raise FormatError("LCC-SMO-07", cursor.where, "the padding behind the low bits is not zero")
        parts = unpack(stored, count, low)
    if planes == 1 and parts is None:
        return dense(read_stream(cursor, count), count)
    width = 8 * planes + low
    numbers = np.zeros(count, next(f"u{size}" for size in (2, 4, 8) if width <= 8 * size))
    for plane in range(planes):
        _add_plane(numbers, read_stream(cursor, count), 8 * plane)
    numbers <<= low
    if parts is not None:
        numbers |= parts
    if width > MAX_NUMBER_BITS and int(numbers.max(initial=0)) >> MAX_NUMBER_BITS:
        message = f"a number of more than {MAX_NUMBER_BITS} bits"
        raise FormatError("LCC-SMO-07", cursor.where, message)
    return numbers


def _add_plane(numbers: Array, plane: Form, shift: int) -> None:
    """Set eight bits of each number, which are 0."""
    if isinstance(plane, Sparse):
        numbers[plane.positions] |= plane.values.astype(numbers.dtype) << shift
        return
    symbols = dense(plane, numbers.size)
    for part in slices(numbers.size):
        numbers[part] |= symbols[part].astype(numbers.dtype) << shift


def read_block(cursor: Cursor, shape: Shape, kind: ElementType, reference: Array | None, out: Array) -> None:
    """Read one block into `out`, which may be `reference`; both are components."""
    flags = cursor.integer("B", "block flags")
    if flags & ~(_ESCAPES | _LIMITS | _OFFSET):
        raise FormatError("LCC-SMO-02", cursor.where, f"block flags {flags:#x} are reserved")
    step, origin = (_float(cursor, what) for what in ("step", "origin"))
    if not (0 < step < math.inf and math.isfinite(origin)):
        raise FormatError("LCC-SMO-02", cursor.where, f"a step of {step} from {origin}")
    limits = _read_limits(cursor, flags)
    passes = levels(shape)
    refinements = [each + 1 for each in cursor.take(len(passes), "steps of levels")]
    predictors = list(cursor.take(sum(map(len, passes)), "predictors"))
    if max(predictors, default=0) > max(PREDICTORS):
        raise FormatError("LCC-SMO-05", cursor.where, f"predictor {max(predictors)} is not defined")
    joined = cursor.integer("B", "joined levels")
    if joined > len(passes):
        raise FormatError("LCC-SMO-03", cursor.where, f"{joined} of {len(passes)} levels are joined")
    sizes = [1, *(sum(each.size for each in level) for level in passes)]
    numbers = read_numbers(cursor, sum(sizes[: joined + 1]))
    groups = np.split(numbers, np.cumsum(sizes[: joined + 1])[:-1])
    groups += [read_numbers(cursor, size) for size in sizes[joined + 1 :]]
    places, exact = _read_escapes(cursor, kind, out.size) if flags & _ESCAPES else (None, None)
    at = 0
    with np.errstate(all="ignore"):  # numbers of hostile bytes overflow
        for piece in decode_block(shape, Coded(step, origin, refinements, predictors, groups)):
            part = slice(at, at := at + piece.size)
            limits.finish(piece, None if reference is None else reference[part], kind, out[part])
    if places is not None:
        out[places] = exact


def _read_limits(cursor: Cursor, flags: int) -> _Limits:
    lower, upper = -math.inf, math.inf
    if flags & _LIMITS:
        lower, upper = _float(cursor, "lower limit"), _float(cursor, "upper limit")
        if not lower <= upper:
            raise FormatError("LCC-SMO-02", cursor.where, f"limits from {lower} to {upper}")
    offset = None
    if flags & _OFFSET:
        offset = _float(cursor, "offset")
        if not math.isfinite(offset):
            raise FormatError("LCC-SMO-02", cursor.where, f"an offset of {offset}")
    return _Limits(lower, upper, offset)


def _read_escapes(cursor: Cursor, kind: ElementType, count: int) -> tuple[Array, Array]:
    places = as_sparse(read_stream(cursor, count), count).positions
    exact = np.empty(places.size, kind.bits)
    planes.read_block(cursor, None, kind, exact)
    return places, exact


def _float(cursor: Cursor, what: str) -> float:
    return float(struct.unpack("<d", cursor.take(8, what))[0])
