"""States of modules from torch to Flax NNX and back, entry by entry, by rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..element_types import in_host_order, is_bfloat16_bits
from ..errors import ArgumentError
from .layouts import Shape
from .rules import MODULE, RULES, SEPARATORS, TIED, Rule, Side, fill, match, translated
from .trees import leaves, nested, replaced


def to_flax(state: Any, rules: Iterable[Rule] = (), like: Any = None) -> Any:
    """Convert a torch module's state to the state of the same module in Flax NNX.

    Parameters
    ----------
    state
        A ``state_dict`` of NumPy arrays.
    rules
        Rules that come before `RULES`.
    like
        The target: a state with the structure of the result, such as
        ``nnx.to_pure_dict(nnx.state(module))``. Its leaves need a shape and a dtype. It decides
        where names and ranks leave several possibilities. All of its entries must be filled;
        entries that a rule leaves out (random streams) are copied to the result.

    Returns
    -------
    nested dict
        The structure of `like`, with its integer keys; without `like` all keys are strings. An
        array with the same layout on both sides is not copied.

    Raises
    ------
    ArgumentError
        If entries cannot be mapped by exactly one rule, or do not match `like` in name, shape or
        dtype, or if an entry of `like` is not filled. The message lists all such entries.

    Examples
    --------
    >>> to_flax({"norm.weight": np.ones(3), "norm.bias": np.zeros(3)})
    {'norm': {'scale': array([1., 1., 1.]), 'bias': array([0., 0., 0.])}}
    """
    return _converted(state, like, tuple(rules), "torch")


def to_torch(state: Any, rules: Iterable[Rule] = (), like: Any = None) -> Any:
    """Convert a Flax NNX module's state to that of the same module in torch: inverse of `to_flax`.

    Parameters
    ----------
    state
        Nested dicts of NumPy arrays, as ``nnx.to_pure_dict`` makes, or a flat dict of names with
        ``/``.
    rules
        Rules that come before `RULES`.
    like
        The target: the torch module's ``state_dict``; see `to_flax`. The result has its
        ``num_batches_tracked``. Without `like`, the result lacks this entry, which
        ``load_state_dict`` accepts.

    Returns
    -------
    dict
        Arrays by name.

    Raises
    ------
    ArgumentError
        As `to_flax`.

    Examples
    --------
    >>> to_torch({"fc": {"kernel": np.ones((2, 3)), "bias": np.zeros(3)}})["fc.weight"].shape
    (3, 2)
    """
    return _converted(state, like, tuple(rules), "flax")


def _converted(state: Any, like: Any, rules: tuple[Rule, ...], side: Side) -> Any:
    other: Side = "flax" if side == "torch" else "torch"
    target = None if like is None else leaves(like, SEPARATORS[other])
    made = exchange(leaves(state, SEPARATORS[side]), target, rules, side)
    if like is not None:
        return replaced(like, SEPARATORS[other], made)
    return made if other == "torch" else nested(made, SEPARATORS[other])


def exchange(
    source: Mapping[str, Any],
    target: Mapping[str, Any] | None,
    rules: tuple[Rule, ...],
    side: Side,
    moments: bool = False,
) -> dict[str, Any]:
    """Convert arrays by name from `side` to the other side, as `to_flax` and `to_torch`.

    A leaf of the target is None if its shape and dtype are not known. Not every layout can convert
    `moments`.
    """
    return _Exchange(source, target, rules, side, moments).run()


@dataclass(frozen=True)
class _Move:
    """The sources, the targets and their rule; no targets if the rule leaves the sources out."""

    rule: Rule
    sources: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True)
class _Layer:
    """The numbers of inputs and outputs of a layer; without inputs, of a convolution."""

    move: _Move
    inputs: int | None
    outputs: int


@dataclass(frozen=True)
class _Exchange:
    """One call of `exchange`, and the problems that it has found."""

    source: Mapping[str, Any]
    target: Mapping[str, Any] | None
    rules: tuple[Rule, ...]
    side: Side
    moments: bool
    problems: list[str] = field(default_factory=list)

    @property
    def other(self) -> Side:
        return "flax" if self.side == "torch" else "torch"

    def run(self) -> dict[str, Any]:
        moved = {name: self._move(name) for name in self.source}
        moves = [move for move in dict.fromkeys(moved.values()) if move]
        made: dict[str, Any] = {}
        for move in moves:
            if any(moved[name] != move for name in move.sources):
                names = _listed(move.sources)
                self.problems.append(f"{names}: one rule maps all of them, another only one")
            else:
                made |= self._moved(move)
        self._check_images(moves)
        counts = Counter(name for move in moves for name in move.targets)
        self.problems.extend(
            f"{count} arrays would become {name!r}" for name, count in counts.items() if count > 1
        )
        for name, leaf in (self.target or {}).items():
            if name not in counts and self._is_left_out(name, leaf):
                made[name] = leaf
            elif name not in counts:
                self.problems.append(f"nothing would become {name!r}, which the target has")
        if self.problems:
            count = f"{len(self.problems)} problem{'s' * (len(self.problems) > 1)}"
            raise ArgumentError(f"from {self.side} to {self.other}, {count}: {'; '.join(self.problems)}")
        return made

    def _check_images(self, moves: Sequence[_Move]) -> None:
        """Refuse to guess the layout of a Linear that may follow a flattened image.

        torch flattens an image channel by channel, Flax pixel by pixel. Names and shapes do not say
        whether a Linear follows an image. It may if its inputs are several times the channels of a
        convolution, and the layer before it is that convolution, or no layer has as many outputs.
        """
        layers = [layer for move in self._in_order(moves) if (layer := self._layer(move))]
        channels = [layer.outputs for layer in layers if layer.inputs is None]
        before: _Layer | None = None
        for layer in layers:
            inputs, last, before = layer.inputs, before, layer
            if inputs is None or layer.move.rule in self.rules or layer.move.rule.layout != "linear":
                continue
            fitting = [count for count in channels if inputs % count == 0 and inputs > count > 1]
            made = inputs in {other.outputs for other in layers if other is not layer}
            if last is not None and last.inputs is None and last.outputs in fitting:
                fitting = [last.outputs]
            elif made or not fitting:
                continue
            self.problems.append(self._unknown_order(layer.move, fitting[-1]))

    def _unknown_order(self, move: _Move, channels: int) -> str:
        (torch, *_), (flax, *_) = (
            (move.sources, move.targets) if self.side == "torch" else (move.targets, move.sources)
        )
        return (
            f"{_listed(move.sources)} may follow a flattened image of {channels} channels, which torch and"
            " Flax flatten in different orders: give the rule [[rule]]"
            f' torch = "{torch}" flax = "{flax}" layout = "flattened" size = {channels}, or with'
            ' layout = "linear" (without size) if it follows no image'
        )

    def _in_order(self, moves: Sequence[_Move]) -> Sequence[_Move]:
        """Return moves in the order of the names in torch, which is mostly that of layers."""
        if self.side == "torch" or self.target is None:
            return moves
        places = {name: place for place, name in enumerate(self.target)}
        return sorted(moves, key=lambda move: min((places.get(n, 0) for n in move.targets), default=0))

    def _layer(self, move: _Move) -> _Layer | None:
        """Return the inputs and outputs of the layer that has these weights."""
        shape, layout = _shape(self.source[move.sources[0]]) or (), move.rule.layout
        if not move.targets or layout not in ("conv", "linear", "flattened", "same"):
            return None
        if layout == "same":  # an embedding
            return _Layer(move, 0, shape[1]) if len(shape) == 2 else None
        torch = self.side == "torch"
        if layout == "conv":
            return _Layer(move, None, shape[0] if torch else shape[-1])
        return _Layer(move, shape[1], shape[0]) if torch else _Layer(move, shape[0], shape[-1])

    def _move(self, name: str) -> _Move | None:
        """Return the move of an entry: by the user's first fitting rule or the only common one."""
        own = (self._by_rule(rule, name) for rule in self.rules)
        if (move := next(filter(None, own), None)) is not None:
            if not self._is_in_target(move):
                self.problems.append(
                    f"{name!r} would become {_places([move])}, which the target does not have"
                )
                return None
            return move
        moves = [move for rule in RULES if (move := self._by_rule(rule, name))]
        possible = [move for move in moves if self._is_in_target(move)]
        if len(possible) == 1:
            return possible[0]
        what = f"{name!r} ({_form(self.source[name])})"
        if possible:
            self.problems.append(f"{what} could become {_places(possible)}: give a rule or a target")
        elif moves:
            self.problems.append(f"{what} would become {_places(moves)}, which the target does not have")
        else:
            self.problems.append(f"{what} matches no rule: give one")
        return None

    def _by_rule(self, rule: Rule, name: str) -> _Move | None:
        """Return the move of an entry by a rule, if the rule fits and its other sources exist."""
        if rule.layout == MODULE or not rule.takes(_rank(self.source[name]), self.side):
            return None
        for pattern in rule.patterns(self.side):
            if (binding := match(pattern, name, self.side)) is None:
                continue
            if not rule.patterns(self.other):
                return _Move(rule, (name,), ())
            there = translated(binding, self.rules, self.side, self.other)
            sources = [fill(each, binding, self.side) for each in rule.patterns(self.side)]
            targets = [fill(each, there, self.other) for each in rule.patterns(self.other)]
            if rule.layout == TIED:  # a file may have only one of the tied names
                sources = [each for each in sources if each in self.source]
                targets = [each for each in targets if each in (self.target or targets)] or targets
            if all(
                each in self.source and rule.takes(_rank(self.source[each]), self.side) for each in sources
            ):
                return _Move(rule, tuple(sources), tuple(targets))
        return None

    def _is_in_target(self, move: _Move) -> bool:
        return self.target is None or all(name in self.target for name in move.targets)

    def _is_left_out(self, name: str, leaf: Any) -> bool:
        """Whether a rule says that an entry of the target has no counterpart."""
        return any(
            not rule.patterns(self.side)
            and rule.takes(_rank(leaf), self.other)
            and any(match(pattern, name, self.other) for pattern in rule.patterns(self.other))
            for rule in (*self.rules, *RULES)
        )

    def _moved(self, move: _Move) -> dict[str, Any]:
        """Return the arrays of a move in the other layout; note a problem if they do not fit."""
        if not move.targets:
            return {}
        what = f"{_listed(move.sources)} ({', '.join(_form(self.source[name]) for name in move.sources)})"
        layout = move.rule.form
        wanted = [_shape((self.target or {}).get(name)) for name in move.targets]
        try:
            arrays = [_checked(self.source[name]) for name in move.sources]
            if self.moments and not layout.moments:
                raise ArgumentError(f"layout {move.rule.layout!r} cannot convert moments")
            transform = layout.to_flax if self.side == "torch" else layout.to_torch
            made = dict(zip(move.targets, transform(arrays, wanted, move.rule.size), strict=True))
        except ArgumentError as error:
            self.problems.append(f"{what} to {_places([move])}: {error}")
            return {}
        for name, array in made.items():
            leaf = (self.target or {}).get(name)
            if leaf is not None and (_shape(leaf), _dtype(leaf)) != (_shape(array), _dtype(array)):
                self.problems.append(
                    f"{what} would become {name!r} as {_form(array)}, but the target has {_form(leaf)}"
                )
        return made


def _checked(leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray | np.generic | int | float | str | bytes):
        raise ArgumentError(f"must be a NumPy array, not a {type(leaf).__module__}.{type(leaf).__qualname__}")
    return in_host_order(leaf) if isinstance(leaf, np.ndarray) else leaf


def _shape(leaf: Any) -> Shape | None:
    return None if leaf is None else tuple(getattr(leaf, "shape", ()))


def _rank(leaf: Any) -> int:
    return len(_shape(leaf) or ())


def _dtype(leaf: Any) -> str:
    """Return the name of a leaf's dtype, which is the same in NumPy, JAX and torch."""
    dtype = getattr(leaf, "dtype", type(leaf).__name__)
    if isinstance(dtype, np.dtype):
        return "bfloat16" if is_bfloat16_bits(dtype) else dtype.name
    return str(dtype).removeprefix("torch.")


def _form(leaf: Any) -> str:
    return f"{_dtype(leaf)} {list(_shape(leaf) or ())}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _places(moves: Iterable[_Move]) -> str:
    return " or ".join(f"{_listed(move.targets) or 'left out'} ({move.rule.layout})" for move in moves)
