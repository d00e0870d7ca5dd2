"""The codebook method, decoder's half: symbols and representatives to values.

Value = reference + representative in one IEEE addition of the element type; symbol 0 keeps the
reference; escapes are exact. Source: SPEC 6.3 and 7.6.
"""

from __future__ import annotations

import numpy as np

from ..byteorder import read_numbers, stored_bytes, stored_view
from ..element_types import Array, ElementType, add, add_at, unwork, work
from ..entropy.bits import Cursor
from ..entropy.forms import Packed, Sparse, dense, places_of
from ..entropy.stream_reader import read_stream
from ..entropy.stream_writer import Piece, write_places, write_stream
from ..errors import FormatError

__all__ = [
    "Codebook",
    "RunCodebook",
    "apply",
    "read_block",
    "read_run_block",
    "reconstruct",
    "write_block",
]

_PIECE = 1 << 16  # values made at a time, so that they stay in the cache

#: With at most one symbol in this many not 0, it is faster to copy the reference and change those.
_FEW = 16


class Codebook:
    """Representatives of the symbols 1, 2, ... and what to look up for a symbol or a group.

    Parameters
    ----------
    representatives
        Components (bit patterns) of shape ``(symbols - 1,)``.
    kind
        Their element type.
    relative
        Whether they are added to a reference.
    ordered
        Whether they are added to its order-preserving integers.
    """

    def __init__(
        self, representatives: Array, kind: ElementType, relative: bool, ordered: bool = False
    ) -> None:
        self.representatives = representatives
        self.kind = kind
        self.relative = relative
        self.alphabet = representatives.size + 1
        # Adding -0.0 leaves the reference as it is (LCC-REC-02); without one, symbol 0 is +0.0.
        zero = np.array([0], kind.bits) if ordered else np.array([-0.0 if relative else 0.0], kind.work)
        values = representatives if ordered else work(representatives, kind)
        self.values: Array = np.concatenate([zero, values])

    @property
    def wide(self) -> bool:
        """Whether symbols take two bytes, stored as two streams (LCC-CBK-04)."""
        return self.alphabet > 256

    def expand(self, symbols: Array) -> Array:
        """Return the values (``kind.work``, or ``kind.bits`` to order) of symbols of the alphabet."""
        return self.values.take(symbols, mode="clip")

    def group_rows(self, width: int) -> Array:
        """Return the values of every group of ``8 // width`` symbols, shape ``(256, 8 // width)``."""
        symbols = (np.arange(256)[:, None] >> np.arange(0, 8, width)) & ((1 << width) - 1)
        rows: Array = self.values[np.minimum(symbols, self.alphabet - 1)]
        return rows

    def check(self, largest: int, where: str) -> None:
        """Raise ``FormatError`` if a symbol has no representative (LCC-CBK-03)."""
        if largest >= self.alphabet:
            raise FormatError("LCC-CBK-03", where, f"symbol {largest} in an alphabet of {self.alphabet}")


class RunCodebook:
    """The codebooks of the arrays of a run.

    Parameters
    ----------
    counts
        Representatives of each array, int64.
    representatives
        Components (bit patterns) of all representatives, array by array.
    sizes
        Components of each array, int64.
    kind, relative, ordered
        As in :class:`Codebook`.
    """

    def __init__(
        self,
        counts: Array,
        representatives: Array,
        sizes: Array,
        kind: ElementType,
        relative: bool,
        ordered: bool = False,
    ) -> None:
        self.kind = kind
        self.wide = bool(counts.max(initial=0) > 255)
        starts = np.cumsum(counts + 1) - (counts + 1)
        count = int((counts + 1).sum())
        if ordered:
            self.values = np.zeros(count, kind.bits)
        else:
            self.values = np.full(count, -0.0 if relative else 0.0, kind.work)
        chosen = np.ones(self.values.size, bool)
        chosen[starts] = False
        self.values[chosen] = representatives if ordered else work(representatives, kind)
        self.base = np.repeat(starts, sizes)
        self.last = np.repeat(counts, sizes)

    def expand(self, symbols: Array, part: slice) -> Array:
        """Return the values (``kind.work``) of the symbols of the components `part` of the run."""
        return self.values.take(self.base[part] + symbols, mode="clip")


def reconstruct(values: Array, reference: Array | None, kind: ElementType, out: Array) -> None:
    """Write reference + values (or the values) to `out`; all components but `values` (LCC-REC-03)."""
    if reference is None:
        out[:] = unwork(values, kind)
    else:
        add(reference, values, kind, out)


def apply(symbols: Array, codebook: Codebook, reference: Array | None, out: Array) -> None:
    """Write what symbols stand for into `out`, which may be `reference`; all but them are components."""
    if reference is not None and np.count_nonzero(symbols) * _FEW <= symbols.size:
        positions = (symbols != 0).nonzero()[0]
        _change(reference, positions, symbols.take(positions), codebook, out)
    else:
        reconstruct(codebook.expand(symbols), reference, codebook.kind, out)


def _change(reference: Array, positions: Array, symbols: Array, codebook: Codebook, out: Array) -> None:
    """Write the reference into `out`, changed at `positions`."""
    if out is not reference:
        np.copyto(out, reference)
    add_at(out, positions, codebook.expand(symbols), codebook.kind)


def write_block(
    symbols: Sparse | Array, escapes: Array, exact: Array, count: int, columns: int = 0
) -> list[Piece]:
    """Return the pieces of one block: symbols, and the escapes if there are any (SPEC 6.3).

    Parameters
    ----------
    symbols
        All (uint8), or those that are not 0, of uint8, or uint16 for a wide codebook.
    escapes
        Places of the elements stored exactly, rising; their symbols are 0.
    exact
        Their components.
    count
        Components in the block.
    columns
        Components in a row, where they are those of a matrix.
    """
    if not isinstance(symbols, Sparse):
        pieces = write_stream(symbols)
    elif symbols.values.dtype == np.uint8:
        pieces = write_places(symbols, count, columns)
    else:
        halves = stored_view(symbols.values).reshape(-1, 2).T
        pieces = [piece for half in halves for piece in write_places(_nonzero(symbols, half), count, columns)]
    if escapes.size == 0:
        return [b"\x00", *pieces]
    marks = Sparse(escapes, np.ones(escapes.size, np.uint8))
    return [b"\x01", *pieces, *write_places(marks, count), stored_bytes(exact)]


def _nonzero(symbols: Sparse, half: Array) -> Sparse:
    """Return the places at which one byte of the symbols is not 0, and that byte."""
    few = np.flatnonzero(half != 0)
    return Sparse(symbols.positions[few], half[few])


def read_block(cursor: Cursor, codebook: Codebook, reference: Array | None, out: Array) -> None:
    """Read one block into `out`, which may be `reference`; both are components of the block."""
    flags = _read_flags(cursor)
    run = read_stream(cursor, out.size)
    if codebook.wide:
        symbols = dense(run, out.size) | dense(read_stream(cursor, out.size), out.size).astype(np.uint16) << 8
        codebook.check(int(symbols.max(initial=0)), cursor.where)
        reconstruct(codebook.expand(symbols), reference, codebook.kind, out)
    elif isinstance(run, Sparse):
        _apply_sparse(run, codebook, reference, out, cursor.where)
    elif isinstance(run, Packed):
        _apply_packed(run, codebook, reference, out, cursor.where)
    else:
        codebook.check(int(run.max(initial=0)), cursor.where)
        for start in range(0, out.size, _PIECE):
            part = slice(start, start + _PIECE)
            apply(run[part], codebook, reference if reference is None else reference[part], out[part])
    if flags:
        _read_escapes(cursor, out)


def read_run_block(
    cursor: Cursor, codebook: RunCodebook, part: slice, reference: Array | None, out: Array
) -> None:
    """Read one block of a run into `out`, the components `part` of the run; see :func:`read_block`."""
    flags = _read_flags(cursor)
    symbols = dense(read_stream(cursor, out.size), out.size)
    if codebook.wide:
        symbols = symbols | dense(read_stream(cursor, out.size), out.size).astype(np.uint16) << 8
    if (symbols > codebook.last[part]).any():
        raise FormatError("LCC-CBK-03", cursor.where, "a symbol past its array's alphabet")
    reconstruct(codebook.expand(symbols, part), reference, codebook.kind, out)
    if flags:
        _read_escapes(cursor, out)


def _read_flags(cursor: Cursor) -> int:
    flags = cursor.integer("B", "block flags")
    if flags > 1:
        raise FormatError("LCC-CBK-05", cursor.where, f"block flags {flags:#x} are reserved")
    return flags


def _read_escapes(cursor: Cursor, out: Array) -> None:
    places = places_of(read_stream(cursor, out.size), out.size)
    exact = cursor.take(places.size * out.itemsize, "escaped values")
    out[places] = read_numbers(exact, out.dtype)


def _apply_sparse(run: Sparse, codebook: Codebook, reference: Array | None, out: Array, where: str) -> None:
    codebook.check(int(run.values.max(initial=0)), where)
    if reference is None:
        out[:] = 0
        out[run.positions] = unwork(codebook.expand(run.values), codebook.kind)
        return
    starts = range(0, out.size, _PIECE)
    bounds = [*np.searchsorted(run.positions, starts).tolist(), run.positions.size]
    for start, first, last in zip(starts, bounds, bounds[1:], strict=False):
        target, here = out[start : start + _PIECE], slice(first, last)
        base = target if reference is out else reference[start : start + _PIECE]
        _change(base, run.positions[here] - start, run.values[here], codebook, target)


def _apply_packed(run: Packed, codebook: Codebook, reference: Array | None, out: Array, where: str) -> None:
    joined = 8 // run.width
    if codebook.alphabet < 1 << run.width:
        symbols = (np.arange(256)[:, None] >> np.arange(0, 8, run.width)) & ((1 << run.width) - 1)
        bad = symbols.max(axis=1) >= codebook.alphabet
        if bad[run.groups].any():
            codebook.check(int(symbols[run.groups[bad[run.groups]]].max()), where)
    rows = codebook.group_rows(run.width)
    # One gather per group: a row of values is taken as a single item where a type of its size exists.
    item = {4: np.uint32, 8: np.uint64, 16: np.complex128}.get(rows.shape[1] * rows.itemsize)
    table = rows if item is None else rows.view(item)[:, 0]
    step = _PIECE // joined
    for first in range(0, run.groups.size, step):
        part = slice(first * joined, (first + step) * joined)
        values = (
            table.take(run.groups[first : first + step], axis=0, mode="clip").view(rows.dtype).reshape(-1)
        )
        target = out[part]
        reconstruct(
            values[: target.size], reference if reference is None else reference[part], codebook.kind, target
        )
