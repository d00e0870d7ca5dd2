"""Roles: what an array is to its training run.

An error in a weight costs a little loss. An error in a second moment can make Adam's update
``m / (sqrt(v) + eps)`` explode. An error in a statistic can have any effect. So a policy chooses
quantizers by role:

- ``weight``: what gradients train;
- ``first_moment``: a running mean of gradients, of either sign;
- ``second_moment``: a running mean, sum or maximum of squared gradients, which an update divides
  by;
- ``other``: all others. They are kept exactly.

No array is lossy by accident. The user says the roles (by name or pattern). What the user does not
say follows from one rule, which `assign_roles` applies to names and shapes; adapters add what a
framework knows by types:

1. What `lccodec.policy.vocabulary.EXACT` names is exact, but for rule 4.
2. With an optimizer in the state, its parameters are the weights, and its arrays that have the
   shape of their parameter are the moments, if errors in them are known to be harmless
   (:mod:`lccodec.policy.optimizer`).
3. Without an optimizer, what is called a weight is one. If the state has an entry for a model
   (``model``, ``params``), only below that.
4. A tree that has the structure of a model and is known to be an average of its weights has
   weights, too.
5. All else is exact. But a save looks at values, too, and finds weights that it has in two types,
   which of a partly frozen model have moved, what follows weights, and what is no moment though
   names say so (:mod:`lccodec.policy.values`).

**Averages** of weights are exponential moving averages, or those of stochastic averaging.

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

import difflib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from ..errors import ArgumentError
from .optimizer import Optimizers, Path, Shape, find_optimizers, name_parts, path_of
from .vocabulary import AVERAGES, MODELS, ROLES, WRAPPERS, Role, meaning

__all__ = ["ROLES", "Role"]  # also from here

#: Why an array is a weight.
PARAMETER: Final = "a parameter of the optimizer"
AVERAGE: Final = "an average of the weights"
MASTER: Final = "the float32 of a weight"
ROUNDED: Final = "a weight, rounded"
FOLLOWER: Final = "follows a weight, by its values"
KEPT: Final = "a weight that an optimizer keeps"
#: Why an array is a first moment: its square is taken from a second moment.
CENTER: Final = "the mean of a centered optimizer"
#: Why an array is a first moment: a state of optax that in a chain is a mean of updates.
MEAN_OF_OPTAX: Final = "EmaState.ema of optax"
#: Why an array is ``other``: no source says anything about it, or not enough.
UNNAMED: Final = "nothing names it"
UNTRAINED: Final = "no parameter of the optimizer"
PERHAPS: Final = "perhaps a parameter of the optimizer"
UNSAFE: Final = "no moment known to be safe"
UNKNOWN: Final = "of an optimizer that is not known"
NO_MOMENT: Final = "named as a moment, not known to be one"
OUTSIDE: Final = "not in the model"
#: How the reason ends if a word in the name says that an array is exact.
EXACT_NAME: Final = " is exact"
#: How the reason ends if an array is a moment by its name.
BY_NAME: Final = " of an optimizer"
#: How the reason for a role begins that a user gives.
GIVEN: Final = "given as "
#: Reasons for "other" that come from no name and no type: the array is exact because nothing says
#: more.
EXACT_BY_DEFAULT: Final = frozenset([UNNAMED, UNTRAINED, PERHAPS, UNSAFE, UNKNOWN])


@dataclass(frozen=True)
class Assignment:
    """The role of an array, and in a few words why it has it."""

    role: Role
    why: str


_UNNAMED_ROLE: Final = Assignment("other", UNNAMED)
_MAX_SUGGESTIONS: Final = 3  # names that a pattern may mean


def assign_roles(
    shapes: Mapping[str, Sequence[int]],
    given: Mapping[str, Role] | None = None,
    known: Mapping[str, Assignment] | None = None,
) -> dict[str, Assignment]:
    """Return the role of each array of a state, given the names and shapes of all.

    A name can mean different things beside different names. `given` are roles of the user by name
    or pattern (:mod:`fnmatch`): a whole name goes before patterns, and of several patterns that
    fit, the first counts. `known` are roles by whole name from a framework's structures, which go
    before names and shapes.

    >>> shapes = {"fc.weight": (9, 9), "bn.var": (9,), "opt/nu/fc.weight": (9, 9), "x": (9, 9)}
    >>> for name, found in assign_roles(shapes, {"bn.*": "other"}).items():
    ...     print(f"{name:16} {found.role:13} {found.why}")
    fc.weight        weight        a parameter of the optimizer
    bn.var           other         given as 'bn.*'
    opt/nu/fc.weight second_moment 'nu' of an optimizer
    x                other         nothing names it
    """
    names = tuple(zip(shapes, map(tuple, shapes.values()), strict=True))
    roles = dict(_assigned(names))
    if known:
        roles.update((name, assignment) for name, assignment in known.items() if name in roles)
    if given:
        roles.update(list(_given(given, roles)))
    weights, spare = list[str](), list[str]()
    for name, assigned in roles.items():
        if assigned.role == "weight":
            weights.append(name)
        elif assigned.role == "other" and (
            assigned.why in (UNNAMED, UNTRAINED, PERHAPS, OUTSIDE) or assigned.why.endswith(EXACT_NAME)
        ):  # exact only by its name, or because nothing says more
            spare.append(name)
    averages = find_averages(names, frozenset(weights), frozenset(spare))
    roles.update(dict.fromkeys(averages, Assignment("weight", AVERAGE)))
    return roles


def is_exact(name: str) -> bool:
    """Return whether a part of a name, such as ``running_mean``, stands for exact arrays."""
    return any(meaning(part).exact for part in name_parts(name))


def check_roles(given: Mapping[str, Role]) -> Mapping[str, Role]:
    """Return roles by name or pattern; raise ``ArgumentError`` for an unknown one."""
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f"roles must be a mapping from names or patterns to roles; got {type(given).__name__}"
        )
    for name, role in given.items():
        if not isinstance(name, str) or role not in ROLES:
            raise ArgumentError(f"the role of {name!r} must be one of {', '.join(ROLES)}; got {role!r}")
    return given


def check_known(roles: Mapping[str, Assignment | Role], names: Collection[str]) -> Mapping[str, Assignment]:
    """Return the roles that are given for one save, by whole name.

    `roles` has assignments by whole name, as an adapter gives them, and roles by name or pattern,
    as a user does. Raises ``ArgumentError`` for an unknown role, and for a name or pattern of a
    user that fits none of the `names` of the state.
    """
    if not isinstance(roles, Mapping):
        raise ArgumentError(f"roles must be a mapping from names or patterns to roles; got {roles!r:.100}")
    known, given = dict[str, Assignment](), dict[str, Role]()
    for name, role in roles.items():
        if isinstance(role, Assignment):
            known[name] = role
        else:
            given[name] = role
    if given:
        check_matches("roles", check_roles(given), names)
        known.update(_given(given, names))
    return known


def _given(given: Mapping[str, Role], names: Iterable[str]) -> Iterator[tuple[str, Assignment]]:
    """Yield the arrays that a name or pattern fits, with their roles."""
    for name in names:
        pattern = name if name in given else next((p for p in given if fnmatchcase(name, p)), None)
        if pattern is not None:
            yield name, Assignment(given[pattern], f"{GIVEN}{pattern!r}")


def check_matches(what: str, patterns: Iterable[str], names: Iterable[str]) -> None:
    """Raise ``ArgumentError``, with the closest names, for a pattern that fits no array: a typo."""
    known = dict.fromkeys(names)
    strange = [p for p in patterns if p not in known and not any(fnmatchcase(name, p) for name in known)]
    if strange:
        ends: dict[str, list[str]] = {}
        for name in known:
            for end in dict.fromkeys([name, name.rpartition("/")[2], *name_parts(name)]):
                near = ends.setdefault(end, [])
                if len(near) < _MAX_SUGGESTIONS:
                    near.append(name)
        lines = [f"  {pattern!r}{_suggestion(pattern, ends)}" for pattern in strange]
        raise ArgumentError("\n".join([f"{what}: no array is named", *lines]))


def _suggestion(pattern: str, ends: Mapping[str, list[str]]) -> str:
    """Return the names that a pattern may mean; `ends` has names and their parts."""
    plain = re.sub(r"\[[^]]*\]|[*?]+", "", pattern).strip("/.")
    wanted = dict.fromkeys([pattern, plain, name_parts(plain)[-1]])
    close = [
        name
        for word in wanted
        if word
        for end in difflib.get_close_matches(word, ends, _MAX_SUGGESTIONS)
        for name in ends[end]
    ]
    shown = list(dict.fromkeys(close))[:_MAX_SUGGESTIONS]
    return f" (is it {' or '.join(map(repr, shown))}?)" if shown else ""


def find_moments(
    roles: Mapping[str, Role], shapes: Mapping[str, Sequence[int]], role: Role
) -> dict[str, str]:
    """Return the name of the moment of each weight that has one of its shape; `role` says which.

    Their paths have the same end (``params/fc/kernel``, ``opt/nu/params/fc/kernel``). Otherwise
    there must be as many weights as moments, with the same shapes in the same order, as in the
    state of a PyTorch optimizer; or moments have the numbers of the weights (``state/4/exp_avg``),
    where some are left out, as those of both biases of a recurrent layer are equal.
    """
    weights = [name for name, own in roles.items() if own == "weight"]
    moments = [name for name, own in roles.items() if own == role]
    if not moments:
        return {}
    ends: dict[Path, str | None] = {}
    for name in weights:
        path = path_of(name)
        for start in range(len(path)):
            end = path[start:]
            ends[end] = None if end in ends else name  # None: several weights have this end
    found = {}
    for name in moments:
        path = path_of(name)
        same = (ends.get(path[start:]) for start in range(1, len(path)))
        weight = next((w for w in same if w is not None and shapes[w] == shapes[name]), None)
        if weight is not None:
            found[weight] = name
    if not found and [shapes[name] for name in weights] == [shapes[name] for name in moments]:
        return dict(zip(weights, moments, strict=True))
    numbers = [_number(name) for name in moments]
    if not found and len({*numbers}) == len(numbers) and all(0 <= n < len(weights) for n in numbers):
        pairs = {weights[n]: name for n, name in zip(numbers, moments, strict=True)}
        if all(shapes[weight] == shapes[name] for weight, name in pairs.items()):
            return pairs
    return found


def _number(name: str) -> int:
    """Return the number above the last part of a path; -1 if there is none."""
    above = path_of(name)[-2:-1]
    return int(above[0]) if above and str(above[0]).isdecimal() else -1


def called_weight(name: str) -> bool:
    """Return whether the last part of a name, such as ``kernel``, alone stands for weights."""
    *before, last = [meaning(part) for part in name_parts(name)]
    if any(word.entry and "_" in word.text for word in before):  # what an optimizer kept, without it
        return False
    if last.text.isdecimal() and before:  # the weights in a list have positions below its name
        last = before[-1]
    return last.weight or (last.weight_in_params and any(word.params for word in before))


@lru_cache(maxsize=4)  # every save of a run has the same names
def _assigned(shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> Mapping[str, Assignment]:
    """Return the roles that follow from the names and shapes of all arrays of a state."""
    by_name = dict(shapes)
    beside = _weights_beside(by_name)

    def is_weight(name: str) -> bool:
        return called_weight(name) or name in beside

    optimizers = find_optimizers(by_name, is_weight, is_exact)
    models = {_entry(name) for name in by_name if _holds_model(_entry(name))}
    return MappingProxyType({name: _assign(name, is_weight, optimizers, models) for name in by_name})


def _assign(
    name: str, is_weight: Callable[[str], bool], optimizers: Optimizers, models: Collection[str]
) -> Assignment:
    """Return the role of an array by the rule above."""
    exact = next((word.text for part in name_parts(name) if (word := meaning(part)).exact), None)
    if exact is not None:
        return Assignment("other", f"{exact!r}{EXACT_NAME}")
    if name in optimizers.moments:
        role, entry = optimizers.moments[name]
        if role == "weight":
            return Assignment(role, KEPT)
        return Assignment(role, CENTER if name in optimizers.centers else f"{entry!r}{BY_NAME}")
    if name in optimizers.inside:
        return Assignment("other", UNSAFE)
    if name in optimizers.parameters:
        return Assignment("weight", PARAMETER)
    if name in optimizers.perhaps:
        return Assignment("other", PERHAPS)
    if optimizers.present:
        return (
            Assignment("other", UNTRAINED if optimizers.known else UNKNOWN)
            if is_weight(name)
            else _UNNAMED_ROLE
        )
    if not is_weight(name):
        return _UNNAMED_ROLE
    if models and _entry(name) not in models:
        return Assignment("other", OUTSIDE)
    return Assignment("weight", f"named {name_parts(name)[-1].lower()!r}")


def _entry(name: str) -> str:
    """Return the entry of the state in which an array is; empty for the state itself."""
    return name.partition("/")[0] if "/" in name else ""


def _holds_model(entry: str) -> bool:
    word = meaning(entry)
    return not word.exact and (word.params or not MODELS.isdisjoint(re.split("_", word.text)))


def _weights_beside(names: Collection[str]) -> set[str]:
    """Return the names that stand for weights beside a partner: ``gamma`` and ``beta``."""
    pairs = {name: meaning(name_parts(name)[-1]).weight_beside for name in names}
    found = {name: partner for name, partner in pairs.items() if partner}
    paths = {path_of(name) for name in names} if found else set()
    return {name for name, partner in found.items() if (*path_of(name)[:-1], partner) in paths}


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
