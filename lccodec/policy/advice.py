"""What a user may want to know of roles before a long run: what is exact, and what does harm.

Nothing that is unknown is lossy. So an optimizer that nobody knows makes a run many times as large,
and one line of ``roles=`` may change that. A user knows what an optimizer keeps; here only the
lines are written that say it. They are guesses: what has no negative number is taken for a second
moment, what has some for a first moment. So each is given as something to try.

Errors do harm to some arrays, whatever they are called. The moments of SOAP and Shampoo lie in a
basis that the optimizer turns from time to time. An error of one element becomes one of all
elements of a row there: a run lost five intervals by it. The rows of LBFGS are differences, of
weights and of gradients, that must belong together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np

from ..element_types import work
from .optimizer import path_of
from .policy import Candidate
from .roles import EXACT_BY_DEFAULT, GIVEN, UNSAFE, Role, called_weight

__all__ = ["LARGE_ARRAY_ELEMENTS", "advised_roles", "known_to_harm"]

LARGE_ARRAY_ELEMENTS: Final = 1 << 12  # as many are worth a word if no name says the role
_MOST_EXACT: Final = 0.5  # of the bytes of a state: with more, roles are advised
_MAX_LINES: Final = 8

#: What an optimizer keeps beside moments that are in another basis, or that belong together.
_BASES: Final = frozenset(["gg", "q", "preconditioner", "preconditioners", "inv_preconditioners"])
_ROWS: Final = frozenset(["old_dirs", "old_stps", "prev_flat_grad", "d", "al", "ro"])


def advised_roles(arrays: Sequence[Candidate], exact: Collection[str]) -> dict[str, Role]:
    """Return roles by pattern that would make most of a state lossy, if most of it is exact.

    `exact` has the names of the arrays that lose nothing.
    """
    total = sum(c.bits.nbytes for c in arrays)
    large = [
        c
        for c in arrays
        if c.name in exact and c.role == "other" and c.why in EXACT_BY_DEFAULT
        if c.kind.kind == "f" and c.elements >= LARGE_ARRAY_ELEMENTS
    ]
    if sum(c.bits.nbytes for c in large) <= _MOST_EXACT * total:
        return {}
    others = _beside(arrays)
    found: dict[str, Role] = {}
    for c in large:
        inside = c.why == UNSAFE
        if inside and not others[path_of(c.name)[:-1]].isdisjoint(_BASES | _ROWS):
            continue
        if not inside and not called_weight(c.name):
            continue
        found.setdefault(_pattern(c.name), _guessed(c) if inside else "weight")
    return dict(list(found.items())[:_MAX_LINES])


def known_to_harm(arrays: Sequence[Candidate]) -> list[str]:
    """Return the names of moments that a user calls so, and in which errors are known to harm."""
    others = _beside(arrays)
    return [
        c.name
        for c in arrays
        if c.role in ("first_moment", "second_moment") and c.why.startswith(GIVEN)
        if not others[path_of(c.name)[:-1]].isdisjoint(_BASES | _ROWS)
    ]


def _beside(arrays: Sequence[Candidate]) -> Mapping[tuple[str, ...], set[str]]:
    """Return the parts that are in each place of a state."""
    found: dict[tuple[str, ...], set[str]] = {}
    for c in arrays:
        path = path_of(c.name)
        for depth, part in enumerate(path):
            found.setdefault(path[:depth], set()).add(part)
    return found


def _pattern(name: str) -> str:
    """Return a pattern for arrays of all layers: numbers are left open."""
    return "/".join("*" if part.isdecimal() else part for part in name.split("/"))


def _guessed(c: Candidate) -> Role:
    values = work(c.bits, c.kind)
    return "first_moment" if bool(np.any(values < 0)) else "second_moment"
