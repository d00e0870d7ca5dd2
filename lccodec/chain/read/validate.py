"""Checking files and directories: every problem that can be found, not only the first.

Source: SPEC 4 (Validator).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ...constants import CHECKPOINT_SUFFIX, EXACT_NAME, TEMPORARY_PREFIX
from ...container.bundle.bundle import Bundle, is_bundle
from ...container.disk.system import checked_path, storage_errors
from ...container.reader import CheckpointReader, check_skeleton, open_checkpoint
from ...errors import ArgumentError, ChainError, DataError, FormatError, LccodecError
from ..store.directory import (
    Place,
    checkpoint_path,
    directory_names,
    exact_step,
    no_checkpoint,
    place_steps,
    steps_of,
)
from .bundle import open_exact_in
from .checkpoint import OpenCheckpoint, open_file
from .exact import check_exact, check_state, check_values, link_problem
from .survey import Visit, survey, visit_file


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Parameters
    ----------
    rule
        The broken rule, ``"LCC-..."``; ``"chain"`` for what a chain lacks, ``"storage"`` for what
        the operating system refuses.
    where
        The file, and the place in it.
    message
        What was found.
    """

    rule: str
    where: str
    message: str


def validate(path: str | os.PathLike[str], deep: bool = False) -> list[Problem]:
    """Check a checkpoint file, or every checkpoint of a chain's directory and its exact file.

    Parameters
    ----------
    path
        A file or a directory.
    deep
        Also decode every array, which checks each link of the chain against the values that it was
        made for. Every frame is decoded once. Memory holds the arrays of the checkpoint that is
        being checked.

    Returns
    -------
    list of Problem
        Empty if nothing is wrong.

    Raises
    ------
    ArgumentError
        If `path` cannot be a path, or nothing is there.
    StorageError
        If the operating system refuses access to it.
    """
    target = checked_path(path)
    with storage_errors("cannot look at", target):
        try:
            target.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise ArgumentError(f"{target}: no such file or directory") from None
    if not target.is_dir():
        return _validate_file(target, deep)
    try:
        # Listed only once, so that a file that comes or goes meanwhile is not a problem.
        names = directory_names(target)
    except LccodecError as error:
        return [_problem(error, target.name)]
    steps = steps_of(target, names)
    nothing = no_checkpoint(target).removeprefix(f"{target} ")
    problems = [] if steps or EXACT_NAME in names else [Problem("chain", target.name, nothing)]
    of_exact = _validate_exact(target, deep) if EXACT_NAME in names else []
    sound = EXACT_NAME in names and not of_exact
    problems += [
        *_validate_steps(target, steps, deep, exact_step(target) if sound else None),
        *of_exact,
    ]
    known = {EXACT_NAME, *(checkpoint.name for checkpoint in steps.values())}
    for name in sorted(names):
        if name.endswith(CHECKPOINT_SUFFIX) and name not in known and not name.startswith(TEMPORARY_PREFIX):
            problems.append(Problem("LCC-CHN-01", name, "not named as a checkpoint of a chain"))
    return problems


def _validate_steps(place: Place, steps: Mapping[int, Path], deep: bool, exact: int | None) -> list[Problem]:
    """Return what is wrong with the checkpoints of a place, by rising step.

    `exact` is the step that a sound exact file holds, if there is one.
    """
    numbers = {path: step for step, path in steps.items()}
    examined = _Examined(deep, exact)
    found = {
        visit.path: examined.add(numbers[visit.path], visit) for visit in survey(place, steps, decode=deep)
    }
    return [problem for path in steps.values() for problem in found.get(path, ())]


class _Examined:
    """The checkpoints that were examined so far; each problem is told once, where it is.

    A step that cannot be restored because of another one is a problem of its own, which names that
    one.
    """

    def __init__(self, deep: bool, exact: int | None) -> None:
        self._deep, self._exact = deep, exact
        self._told: set[Problem] = set()
        self._lost: dict[int, set[str] | None] = {}  # arrays that cannot be decoded; None: all of them
        self._cause: dict[int, int] = {}

    def add(self, step: int, visit: Visit) -> list[Problem]:
        """Return what is wrong with a checkpoint. Its parent was added before."""
        frames = _damaged_frames(visit.reader) if visit.reader else {}
        of_bytes = _byte_problems(visit.reader, visit.path, frames) if visit.reader else []
        of_link = _link_problems(visit, self._deep)
        parent = visit.reader.manifest.parent if visit.reader else None
        above = parent.step if parent is not None and parent.step in self._lost else None
        needs = above is not None and self._needs(visit, above, of_link)
        fresh = of_bytes or [p for p in of_link if above is None or _anywhere(p) not in self._told]
        self._told.update(map(_anywhere, (*of_bytes, *of_link)))
        lost = self._lacking(visit, frames, above)
        if lost is None or lost:
            self._lost[step] = lost
            self._cause[step] = self._cause[above] if needs and above is not None else step
        if needs:
            what = "in the history (the exact file is sound) " if step == self._exact else ""
            message = f"cannot be restored {what}as it needs step {self._cause[step]}"
            fresh.append(Problem("chain", visit.path.name, message))
        return fresh

    def _needs(self, visit: Visit, above: int, of_link: Sequence[Problem]) -> bool:
        """Return whether a checkpoint cannot be restored because its parent cannot."""
        lost = self._lost[above]
        if visit.error is not None or lost is None:
            return all(_anywhere(problem) in self._told for problem in of_link)
        return bool(visit.lacking((), lost))

    def _lacking(self, visit: Visit, frames: Collection[int], above: int | None) -> set[str] | None:
        """Return the arrays that cannot be decoded, ``None`` for all."""
        if visit.error is not None:
            return None
        lost = set[str]() if above is None else self._lost[above]
        if lost is None:
            return None
        found = visit.lacking(frames, lost) if frames or lost else set[str]()
        if self._deep:
            arrays = visit.arrays().items()
            found.update(name for name, array in arrays if isinstance(array, LccodecError))
        return found


def _anywhere(problem: Problem) -> Problem:
    """Return what is compared: what a chain lacks is told again for each file that needs it."""
    return replace(problem, where="") if problem.rule == "chain" else problem


def _validate_bundle(path: Path, deep: bool) -> list[Problem]:
    """Return what is wrong with a bundle, and with the files in it."""
    try:
        with Bundle(path) as bundle:
            of_exact = _validate_exact_in(bundle, deep)
            exact = None if of_exact else _exact_step_in(bundle)
            return _validate_steps(bundle, place_steps(bundle), deep, exact) + of_exact
    except LccodecError as error:
        return [_problem(error, path.name)]


def _exact_step_in(bundle: Bundle) -> int | None:
    """Return the step of a bundle's exact file; it may be above those of all checkpoints."""
    reader = bundle.open_exact()
    if reader is None:
        return None
    with reader:
        return reader.manifest.step


def _validate_exact_in(bundle: Bundle, deep: bool) -> list[Problem]:
    """Return what is wrong with the exact file of a bundle, and with its link (LCC-EXA-04)."""
    path = bundle.path / EXACT_NAME
    try:
        reader = bundle.open_exact()
    except LccodecError as error:
        return [_problem(error, path.name)]
    if reader is None:
        return []
    with reader:
        problems = _byte_problems(reader, path)
        if problems := problems or _link_problems(visit_file(path, reader, place=bundle, decode=deep), deep):
            return problems
    exact, problem = open_exact_in(bundle)
    if exact is None:
        return [Problem("chain", path.name, problem or "")]
    newest = bundle.steps[-1]
    with OpenCheckpoint(exact, None) as file:
        if problem is not None or exact.manifest.step != newest:  # the checkpoint is damaged, or comes later
            return []
        with OpenCheckpoint(bundle.open(newest), bundle) as checkpoint:
            return _problems([_error(partial(check_state, file, checkpoint))], path)


def _validate_file(path: Path, deep: bool) -> list[Problem]:
    try:
        reader = open_checkpoint(path)
    except LccodecError as error:
        return _validate_bundle(path, deep) if is_bundle(path) else [_problem(error, path.name)]
    with reader:
        # In a damaged file, every array would have the same problem again.
        return _byte_problems(reader, path) or _link_problems(visit_file(path, reader, decode=deep), deep)


def _validate_exact(directory: Path, deep: bool) -> list[Problem]:
    """Return what is wrong with the exact file of a chain, and with its link (LCC-EXA-04)."""
    path = directory / EXACT_NAME
    if problems := _validate_file(path, deep):
        return problems
    try:
        with open_file(path) as exact:
            _, message = link_problem(exact.links[-1].reader, directory)
            checkpoint = checkpoint_path(directory, exact.links[-1].manifest.step or 0)
            if message is None and os.path.lexists(checkpoint):
                with open_file(checkpoint) as opened:
                    check_state(exact, opened)
    except FormatError as error:
        return _problems([error], path) if error.rule == "LCC-EXA-03" else []  # the others are told
    except LccodecError:
        return []
    return [Problem("chain", EXACT_NAME, message)] if message else []


def _damaged_frames(reader: CheckpointReader) -> dict[int, LccodecError]:
    """Return the errors of frames whose bytes are not those that were written."""
    errors = ((n, _error(partial(reader.frame, n))) for n in range(len(reader.manifest.frames)))
    return {number: error for number, error in errors if error is not None}


def _byte_problems(
    reader: CheckpointReader, path: Path, frames: Mapping[int, LccodecError] | None = None
) -> list[Problem]:
    """Return what is wrong with the bytes of a file, whatever its parents are."""
    frames = _damaged_frames(reader) if frames is None else frames
    return _problems([_error(partial(check_skeleton, reader)), *frames.values()], path)


def _link_problems(visit: Visit, deep: bool) -> list[Problem]:
    """Return what is wrong with a checkpoint as a link of a chain."""
    if (error := _error(visit.check)) is not None:
        return _problems([error], visit.path)
    errors = [_error(visit.info), *(visit.broken() if deep else ())]
    return _problems([*errors, _error(partial(_check_exact, visit))], visit.path)


def _check_exact(visit: Visit) -> None:
    """Check what an exact file alone shows (LCC-EXA-01, LCC-EXA-03)."""
    if visit.reader is not None and visit.path.name == EXACT_NAME:
        check_exact(visit.reader)
    if visit.reader is not None and (info := visit.info()).exact:
        check_values(visit.reader, [array.name for array in info.arrays if array.lossy])


def _error(check: Callable[[], object]) -> LccodecError | None:
    """Return the error that a check raises or returns."""
    try:
        found = check()
    except LccodecError as error:
        return error
    return found if isinstance(found, LccodecError) else None


def _problems(errors: Iterable[LccodecError | None], path: Path) -> list[Problem]:
    """Return errors in a file as problems, each once."""
    return list(dict.fromkeys(_problem(error, path.name) for error in errors if error is not None))


def _problem(error: LccodecError, place: str) -> Problem:
    if isinstance(error, DataError):
        return Problem(error.rule, error.where, error.message)
    return Problem("chain" if isinstance(error, ChainError) else "storage", place, str(error))
