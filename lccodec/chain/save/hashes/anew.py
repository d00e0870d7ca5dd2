"""The hashes of a checkpoint from its files, when none are kept.

A large array is decoded part by part, so that no whole state is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from ....byteorder import stored_view
from ....container.disk.scratch import Scratch
from ....element_types import Array
from ....frame.checksum import SUM_MASK, array_sum
from ....frame.encode import MAX_BLOCK_COMPONENTS
from ....parallel import slices
from ...read.checkpoint import OpenCheckpoint
from ...read.links import form_of
from ...read.replay import DecodedArray
from ...read.rows import Span, decode_span
from .segments import HashedArray, hash_segments, segment_size

_PART_COMPONENTS: Final = 1 << 21  # that are decoded at a time: a block of a large array


def hash_checkpoint(
    file: OpenCheckpoint, values: Scratch | None, between: Callable[[], None] = lambda: None
) -> tuple[int, dict[str, HashedArray]]:
    """Return the bytes of a segment, and the hashes of the arrays of a checkpoint by name.

    The values are put into the file of `values`. `between` is called again and again.

    Raises
    ------
    DataError
        If a stored byte breaks a rule.
    """
    last = file.links[-1]
    forms = {name: form_of(last, name) for name in last.index_names}
    none = np.empty((0, 0), np.uint8)
    arrays = {name: HashedArray(*form, 0, 0, none) for name, form in forms.items()}
    segment = segment_size(sum(array.size * array.kind.size for array in arrays.values()))
    offsets, end = {}, 0
    for name, array in arrays.items():
        offsets[name] = end
        end += -(-array.size * array.kind.size // segment) * segment
    found = {}
    for name, parts in _in_parts(file, arrays):
        kind, offset, total, hashes = arrays[name].kind, offsets[name], 0, []
        for start, bits in parts:
            between()
            hashes.append(hash_segments(bits, segment))
            total += array_sum(bits, start * kind.size // 8)
            if values is not None:
                values.write(offset + start * kind.size, stored_view(bits).data)
        found[name] = HashedArray(*forms[name], offset, total & SUM_MASK, np.concatenate(hashes))
    return segment, {name: found[name] for name in arrays}


def _in_parts(
    file: OpenCheckpoint, arrays: dict[str, HashedArray]
) -> Iterator[tuple[str, Iterable[tuple[int, Array]]]]:
    """Yield arrays by name, each in parts with their first component."""
    small = []
    for index, name in enumerate(file.links[-1].index_names):
        if arrays[name].size <= MAX_BLOCK_COMPONENTS:
            small.append(index)
        else:
            yield name, _spans(file, name, arrays[name].size)
    array: DecodedArray
    for index, array in file.decode_each(small):
        yield file.links[-1].index_names[index], [(0, array.bits)]


def _spans(file: OpenCheckpoint, name: str, size: int) -> Iterator[tuple[int, Array]]:
    """Decode a large array, which shares no frame, part by part."""
    for part in slices(size, _PART_COMPONENTS):
        bits = decode_span(file.links, name, Span(part.start, min(part.stop, size)))
        yield part.start, np.ascontiguousarray(bits)
