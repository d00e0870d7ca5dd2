"""Rules: which names in torch correspond to which in Flax, and how the arrays are laid out.

Each layout of a layer is a permutation of elements: a round trip gives the same bits, and Adam's
moments are converted like the weights. The exceptions are ``summed`` and ``summed-gru``: recurrent
layers have two biases in torch and one in Flax. From Flax they are exact: the second bias is zero.
From torch the layer computes the same with the sum, but the two parts are lost. torch also trains
the sum twice as fast, so no state of Adam gives the same next step, and moments are refused.

Source: torch.nn of torch 2.13 and flax.nnx of Flax 0.12; each layout is tested against both.

A name consists of segments, joined by the separator of its side: ``layer1.0.weight`` in torch,
``layer1/0/kernel`` in Flax. In a pattern ``*`` stands for one or more characters of one segment,
and ``**`` for any number of whole segments, even none. The first ``*`` on one side corresponds to
the first on the other side, and so on; ``**`` corresponds to ``**``.

`RULES` are the rules for common layers. A user's own rules come first: the first that matches
counts. Of the common rules exactly one must be possible. torch uses the name ``weight`` for a
Linear (in Flax a transposed ``kernel``) and for an Embedding (in Flax an ``embedding``, not
transposed). So names and ranks are not always enough; then a target or a rule of the user decides.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import reprlib
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from ..element_types import Array, add, components, from_components, is_bfloat16_bits, work
from ..errors import ArgumentError, StorageError

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


Side: TypeAlias = Literal["torch", "flax"]

SEPARATORS: Final[dict[Side, str]] = {"torch": ".", "flax": "/"}
#: The layout of a rule that translates the path of a module.
MODULE: Final = "module"
#: The layout of several names for one array.
TIED: Final = "tied"
_SIDES: Final[tuple[Side, Side]] = ("torch", "flax")
_KINDS: Final = {  # of the values in a file
    "torch": "a string or a list of strings",
    "flax": "a string or a list of strings",
    "layout": "a string",
    "size": "an integer",
    "rank": "an integer",
}


class Binding(NamedTuple):
    """What the wildcards of a pattern stand for: ``**`` (`path`) and each ``*`` (`parts`)."""

    path: str
    parts: tuple[str, ...]


def match(pattern: str, name: str, side: Side) -> Binding | None:
    """Return what the wildcards of a pattern stand for in a name, or None if it does not match.

    >>> match("**.h.*.weight", "gpt.h.3.weight", "torch")
    Binding(path='gpt', parts=('3',))
    >>> match("**.weight", "weight", "torch")
    Binding(path='', parts=())
    """
    matched = _compiled(pattern, SEPARATORS[side]).fullmatch(name)
    if matched is None:
        return None
    parts = tuple(text for name, text in matched.groupdict().items() if name != "path")
    return Binding(matched.groupdict().get("path") or "", parts)


def fill(pattern: str, binding: Binding, side: Side) -> str:
    """Return the name that a pattern makes with a binding: the inverse of `match`.

    >>> fill("**/h/*/kernel", Binding("gpt", ("3",)), "flax")
    'gpt/h/3/kernel'
    >>> fill("**/kernel", Binding("", ()), "flax")
    'kernel'
    """
    parts = iter(binding.parts)
    segments = (
        binding.path if segment == "**" else re.sub(r"\*", lambda _: next(parts), segment)
        for segment in pattern.split(SEPARATORS[side])
    )
    return SEPARATORS[side].join(filter(None, segments))


def wildcards(pattern: str, side: Side) -> tuple[int, int]:
    """Return the numbers of ``**`` and of ``*`` in a pattern."""
    segments = pattern.split(SEPARATORS[side])
    return segments.count("**"), sum(segment.count("*") for segment in segments if segment != "**")


def fault(pattern: str, side: Side) -> str | None:
    """Return why a pattern is ambiguous or can never match, or None if it is sound."""
    segments = pattern.split(SEPARATORS[side])
    if not all(segments):
        return "has an empty segment"
    if any(segment.count("*") > 1 for segment in segments if segment != "**"):
        return "has more than one * in a segment"
    return None


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str, separator: str) -> re.Pattern[str]:
    """Return a pattern as a regular expression; ``**`` includes one separator beside it."""
    gap, part = re.escape(separator), f"[^{re.escape(separator)}]+"
    groups = (f"(?P<part{number}>{part})" for number in range(pattern.count("*")))
    named = iter(["?P<path>"])  # only the first ** is read; only one-sided patterns have a second one
    written = ""
    pending = ""  # the separator before the next segment, unless a ** has included it
    for number, segment in enumerate(segments := pattern.split(separator)):
        if segment != "**":
            written += pending + re.sub(r"\*", lambda _: next(groups), re.escape(segment).replace(r"\*", "*"))
            pending = gap
        elif len(segments) == 1:
            written = "(?P<path>.*)"
        elif number == 0:
            written = f"(?:({next(named)}.+){gap})?"
        else:
            written += f"(?:{gap}({next(named, '')}.+))?"
    return re.compile(written, re.DOTALL)


@dataclass(frozen=True)
class Rule:
    """Names in torch, the corresponding names in Flax, and the layout.

    Parameters
    ----------
    torch, flax
        A pattern, or several if one array on one side is several arrays on the other. ``*`` stands
        for characters of one segment of a name, ``**`` for any number of segments. If None, what
        the pattern of the other side matches is left out, and kept unchanged in a target.
    layout
        A name in `lccodec.exchange.LAYOUTS`, or ``"module"`` if the rule translates the path of a
        module. The first such rule that matches translates the path that ``**`` stands for in other
        rules.
    size
        The number of heads for ``heads`` and ``heads-out``, unless a target gives it; the number of
        channels for ``flattened``.
    rank
        Match only arrays with this number of dimensions in torch. The layout also has limits.

    Raises
    ------
    ArgumentError
        If a pattern is ambiguous, the wildcards of the two sides differ, or the layout is unknown
        or does not map that many arrays.

    Examples
    --------
    >>> Rule("fc1.weight", "fc1/kernel", "flattened", size=16)
    Rule(torch='fc1.weight', flax='fc1/kernel', layout='flattened', size=16, rank=None)
    >>> Rule("features.**", "features/layers/**", "module").layout
    'module'
    """

    torch: str | tuple[str, ...] | None
    flax: str | tuple[str, ...] | None
    layout: str = "same"
    size: int | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        if reason := self._fault():
            raise ArgumentError(f"rule {self.torch!r} to {self.flax!r}: {reason}")

    def patterns(self, side: Side) -> tuple[str, ...]:
        """Return the patterns of a side; empty if matches of the other side are left out."""
        value = self.torch if side == "torch" else self.flax
        return (value,) if isinstance(value, str) else value or ()

    @property
    def form(self) -> Layout:
        """The layout itself."""
        return LAYOUTS["same" if self.layout == MODULE else self.layout]

    def takes(self, rank: int, side: Side) -> bool:
        """Whether the rule takes an array of this rank on a side."""
        rank -= self.form.extra_flax_dimensions if side == "flax" else 0
        return rank in self.form.ranks and self.rank in (None, rank)

    def _fault(self) -> str | None:
        for side in _SIDES:
            for pattern in self.patterns(side):
                if reason := fault(pattern, side):
                    return f"{pattern!r} {reason}"
        counts = [len(self.patterns(side)) for side in _SIDES]
        if not any(counts):
            return "needs a pattern for torch or flax"
        if self.layout not in (*LAYOUTS, MODULE):
            return f"layout must be one of {', '.join((*LAYOUTS, MODULE))}; got {self.layout!r}"
        if self.size is None and self.form.sized == "always":
            return f"layout {self.layout!r} needs a size"
        if self.size is not None and (self.form.sized == "never" or self.size < 1):
            return f"layout {self.layout!r} does not take size {self.size}"
        if not all(counts):
            return "a rule that leaves entries out takes no layout" if self.layout != "same" else None
        if counts[0] not in self.form.torch or counts[1] not in self.form.flax:
            return f"layout {self.layout!r} does not map {counts[0]} arrays in torch to {counts[1]} in Flax"
        kinds = {wildcards(pattern, side) for side in _SIDES for pattern in self.patterns(side)}
        if len(kinds) > 1 or max(kinds)[0] > 1:
            return "all patterns must have the same wildcards, and ** at most once"
        return None


def translated(binding: Binding, rules: tuple[Rule, ...], side: Side, other: Side) -> Binding:
    """Return a binding with the path of the other side, by the first module rule that matches."""

    def respelled(path: str) -> str:
        return path.replace(SEPARATORS[side], SEPARATORS[other])

    for rule in rules:
        if rule.layout == MODULE and (matched := match(rule.patterns(side)[0], binding.path, side)):
            inner = matched._replace(path=respelled(matched.path))
            return binding._replace(path=fill(rule.patterns(other)[0], inner, other))
    return binding._replace(path=respelled(binding.path))


def load_rules(path: str | os.PathLike[str]) -> tuple[Rule, ...]:
    """Read rules from a TOML or JSON file: a list ``rule`` of tables with the fields of `Rule`.

    Raises
    ------
    ArgumentError
        If the file is not TOML or JSON, or an entry is not a rule. The message names the file and
        the entry.
    StorageError
        If the operating system cannot read the file.

    Examples
    --------
    .. code-block:: toml

        [[rule]]
        torch = "features.**"
        flax = "features/layers/**"
        layout = "module"

        [[rule]]  # left out: flax is not given
        torch = "head.scale"
    """
    try:
        text = Path(path).read_bytes().decode()
        document = json.loads(text) if Path(path).suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise StorageError(error.errno, f"cannot read: {error.strerror or error}", str(path)) from error
    except (ValueError, RecursionError) as error:  # of both parsers and decode
        raise ArgumentError(f"{path}: {error}") from None
    entries = document.get("rule") if isinstance(document, dict) and set(document) == {"rule"} else None
    if not isinstance(entries, list):
        raise ArgumentError(f"{path}: must hold a list of tables 'rule' and nothing else")
    return tuple(_rule(entry, f"{path}: rule {number}") for number, entry in enumerate(entries, 1))


def _rule(entry: Any, where: str) -> Rule:
    if not isinstance(entry, dict) or not entry or not set(entry) <= set(_KINDS):
        keys = ", ".join(_KINDS)
        raise ArgumentError(f"{where}: must be a table with keys from {keys}; got {reprlib.repr(entry)}")
    values: dict[str, Any] = {"torch": None, "flax": None}
    for key, value in entry.items():
        values[key] = tuple(value) if isinstance(value, list) and key in _SIDES else value
        items = values[key] if isinstance(values[key], tuple) else [value]
        if any(type(item) is not (int if _KINDS[key] == "an integer" else str) for item in items):
            raise ArgumentError(f"{where}: {key} must be {_KINDS[key]}; got {value!r}")
    try:
        return Rule(**values)
    except ArgumentError as error:
        raise ArgumentError(f"{where}: {error}") from None


def _recurrent(suffix: str, cell: str) -> Iterator[Rule]:
    """Yield the rules of a recurrent layer; `suffix` is of torch's names, `cell` Flax's path."""
    biases = (f"**.bias_ih{suffix}", f"**.bias_hh{suffix}")
    # The order of the gates is the same.
    yield Rule(f"**.weight_ih{suffix}", f"**/{cell}dense_i/kernel", "linear")
    yield Rule(f"**.weight_hh{suffix}", f"**/{cell}dense_h/kernel", "linear")
    yield Rule(biases, f"**/{cell}dense_h/bias", "summed")  # OptimizedLSTMCell
    yield Rule(biases, f"**/{cell}dense_i/bias", "summed-gru")  # GRUCell
    for letter in "ih":  # LSTMCell has a Linear for each gate
        gates = [f"**/{cell}{letter}{gate}" for gate in ("i", "f" if letter == "h" else "f_", "g", "o")]
        yield Rule(f"**.weight_{letter}h{suffix}", tuple(f"{gate}/kernel" for gate in gates), "linear")
    yield Rule(biases, tuple(f"{gate}/bias" for gate in gates), "summed")


_QUERY_KEY_VALUE: Final = ("query", "key", "value")

#: The rules for common layers.
RULES: Final = (
    Rule("**.weight", "**/kernel", "linear"),
    Rule("**.weight", "**/kernel", "conv"),
    Rule("**.weight", "**/embedding", rank=2),
    Rule("**.weight", "**/scale", rank=1),  # of BatchNorm, LayerNorm, GroupNorm, RMSNorm
    Rule("**.bias", "**/bias", rank=1),
    Rule("**.running_mean", "**/mean"),
    Rule("**.running_var", "**/var"),
    Rule("**.num_batches_tracked", None),  # Flax does not have it; torch uses it only without a momentum
    Rule(None, "**/rngs/**"),  # the random streams of Dropout, attention and recurrent layers
    # MultiheadAttention, also with kdim or vdim
    Rule("**.in_proj_weight", tuple(f"**/{name}/kernel" for name in _QUERY_KEY_VALUE), "heads"),
    Rule("**.in_proj_bias", tuple(f"**/{name}/bias" for name in _QUERY_KEY_VALUE), "heads"),
    *(Rule(f"**.{name[0]}_proj_weight", f"**/{name}/kernel", "heads") for name in _QUERY_KEY_VALUE),
    Rule("**.out_proj.weight", "**/out/kernel", "heads-out"),
    Rule("**.out_proj.bias", "**/out/bias", rank=1),
    *_recurrent("", ""),  # a cell
    *_recurrent("_l0", "cell/"),  # one layer: an RNN
    *(
        rule for place in ("*/", "layers/*/") for rule in _recurrent("_l*", f"{place}cell/")
    ),  # List, Sequential
    *(
        rule
        for layer, place in (("_l0", ""), ("_l*", "*/"), ("_l*", "layers/*/"))
        for suffix, way in ((layer, "forward"), (f"{layer}_reverse", "backward"))
        for rule in _recurrent(suffix, f"{place}{way}_rnn/cell/")
    ),
)
