"""The codebook method: how a block is laid out, and symbols and representatives to values.

A value is the sum of reference and representative, in one IEEE addition of the element type. Symbol
0 keeps the reference. Escapes are exact values. Source: SPEC 6.3 and 7.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import numpy as np

from ..byteorder import read_numbers, stored_bytes
from ..cursor import Cursor
from ..element_table import ElementType
from ..element_types import Array, add, add_at, unwork, work
from ..entropy.bits import group_symbols
from ..entropy.runs import Packed, Sparse, as_sparse, dense
from ..entropy.stream_reader import read_stream
from ..entropy.stream_writer import Piece, write_run
from ..errors import FormatError
from ..masks import true_places
from ..parallel import PIECE, slices
from ..quantizers.residual import Owner
from .content import part_of
from .header import FrameHeader

#: If at most one symbol in this many is not 0, changing only their places is faster.
SPARSE_RATIO: Final = 16

_PLACES_AT_A_TIME: Final = 1 << 14  # that are changed, so that they and what is added stay in the cache


class Codebook:
    """The representatives of the symbols 1, 2, ... of each array of a frame, in a table.

    Parameters
    ----------
    counts
        Number of representatives of each array, int64 of shape ``(arrays,)``.
    representatives
        Components (bit patterns) of the representatives of all arrays, one array after the other.
    sizes
        Number of components of each array, int64. If there are several arrays, no size is 0.
    relative, ordered
        Whether representatives are added to a reference, and to its order-preserving integers.
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
        self._starts = np.cumsum(counts) - counts + np.arange(counts.size)  # of each array's symbol 0
        # Adding -0.0 leaves the reference as it is (LCC-REC-02); without one, symbol 0 is +0.0.
        zero = np.array([0], kind.bits) if ordered else np.array([-0.0 if relative else 0.0], kind.work)
        self.values: Array = np.repeat(zero, representatives.size + counts.size)
        chosen = np.ones(self.values.size, bool)
        chosen[self._starts] = False
        self.values[chosen] = representatives if ordered else work(representatives, kind)

    @property
    def wide(self) -> bool:
        """Whether symbols take two bytes, stored as two streams (LCC-CBK-04)."""
        return bool(self.counts.max() > 255)

    @cached_property
    def _owner(self) -> Array:
        return np.repeat(np.arange(self.sizes.size), self.sizes)

    def owner(self, start: int, positions: Array | slice) -> Owner:
        """Return the array of each component at positions after `start`; 0 for a single array."""
        return 0 if self.sizes.size == 1 else self._owner[start:][positions]

    def expand(self, symbols: Array, owner: Owner = 0, first: int = 0) -> Array:
        """Return the values of symbols: ``kind.work``, or ``kind.bits`` if the book is ordered.

        `owner` counts the arrays from the `first` one on.
        """
        if self.sizes.size > 1:
            symbols = np.add(self._starts[first:][owner], symbols, dtype=np.intp)
        return self.values.take(symbols, mode="clip")

    def check(self, symbols: Array, owner: Owner, where: str) -> None:
        """Raise ``FormatError`` if a symbol has no representative (LCC-CBK-03)."""
        counts = self.counts[owner]
        if symbols.max(initial=0) <= counts if isinstance(owner, int) else not (symbols > counts).any():
            return
        past = symbols[symbols > counts]
        message = f"symbol {int(past.max())} in an alphabet of {int(np.min(counts)) + 1}"
        raise FormatError("LCC-CBK-03", where, message)


def reconstruct(values: Array, reference: Array | None, kind: ElementType, out: Array) -> None:
    """Write reference + values to `out` (LCC-REC-03); without a reference, the values."""
    if reference is None:
        out[:] = unwork(values, kind)
    else:
        add(reference, values, kind, out)


def apply(symbols: Array, owner: Owner, codebook: Codebook, reference: Array | None, out: Array) -> None:
    """Write the values of symbols into `out`, which may be `reference`; both are components."""
    if reference is not None and np.count_nonzero(symbols) * SPARSE_RATIO <= symbols.size:
        positions = true_places(symbols != 0)
        owner = owner if isinstance(owner, int) else owner.take(positions)
        values = codebook.expand(symbols.take(positions), owner)
        _change(reference, positions, values, codebook.kind, out)
    else:
        reconstruct(codebook.expand(symbols, owner), reference, codebook.kind, out)


def _change(reference: Array, positions: Array, values: Array, kind: ElementType, out: Array) -> None:
    """Write the reference into `out`, and add values at `positions`."""
    if out is not reference:
        np.copyto(out, reference)
    add_at(out, positions, values, kind)


def write_block(
    symbols: Sparse | Array, escapes: Array, exact: Array, count: int, columns: int = 0
) -> list[Piece]:
    """Return the pieces of a block of `count` components: symbols, then any escapes (SPEC 6.3).

    Parameters
    ----------
    symbols
        All symbols, or those that are not 0: uint8, or uint16 for a wide codebook.
    escapes, exact
        Places (rising) and components of the elements that are stored exactly, with symbol 0.
    columns
        Number of components in a row of the matrix; 0 if the array is not coded as one.
    """
    pieces = [piece for half in _halves(symbols, count) for piece in write_run(half, count, columns)]
    if escapes.size == 0:
        return [b"\x00", *pieces]
    marks = Sparse(escapes, np.ones(escapes.size, np.uint8))
    return [b"\x01", *pieces, *write_run(marks, count), stored_bytes(exact)]


def _halves(symbols: Sparse | Array, count: int) -> Iterator[Sparse | Array]:
    """Yield the runs of bytes that symbols are stored as: one, or two of a wide codebook."""
    values = symbols.values if isinstance(symbols, Sparse) else symbols
    if values.dtype == np.uint8:
        yield symbols
        return
    for shift in (0, 8):
        half = (values >> shift).astype(np.uint8)
        yield as_sparse(Sparse(symbols.positions, half), count) if isinstance(symbols, Sparse) else half


def read_counts(cursor: Cursor, header: FrameHeader) -> Array:
    """Read how many representatives each array of a frame has, int64: the start of its codebook."""
    stored = cursor.take(2 * len(header.shapes), "numbers of representatives")
    return read_numbers(stored, np.uint16).astype(np.int64)


def read_codebook(cursor: Cursor, header: FrameHeader) -> Codebook:
    """Read the codebook that stands before the blocks of a frame (SPEC 6.3)."""
    kind, counts = header.kind, read_counts(cursor, header)
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
    if reference is None:
        out[:] = 0
        out[run.positions] = unwork(codebook.expand(run.values, owner), codebook.kind)
        return
    if out is not reference:
        np.copyto(out, reference)
    for part in slices(run.positions.size, _PLACES_AT_A_TIME):
        values = codebook.expand(run.values[part], owner if isinstance(owner, int) else owner[part])
        add_at(out, run.positions[part], values, codebook.kind)


def _apply_packed(run: Packed, codebook: Codebook, reference: Array | None, out: Array, where: str) -> None:
    joined, symbols = 8 // run.width, group_symbols(run.width)
    bad = (symbols > codebook.counts[0]).any(axis=1)
    if bad.any():
        codebook.check(symbols[run.groups[bad[run.groups]]], 0, where)
    rows = codebook.expand(symbols)
    # A row of values is taken as a single item if a type of its size exists: one gather per group.
    item = {4: np.uint32, 8: np.uint64, 16: np.complex128}.get(rows.shape[1] * rows.itemsize)
    table = rows if item is None else rows.view(item)[:, 0]
    step = PIECE // joined
    for first in range(0, run.groups.size, step):
        part = slice(first * joined, (first + step) * joined)
        taken = table.take(run.groups[first : first + step], axis=0, mode="clip")
        target = out[part]
        values = taken.view(rows.dtype).reshape(-1)[: target.size]
        reconstruct(values, part_of(reference, part), codebook.kind, target)
