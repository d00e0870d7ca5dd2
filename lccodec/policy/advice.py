"""What a user may want to know of roles before a long run: what is exact, and what does harm.

Nothing that is unknown is lossy. So an optimizer that nobody knows makes a run many times as large,
and one line of ``roles=`` may change that. A user knows what an optimizer keeps; here only the
lines are written that say it. They are guesses: what has no negative number in any layer is taken
for a second moment, what has some for a first moment. So each is given as something to try. A
pattern reaches nothing but the arrays that it is written for.

Errors do harm to some arrays, whatever they are called. The moments of SOAP and Shampoo lie in a
basis that the optimizer turns from time to time. An error of one element becomes one of all
elements of a row there: a run lost five intervals by it. What spans a basis is beside them, and
symmetric, or it has a name that says so. The rows of LBFGS are differences, of weights and of
gradients, that must belong together. A copy of the weights, as Prodigy keeps of the first ones, is
no moment. Nor is what a known optimizer keeps and was found to suffer, as the steps of Rprop.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

import numpy as np

from ..element_types import Array, has_negative, scattered, work
from .optimizer import Path, path_of
from .policy import Candidate
from .roles import EXACT_BY_DEFAULT, GIVEN, UNSAFE, Role, called_weight
from .vocabulary import FAMILIES

__all__ = ["LARGE_ARRAY_ELEMENTS", "advised_roles", "known_to_harm"]

LARGE_ARRAY_ELEMENTS: Final = 1 << 12  # as many are worth a word if no name says the role
_MOST_EXACT: Final = 0.5  # of the bytes of a state: with more, roles are advised

#: What an optimizer keeps beside moments that are in another basis, or that belong together.
_BASIS: Final = re.compile(r"gg|q|(inv_)?precond\w*|(inv_)?factor_matrices|eigen\w*")
_ROWS: Final = frozenset(["old_dirs", "old_stps", "prev_flat_grad", "d", "al", "ro"])
#: Entries of optimizers that are known, and whose arrays suffer from errors.
_SUFFERING: Final = [f.roles.keys() for f in FAMILIES if set(f.roles.values()) == {"other"}]

_COPY_CORRELATION: Final = 0.5  # with a weight: no gradient, and no mean of some, is as like one


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
    harmful, others = _harmful(arrays), _beside(arrays)
    weights = [c for c in arrays if c.why != UNSAFE and called_weight(c.name)]
    groups: dict[str, list[Candidate]] = {}
    for c in large:
        if c.why == UNSAFE:
            if path_of(c.name)[:-1] in harmful or _suffers(path_of(c.name), others):
                continue
        elif not called_weight(c.name):
            continue
        groups.setdefault(_pattern(c.name), []).append(c)
    roles = {pattern: _guessed(members, weights) for pattern, members in groups.items()}
    found: dict[str, Role] = {}
    for pattern, own in _with_trees(roles, arrays).items():
        if own is not None:
            reached = {c.name for c in arrays if fnmatchcase(c.name, pattern)}
            fits = pattern not in groups or reached == {c.name for c in arrays if _pattern(c.name) == pattern}
            found.update(dict.fromkeys([pattern] if fits else [c.name for c in groups[pattern]], own))
    return found


def _with_trees(roles: Mapping[str, Role | None], arrays: Sequence[Candidate]) -> dict[str, Role | None]:
    """Return roles by pattern, with one pattern for all arrays below a place, where one will do.

    A tree of moments has an array for each layer, and layers have names. Small arrays of the tree
    have the role, too.
    """
    below: dict[str, list[Candidate]] = {}
    for c in arrays:
        for place in _places(_pattern(c.name)):
            below.setdefault(place, []).append(c)
    trees: dict[str, str] = {}  # the pattern of a tree, by its place
    for role, place in {(role, place): None for pattern, role in roles.items() for place in _places(pattern)}:
        own, tree = below[place], f"{place}/*"
        fits = len({_pattern(c.name) for c in own} & roles.keys()) > 1  # else its own pattern will do
        fits = fits and all(_may_have(role, c, roles) for c in own)
        if fits and len(own) == sum(fnmatchcase(c.name, tree) for c in arrays):
            trees[place] = tree
    whole = {p: next((trees[place] for place in _places(p) if place in trees), p) for p in roles}
    return {whole[pattern]: role for pattern, role in roles.items()}


def _places(pattern: str) -> list[str]:
    """Return the places that an array is below, the outermost first."""
    parts = pattern.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _may_have(role: Role | None, c: Candidate, roles: Mapping[str, Role | None]) -> bool:
    """Return whether an array has this role in a tree in which others have it."""
    if (pattern := _pattern(c.name)) in roles:
        return roles[pattern] == role
    if c.kind.kind != "f" or c.role != "other" or c.elements >= LARGE_ARRAY_ELEMENTS:
        return False
    if role == "weight":
        return called_weight(c.name) and c.why != UNSAFE and c.why in EXACT_BY_DEFAULT
    return c.why == UNSAFE and (role == "first_moment" or not has_negative(c.bits, c.kind))


def known_to_harm(arrays: Sequence[Candidate]) -> list[str]:
    """Return the names of moments that a user calls so, and in which errors are known to harm."""
    given = [c for c in arrays if _is_given_moment(c)]
    harmful = _harmful(arrays) if given else ()
    return [c.name for c in given if path_of(c.name)[:-1] in harmful]


def _is_given_moment(c: Candidate) -> bool:
    return c.role in ("first_moment", "second_moment") and c.why.startswith(GIVEN)


def _harmful(arrays: Sequence[Candidate]) -> set[Path]:
    """Return the places of moments that are in another basis, or that belong together."""
    found = {
        place
        for place, parts in _beside(arrays).items()
        if not parts.isdisjoint(_ROWS) or any(map(_BASIS.fullmatch, parts))
    }
    kept = (c for c in arrays if c.why == UNSAFE or _is_given_moment(c))
    return found | {path_of(c.name)[:-1] for c in kept if _is_symmetric(c)}


def _is_symmetric(c: Candidate) -> bool:
    """Return whether some rows of a large matrix are its columns, as of a product with itself."""
    if len(c.shape) != 2 or c.shape[0] != c.shape[1] or c.elements < LARGE_ARRAY_ELEMENTS:
        return False
    rows = slice(None, None, max(c.shape[0] // 4, 1))
    matrix = c.bits.reshape(c.shape)
    row, column = (
        work(part.copy(), c.kind) for part in (matrix[rows].reshape(-1), matrix.T[rows].reshape(-1))
    )
    return bool(row.any()) and np.allclose(row, column, rtol=1e-3, atol=1e-3 * float(np.abs(row).max()))


def _suffers(path: Path, others: Mapping[Path, set[str]]) -> bool:
    """Return whether an array is of an optimizer that is known to suffer from errors."""
    return any(
        part in family and family <= others[path[:depth]]
        for depth, part in enumerate(path)
        for family in _SUFFERING
    )


def _is_like_a_weight(c: Candidate, weights: Sequence[Candidate]) -> bool:
    """Return whether an array is about as a weight is, or was."""
    like = (w for w in weights if (w.kind, w.shape) == (c.kind, c.shape))
    return any(_correlation(_values(c), _values(w)) > _COPY_CORRELATION for w in like)


def _values(c: Candidate) -> Array:
    return work(c.bits.take(scattered(c.bits.size, LARGE_ARRAY_ELEMENTS)), c.kind).astype(np.float64)


def _correlation(one: Array, other: Array) -> float:
    with np.errstate(all="ignore"):
        return float(np.corrcoef(one, other)[0, 1])


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


def _guessed(members: Sequence[Candidate], weights: Sequence[Candidate]) -> Role | None:
    """Return the role that arrays of several layers may have; None if none is likely."""
    if members[0].why != UNSAFE:
        return "weight"
    if _is_like_a_weight(members[0], weights) or not any(c.bits.any() for c in members):
        return None
    return "first_moment" if any(has_negative(c.bits, c.kind) for c in members) else "second_moment"
