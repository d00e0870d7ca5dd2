"""Roles: what an array is to its training run, found from the names of a state's arrays.

An error in a weight costs a little loss; one in a second moment can make Adam's update
``m / (sqrt(v) + eps)`` explode. So a policy chooses quantizers by role:

- ``weight``: what is trained, and whatever no rule tells otherwise;
- ``first_moment``: a running mean of gradients, of either sign;
- ``second_moment``: a running mean, sum or maximum of squared gradients, which an update divides by;
- ``other``: all the rest of an optimizer, and the statistics of normalization layers. A running variance is
  divided by as well, is small, and is not lowered by any gradient: it is no weight, and kept as it is.

Names are those of PyTorch (``exp_avg``, ``exp_avg_sq``, ``momentum_buffer``, ``square_avg``, ``sum``, ...),
optax (``mu``, ``nu``, ``trace``), Keras (``momentum`` and ``velocity``, ``m`` and ``v``) and of NumPy states
like them. Some are words for other things too: they count inside an optimizer's state only, or where both
moments lie side by side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal, get_args

from .errors import ArgumentError

__all__ = ["ROLES", "Role", "check_roles", "find_curvatures", "find_roles"]

Role = Literal["weight", "first_moment", "second_moment", "other"]

ROLES: Final[tuple[Role, ...]] = get_args(Role)

_SECOND: Final = re.compile(
    r"(.*_)?(exp_avg_sq|square_avg|exp_inf|acc_delta|second_moment|velocity_hat|v_?hat)s?(_row|_col)?"
)
_FIRST: Final = re.compile(r"(.*_)?(exp_avg|momentum_buffer|first_moment)s?")
_STATISTIC: Final = re.compile(r"running_(mean|var)|num_batches_tracked|moving_(mean|variance)|batch_stats")

# Inside an optimizer's state.
_OPTIMIZER: Final = re.compile(
    r"opt|opt(im|imi[sz]er)?_?(state|var)?s?|adam\w*|sgd|rmsprop|lion|adagrad|adafactor"
)
_SECOND_INSIDE: Final = re.compile(r"(.*_)?(v|nu|nu_max|sum|sum_of_squares|accumulator)s?(_row|_col)?")
_FIRST_INSIDE: Final = re.compile(r"(.*_)?(m|mu|trace|moment(um|a)|velocity|velocities)s?")

#: First and second moments that are told by their partner of the same prefix.
_PAIRS: Final = (("m", "v"), ("mu", "nu"), ("momentum", "velocity"), ("momentums", "velocities"))


def find_roles(
    names: Iterable[str],
    given: Mapping[str, Role] | None = None,
    known: Mapping[str, Role] | None = None,
) -> dict[str, Role]:
    """Return the role of each array of a state.

    Parameters
    ----------
    names
        Of all arrays of the state; what lies side by side tells what a name means.
    given
        Roles by name or pattern (:mod:`fnmatch`), where they are known better; a whole name goes before
        patterns, and the first pattern that fits before others.
    known
        Roles by whole name that a framework's own structures tell; they go before what names tell.

    Raises
    ------
    ArgumentError
        For an unknown role.

    Examples
    --------
    >>> find_roles(["conv.weight", "bn.running_var", "optimizer/0/exp_avg_sq"])
    {'conv.weight': 'weight', 'bn.running_var': 'other', 'optimizer/0/exp_avg_sq': 'second_moment'}
    >>> find_roles(["m/fc", "v/fc", "attention/v"], {"m/*": "other"})
    {'m/fc': 'other', 'v/fc': 'second_moment', 'attention/v': 'weight'}
    """
    given = check_roles(given or {})
    roles = dict(_named_roles(tuple(names)))
    roles.update((name, role) for name, role in (known or {}).items() if role and name in roles)
    for name in roles if given else ():
        role = given.get(name)
        if role is None:
            role = next((role for pattern, role in given.items() if fnmatchcase(name, pattern)), None)
        roles[name] = role or roles[name]
    return roles


@lru_cache(maxsize=4)  # the states of a run have the same names, save after save
def _named_roles(names: tuple[str, ...]) -> Mapping[str, Role]:
    """Return the roles that the names of all arrays of a state tell; not to be changed."""
    paths = {name: _path(name) for name in names}
    places = {(*path[:depth], word) for path in paths.values() for depth, word in enumerate(path)}
    return MappingProxyType({name: _role(path, places) for name, path in paths.items()})


def find_curvatures(roles: Mapping[str, Role], shapes: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """Return the second moment of each weight that has one of its shape, by name.

    They share the end of their paths (``params/fc/kernel``, ``opt/nu/params/fc/kernel``); or there are as
    many of both, in one order, as in the state of a PyTorch optimizer.
    """
    weights = [name for name, role in roles.items() if role == "weight"]
    moments = [name for name, role in roles.items() if role == "second_moment"]
    if not moments:
        return {}
    ends: dict[tuple[str, ...], str | None] = {}
    for name in weights:
        path = _path(name)
        for start in range(len(path)):
            end = tuple(path[start:])
            ends[end] = None if end in ends else name  # more than one has it
    found = {}
    for name in moments:
        path = _path(name)
        same = (ends.get(tuple(path[start:])) for start in range(1, len(path)))
        weight = next((w for w in same if w is not None and shapes[w] == shapes[name]), None)
        if weight is not None:
            found[weight] = name
    if not found and [shapes[name] for name in weights] == [shapes[name] for name in moments]:
        return dict(zip(weights, moments, strict=True))
    return found


def _path(name: str) -> list[str]:
    return re.split("[/.]|~1", name.lower())


def check_roles(given: Mapping[str, Role]) -> Mapping[str, Role]:
    """Return roles by name or pattern as they are.

    Raises
    ------
    ArgumentError
        If they are not a mapping, or one is unknown.
    """
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f"roles are a mapping from names or patterns to roles, not {type(given).__name__}"
        )
    for name, role in given.items():
        if not isinstance(name, str) or role not in ROLES:
            raise ArgumentError(f"unknown role {role!r} of {name!r}; there are {', '.join(ROLES)}")
    return given


def _role(path: list[str], places: set[tuple[str, ...]]) -> Role:
    """Return the role of the array at a path; `places` are all paths of the state and their beginnings."""
    inside = statistic = False
    for depth, word in enumerate(path):
        meaning = _meaning(word)
        if meaning.anywhere:
            return meaning.anywhere
        for partner, role in meaning.partners:
            if (*path[:depth], partner) in places:
                return role
        if inside and meaning.inside:
            return meaning.inside
        # A bare torch optimizer state is {"state": {0: {...}, 1: ...}, "param_groups": ...}.
        inside |= meaning.optimizer or (word.isdecimal() and path[depth - 1] == "state")
        statistic |= meaning.statistic
    return "other" if inside or statistic else "weight"


@dataclass(frozen=True)
class _Meaning:
    """What a word of a path tells: of itself, inside an optimizer's state, and beside a partner."""

    anywhere: Role | None
    inside: Role | None
    partners: tuple[tuple[str, Role], ...]
    optimizer: bool
    statistic: bool


@lru_cache(maxsize=1 << 12)
def _meaning(word: str) -> _Meaning:
    def moment(second: re.Pattern[str], first: re.Pattern[str]) -> Role | None:
        return (
            "second_moment" if second.fullmatch(word) else "first_moment" if first.fullmatch(word) else None
        )

    prefix, line, stem = word.rpartition("_")
    partners: list[tuple[str, Role]] = []
    for first, second in _PAIRS:
        if stem == first:
            partners.append((prefix + line + second, "first_moment"))
        if stem == second:
            partners.append((prefix + line + first, "second_moment"))
    return _Meaning(
        moment(_SECOND, _FIRST),
        moment(_SECOND_INSIDE, _FIRST_INSIDE),
        tuple(partners),
        bool(_OPTIMIZER.fullmatch(word)),
        bool(_STATISTIC.fullmatch(word)),
    )
