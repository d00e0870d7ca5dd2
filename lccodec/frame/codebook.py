"""The codebook method: partitions to blocks of symbols and representatives, and these to values.

The arrays of a frame are cut into batches, and the quantizer is fitted to each batch. The
representatives become the codebook. Then each piece is quantized once, and its decoded values are
written into the reference of the next delta.

A value is the sum of reference and representative, in one IEEE addition of the element type. Symbol
0 keeps the reference. Escapes are exact values.

Source: SPEC 6.3, 7.6 and 7.7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..constants import ElementType
from ..cursor import Cursor
from ..element_types import (
    Array,
    has_negative,
    negative,
    ordered_steps,
    read_numbers,
    stored_bytes,
    unwork,
    work,
)
from ..entropy.runs import Gathered, Packed, Sparse, as_sparse, dense, group_symbols
from ..entropy.stream_reader import read_stream
from ..entropy.stream_writer import Piece, write_run
from ..errors import FormatError
from ..loops.representatives import add_sums, reconstruct, serves, settle
from ..loops.search import true_places
from ..loops.whole import write_sums
from ..parallel import PIECE, cached_property, slices
from ..quantizers.base import Exact, Partition, Quantizer, Settles, check_partition, known_symbols, spoiled
from ..quantizers.residual import Owner, Residual, RowSums
from .content import Content, array_sum, part_of
from .header import FrameHeader, Shape

#: If at most one symbol in this many is not 0, changing only their places is faster.
SPARSE_RATIO: Final = 16


class Codebook:
    """The representatives of the symbols 1, 2, ... of each array of a frame, in a table.

    `counts` has how many each array has (int64), `representatives` the components of all, one array
    after the other, and `sizes` the components of each array: of several arrays, none is empty.
    They are added to a reference if the frame is `relative`, to its order-preserving integers if
    `ordered`.
    """

    def __init__(
        self,
        counts: Array,
        representatives: Array,
        sizes: Array,
        kind: ElementType,
        *,
        relative: bool,
        ordered: bool = False,
    ) -> None:
        self.counts = counts
        self.sizes = sizes
        self.kind = kind
        #: Whether symbols take two bytes, stored as two streams (LCC-CBK-04).
        self.wide = bool(counts.max() > 255)
        self._starts = np.cumsum(counts) - counts + np.arange(counts.size)  # of each array's symbol 0
        # Adding -0.0 leaves the reference as it is (LCC-REC-02); without one, symbol 0 is +0.0.
        zero = np.array([0], kind.bits) if ordered else np.array([-0.0 if relative else 0.0], kind.work)
        self.values: Array = np.repeat(zero, representatives.size + counts.size)
        chosen = np.ones(self.values.size, bool)
        chosen[self._starts] = False
        self.values[chosen] = representatives if ordered else work(representatives, kind)

    @cached_property
    def _owner(self) -> Array:
        return np.repeat(np.arange(self.sizes.size), self.sizes)

    def owner(self, start: int, positions: Array | slice) -> Owner:
        """Return the array of each component at positions after `start`; 0 for a single array."""
        return 0 if self.sizes.size == 1 else self._owner[start:][positions]

    def places(self, symbols: Array, owner: Owner) -> Array:
        """Return where the values of symbols are in `values`."""
        if self.sizes.size > 1:
            symbols = np.add(self._starts[owner], symbols, dtype=np.intp)
        return symbols

    def check(self, symbols: Array, owner: Owner, where: str) -> None:
        """Raise ``FormatError`` if a symbol has no representative (LCC-CBK-03)."""
        counts = self.counts[owner]
        if symbols.max(initial=0) <= counts if isinstance(owner, int) else not (symbols > counts).any():
            return
        past = symbols[symbols > counts]
        message = f"symbol {int(past.max())} in an alphabet of {int(np.min(counts)) + 1}"
        raise FormatError("LCC-CBK-03", where, message)


def apply(symbols: Array, owner: Owner, codebook: Codebook, reference: Array | None, out: Array) -> None:
    """Write the values of symbols into `out`, which may be `reference`; both are components."""
    if reference is not None and np.count_nonzero(symbols) * SPARSE_RATIO <= symbols.size:
        positions = true_places(symbols != 0)
        owner = owner if isinstance(owner, int) else owner.take(positions)
        if out is not reference:
            np.copyto(out, reference)
        few = codebook.places(symbols.take(positions), owner)
        add_sums(few, positions, codebook.values, out, codebook.kind.code)
    else:
        before = out[:0] if reference is None else reference
        write_sums(codebook.places(symbols, owner), codebook.values, before, out, codebook.kind.code)


def write_block(
    symbols: Sparse | Array, escapes: Array, exact: Array, count: int, columns: int = 0
) -> list[Piece]:
    """Return the pieces of a block of `count` components: symbols, then any escapes (SPEC 6.3).

    The symbols, or those that are not 0, are uint8, or uint16 for a wide codebook. `escapes` are
    the places (rising) of what is stored exactly, with symbol 0, and `exact` these components.
    `columns` is the length of a row of the matrix; 0 if the array is not coded as one.
    """
    values = symbols.values if isinstance(symbols, Sparse) else symbols
    if values.dtype == np.uint8:
        pieces = write_run(symbols, count, columns)
    else:  # the bytes of a wide codebook are two streams
        pieces = []
        for shift in (0, 8):
            half = (values >> shift).astype(np.uint8)
            places = symbols.positions if isinstance(symbols, Sparse) else None
            run = half if places is None else as_sparse(Sparse(places, half), count)
            pieces += write_run(run, count, columns)
    if escapes.size == 0:
        return [b"\x00", *pieces]
    marks = Sparse(escapes, np.ones(escapes.size, np.uint8))
    return [b"\x01", *pieces, *write_run(marks, count), stored_bytes(exact)]


def read_codebook(cursor: Cursor, header: FrameHeader) -> Codebook:
    """Read the codebook that stands before the blocks of a frame (SPEC 6.3)."""
    kind = header.kind
    numbers = cursor.take(2 * len(header.shapes), "numbers of representatives")
    counts = read_numbers(numbers, np.uint16).astype(np.int64)
    stored = cursor.take(int(counts.sum()) * kind.size, "representatives")
    representatives = read_numbers(stored, kind.bits)
    if not header.ordered and not np.isfinite(work(representatives, kind)).all():
        raise FormatError("LCC-CBK-02", cursor.where, "a representative that is not finite")
    sizes = np.array(header.sizes)
    return Codebook(counts, representatives, sizes, kind, relative=header.relative, ordered=header.ordered)


def read_block(cursor: Cursor, codebook: Codebook, start: int, reference: Array | None, out: Array) -> None:
    """Read the block at component `start` of the frame into `out`, which may be `reference`."""
    flags = cursor.integer("B", "block flags")
    if flags > 1:
        raise FormatError("LCC-CBK-05", cursor.where, f"block flags {flags:#x} are reserved")
    run = read_stream(cursor, out.size)
    if codebook.wide:
        low, high = dense(run, out.size), dense(read_stream(cursor, out.size), out.size)
        run = low | high.astype(np.uint16) << 8
    if isinstance(run, Sparse):
        _apply_sparse(run, codebook, start, reference, out, cursor.where)
    elif isinstance(run, Packed) and codebook.sizes.size == 1:
        _apply_packed(run, codebook, reference, out, cursor.where)
    else:
        symbols = dense(run, out.size)
        for first in range(0, out.size, PIECE):
            part = slice(first, min(first + PIECE, out.size))
            owner = codebook.owner(start, part)
            codebook.check(symbols[part], owner, cursor.where)
            apply(symbols[part], owner, codebook, part_of(reference, part), out[part])
    if flags:
        places = as_sparse(read_stream(cursor, out.size), out.size).positions
        exact = cursor.take(places.size * out.itemsize, "escaped values")
        out[places] = read_numbers(exact, out.dtype)


def _apply_sparse(
    run: Sparse, codebook: Codebook, start: int, reference: Array | None, out: Array, where: str
) -> None:
    owner = codebook.owner(start, run.positions)
    codebook.check(run.values, owner, where)
    places = codebook.places(run.values, owner)
    if reference is None:
        out[:] = 0
        out[run.positions] = unwork(codebook.values.take(places, mode="clip"), codebook.kind)
        return
    if out is reference:
        add_sums(places, run.positions, codebook.values, out, codebook.kind.code)
        return
    first = 0
    for part in slices(out.size):  # which stays in the cache
        np.copyto(out[part], reference[part])
        last = int(np.searchsorted(run.positions, part.stop))
        some = slice(first, last)
        add_sums(places[some], run.positions[some], codebook.values, out, codebook.kind.code)
        first = last


def _apply_packed(run: Packed, codebook: Codebook, reference: Array | None, out: Array, where: str) -> None:
    joined, symbols = 8 // run.width, group_symbols(run.width)
    bad = (symbols > codebook.counts[0]).any(axis=1)
    if bad.any():
        codebook.check(symbols[run.groups[bad[run.groups]]], 0, where)
    rows = codebook.values.take(symbols, mode="clip")
    # A row of values is taken as a single item if a type of its size exists: one gather per group.
    item = {4: np.uint32, 8: np.uint64, 16: np.complex128}.get(rows.shape[1] * rows.itemsize)
    table = rows if item is None else rows.view(item)[:, 0]
    step = PIECE // joined
    for first in range(0, run.groups.size, step):
        part = slice(first * joined, (first + step) * joined)
        taken = table.take(run.groups[first : first + step], axis=0, mode="clip")
        target = out[part]
        values = taken.view(rows.dtype).reshape(-1)[: target.size]
        before = out[:0] if reference is None else reference[part]
        reconstruct(values, before, codebook.kind, target)


_MAX_ARRAYS_PER_BATCH: Final = 1024  # of a run; each array needs tables of its own
_NO_PLACES: Final = np.zeros(0, np.int64)
_WHOLE_PIECE: Final = 2 * PIECE  # components that one call of a loop quantizes
_WHOLE_SHARE: Final = 1 / 4  # of symbols that are not 0, from which on passes over all take less time


@dataclass(frozen=True, eq=False)
class Fitted:
    """A batch, and the partition that a quantizer chose for it."""

    residual: Residual
    partition: Partition
    first: int  # place of its first component in the frame
    array: int  # number of its first array
    unsigned: Array | None  # whether each array has no negative number; None if every array has one
    shapes: tuple[Shape, ...]


def fit_batches(content: Content, header: FrameHeader, quantizer: Quantizer) -> list[Fitted]:
    """Return the batches of the arrays with their partitions; empty to store all exactly.

    A batch is one array, or as many arrays as fit into one piece.
    """
    kind = content.kind
    if not kind.is_float or content.bits.size == 0:
        return []
    in_order = quantizer.ordered and header.relative  # an ordered frame needs a reference
    sizes = np.array(header.sizes)
    ends = np.cumsum(sizes)
    fitted: list[Fitted] = []
    array = first = 0
    is_exact = True
    while array < sizes.size:
        last = int(np.searchsorted(ends, first + PIECE, "right"))
        last = min(max(last, array + 1), array + _MAX_ARRAYS_PER_BATCH)
        part = slice(first, int(ends[last - 1]))
        base = part_of(content.reference, part)
        residual = Residual(content.bits[part], base, kind, in_order, sizes[array:last])
        shapes = header.shapes[array:last]
        keeps = quantizer.keeps_sums and header.relative and not quantizer.ordered
        residual.is_shifted = keeps and max(map(len, shapes)) > 1
        partition = quantizer.fit(residual)
        unsigned: Array | None = None
        if partition is None:
            partition = Exact(np.empty(0, kind.work), residual.arrays)
        else:
            is_exact = False
            check_partition(partition, quantizer, residual.arrays)
            # Steps of the logarithm keep positive numbers positive.
            if not quantizer.ordered and residual.arrays > 1:
                starts = np.cumsum(residual.sizes) - residual.sizes
                unsigned = ~np.logical_or.reduceat(negative(residual.bits, kind), starts)
                unsigned = unsigned if unsigned.any() else None
            elif not quantizer.ordered and not has_negative(residual.bits, kind):
                unsigned = np.ones(1, bool)
        fitted.append(Fitted(residual, partition, first, array, unsigned, shapes))
        array, first = last, part.stop
    return [] if is_exact else fitted


class SymbolCoder:
    """Writes blocks of symbols, and their decoded values into `out`, components of the frame."""

    def __init__(
        self, header: FrameHeader, fitted: list[Fitted], out: Array | None, columns: int, *, in_place: bool
    ) -> None:
        self._fitted = fitted
        self._run = header.run
        self._share = 0.0  # of the symbols of the last piece, those that are not 0
        self._in_place = in_place
        self._columns = columns
        of_batches: tuple[list[Array], ...] = ([], [], [])
        for batch in fitted:
            of_batches[0].append(batch.partition.counts)
            of_batches[1].append(batch.partition.representatives)
            of_batches[2].append(batch.residual.sizes)
        counts, representatives, sizes = map(np.concatenate, of_batches)
        kind = header.kind
        if header.ordered:
            patterns = ordered_steps(representatives, kind)
        else:  # the representative of an empty bin may be infinite: it becomes the largest number
            patterns = unwork(representatives, kind)
            sign = kind.bits.type(1 << (8 * kind.size - 1))
            largest = kind.bits.type(int(sign) - (1 << kind.mantissa) - 1)
            patterns = (patterns & sign) | np.minimum(patterns & ~sign, largest)
        self._size = int(sizes.sum())
        self._out = np.empty(self._size, kind.bits) if out is None and header.run else out
        self._book = Codebook(counts, patterns, sizes, kind, relative=header.relative, ordered=header.ordered)
        ends = np.cumsum(counts + 1)
        self._starts = (ends - counts - 1).astype(np.int32)  # of each array's values in the book
        self.codebook = stored_bytes(counts.astype(np.uint16)) + stored_bytes(patterns)
        for batch in fitted:
            if batch.residual.is_shifted:
                self._keep_sums(batch)

    def write_block(self, part: slice) -> tuple[list[Piece], int]:
        """Return the pieces of a block, and its part of the array sum.

        Only components outside the dead zone are quantized; inside it the reference stays. In an
        array without negative numbers, every decoded component is checked: none may be negative,
        and each 0 must stay 0.
        """
        count = min(part.stop, self._size) - part.start
        symbols = Gathered(count, np.uint16 if self._book.wide else np.uint8)
        escapes, exact = [_NO_PLACES], [self._fitted[0].residual.bits[:0]]
        checksum, kind = 0, self._book.kind
        for batch in self._fitted:
            stop = min(part.stop - batch.first, batch.residual.bits.size)
            start = max(part.start - batch.first, 0)
            while start < stop:
                first = batch.first + start  # in the frame
                size, whole = min(PIECE, stop - start), None
                # Where few symbols are 0, passes over all take less time than a search.
                if (
                    self._share > _WHOLE_SHARE
                    and batch.residual.arrays == 1
                    and serves(self._book.values, kind)
                    and (settles := getattr(batch.partition, "settles", None))
                ):
                    size = min(_WHOLE_PIECE, stop - start)
                    whole = settles, symbols.room(first - part.start, size)
                place, symbol, result, escaped = self._quantize_piece(batch, start, size, whole)
                self._share = (place.size if place is not None else np.count_nonzero(symbol)) / size
                if escaped.size:
                    escapes.append(escaped + (first - part.start))
                    exact.append(result.take(escaped))
                if not self._run:
                    checksum += array_sum(result, first * kind.size // 8)
                if place is not None:
                    symbols.add(first - part.start, place, symbol)
                start += size
        if self._run and self._out is not None:  # words of the sum may span two batches
            checksum = array_sum(self._out)
        found = np.concatenate(escapes), np.concatenate(exact)
        return write_block(symbols.run(), *found, count, self._columns), checksum

    def _symbols(self, batch: Fitted, start: int) -> tuple[Array, Array, Array, Array, Array, Array]:
        """Return the places of what lies outside the zone in a piece, its differences, which of it
        have symbols, and the symbols; the place of each one's value in a table, and that table.
        """
        residual, table = batch.residual, self._book.values
        place, d = residual.outside(start, batch.partition.zone)
        fits = np.isfinite(d)
        if not fits.all():
            d = np.where(fits, d, d.dtype.type(0))
        starts = self._starts[batch.array : batch.array + residual.arrays]
        if residual.arrays == 1:
            symbol, unfit = known_symbols(batch.partition, d)
            chosen, table = symbol, table[int(starts[0]) :]
        else:
            symbol, unfit = batch.partition.symbols(d, residual.owner(place))
            if place.size == residual.bits.size:  # to repeat numbers is faster than to look them up
                chosen = np.repeat(starts, residual.sizes) + symbol
            else:
                chosen = starts[residual.owner(place)] + symbol
        if unfit is not None:
            fits &= ~unfit
        return place, d, fits, symbol, chosen, table

    def _keep_sums(self, batch: Fitted) -> None:
        """Add to the differences of each matrix what its rows would miss."""
        residual, high = batch.residual, batch.partition.zone.high
        sums = [RowSums(*each) for each in zip(batch.shapes, residual.sizes.tolist(), strict=True)]
        ends = np.cumsum(residual.sizes)[:-1]
        for start in residual.pieces:
            missed, d = self._missed(batch, start)
            for own, *some in zip(sums, np.split(missed, ends), np.split(d, ends), strict=True):
                own.add(start, *some)
        # What did not move stays in the zone.
        residual.add([own.shift(most) for own, most in zip(sums, high / 2, strict=True)])

    def _missed(self, batch: Fitted, start: int) -> tuple[Array, Array]:
        """Return what the components of a piece would miss, and their differences."""
        residual, table = batch.residual, self._book.values
        misses = getattr(batch.partition, "misses", None) if residual.arrays == 1 else None
        if misses and serves(table, self._book.kind):
            found: tuple[Array, Array] = misses(*residual.operands(start), table=table)
            return found
        d = residual.differences(start)
        place, some, fits, _, chosen, table = self._symbols(batch, start)
        some = some - table.take(chosen, mode="clip")
        missed = d.copy()
        missed[place] = some if fits.all() else np.where(fits, some, 0)
        return missed, d

    def _quantize_piece(
        self, batch: Fitted, start: int, count: int, whole: tuple[Settles, Array] | None
    ) -> tuple[Array | None, Array, Array, Array]:
        """Quantize one piece; as a whole if it is given what does that, and memory for all symbols.

        Returns places and symbols of the components outside the dead zone, or ``None`` and all
        symbols; the decoded piece; and the places of the components that are stored exactly. These
        have symbol 0. Their exact values are in the decoded piece, so that each component is read
        once.
        """
        residual, partition, kind = batch.residual, batch.partition, self._book.kind
        part = slice(start, start + count)
        original, base = residual.bits[part], part_of(residual.reference, part)
        within = slice(batch.first + start, batch.first + start + count)  # in the frame
        result = np.empty_like(original) if self._out is None else self._out[within]
        bound = math.inf if partition.max_error is None else partition.max_error
        table = self._book.values
        place: Array | None = None
        if whole:
            settles, symbol = whole
            escaped = settles(
                *residual.operands(start, count=count),
                symbols=symbol,
                table=table,
                original=original,
                result=result,
                bound=bound,
                code=kind.code,
            )
        else:
            place, _, fits, symbol, chosen, table = self._symbols(batch, start)
            if place.size < original.size:
                if base is None:
                    result[:] = 0
                elif not self._in_place:
                    result[:] = base
            reference = original[:0] if base is None else base
            escaped = settle(
                *(chosen, fits.view(np.uint8), place, table, original, reference, result),
                bound=bound,
                code=kind.code,
            )
            if chosen is not symbol and escaped.size:
                symbol[np.searchsorted(place, escaped)] = 0
        residual.release(start, count)
        if batch.unsigned is not None:
            own = original.copy()
            marked = spoiled(result, own, kind)
            if residual.arrays > 1:
                marked &= batch.unsigned[residual.owner()]
            if marked.any():
                np.copyto(result, own, where=marked)
                symbol[marked if place is None else marked.take(place)] = 0
                marked[escaped] = True
                escaped = np.flatnonzero(marked)
        return place, symbol, result, escaped
