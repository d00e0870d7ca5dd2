"""Weights in the types that engines compute with, from a trainer that has them in float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ...chain.caller import Adapter, Room, Wanted, check_adapter
from ...chain.read.follower import Patch
from ...container.system import StrPath, checked_path
from ...container.tree import array_names, flatten, unflatten
from ...element_types import BFLOAT16_BITS, Array, element_type, from_components, narrow, work
from ...element_types import components as components_of
from ...errors import ArgumentError
from ...parallel import slices
from ...policy.roles import Assignment
from ..tree.matching import first_of
from ..tree.plain import BYTE_TYPES
from .layout import Layout, Prefix, read_layout

#: The types that are rounded to each other.
FLOATS: Final = {
    "bfloat16": BFLOAT16_BITS,
    **{name: np.dtype(name) for name in ("float64", "float32", "float16")},
}
#: What to do if a chain and a model have the same tensors in two of these types.
_ADVICE: Final = (
    "give the trainer a second chain, Chain(..., 'lossless', adapter=Rounding(adapter)) of "
    "lccodec.adapters.weights, and the engines that one; or pull with cast=True, or --cast"
)
_PIECE: Final = 1 << 16  # elements that are rounded at a time: they stay in the cache


def rounded(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return floating-point numbers rounded to the nearest of another type, as PyTorch does."""
    (kind, bits), wanted = components_of(array), element_type(dtype)
    nearest = np.empty(bits.size, wanted.bits)
    with np.errstate(over="ignore"):  # to infinity
        for part in slices(bits.size, _PIECE):
            values = work(bits[part], kind)
            made = narrow(values) if wanted.name == "bfloat16" else values.astype(wanted.native)
            nearest[part] = made.view(wanted.bits)
    return from_components(nearest, wanted, array.shape, "bits")


def check_types(layout: Layout, patches: Mapping[str, Patch], types: Mapping[str, str]) -> None:
    """Raise ``ArgumentError`` for new values that a model has no place for.

    `types` are those that NumPy lacks, by the names of the tensors.
    """
    problems, floats = [], False
    for name, patch in patches.items():
        tensor, kind = layout.tensors[name], types.get(name)
        wanted = kind if kind in BYTE_TYPES else patch.dtype
        if (tensor.type_name, tensor.shape) != (wanted, patch.shape):
            there, new = f"{tensor.type_name} {tensor.shape}", f"{wanted} {patch.shape}"
            problems.append(f"{name!r} is {there}, and {new} in the chain")
            floats |= {tensor.type_name, wanted} <= FLOATS.keys()
    if problems:
        told = [f"{layout.directory}: the tensors do not fit", *first_of(problems), *([_ADVICE] * floats)]
        raise ArgumentError("\n  ".join(told))


class Rounding:
    """An adapter that rounds the floating-point arrays of a state to the types of an engine.

    A chain with it has what the engines have, bit for bit, so its deltas are as small as those of a
    trainer in these types. The trainer keeps its own chain for resuming.

    Parameters
    ----------
    adapter
        The adapter of the states' framework, such as ``lccodec.adapters.torch``.
    dtype
        The type of what is wider: ``"bfloat16"`` or ``"float16"``.
    like
        The model that the engines begin with, in Hugging Face's layout. What it has gets the type
        that it has there, such as a bias that stays in float32.
    prefix, rename
        With `like`: what its names are in the state, as for :func:`pull`.

    Raises
    ------
    ArgumentError
        For another `dtype`, and for an adapter that is none.
    DataError, StorageError
        If `like` cannot be read.

    Examples
    --------
    >>> import tempfile, numpy as np, lccodec
    >>> with lccodec.Chain(tempfile.mkdtemp(), "lossless", adapter=Rounding()) as chain:
    ...     _ = chain.save(0, {"weight": np.array([1.0, 1.001], np.float32), "step": 7})
    ...     chain.restore()["weight"].dtype
    dtype([('bfloat16', '<u2')])
    """

    def __init__(
        self,
        adapter: Adapter | None = None,
        dtype: str = "bfloat16",
        *,
        like: StrPath | None = None,
        prefix: str = "",
        rename: Mapping[str, str] | None = None,
    ) -> None:
        if dtype not in ("bfloat16", "float16"):
            raise ArgumentError(f"dtype must be 'bfloat16' or 'float16'; got {dtype!r}")
        self._adapter, self._dtype = check_adapter(adapter), FLOATS[dtype]
        self._prefix = Prefix(prefix, rename)
        self._like, self._types = like, dict[str, np.dtype[Any]]()
        if like is not None:
            tensors = read_layout(checked_path(like)).tensors
            kinds = ((name, tensor.kind) for name, tensor in tensors.items())
            self._types = {name: FLOATS[kind.name] for name, kind in kinds if kind and kind.name in FLOATS}

    def to_numpy(
        self,
        state: Any,
        metadata: Mapping[str, str] | None = None,
        room: Room | None = None,
        wanted: Wanted | None = None,
    ) -> tuple[Any, dict[str, str]]:
        """Return a state of NumPy arrays, rounded, and its metadata."""
        arrays, strings = state, dict(metadata or {})
        if self._adapter is not None:
            more = (room,) if wanted is None else (room, wanted)
            arrays, strings = self._adapter.to_numpy(state, metadata, *more)
        flat = flatten(arrays)
        paths, types = array_names(flat.tree), dict[int, np.dtype[Any]]()
        if self._types:
            names = self._prefix.tensors(paths, self._types, self._like, strict=False)
            types = {paths[path]: self._types[name] for path, name in names.items() if name in self._types}
        rounded_arrays = [self._rounded(array, types.get(index)) for index, array in enumerate(flat.arrays)]
        return unflatten(flat.tree, rounded_arrays, flat.scalars), strings

    def _rounded(self, array: Array, wanted: np.dtype[Any] | None) -> Array:
        """Return an array in its type of the model; without one, no wider than `dtype`."""
        kind = element_type(array.dtype)
        if kind.name not in FLOATS or (wanted is None and kind.itemsize <= self._dtype.itemsize):
            return array
        dtype = self._dtype if wanted is None else wanted
        return array if kind == element_type(dtype) else rounded(array, dtype)

    def from_numpy(self, state: Any, metadata: Mapping[str, str], name: str = "") -> Any:
        """Return a state, or a part of it, as the framework has it; it stays rounded."""
        return state if self._adapter is None else self._adapter.from_numpy(state, metadata, name)

    def roles(self, state: Any) -> Mapping[str, Assignment]:
        """Return what the framework's adapter says."""
        return {} if self._adapter is None else self._adapter.roles(state)
