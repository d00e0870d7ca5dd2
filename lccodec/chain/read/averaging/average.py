"""The weighted mean of several checkpoints of a chain, in the memory of about one state.

Averages of weights along a run often do better than its last weights. A chain has the steps, so
that an average can be chosen after the run: a plain mean of the last steps (stochastic weight
averaging), or an exponential one.

Arrays of the roles asked for are averaged. All others come from the newest of the chosen steps:
other roles, integers and booleans of any role, and scalars. So statistics such as the running
mean of a BatchNorm are those of the newest step. They do not fit averaged weights, and must be
estimated again with data.

The steps that lead to one newest step are a *line*. Usually a line is a keyframe and its deltas.
Arrays are averaged one after the other (those that share a frame together): each walks every line
once, so that each frame is decoded once. Checkpoints of two writers may be branches of a tree; a
frame before the fork is then decoded once for each branch.

**Memory.** The result takes one state. The arrays in work take what a restore of them takes, which
is about twice their size, and 8 bytes for each component. So a state of a dozen equal float32
arrays takes about 1.3 states, and a state that is one float32 array takes about 4. Small arrays
that share frames are in work together. As for a restore, manifests and headers of frames come on
top: some 400 bytes for each array of each checkpoint of the lines.

**Error.** Sums are float64, also for float32: rounding after each step would show. Before the one
rounding to the array's dtype, the error is at most ``(n + 2) * 2**-53`` times the weighted mean of
the magnitudes, for n steps; of float64, half of the smallest subnormal number comes on top for each
step. bfloat16 is rounded by way of float32.

**Guarantees.** What holds of each step holds of the mean: an error is at most the mean of the
bounds, a factor at most the largest, limits stay, an array without negative numbers gets none, and
what is 0 in each step is 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from ....container.tree import select, unflatten
from ....element_table import ELEMENT_TYPES
from ....element_types import Array, check_dtype, unwork, work
from ....errors import ArgumentError
from ....parallel import WIDE_PIECE, slices
from ....policy.roles import ROLES, Role
from ...bounds import UNBOUNDED, Bounds
from ...progress import Tell, untold
from ...store.store import Store
from ..checkpoint import OpenCheckpoint, checked_names, open_step, without_spare
from ..heads import Head, next_heads
from ..info import ArrayInfo, checkpoint_info
from ..links import Link, value_or_raise
from ..needed import decoded_together
from ..newest import kept
from ..pointer import check_own
from ..replay import DecodedArray, replay_each

_FLOATS: Final = {kind.name for kind in ELEMENT_TYPES if kind.is_float}


@dataclass(frozen=True)
class Average:
    """A weighted mean of checkpoints.

    Parameters
    ----------
    state
        The averaged state; with keys, a dict of these leaves by name.
    metadata
        The strings that were stored with the newest of the steps.
    arrays
        Names of the arrays that are averaged.
    """

    state: Any
    metadata: dict[str, str]
    arrays: tuple[str, ...]


@dataclass(frozen=True)
class _Line:
    """The checkpoints from a keyframe to a chosen step, with those of them that are averaged."""

    links: Sequence[Link]
    chosen: Mapping[int, float]  # shares by the position of the link


def average(
    store: Store,
    shares: Mapping[int, float],
    roles: Iterable[Role] | Role = ("weight",),
    keys: Iterable[str] | str | None = None,
    dtype: Literal["float32", "bits"] | None = None,
    tell: Tell = untold,
    bounds: Bounds = UNBOUNDED,
) -> Average:
    """Return the weighted mean of checkpoints of a chain.

    Parameters
    ----------
    shares
        The steps, and what each counts, as `select_shares` returns it. A step that counts 0 changes
        nothing, even where it has a NaN.
    roles
        Roles of the arrays to average, such as ``("weight", "first_moment")``; as recorded in the
        checkpoints.
    keys, dtype
        As in `lccodec.Chain.restore`.
    tell
        Is told how many arrays are done, and of how many.
    bounds
        What each of the steps may ask for.

    Raises
    ------
    LimitError
        If a step asks for more. Nothing was decoded.
    ArgumentError
        If no array has the roles, or if an array to average is not in each of the steps with the
        same dtype and shape; for unknown roles, keys and `dtype`.
    ChainError
        For an unknown step or a missing parent.
    DataError, StorageError
        If stored bytes break a rule of the format, or a file cannot be read.

    Examples
    --------
    >>> import tempfile, lccodec
    >>> from lccodec.chain.store.directory import DirectoryStore
    >>> chain = lccodec.Chain(tempfile.mkdtemp(), policy="lossless")
    >>> for step in range(4):
    ...     _ = chain.save(step, {"weight": np.full(2, step, "f4"), "epoch": step})
    >>> average(DirectoryStore(chain.directory), {2: 0.25, 3: 0.75}).state
    {'weight': array([2.75, 2.75], dtype=float32), 'epoch': 3}
    """
    check_dtype(dtype)
    wanted_roles = _check_roles(roles)
    for step in sorted(shares) if bounds != UNBOUNDED else ():
        kept(open_step(store, step), bounds).close()
    with ExitStack() as files:
        lines = _lines(store, shares, files)
        links = lines[-1].links
        manifest = links[-1].manifest
        check_own(manifest.metadata, store.path)
        names = links[-1].index_names
        values: dict[str, Any] = {}
        places = links[-1].paths
        if keys is not None:
            places, values = select(manifest.tree, manifest.scalars, checked_names(keys))
        wanted = {names[index]: index for index in places.values()}
        averaged = _averaged(lines, wanted_roles, wanted)
        found: dict[int, Array] = {}
        for group in _groups(lines, wanted):
            arrays = _mean(lines, group, averaged.intersection(group))
            for name in group:
                found[wanted[name]] = without_spare(arrays.pop(name).array(dtype))
            tell(len(found), len(wanted))
        if keys is None:
            state = unflatten(manifest.tree, [found[index] for index in range(len(names))], manifest.scalars)
        else:
            state = {**{name: found[index] for name, index in places.items()}, **values}
        return Average(state, dict(manifest.metadata), tuple(name for name in wanted if name in averaged))


# --- which arrays ---------------------------------------------------------------------------------


def _check_roles(roles: Iterable[Role] | Role) -> set[str]:
    try:
        found: list[object] = [roles] if isinstance(roles, str) else list(roles)
    except TypeError:
        found = [roles]
    if not found or not all(isinstance(role, str) and role in ROLES for role in found):
        raise ArgumentError(f"roles must be among {', '.join(ROLES)}; got {roles!r}")
    return {str(role) for role in found}


def _lines(store: Store, shares: Mapping[int, float], files: ExitStack) -> list[_Line]:
    """Open the checkpoints that lead to the chosen steps; the line of the newest is the last."""
    lines: list[_Line] = []
    left = set(shares)
    while left:
        file: OpenCheckpoint = files.enter_context(open_step(store, max(left)))
        file.links[-1].reader.rest()  # there may be more lines than files can be open
        steps = [link.manifest.step for link in file.links]
        lines.append(_Line(file.links, {i: shares[step] for i, step in enumerate(steps) if step in left}))
        left.difference_update(steps)
    lines.reverse()
    return lines


def _averaged(lines: Sequence[_Line], roles: Collection[str], wanted: Collection[str]) -> set[str]:
    """Return the names of the arrays to average; check that they are the same in every step."""
    found = {step: arrays for line in lines for step, arrays in _described(line)}
    newest = max(found)
    chosen = {
        name: array
        for name, array in found[newest].items()
        if array.role in roles and array.dtype in _FLOATS and name in wanted
    }
    if not chosen:
        raise ArgumentError(
            f"step {newest} has no floating point array to average with the role {' or '.join(sorted(roles))}"
        )
    for step, arrays in found.items():
        for name, array in chosen.items():
            other = arrays.get(name)
            if other is None:
                raise _differing(name, f"is not in step {step}")
            if (other.dtype, other.shape) != (array.dtype, array.shape):
                raise _differing(
                    name, f"is {_form(other)} in step {step}, and {_form(array)} in step {newest}"
                )
        for name, array in arrays.items() if len(wanted) == len(found[newest]) else ():
            if name not in found[newest] and array.role in roles and array.dtype in _FLOATS:
                raise _differing(name, f"is in step {step}, and not in step {newest}")
    return set(chosen)


def _described(line: _Line) -> Iterator[tuple[int, dict[str, ArrayInfo]]]:
    """Yield the arrays of each chosen step by name; nothing is decoded."""
    found: dict[int, Mapping[str, Any]] = {}
    for position, link in enumerate(line.links):
        own = found[id(link)] = next_heads(link, [found[id(above)] for above in link.parents])
        if position in line.chosen:
            heads: dict[str, Head] = {name: value_or_raise(own[name]) for name in link.index_names}
            arrays = checkpoint_info(link, heads, position).arrays
            yield link.manifest.step or 0, {array.name: array for array in arrays}


def _differing(name: str, how: str) -> ArgumentError:
    return ArgumentError(f"array {name!r} {how}: only what all steps have can be averaged")


def _form(array: ArrayInfo) -> str:
    return f"{array.dtype} {array.shape}"


# --- the mean -------------------------------------------------------------------------------------


def _groups(lines: Sequence[_Line], wanted: Mapping[str, int]) -> list[list[str]]:
    """Return the wanted arrays, those together that share a frame in any line."""
    together = decoded_together([link for line in lines for link in line.links])
    groups: dict[int, list[str]] = {}
    for name, index in wanted.items():
        groups.setdefault(id(together[index]), []).append(name)
    return list(groups.values())


def _mean(lines: Sequence[_Line], names: Sequence[str], averaged: Collection[str]) -> dict[str, DecodedArray]:
    """Return arrays of the newest step, and of those to average the mean."""
    sums: dict[str, Array] = {}
    arrays: dict[str, DecodedArray] = {}
    for line in lines if averaged else lines[-1:]:
        wanted: dict[int, Collection[str]] = {i: averaged for i, share in line.chosen.items() if share}
        if line is lines[-1]:
            wanted[len(line.links) - 1] = names
        for position, arrays in replay_each(line.links, wanted):
            share = line.chosen[position]
            for name in averaged if share else ():
                _add(sums, name, arrays[name], share)
        if line is not lines[-1]:
            arrays = {}  # the next line is decoded into memory of its own
    for name, total in sums.items():
        _round(total, arrays[name])
    return arrays


def _add(sums: dict[str, Array], name: str, array: DecodedArray, share: float) -> None:
    """Add an array's share to its sum; the first one makes it, so that -0.0 stays as it is."""
    total = sums.get(name)
    if total is None:
        sums[name] = np.empty(array.bits.size)
    with np.errstate(all="ignore"):
        for part in slices(array.bits.size, WIDE_PIECE):
            values = np.multiply(work(array.bits[part], array.kind), share, dtype=np.float64)
            if total is None:
                sums[name][part] = values
            else:
                total[part] += values


def _round(total: Array, array: DecodedArray) -> None:
    """Write a mean over the decoded values of an array."""
    with np.errstate(all="ignore"):
        for part in slices(total.size, WIDE_PIECE):
            array.bits[part] = unwork(total[part].astype(array.kind.work), array.kind)
