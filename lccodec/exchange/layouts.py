"""Layouts: how the arrays of a layer are arranged in torch and in Flax, and how to convert them.

Each layout is a permutation of elements: a round trip gives the same bits, and Adam's moments are
converted like the weights. The exceptions are ``summed`` and ``summed-gru``: recurrent layers have
two biases in torch and one in Flax. From Flax they are exact: the second bias is zero. From torch
the layer computes the same with the sum, but the two parts are lost. torch also trains the sum
twice as fast, so no state of Adam gives the same next step, and moments are refused.

Source: torch.nn of torch 2.13 and flax.nnx of Flax 0.12; each layout is tested against both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import numpy as np

from ..element_types import Array, add, components, from_components, is_bfloat16_bits, work
from ..errors import ArgumentError

Shape: TypeAlias = tuple[int, ...]
Arrays: TypeAlias = Sequence[Array]
#: The shapes that the other side wants; None for each that is not known.
Shapes: TypeAlias = Sequence[Shape | None]
#: Makes the arrays of the other side from those of one side, the wanted shapes and the rule's size.
Transform: TypeAlias = Callable[[Arrays, Shapes, int | None], Arrays]


_ANY_RANK: Final = range(65)  # NumPy's arrays have at most 64 dimensions


@dataclass(frozen=True)
class Layout:
    """How the arrays of a layer are arranged on both sides."""

    to_flax: Transform  # raises ArgumentError for arrays that do not fit
    to_torch: Transform
    torch: range = range(1, 2)  # possible numbers of arrays on each side
    flax: range = range(1, 2)
    ranks: range = _ANY_RANK  # possible numbers of dimensions of torch's arrays
    extra_flax_dimensions: int = 0  # that Flax's arrays have
    sized: Literal["never", "maybe", "always"] = "never"  # whether a rule has a size
    moments: bool = True  # whether Adam's moments can be converted too


def _one(change: Callable[[Array], Array]) -> Transform:
    """Return what makes one array of one."""
    return lambda arrays, *_: [np.ascontiguousarray(change(arrays[0]))]


def _stacked(change: Callable[[Array], Array]) -> Transform:
    """Return what makes one array in torch of several in Flax, each changed."""
    return lambda arrays, *_: [_joined([change(array) for array in arrays])]


def _tied_to_flax(arrays: Arrays, *_: object) -> Arrays:
    first = np.asarray(arrays[0])
    for other in map(np.asarray, arrays[1:]):
        if (other.dtype, other.shape) != (first.dtype, first.shape) or other.tobytes() != first.tobytes():
            raise ArgumentError("they must be equal, because they are one array in Flax")
    return arrays[:1]


def _tied_to_torch(arrays: Arrays, shapes: Shapes, _: object) -> Arrays:
    return [arrays[0]] * len(shapes)  # one object, so that a checkpoint stores it once


def _linear_to_flax(arrays: Arrays, shapes: Shapes, _: object) -> Arrays:
    return [np.ascontiguousarray(block.T) for block in _blocks(arrays[0], len(shapes))]


def _flattened_to_flax(arrays: Arrays, _: object, size: int | None) -> Arrays:
    rows, columns = arrays[0].shape
    channels, pixels = _split(columns, size, "channels")
    planes = arrays[0].reshape(rows, channels, pixels)
    return [np.ascontiguousarray(planes.transpose(2, 1, 0)).reshape(columns, rows)]


def _flattened_to_torch(arrays: Arrays, _: object, size: int | None) -> Arrays:
    rows, columns = arrays[0].shape
    channels, pixels = _split(rows, size, "channels")
    planes = arrays[0].reshape(pixels, channels, columns)
    return [np.ascontiguousarray(planes.transpose(2, 1, 0)).reshape(columns, rows)]


def _turned(kernel: Array, first: int) -> Array:
    """Reverse the window: torch spreads every input over it, Flax gathers every output."""
    return np.flip(kernel, tuple(range(first, first + kernel.ndim - 2)))


def _heads_to_flax(arrays: Arrays, shapes: Shapes, size: int | None) -> Arrays:
    return [
        np.ascontiguousarray(block.T).reshape(*block.shape[1:], *_split(len(block), heads, "heads"))
        for block, heads in zip(
            _blocks(arrays[0], len(shapes)), [_heads(shape, -2, size) for shape in shapes], strict=True
        )
    ]


def _heads_out_to_flax(arrays: Arrays, shapes: Shapes, size: int | None) -> Arrays:
    rows, columns = arrays[0].shape
    heads = _split(columns, _heads(shapes[0], -3, size), "heads")
    return [np.ascontiguousarray(arrays[0].T).reshape(*heads, rows)]


def _heads(shape: Shape | None, axis: int, size: int | None) -> int:
    if size is not None:
        return size
    if shape is None or len(shape) < -axis:
        raise ArgumentError("the number of heads is not known: give a rule with a size, or a target")
    return shape[axis]


def _summed_to_flax(arrays: Arrays, shapes: Shapes, _: object) -> Arrays:
    first, second = arrays
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        raise ArgumentError("they must have the same shape and dtype, because Flax has their sum")
    kind, bits = components(first)
    if not kind.is_float:
        raise ArgumentError(f"they must be floating point, because Flax has their sum, not {kind.name}")
    add(bits, work(components(second)[1], kind), kind, out := np.empty_like(bits))
    spelled = "bits" if is_bfloat16_bits(first.dtype) else None
    return _blocks(from_components(out, kind, first.shape, spelled), len(shapes))


def _summed_gru_to_flax(arrays: Arrays, shapes: Shapes, _: object) -> Arrays:
    sums = _summed_to_flax(arrays, shapes, None)
    _, gate = _split(arrays[1].size, 3, "gates")
    kind, bits = components(arrays[1])
    if np.any(work(bits, kind)[2 * gate :]):
        raise ArgumentError(
            "the last third of bias_hh must be 0, because Flax's GRU has no bias inside the reset gate"
        )
    return sums


def _summed_to_torch(arrays: Arrays, *_: object) -> Arrays:
    bias = _joined(arrays)
    return [bias, np.zeros_like(bias)]


def _split(total: int, parts: int | None, what: str) -> tuple[int, int]:
    """Return the number of parts and the size of each part."""
    if not parts or total % parts:
        raise ArgumentError(f"{total} cannot be split into {parts} {what}")
    return parts, total // parts


def _blocks(array: Array, number: int) -> list[Array]:
    """Split the rows evenly: torch stacks what Flax has as separate arrays."""
    _, rows = _split(len(array), number, "arrays")
    return [array[i * rows : (i + 1) * rows] for i in range(number)]


def _joined(blocks: Arrays) -> Array:
    if len({(block.shape, block.dtype) for block in blocks}) != 1:
        raise ArgumentError("they must have the same shape and dtype, because they are one array in torch")
    return np.ascontiguousarray(np.concatenate(blocks))


_VECTOR_RANKS: Final = range(1, 2)
_MATRIX_RANKS: Final = range(2, 3)
_KERNEL_RANKS: Final = range(3, 6)
_TWO_ARRAYS: Final = range(2, 3)
_ANY_NUMBER: Final = range(1, 1 << 16)

#: The layouts by name.
LAYOUTS: Final = MappingProxyType(
    {
        "same": Layout(lambda arrays, *_: arrays, lambda arrays, *_: arrays),
        # One array in Flax has several names in torch.
        "tied": Layout(_tied_to_flax, _tied_to_torch, torch=_ANY_NUMBER),
        # (out, in) in torch and (in, out) in Flax
        "linear": Layout(_linear_to_flax, _stacked(np.transpose), flax=_ANY_NUMBER, ranks=_MATRIX_RANKS),
        # The same after flattening an image of `size` channels: they come first in torch, last in
        # Flax.
        "flattened": Layout(_flattened_to_flax, _flattened_to_torch, ranks=_MATRIX_RANKS, sized="always"),
        # (out, in, *window) and (*window, in, out)
        "conv": Layout(
            _one(lambda kernel: np.moveaxis(kernel, (1, 0), (-2, -1))),
            _one(lambda kernel: np.moveaxis(kernel, (-2, -1), (1, 0))),
            ranks=_KERNEL_RANKS,
        ),
        # (in, out, *window) and (*window turned over, in, out)
        "conv-transposed": Layout(
            _one(lambda kernel: np.moveaxis(_turned(kernel, 2), (0, 1), (-2, -1))),
            _one(lambda kernel: np.moveaxis(_turned(kernel, 0), (-2, -1), (0, 1))),
            ranks=_KERNEL_RANKS,
        ),
        # (heads x features, in) and (in, heads, features), a bias without `in`; `size` heads
        "heads": Layout(
            _heads_to_flax,
            _stacked(lambda array: array.reshape(*array.shape[:-2], math.prod(array.shape[-2:])).T),
            flax=_ANY_NUMBER,
            ranks=range(1, 3),
            extra_flax_dimensions=1,
            sized="maybe",
        ),
        # (out, heads x features) and (heads, features, out); `size` heads
        "heads-out": Layout(
            _heads_out_to_flax,
            _one(lambda array: array.reshape(-1, array.shape[-1]).T),
            ranks=_MATRIX_RANKS,
            extra_flax_dimensions=1,
            sized="maybe",
        ),
        # Two biases and their sum.
        "summed": Layout(
            _summed_to_flax,
            _summed_to_torch,
            torch=_TWO_ARRAYS,
            flax=_ANY_NUMBER,
            ranks=_VECTOR_RANKS,
            moments=False,
        ),
        # The same; the second bias must be 0 for the last of three gates.
        "summed-gru": Layout(
            _summed_gru_to_flax, _summed_to_torch, torch=_TWO_ARRAYS, ranks=_VECTOR_RANKS, moments=False
        ),
    }
)
