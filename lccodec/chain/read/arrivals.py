"""The leaves of a state, each as soon as it is decoded: what `Chain.restore_iter` returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, Literal, Self

import numpy as np

from ...container.scalars import Json, scalar_value
from ...container.tree import leaves_of, unflatten
from ...element_table import ElementType
from ...element_types import Array, check_dtype, from_components
from ...frame.header import Shape
from ..adapter import Adapter
from .checkpoint import OpenCheckpoint, checked_names, without_spare
from .replay import DecodedArray
from .rows import Keys, checked_keys, chosen_rows


class Arrivals(Iterator[tuple[str, Any]]):
    """Leaves of an open checkpoint with their names, in the order of the state or of the keys.

    Each array is yielded as soon as it has gone through the whole chain. The file is closed after
    the last leaf, when decoding fails, and when this is closed or dropped.

    Parameters
    ----------
    file
        The checkpoint. It belongs to this from now on, also if the other arguments are refused.
    keys, dtype, adapter
        As for `Chain.restore`.

    Attributes
    ----------
    metadata
        The strings that were stored with the state.
    whole
        Whether these are all leaves of the state: no keys were given.
    arrays
        The leaves that are left, as they are without an adapter: arrays are NumPy's.

    Raises
    ------
    ArgumentError
        For unknown keys or `dtype`.
    """

    def __init__(
        self,
        file: OpenCheckpoint,
        keys: Keys | None = None,
        dtype: Literal["float32", "bits"] | None = None,
        adapter: Adapter | None = None,
    ) -> None:
        try:
            check_dtype(dtype)
            manifest = file.links[-1].manifest
            keys, self._rows = checked_keys(keys)
            names = None if keys is None else checked_names(keys)
            self._leaves = leaves_of(manifest.tree, manifest.scalars, names)
            for name in self._rows:
                file.index_of(name)
        except BaseException:
            file.close()
            raise
        self.adapter = adapter
        self.metadata = file.metadata()
        self.whole = names is None
        self._file, self._dtype = file, dtype
        # Nothing that it holds leads back to this object: then dropping it closes the file at once.
        self.arrays = _values(file, self._leaves, dtype, self._rows)

    def __next__(self) -> tuple[str, Any]:
        name, value = next(self.arrays)
        if self.adapter is not None:
            value = self.adapter.from_numpy(value, self.metadata, name)
        return name, value

    def __len__(self) -> int:
        """Return the number of all leaves: what ``tqdm`` asks for."""
        return len(self._leaves)

    def outline(self) -> Any:
        """Return what all leaves form, with arrays in the place of those that are not decoded.

        This is the state without an adapter, or with keys a dict of the leaves by name. The arrays
        have the right types and shapes, any values, and hardly any memory. An array in two places
        is one object.

        Raises
        ------
        DataError
            If the header of a frame breaks a rule.
        """
        manifest, heads = self._file.links[-1].manifest, self._file.heads()
        arrays = [
            _hollow(heads[name].header.kind, heads[name].shape, self._dtype)
            for name in self._file.links[-1].index_names
        ]
        if self.whole:
            return unflatten(manifest.tree, arrays, manifest.scalars)
        parts = {}
        for name, rows in self._rows.items():
            index = self._file.index_of(name)
            chosen = chosen_rows(self._file.links, index, rows, name)
            parts[name] = _hollow(chosen.kind, chosen.shape, self._dtype)
        return {
            name: scalar_value(entry) if index is None else parts.get(name, arrays[index])
            for name, index, entry in self._leaves
        }

    def close(self) -> None:
        """Close the file; no more leaves come. Closing again does nothing."""
        self.arrays.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _values(
    file: OpenCheckpoint,
    leaves: Iterable[tuple[str, int | None, Json]],
    dtype: str | None,
    rows: Mapping[str, slice],
) -> Generator[tuple[str, Any], None, None]:
    """Yield leaves by name. Arrays are decoded when they are asked for, and not kept."""
    places = Counter(index for name, index, _ in leaves if index is not None and name not in rows)
    decoded = file.decode_each(places)
    several: dict[int, Array] = {}  # arrays that come again in another place
    with file, closing(decoded):
        for name, index, entry in leaves:
            if index is None:
                yield name, scalar_value(entry)
                continue
            if name in rows:
                ((_, part),) = file.decode_rows({name: rows[name]})
                yield name, without_spare(part.array(dtype))
                continue
            if index not in several:
                several[index] = _next_array(decoded, dtype)
            places[index] -= 1
            yield name, several[index] if places[index] else several.pop(index)


def _next_array(decoded: Iterator[tuple[int, DecodedArray]], dtype: str | None) -> Array:
    return without_spare(next(decoded)[1].array(dtype))


def _hollow(kind: ElementType, shape: Shape, dtype: str | None) -> Array:
    """Return an array of a type and shape, all of whose rows are one."""
    size = kind.components * (shape[-1] if shape else 1)
    row = from_components(np.zeros(size, kind.bits), kind, shape[-1:], dtype)
    strides = (*(0 for _ in shape[:-1]), *row.strides)
    return np.lib.stride_tricks.as_strided(row, shape, strides)
