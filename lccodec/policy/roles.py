"""Roles: what an array is to its training run.

An error in a weight costs a little loss. An error in a second moment can make Adam's update
``m / (sqrt(v) + eps)`` explode. An error in a statistic can have any effect. So a policy chooses
quantizers by role:

- ``weight``: what gradients train;
- ``first_moment``: a running mean of gradients, of either sign;
- ``second_moment``: a running mean, sum or maximum of squared gradients, which an update divides
by;
- ``other``: all others. They are kept exactly.

No array is lossy by accident. It is a weight or a moment only if one of these sources says so, in
this order: the user (by name or pattern), the structures of a framework (types, the state of an
optimizer; the adapters know them), and the lists of names in :mod:`lccodec.policy.vocabulary`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeAlias

from ..errors import ArgumentError
from .vocabulary import MODELS, ROLES, Role, Word, meaning

__all__ = [
    "ROLES",
    "UNNAMED",
    "Assignment",
    "Role",
    "assign_roles",
    "check_known",
    "check_matches",
    "check_roles",
    "find_curvatures",
    "is_exact",
]

#: Why an array is ``other`` if no source says anything about it.
UNNAMED: Final = "nothing names it"


@dataclass(frozen=True)
class Assignment:
    """The role of an array, and in a few words why it has it."""

    role: Role
    why: str


_Path: TypeAlias = tuple[str, ...]
_UNNAMED_ROLE: Final = Assignment("other", UNNAMED)
_MAX_SUGGESTIONS: Final = 3  # names that a pattern may mean


def assign_roles(
    names: Iterable[str],
    given: Mapping[str, Role] | None = None,
    known: Mapping[str, Assignment] | None = None,
) -> dict[str, Assignment]:
    """Return the role of each array of a state.

    Parameters
    ----------
    names
        Names of all arrays of the state. A name can mean different things beside different names.
    given
        Roles that the user gives, by name or pattern (:mod:`fnmatch`). A whole name goes before
        patterns. Of several patterns that fit, the first counts.
    known
        Roles by whole name from a framework's own structures. They go before what names say.

    Raises
    ------
    ArgumentError
        For an unknown role.

    Examples
    --------
    >>> for name, found in assign_roles(
    ...     ["fc.weight", "bn.running_var", "opt/0/exp_avg_sq", "x"], {"opt/1/*": "other"}
    ... ).items():
    ...     print(f"{name:17} {found.role:14} {found.why}")
    fc.weight         weight         named 'weight'
    bn.running_var    other          'running_var' is exact
    opt/0/exp_avg_sq  second_moment  named 'exp_avg_sq'
    x                 other          nothing names it
    """
    given = check_roles(given or {})
    roles = dict(_named(tuple(names)))
    if known:
        roles.update((name, assignment) for name, assignment in known.items() if name in roles)
    for name in roles if given else ():
        pattern = name if name in given else next((p for p in given if fnmatchcase(name, p)), None)
        if pattern is not None:
            roles[name] = Assignment(given[pattern], f"given as {pattern!r}")
    return roles


def is_exact(name: str) -> bool:
    """Return whether a part of a name, such as ``running_mean``, stands for exact arrays."""
    return any(meaning(part).exact for part in _parts(name))


def check_roles(given: Mapping[str, Role]) -> Mapping[str, Role]:
    """Return roles by name or pattern; raise ``ArgumentError`` for an unknown one."""
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f"roles must be a mapping from names or patterns to roles, not {type(given).__name__}"
        )
    for name, role in given.items():
        if not isinstance(name, str) or role not in ROLES:
            raise ArgumentError(f"unknown role {role!r} of {name!r}; roles are {', '.join(ROLES)}")
    return given


def check_known(known: Mapping[str, Assignment]) -> Mapping[str, Assignment]:
    """Return the roles that an adapter knows; refuse all but a mapping to assignments."""
    if not isinstance(known, Mapping) or not all(isinstance(a, Assignment) for a in known.values()):
        raise ArgumentError(
            f"known roles must be a mapping from names to lccodec.policy.roles.Assignment, not {known!r:.100}"
        )
    return known


def check_matches(what: str, patterns: Iterable[str], names: Iterable[str]) -> None:
    """Check that every name or pattern fits an array. One that fits none is probably mistyped.

    Raises
    ------
    ArgumentError
        Lists the patterns that fit no array, with the closest names.

    Examples
    --------
    >>> check_matches("roles", ["fc.*", "*/velocty"], ["fc.weight", "sgd/velocity"])
    Traceback (most recent call last):
    lccodec.errors.ArgumentError: roles: no array is named
      '*/velocty' (is it 'sgd/velocity'?)
    """
    known = dict.fromkeys(names)
    strange = [p for p in patterns if p not in known and not any(fnmatchcase(name, p) for name in known)]
    if strange:
        ends: dict[str, list[str]] = {}
        for name in known:
            for end in dict.fromkeys([name, name.rpartition("/")[2], *_parts(name)]):
                near = ends.setdefault(end, [])
                if len(near) < _MAX_SUGGESTIONS:
                    near.append(name)
        lines = [f"  {pattern!r}{_suggestion(pattern, ends)}" for pattern in strange]
        raise ArgumentError("\n".join([f"{what}: no array is named", *lines]))


def _suggestion(pattern: str, ends: Mapping[str, list[str]]) -> str:
    """Return the names that a pattern may mean; `ends` has names and their parts."""
    plain = re.sub(r"\[[^]]*\]|[*?]+", "", pattern).strip("/.")
    wanted = dict.fromkeys([pattern, plain, _parts(plain)[-1]])
    close = [
        name
        for word in wanted
        if word
        for end in difflib.get_close_matches(word, ends, _MAX_SUGGESTIONS)
        for name in ends[end]
    ]
    shown = list(dict.fromkeys(close))[:_MAX_SUGGESTIONS]
    return f" (is it {' or '.join(map(repr, shown))}?)" if shown else ""


def find_curvatures(roles: Mapping[str, Role], shapes: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """Return the name of the second moment of each weight that has one of the same shape.

    Their paths have the same end (``params/fc/kernel``, ``opt/nu/params/fc/kernel``). Otherwise
    there must be as many weights as moments, with the same shapes in the same order, as in the
    state of a PyTorch optimizer.
    """
    weights = [name for name, role in roles.items() if role == "weight"]
    moments = [name for name, role in roles.items() if role == "second_moment"]
    if not moments:
        return {}
    ends: dict[_Path, str | None] = {}
    for name in weights:
        path = _path(name)
        for start in range(len(path)):
            end = path[start:]
            ends[end] = None if end in ends else name  # None: several weights have this end
    found = {}
    for name in moments:
        path = _path(name)
        same = (ends.get(path[start:]) for start in range(1, len(path)))
        weight = next((w for w in same if w is not None and shapes[w] == shapes[name]), None)
        if weight is not None:
            found[weight] = name
    if not found and [shapes[name] for name in weights] == [shapes[name] for name in moments]:
        return dict(zip(weights, moments, strict=True))
    return found


def _parts(name: str) -> list[str]:
    return re.split("[/.]|~1", name)


def _path(name: str) -> _Path:
    return tuple(_parts(name.lower()))


@lru_cache(maxsize=4)  # every save of a run has the same names
def _named(names: tuple[str, ...]) -> Mapping[str, Assignment]:
    """Return the roles that the names of all arrays of a state say. The result is shared."""
    found: dict[str, Assignment] = {}
    parameters: set[_Path] = set()
    state = _State(names)
    for name in names:
        assignment, parameter = state.assign([meaning(part) for part in _parts(name)])
        found[name] = assignment
        if parameter:
            parameters.add(parameter)
    for name, assignment in found.items() if parameters else ():
        if assignment is _UNNAMED_ROLE and (moment := state.parameter(_path(name), parameters)):
            found[name] = Assignment("weight", f"has the moments of '{'/'.join(moment)}'")
    return MappingProxyType(found)


class _State:
    """All names of a state, among which the name of one array is looked at."""

    def __init__(self, names: Iterable[str]) -> None:
        self._leaves = {_path(name) for name in names}
        self._places = {path[:depth] for path in self._leaves for depth in range(1, len(path) + 1)}

    def assign(self, words: list[Word]) -> tuple[Assignment, _Path]:
        """Return the role of an array and, for a moment, the path of its parameter."""
        path = tuple(word.text for word in words)
        optimizer = exact = ""
        params = False
        for depth, word in enumerate(words):
            role = word.moment
            if not role and not exact:
                role, partner = self._beside(path, depth, word)
                if not role and not partner and optimizer:
                    role = word.moment_in_optimizer
            if role:
                if words[-1].bookkeeping or self._is_scale(path):
                    return Assignment("other", f"{word.text!r} keeps it for itself"), ()
                rest = path[depth + 1 :] or _parameter_before(path, depth)
                return Assignment(role, f"named {word.text!r}"), rest
            # A torch optimizer's state alone is {"state": {0: {...}, 1: ...}, "param_groups": ...}.
            if word.optimizer or (word.text.isdecimal() and depth and path[depth - 1] == "state"):
                optimizer, exact = word.text, ""
            if word.exact:
                exact = word.text
            params |= word.params
        if exact:
            return Assignment("other", f"{exact!r} is exact"), ()
        if optimizer:
            return Assignment("other", "inside an optimizer"), ()
        # The weights in a list have positions below the name of the list.
        last = words[-2] if len(words) > 1 and words[-1].text.isdecimal() else words[-1]
        beside = (*path[:-1], last.weight_beside) in self._leaves if last.weight_beside else False
        if last.weight or (last.weight_in_params and params) or (beside and last is words[-1]):
            return Assignment("weight", f"named {last.text!r}"), ()
        return _UNNAMED_ROLE, ()

    def _is_scale(self, path: _Path) -> bool:
        """Return whether an array is the scale of a moment that is stored as codes."""
        codes = ((*path[:-1], name) for name in ("codes", "qmap"))
        return path[-1] == "scale" and any(place in self._leaves for place in codes)

    def _beside(self, path: _Path, depth: int, word: Word) -> tuple[Role | None, bool]:
        """Return the role that a partner says, and whether there is a partner at all.

        Every parameter has both moments, so the partner must have an array of the same path.
        Otherwise the two are something else, as in SM3, whose ``mu`` is a second moment.
        """
        partners = [((*path[:depth], partner), role) for partner, role in word.partners]
        for place, role in partners:
            if place + path[depth + 1 :] in self._leaves:
                return role, True
        return None, any(place in self._places for place, _ in partners)

    @staticmethod
    def parameter(path: _Path, parameters: set[_Path]) -> _Path | None:
        """Return the end of a path below a model that is the whole name of a parameter."""
        starts = (start for start in range(1, len(path)) if path[start - 1] in MODELS)
        return next((path[start:] for start in starts if path[start:] in parameters), None)


def _parameter_before(path: _Path, depth: int) -> _Path:
    """Return the parameter whose moment is one of its entries: ``state/fc.weight/exp_avg``."""
    if "state" not in path[:depth]:
        return ()
    parameter = path[path.index("state") + 1 : depth]
    return () if all(part.isdecimal() for part in parameter) else parameter
