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

Source: stochastic weight averaging (Izmailov et al., UAI 2018) counts all steps the same; an
exponential average counts each step a fixed factor less than the next.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from ...constants import ELEMENT_TYPES
from ...container.tree import select, unflatten
from ...element_types import Array, check_dtype, unwork, work
from ...errors import ArgumentError, ChainError, as_integer, as_number
from ...parallel import WIDE_PIECE, slices
from ...policy.roles import ROLES, Role
from ..overview import OnProgress, no_progress
from ..store.store import Store, step_index
from .checkpoint import OpenCheckpoint, checked_names, kept, open_step, without_spare
from .info import ArrayInfo, checkpoint_info
from .links import UNBOUNDED, Bounds, Head, Link, check_own, fold, next_heads, value_or_raise
from .replay import DecodedArray, decoded_together, grouped, replay_each


def select_shares(
    store: Store,
    steps: Iterable[int] | None = None,
    last: int | None = None,
    weights: Iterable[float] | None = None,
    decay: float | None = None,
) -> dict[int, float]:
    """Return what each of the chosen steps counts, by rising steps. The sum is 1.

    Parameters
    ----------
    steps
        The steps, in any order.
    last
        Instead of `steps`: how many of the newest steps. All are taken if there are fewer.
    weights
        A weight for each step: in the order of `steps`, or for `last` the oldest step first. They
        need not add up to 1. A step with the weight 0 counts nothing. By default all steps count
        the same.
    decay
        Instead of `weights`, for an exponential average: the newest step has the weight 1, and each
        older one `decay` times that of the next. Ages are counted in checkpoints, not in steps.
        Above 0 and at most 1.

    Raises
    ------
    ArgumentError
        If not exactly one of `steps` and `last` is given, both `weights` and `decay` are, no step
        is chosen or one twice, or the weights do not fit: another number of them than steps, one
        that is negative, NaN or infinite, or all of them 0.
    ChainError
        If the chain has no checkpoint to take the last of. Other steps are not looked up.
    StorageError
        If the directory cannot be listed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from lccodec.chain.store.directory import writable_store
    >>> run = writable_store(Path("run"))
    >>> select_shares(run, [30, 10, 20], weights=[2, 1, 1])
    {10: 0.25, 20: 0.25, 30: 0.5}
    >>> select_shares(run, [10, 30], decay=0.25)
    {10: 0.2, 30: 0.8}
    """
    chosen = _steps(store, steps, last)
    if weights is not None and decay is not None:
        raise ArgumentError("average takes either weights= or decay=; got both")
    if decay is not None:
        factor = as_number(decay)
        if factor is None or not 0 < factor <= 1:
            raise ArgumentError(f"decay must be a number above 0 and at most 1; got {decay!r}")
        numbers = {step: float(factor) ** age for age, step in enumerate(sorted(chosen, reverse=True))}
    elif weights is not None:
        numbers = dict(zip(chosen, _numbers(weights, len(chosen)), strict=True))
    else:
        numbers = dict.fromkeys(chosen, 1.0)
    largest = max(numbers.values())
    if not largest > 0:
        raise ArgumentError("at least one weight must be above 0; all are 0")
    scaled = {step: numbers[step] / largest for step in sorted(numbers)}  # a sum of large ones may overflow
    total = math.fsum(scaled.values())
    return {step: number / total for step, number in scaled.items()}


def _steps(store: Store, steps: Iterable[int] | None, last: int | None) -> list[int]:
    """Return the chosen steps, as they are given or rising."""
    if (steps is None) == (last is None):
        raise ArgumentError("average needs either steps= or last=, the number of newest steps")
    if last is not None:
        count = as_integer(last)
        if count is None or count < 1:
            raise ArgumentError(f"last must be a positive integer; got {last!r}")
        there = list(store.steps())
        if not there:
            raise ChainError(store.nothing())
        return there[-count:]
    try:
        chosen = [step_index(step) for step in iter(steps or ())]
    except TypeError:
        raise ArgumentError(f"steps must be an iterable of steps; got {steps!r}") from None
    if not chosen:
        raise ArgumentError("average needs at least one step; got none")
    if len(set(chosen)) < len(chosen):
        twice = next(step for step in chosen if chosen.count(step) > 1)
        raise ArgumentError(f"step {twice} is given twice")
    return chosen


def _numbers(weights: Iterable[float], count: int) -> list[float]:
    try:
        given = list(iter(weights))
    except TypeError:
        message = f"weights must be an iterable of one number for each step; got {weights!r}"
        raise ArgumentError(f"{message}; for an exponential average, use decay=") from None
    if len(given) != count:
        raise ArgumentError(f"weights must have one number for each of {count} steps; got {len(given)}")
    numbers = []
    for value in given:
        number = as_number(value)
        if number is None or not 0 <= number < math.inf:
            raise ArgumentError(f"a weight must be a finite number of at least 0; got {value!r}")
        numbers.append(float(number))
    return numbers


_FLOATS: Final = {kind.name for kind in ELEMENT_TYPES if kind.is_float}


@dataclass(frozen=True)
class Average:
    """A weighted mean of checkpoints, the newest one's metadata, and what arrays are averaged."""

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
    tell: OnProgress = no_progress,
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
        together = decoded_together([link for line in lines for link in line.links])
        for indices in grouped(together, wanted.values()):
            group = [names[index] for index in indices]
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
    for position, (link, own) in enumerate(fold(line.links, next_heads)):
        if position in line.chosen:
            heads: dict[str, Head] = {name: value_or_raise(own[name]) for name in link.index_names}
            arrays = checkpoint_info(link, heads, position).arrays
            yield link.manifest.step or 0, {array.name: array for array in arrays}


def _differing(name: str, how: str) -> ArgumentError:
    return ArgumentError(f"array {name!r} {how}: only what all steps have can be averaged")


def _form(array: ArrayInfo) -> str:
    return f"{array.dtype} {array.shape}"


# --- the mean -------------------------------------------------------------------------------------


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
    for name, total in sums.items():  # the mean is written over the decoded values
        array = arrays[name]
        with np.errstate(all="ignore"):
            for part in slices(total.size, WIDE_PIECE):
                array.bits[part] = unwork(total[part].astype(array.kind.work), array.kind)
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
