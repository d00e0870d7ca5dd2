"""States of modules from torch to Flax NNX and back, entry by entry, by rules; and Adam's moments.

Moments have the layouts of their parameters. torch keeps ``exp_avg``, ``exp_avg_sq`` and ``step``
for each parameter, by its number. optax keeps one ``ScaleByAdamState``: a ``count`` and two trees,
``mu`` and ``nu``. Both do the same computation (if optax's ``eps_root`` is 0, the default), so
training can continue. Learning rates, betas, weight decay and the counts of optax's schedules come
from the new optimizer.
"""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ..constants import MAX_NESTING
from ..element_types import in_host_order, is_bfloat16_bits
from ..errors import ArgumentError
from .rules import MODULE, RULES, SEPARATORS, TIED, Rule, Shape, Side, fill, match, translated


def children(node: Any) -> list[tuple[str, Any]] | None:
    """Return the children of a container by key, field or position; None for a leaf."""
    if isinstance(node, Mapping):
        return [(str(key), child) for key, child in node.items()]
    if isinstance(node, list | tuple):
        names = getattr(node, "_fields", map(str, range(len(node))))
        return list(zip(names, node, strict=True))
    return None


def leaves(tree: Any, separator: str) -> dict[str, Any]:
    """Return the leaves of nested containers by name; None is not a leaf.

    >>> leaves({"a": {0: 1, "b/c": 2}, "d": None}, "/")
    {'a/0': 1, 'a/b/c': 2}
    """
    flat: dict[str, Any] = {}
    for keys, leaf in _walk(tree, ()):
        if (name := separator.join(keys)) in flat:
            raise ArgumentError(f"two entries of the state have the name {name!r}")
        flat[name] = leaf
    return flat


def _walk(node: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = children(node)
    if inner is None:
        if node is not None:
            yield keys, node
        return
    if len(keys) >= MAX_NESTING:
        raise ArgumentError(f"the state nests deeper than {MAX_NESTING} containers, or contains itself")
    for key, child in inner:
        yield from _walk(child, (*keys, key))


def nested(flat: Mapping[str, Any], separator: str) -> dict[str, Any]:
    """Return leaves by name as nested dicts.

    >>> nested({"a/b": 1, "a/c": 2}, "/")
    {'a': {'b': 1, 'c': 2}}
    """
    tree: dict[str, Any] = {}
    for name, leaf in flat.items():
        *path, last = name.split(separator)
        node: Any = tree
        for key in path:
            node = node.setdefault(key, {}) if isinstance(node, dict) else None
        if not isinstance(node, dict) or last in node:
            raise ArgumentError(f"{name!r} is the name of an array, and also the path of others")
        node[last] = leaf
    return tree


def replaced(tree: Any, separator: str, values: Mapping[str, Any]) -> Any:
    """Return containers with the structure of a tree and other leaves: the inverse of `leaves`.

    >>> replaced({"a": [1, None]}, ".", {"a.0": 5})
    {'a': [5, None]}
    """

    def build(node: Any, keys: tuple[str, ...]) -> Any:
        inner = children(node)
        if inner is None:
            return None if node is None else values[separator.join(keys)]
        return rebuilt(node, [build(child, (*keys, key)) for key, child in inner])

    return build(tree, ())


def rebuilt(node: Any, inner: list[Any]) -> Any:
    """Return a container of the same kind with other children; for a mapping, a dict."""
    if isinstance(node, Mapping):
        return dict(zip(node, inner, strict=True))
    if hasattr(node, "_fields"):
        return type(node)(*inner)
    return tuple(inner) if isinstance(node, tuple) else inner


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
    made = _Exchange(leaves(state, SEPARATORS[side]), target, rules, side).run()
    if like is not None:
        return replaced(like, SEPARATORS[other], made)
    return made if other == "torch" else nested(made, SEPARATORS[other])


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
    """A conversion of arrays by name from `side` to the other one, and the problems found.

    A leaf of the target is None if its shape and dtype are not known. Not every layout can convert
    `moments`.
    """

    source: Mapping[str, Any]
    target: Mapping[str, Any] | None
    rules: tuple[Rule, ...]
    side: Side
    moments: bool = False
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
            sources = [fill(pattern, binding, self.side) for pattern in rule.patterns(self.side)]
            targets = [fill(pattern, there, self.other) for pattern in rule.patterns(self.other)]
            if rule.layout == TIED:  # a file may have only one of the tied names
                sources = [source for source in sources if source in self.source]
                targets = [target for target in targets if target in (self.target or targets)] or targets
            if all(
                source in self.source and rule.takes(_rank(self.source[source]), self.side)
                for source in sources
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


#: The names of the moments in torch and in optax.
_MOMENT_NAMES: Final = {"exp_avg": "mu", "exp_avg_sq": "nu"}
_FLAX_SEPARATOR: Final = SEPARATORS["flax"]


def adam_to_flax(
    optimizer: Any, names: Sequence[str] | None = None, rules: Iterable[Rule] = (), like: Any = None
) -> Any:
    """Return the moments of a torch Adam or AdamW as the state of optax's Adam.

    Parameters
    ----------
    optimizer
        The optimizer's ``state_dict``, with NumPy arrays.
    names
        The names of the parameters in the optimizer's order: ``[name for name, _ in
        module.named_parameters()]``. None if the state of the optimizer holds the names.
    rules
        Rules that come before `RULES`, as for the weights.
    like
        The target: an optax state that contains Adam's state. The result has its structure, and its
        values for everything else. It is needed whenever `to_flax` needs one.

    Returns
    -------
    nested containers
        The structure of `like`, with its named tuples; without `like`, a dict of ``count``, ``mu``
        and ``nu``.

    Raises
    ------
    ArgumentError
        If a parameter has no moments, or the steps differ; for AMSGrad, because torch takes the
        maximum before bias correction and optax after it; and as `to_flax`.
    """
    entries = _entries(optimizer, _names(optimizer, names))
    steps = {_count(entry["step"], f"the step of {name!r}") for name, entry in entries.items()}
    if len(steps) != 1:
        raise ArgumentError(
            f"all parameters must have the same step, because optax has one; got {sorted(steps)}"
        )
    adam: dict[str, Any] = {"count": np.array(steps.pop(), np.int32)}
    template = None if like is None else _adam(like)
    for ours, theirs in _MOMENT_NAMES.items():
        source = {name: entry[ours] for name, entry in entries.items()}
        target = None if template is None else leaves(template[theirs], _FLAX_SEPARATOR)
        made = _Exchange(source, target, tuple(rules), "torch", moments=True).run()
        adam[theirs] = (
            nested(made, _FLAX_SEPARATOR)
            if template is None
            else replaced(template[theirs], _FLAX_SEPARATOR, made)
        )
    return adam if like is None else _with_adam(like, adam)


def adam_to_torch(
    state: Any, names: Sequence[str] | None = None, rules: Iterable[Rule] = (), like: Any = None
) -> dict[str, Any]:
    """Return optax's Adam state as the state of a torch Adam or AdamW: inverse of `adam_to_flax`.

    Parameters
    ----------
    state
        An optax state of NumPy arrays that contains Adam's state.
    names
        The names of the parameters in the optimizer's order; None if `like` has them.
    rules
        Rules that come before `RULES`, as for the weights.
    like
        The target: the ``state_dict`` of the torch optimizer. The result has its ``param_groups``,
        without which torch cannot load it. If the optimizer has taken a step, shapes are checked.

    Returns
    -------
    dict
        ``state`` by parameter number, and the ``param_groups`` of `like`.

    Raises
    ------
    ArgumentError
        As `to_torch`.
    """
    adam = _adam(state)
    names = _names(like, names)
    known = {} if like is None else _field(like, "state")
    target = {name: _by_number(known, number).get("exp_avg") for number, name in enumerate(names)}
    step = np.array(_count(adam["count"], "optax's count"), np.float32)
    entries = {name: {"step": step.copy()} for name in names}
    for ours, theirs in _MOMENT_NAMES.items():
        source = leaves(adam[theirs], _FLAX_SEPARATOR)
        made = _Exchange(source, target, tuple(rules), "flax", moments=True).run()
        for name in names:
            entries[name][ours] = made[name]
    groups = {} if like is None else {"param_groups": _field(like, "param_groups")}
    return {"state": dict(enumerate(entries.values())), **groups}


def _names(optimizer: Any, names: Sequence[str] | None) -> list[str]:
    if names is not None:
        return list(names)
    known: dict[int, str] = {}
    for group in _field(optimizer, "param_groups"):
        numbers, labels = (_items(group, key) for key in ("params", "param_names"))
        known |= {
            n: name for n, name in zip(numbers, labels, strict=False) if type(n) is int and type(name) is str
        }
    if not known:
        raise ArgumentError(
            "the optimizer's state has no names of parameters: give them, or make the optimizer with"
            " module.named_parameters()"
        )
    return [known[number] for number in sorted(known)]


def _items(group: Any, key: str) -> Sequence[Any]:
    items = group.get(key) if isinstance(group, Mapping) else None
    return items if isinstance(items, list | tuple) else ()


def _entries(optimizer: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the entries of a torch optimizer for each parameter, by its name."""
    state = _field(optimizer, "state")
    wanted = {"step", *_MOMENT_NAMES}
    entries = {name: _by_number(state, number) for number, name in enumerate(names)}
    problems = [
        f"parameter {name!r} has {', '.join(sorted(map(str, entry))) or 'no state'}"
        for name, entry in entries.items()
        if set(entry) != wanted
    ]
    if len(state) > len(names):
        problems.append(f"there are {len(state)} parameters but {len(names)} names")
    if problems:
        keys = ", ".join(sorted(wanted))
        raise ArgumentError(f"each parameter must have exactly {keys}, as in Adam: {'; '.join(problems)}")
    return entries


def _field(optimizer: Any, name: str) -> Any:
    field = optimizer.get(name) if isinstance(optimizer, Mapping) else None
    if not isinstance(field, Mapping if name == "state" else list):
        raise ArgumentError(f"the state of the optimizer must be a torch state_dict; it has no {name}")
    return field


def _by_number(state: Mapping[Any, Any], number: int) -> Any:
    """Return a parameter's entry. Files that allow only string keys have its number as a string."""
    entry = state.get(number, state.get(str(number)))
    return entry if isinstance(entry, Mapping) else {}


def _count(value: Any, what: str) -> int:
    number = np.asarray(value)
    if number.shape or number.dtype.kind not in "uif" or not 0 <= number < 2**31 or number % 1:
        raise ArgumentError(f"{what} must be a number of steps; got {reprlib.repr(value)}")
    return int(number)


def _is_adam(node: Any) -> bool:
    return {name for name, _ in children(node) or ()} == {"count", *_MOMENT_NAMES.values()}


def _adam(tree: Any) -> dict[str, Any]:
    """Return the fields of the single Adam state in nested containers."""
    adams = list(_adams(tree))
    if len(adams) != 1:
        raise ArgumentError(f"the optax state must hold one Adam state (count, mu and nu); got {len(adams)}")
    return dict(children(adams[0]) or ())


def _adams(node: Any) -> Iterator[Any]:
    if _is_adam(node):
        yield node
    else:
        for _, child in children(node) or ():
            yield from _adams(child)


def _with_adam(node: Any, adam: dict[str, Any]) -> Any:
    """Return nested containers with new fields in their Adam state."""
    inner = children(node)
    if inner is None:
        return node
    if _is_adam(node):
        return rebuilt(node, [adam[name] for name, _ in inner])
    return rebuilt(node, [_with_adam(child, adam) for _, child in inner])
