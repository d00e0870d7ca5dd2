"""A report of a chain, a bundle or a file, or of two of them side by side.

First every manifest is read: what there is, and what of it is shown. Then the run is walked by
rising step. Where the saves measured all that is shown of an array, hashes alone are checked. Other
arrays, and with originals all, are decoded, each delta once over its parent, and measured. In
memory are the state that is decoded, the shown arrays of the step before and, with originals, two
original states. Every branch of a chain that waits takes one state more.

Two runs are compared by their newest states: which arrays differ, by how much, in which direction.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Final, TypeAlias

from ..chain.overview import shortened
from ..chain.read.checkpoint import OpenCheckpoint, open_path
from ..chain.read.replay import DecodedArray
from ..chain.read.survey import Visit
from ..container.checkpoint import check_skeleton
from ..container.system import Place, StrPath, checked_place
from ..errors import ArgumentError, ChainError, LccodecError
from ..table import evenly_spaced
from .difference import Leaves, Replacement, compare_states
from .findings import (
    array_flags,
    calmed,
    change_flags,
    checkpoint_flags,
    coarse_flags,
    in_order,
    number_flags,
    shift_flags,
    shifts,
    verdict,
)
from .inventory import Inventory, Source, open_source
from .loss import ChainOriginals, ExactOriginals, Originals, original_bits
from .report import (
    MAX_CHECKPOINTS,
    MAX_PICTURES,
    Checkpoint,
    Compared,
    Comparison,
    Picture,
    Report,
    Run,
    is_pictured,
    largest,
    picture,
    series_of,
    step_limit,
)
from .trajectory import SavedFigures, Trajectory


def compare(
    left: tuple[Place, int | None],
    right: tuple[Place, int | None],
    progress: Callable[[int, int], object] | None = None,
) -> Comparison:
    """Compare two states, each given by its path and its step there.

    Both are exact, or both as their histories decode; the labels say which.
    """
    with ExitStack() as opened:
        pair = [opened.enter_context(open_path(place, step=step)) for place, step in (left, right)]
        if any(map(_has_lost, pair)):
            pair = [
                opened.enter_context(open_path(place, step=step, exact=False))
                for place, step in (left, right)
            ]
        labels = [_label(*side, file) for side, file in zip((left, right), pair, strict=True)]
        before, after = pair
        difference = compare_states(Leaves(before), Leaves(after), progress)
        roles = {array.name: array.role for array in after.info().arrays}
    changed = sorted(difference.changed, key=lambda change: -(change.relative_rms or 0.0))
    return Comparison(
        left=labels[0],
        right=labels[1],
        rows=[
            Compared(c.name, roles.get(c.name, "other"), c.relative_rms, c.max_abs, c.cosine, c.share)
            for c in changed
        ],
        unchanged=difference.unchanged,
        appeared=difference.appeared,
        disappeared=difference.disappeared,
        replaced=difference.replaced,
        scalars=[
            Replacement(scalar.name, repr(scalar.old), repr(scalar.new)) for scalar in difference.scalars
        ],
    )


def _has_lost(file: OpenCheckpoint) -> bool:
    """Return whether an open checkpoint is one of a lossy history: such names an exact file."""
    return file.links[-1].manifest.exact is not None


def _label(path: Place, step: int | None, file: OpenCheckpoint) -> str:
    place = str(path) if step is None else f"{path} step {step}"
    if file.links[-1].manifest.is_exact:
        return f"{place} (exact)"
    return f"{place} (as the history decodes)" if _has_lost(file) else place


_NOTE: Final = "Movement is not quality: an array that moves a lot may learn well, or diverge."
_MAX_PROBLEMS: Final = 5  # of one checkpoint

#: A function that is told how many steps are done, and how many there are.
Progress = Callable[[int, int], object]


def examine(
    path: StrPath,
    other: StrPath | None = None,
    *,
    steps: Container[int] | None = None,
    against: Originals | StrPath | None = None,
    version: str = "",
    progress: Progress | None = None,
) -> Report:
    """Return a report of a chain, a bundle or a checkpoint file, or of two beside each other.

    Parameters
    ----------
    path, other
        Where they lie. Of two runs also the states are compared: those of the newest step that both
        have, or the newest of each; of `steps` if these are given.
    steps
        Which steps have figures, such as ``range(0, 1000, 10)``; by default all, or evenly spaced
        ones if there are too many. Every checkpoint is listed and checked, whatever the steps.
    against
        Originals, to measure what was lost: another chain or a bundle, or what reads them. By
        default the exact file, if there is one.
    version
        What the report says of the program that made it.
    progress
        Called as ``progress(done, total)`` after every checkpoint.

    Raises
    ------
    ArgumentError
        If there is no checkpoint, or none of the `steps`; for two runs and `against`.
    DataError, StorageError
        If a single file, a bundle or a directory cannot be opened. Checkpoints of a chain that
        cannot be read are listed as such.

    Examples
    --------
    >>> import tempfile, numpy as np, lccodec
    >>> chain = lccodec.Chain(tempfile.mkdtemp(), "lossless")
    >>> for step in range(3):
    ...     _ = chain.save(step, {"weight": np.full((2, 3), 1.0 + step)})
    >>> (run,) = examine(chain.directory).runs
    >>> run.arrays[0].name, run.steps, run.figures["movement"]
    ('weight', [0, 1, 2], [[None, 1.0, 0.5]])
    """
    paths = [checked_place(place) for place in (path, other) if place is not None]
    if against is not None and len(paths) > 1:
        raise ArgumentError("against= needs exactly one path; got two")
    with ExitStack() as opened:
        sources = [opened.enter_context(closing(open_source(place))) for place in paths]
        total, done = sum(len(source.steps) for source in sources), 0

        def tick() -> None:
            nonlocal done
            done += 1
            if progress is not None:
                progress(done, total)

        if isinstance(against, str | os.PathLike):
            against = ChainOriginals(opened.enter_context(closing(open_source(checked_place(against)))))
        runs = [_run(source, steps, against, tick) for source in sources]
        notes = [_NOTE]
        comparison = _compared(runs, steps, notes) if len(runs) > 1 else None
    return Report(version, notes, runs, comparison)


def _run(
    source: Source, wanted: Container[int] | None, originals: Originals | None, tick: Callable[[], None]
) -> Run:
    inventory = Inventory(source.pins(), source.protected())
    for number, visit in source.visits(decode=False):
        inventory.add(number, visit)
    every = inventory.rows()
    rows = largest(every)
    notes: list[str] = []
    if len(rows) < len(every):
        notes.append(f"{len(rows)} of {len(every):,} arrays are shown: the largest.")
    shown = _shown_steps(source, inventory, wanted, step_limit(len(rows)), notes)
    with ExitStack() as opened:
        exact = None if source.kind == "file" else ExactOriginals.of(source.store, inventory.newest[1])
        if exact is not None:
            opened.enter_context(closing(exact))
        trajectory = Trajectory(rows, originals or exact)
        problems: dict[int, list[str]] = {}
        known = shown.intersection(() if (beside := originals or exact) is None else beside.steps)
        pictured = max(known or shown, default=None)  # the newest step, with an original if one has it
        pictures: list[Picture] = []
        for number, visit in source.visits(decode=inventory.to_decode() if originals is None else True):
            problems[number] = _problems(source, visit)
            if number in shown and visit.error is None:
                has_exact = exact is not None and number in exact.steps
                arrays = {**visit.arrays(), **(_decoded(source, number, visit) if has_exact else {})}
                _add(trajectory, number, visit, arrays)
                if number == pictured:
                    pictures = _pictures(source, number, visit, arrays, trajectory)
                del arrays
            tick()
    figures = trajectory.finish()
    checkpoints = [
        _examined(checkpoint, problems[number], exact)
        for number, checkpoint in inventory.checkpoints.items()
        if number in problems  # others were removed meanwhile
    ]
    notes += map(shortened, trajectory.problems[:_MAX_PROBLEMS])
    listed = _listed(checkpoints, notes)
    numbers = [inventory.numbers.get(checkpoint.step or 0, {}) for checkpoint in listed]
    steps = [checkpoint.step for checkpoint in listed]
    scalars = series_of(numbers, steps)
    saved = list(inventory.checkpoints)
    shifted = shifts(rows, trajectory.steps, figures, saved)
    of_weights = {trajectory.steps[shift.place]: shift.times for shift in shifted if shift.role == "weight"}
    flags = [
        *checkpoint_flags(checkpoints, inventory.lacking),
        *number_flags(scalars, steps),
        *change_flags(inventory.changes, saved, {row.name: row.role for row in every}),
        *coarse_flags(checkpoints),
        *array_flags(rows, trajectory.steps, figures, of_weights),
        *shift_flags(shifted, trajectory.steps),
    ]
    flags = in_order(calmed(flags, scalars, steps))
    return Run(
        path=str(source.path),
        kind=source.kind,
        notes=notes,
        checkpoints=listed,
        arrays=rows,
        steps=trajectory.steps,
        figures=figures,
        histograms=trajectory.histograms(),
        streams=inventory.streams | {"exact file": source.exact_bytes()},
        flags=flags,
        loss=trajectory.losses.loss(inventory.policies.values()),
        scalars=scalars,
        verdict=verdict(flags, scalars, checkpoints),
        pictures=pictures,
        quantiles=trajectory.quantiles(),
    )


def _decoded(
    source: Source, number: int, visit: Visit, wanted: Container[str] | None = None
) -> dict[str, DecodedArray]:
    """Return arrays of a step that the walk through the run did not decode; by default all."""
    try:
        with source.open(number) as file:
            names = file.links[-1].names
            known = visit.verified()
            indices = [i for name, i in names.items() if name in known and (wanted is None or name in wanted)]
            shown = file.links[-1].index_names
            return {shown[index]: array for index, array in file.decode_each(indices)}
    except LccodecError:  # a header is broken, or the file was replaced
        return {}


_Arrays: TypeAlias = Mapping[str, DecodedArray | LccodecError]


def _add(trajectory: Trajectory, number: int, visit: Visit, arrays: _Arrays) -> None:
    """Add a step to a trajectory, with what its save measured."""
    figures, since = visit.figures()
    try:
        lossy = {array.name for array in visit.info().arrays if array.lossy}
    except LccodecError:  # a header is broken: what has no figures may have lost something
        lossy = set(figures)
    told = {name: SavedFigures.of(known, name in lossy) for name, known in figures.items()}
    sizes = {name: math.prod(shape) for name, (_, shape) in visit.verified().items()}
    trajectory.add(number, arrays, told, since, sizes)


def _pictures(
    source: Source, number: int, visit: Visit, arrays: _Arrays, trajectory: Trajectory
) -> list[Picture]:
    """Return pictures of the largest fields of a step, beside the original that it has."""
    try:
        infos = [info for info in visit.info().arrays if info.lossy and is_pictured(info)]
    except LccodecError:  # a header is broken
        return []
    large = sorted(infos, key=lambda info: -info.nbytes)[:MAX_PICTURES]
    missing = {info.name for info in large if info.name not in arrays}
    arrays = {**arrays, **(_decoded(source, number, visit, missing) if missing else {})}
    pictures = []
    for info in filter(large.__contains__, infos):
        array = arrays.get(info.name)
        if isinstance(array, DecodedArray):
            exact = original_bits(trajectory.original or {}, info.name, array)
            pictures.append(picture(info.name, number, array, exact, info.figures.error))
    return [shown for shown in pictures if shown is not None]


def _shown_steps(
    source: Source, inventory: Inventory, wanted: Container[int] | None, limit: int, notes: list[str]
) -> set[int]:
    """Return the steps that have figures, and note which have none."""
    readable = [
        number for number, checkpoint in inventory.checkpoints.items() if checkpoint.kind != "unreadable"
    ]
    chosen = [number for number in readable if wanted is None or number in wanted]
    if wanted is not None and not chosen:
        ends = f"; it has steps {readable[0]} to {readable[-1]}" if readable else ""
        raise ArgumentError(f"{source.path} has none of the given steps{ends}")
    shown = evenly_spaced(chosen, limit)
    if len(shown) < len(readable):
        how = "as asked for" if len(shown) == len(chosen) else "evenly spaced ones"
        notes.append(f"{len(shown)} of {len(readable):,} steps have figures: {how}.")
    if len(readable) < len(inventory.checkpoints):
        count = len(inventory.checkpoints) - len(readable)
        notes.append(
            f"{count} of {len(inventory.checkpoints):,} checkpoints cannot be read, and have no figures."
        )
    if source.kind == "file" and inventory.newest[0] is None:
        notes.append("The file has no step, and is shown as step 0.")
    return set(shown)


def _problems(source: Source, visit: Visit) -> list[str]:
    """Return what is wrong with a checkpoint that can be read, in words."""
    if visit.error is not None:
        return []  # the inventory has it
    errors: list[LccodecError] = [*visit.broken()]
    if visit.reader is not None and source.kind != "file":
        difference = check_skeleton(visit.reader)
        errors += [] if difference is None else [difference]
    texts = list(dict.fromkeys(shortened(str(error)) for error in errors))
    more = len(texts) - _MAX_PROBLEMS
    return [*texts[:_MAX_PROBLEMS], *([f"and {more} problems more"] if more > 0 else [])]


def _examined(checkpoint: Checkpoint, problems: Sequence[str], exact: ExactOriginals | None) -> Checkpoint:
    """Return a checkpoint with what was found when it was decoded."""
    together = [*checkpoint.problems, *problems]
    has_exact = checkpoint.exact or (exact is not None and checkpoint.step in exact.steps)
    return replace(checkpoint, sound=not together, problems=together, exact=has_exact)


def _listed(checkpoints: Sequence[Checkpoint], notes: list[str]) -> list[Checkpoint]:
    """Return the checkpoints to list: all, or evenly spaced ones and those with problems."""
    if len(checkpoints) <= MAX_CHECKPOINTS:
        return list(checkpoints)
    places = set(evenly_spaced(range(len(checkpoints)), MAX_CHECKPOINTS))
    unsound = [place for place, checkpoint in enumerate(checkpoints) if not checkpoint.sound]
    places.update(unsound[:MAX_CHECKPOINTS])
    notes.append(f"{len(places):,} of {len(checkpoints):,} checkpoints are listed, those with problems too.")
    return [checkpoints[place] for place in sorted(places)]


def _compared(runs: Sequence[Run], wanted: Container[int] | None, notes: list[str]) -> Comparison | None:
    """Compare the newest states that both runs have, or the newest of each."""
    left, right = (
        [
            checkpoint.step
            for checkpoint in run.checkpoints
            if checkpoint.sound and (wanted is None or checkpoint.step is None or checkpoint.step in wanted)
        ]
        for run in runs
    )
    common = [step for step in left if step is not None and step in set(right)]
    try:
        if not (left and right):
            raise ChainError("one of the runs has no sound checkpoint")
        steps = [common[-1]] * 2 if common else [left[-1], right[-1]]
        first, second = [(checked_place(run.path), step) for run, step in zip(runs, steps, strict=True)]
        return compare(first, second)
    except LccodecError as error:
        notes.append(shortened(f"The states were not compared: {error}"))
        return None
