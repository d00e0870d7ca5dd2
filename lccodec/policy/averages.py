"""Averages of weights beside the weights: exponential moving averages, stochastic averaging.

An average is a set of weights that a run is evaluated with. Its errors do what errors of weights
do, so it is coded as weights are: relative to its own movement. But a name alone says too little: a
codebook has an ``ema``, too. So all of this must hold of a tree of arrays:

- Its place is named as an average of a model, and as nothing else (``ema``, ``swa_model``,
  ``params_ema``; ``ema_G`` beside ``net_G``). Or it has what
  ``torch.optim.swa_utils.AveragedModel`` has: ``n_averaged``.
- A model has all of its arrays, with the same names and shapes. Single numbers, such as ``decay``,
  may be beside them.
- It has all weights of that model, and at least two. They are all weights of the state; or both
  trees are entries of the state, as those of several networks are.
- It is not inside an optimizer.

Then its arrays that stand for weights are weights, too. The others, such as statistics, stay exact.
A teacher, a target and an initial state also have the structure of the model. They are no averages,
or not for sure: they are exact.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Final

from .optimizer import Path, Shape, path_of
from .vocabulary import AVERAGES, MODELS, WRAPPERS, meaning

__all__ = ["find_averages"]

_COUNTER: Final = "n_averaged"  # of AveragedModel
_LEAST_WEIGHTS: Final = 2  # a single array of the same shape says too little
#: Words that the name of an average has beside those of `AVERAGES`.
_MODEL_WORDS: Final = MODELS | {"state", "dict", "models", "param", "weight"}


@lru_cache(maxsize=4)  # every save of a run has the same names
def find_averages(
    shapes: tuple[tuple[str, Shape], ...], weights: frozenset[str], spare: frozenset[str]
) -> frozenset[str]:
    """Return the names of the arrays that are averages of weights.

    Parameters
    ----------
    shapes
        Names and shapes of all arrays of the state.
    weights
        The names of the weights.
    spare
        The names of the arrays that may be averages, as nothing says what else they are.

    Examples
    --------
    >>> weights = frozenset(["net/fc.weight", "net/fc.bias"])
    >>> spare = frozenset(["ema/fc.weight", "ema/fc.bias", "old/fc.weight", "old/fc.bias"])
    >>> found = find_averages(tuple((name, (9,)) for name in weights | spare), weights, spare)
    >>> sorted(found)
    ['ema/fc.bias', 'ema/fc.weight']
    """
    paths = {name: path_of(name) for name, _ in shapes}
    counters = {path[:-1] for path in paths.values() if path[-1] == _COUNTER}
    trees: defaultdict[Path, list[str]] = defaultdict(list)
    for name, path in paths.items():
        for place in _places(path, counters) if name not in weights else ():
            trees[place].append(name)
    found: set[str] = set()
    if trees:
        state = _State(dict(shapes), paths, weights)
        for place, names in trees.items():
            found |= state.averaged(place, names, place in counters) & spare
    return frozenset(found)


def _places(path: Path, counters: Collection[Path]) -> Iterator[Path]:
    """Yield the places of averages that an array may be part of."""
    for depth, part in enumerate(path[:-1], 1):
        word = meaning(part)
        if word.optimizer or word.entry:
            return
        if path[:depth] in counters or not AVERAGES.isdisjoint(_words(part)):
            yield path[:depth]


def _words(part: str) -> Iterator[str]:
    return (word for word in re.split("[^a-z]+", part) if word)


class _State:
    """All arrays of a state, some of which are weights."""

    def __init__(
        self, shapes: Mapping[str, Shape], paths: Mapping[str, Path], weights: Collection[str]
    ) -> None:
        self._shapes, self._paths, self._weights = shapes, paths, weights
        self._starts: defaultdict[Path, set[Path]] = defaultdict(set)  # of models, by the end of a weight
        self._counts: Counter[Path] = Counter()  # of weights, by place
        for name in weights:
            path = paths[name]
            for depth in range(len(path)):
                self._counts[path[:depth]] += 1
                self._starts[_unwrapped(path[depth:])].add(path[:depth])

    def averaged(self, place: Path, names: Collection[str], counted: bool) -> set[str]:
        """Return the arrays at a place that stand for weights; none if its tree is not a model's.

        `counted` says that the place is known by what it has, whatever it is called.
        """
        tree = {name: self._paths[name][len(place) :] for name in names}
        while True:
            deep = {name: path for name, path in tree.items() if len(path) > 1}
            parts = {path[0] for path in deep.values()}
            if len(parts) != 1 or not parts <= MODELS | WRAPPERS:
                break
            if not all(self._is_number(name) for name in tree.keys() - deep.keys()):
                break
            tree = {name: path[1:] for name, path in deep.items()}
        by_end = {_unwrapped(path): name for name, path in tree.items()}
        if len(by_end) < len(tree):
            return set()
        counts = Counter(start for end in by_end for start in self._starts.get(end, ()))
        # A state may have thousands of layers: only models that have all their weights here count.
        starts = [start for start, count in counts.items() if count == self._counts[start]]
        strange = {word for part in place for word in _words(part)} - AVERAGES - _MODEL_WORDS
        for start in sorted(starts):
            named = counted or strange <= {word for part in start for word in _words(part)}
            if named and (found := self._mirrored(start, by_end, top=len(place) == 1)):
                return found
        return set()

    def _mirrored(self, start: Path, by_end: Mapping[Path, str], top: bool) -> set[str]:
        """Return the averages of the weights below `start`; none if the trees differ."""
        own = set(by_end.values())
        below = {
            _unwrapped(path[len(start) :]): name
            for name, path in self._paths.items()
            if path[: len(start)] == start and name not in own
        }
        weights = {end: name for end, name in below.items() if name in self._weights}
        if len(weights) < _LEAST_WEIGHTS:
            return set()
        if len(weights) < len(self._weights) and not (top and len(start) == 1):
            return set()
        for end, name in by_end.items():
            if end in below:
                if self._shapes[below[end]] != self._shapes[name]:
                    return set()
            elif not self._is_number(name):
                return set()
        return {by_end[end] for end in weights}

    def _is_number(self, name: str) -> bool:
        return math.prod(self._shapes[name]) == 1 and len(self._shapes[name]) < 2


def _unwrapped(path: Path) -> Path:
    return tuple(part for part in path if part not in WRAPPERS)
