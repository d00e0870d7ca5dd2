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
from ...container.bundle import is_bundle
from ...container.checkpoint import CheckpointReader, check_skeleton
from ...container.system import Place, checked_place, storage_errors
from ...errors import ArgumentError, ChainError, DataError, FormatError, LccodecError, LimitError
from ..store.directory import BundleStore, DirectoryStore, check_exact, is_folder, link_problem, open_store
from ..store.store import Store, checkpoint_name, checkpoints_among
from .checkpoint import check_state, open_exact, open_name
from .links import UNBOUNDED, Bounds, Head, is_bound
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


def validate(
    path: str | os.PathLike[str],
    deep: bool = False,
    *,
    max_bytes: int | None = None,
    max_deltas: int | None = None,
) -> list[Problem]:
    """Check a checkpoint file, or every checkpoint of a chain's directory and its exact file.

    Parameters
    ----------
    path
        A file or a directory.
    deep
        Also decode every array, which checks each link of the chain against the values that it was
        made for. Every frame is decoded once. Memory holds the arrays of the checkpoint that is
        being checked.
    max_bytes, max_deltas
        As for :func:`lccodec.open`, of every checkpoint. Nothing is decoded if one asks for more.

    Returns
    -------
    list of Problem
        Empty if nothing is wrong.

    Raises
    ------
    LimitError
        If a checkpoint asks for more than `max_bytes` or `max_deltas`; `rule` says which.
    ArgumentError
        If `path` cannot be a path, or nothing is there.
    StorageError
        If the operating system refuses access to it.
    """
    bounds = Bounds(max_bytes, max_deltas)
    target = checked_place(path)
    if is_folder(target):
        with open_store(target) as store:
            return _validate_store(store.afresh().snapshot(), deep, bounds)
    path = Path(target)
    with storage_errors("cannot look at", path):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise ArgumentError(f"{path}: no such file or directory") from None
    return _validate_file(path, deep, bounds)


def _check_bounds(store: Store, steps: Mapping[int, str], bounds: Bounds) -> None:
    """Raise ``LimitError`` if a checkpoint of a chain asks for more than it may."""
    if bounds == UNBOUNDED:
        return
    for visit in survey(store, steps):
        _check_visit(visit, bounds)


def _check_visit(visit: Visit, bounds: Bounds) -> None:
    if visit.error is None:
        heads = visit.left.heads.values()
        bounds.check_deltas(len(visit.left.needs), visit.path.name)
        bounds.check_bytes(sum(head.nbytes for head in heads if isinstance(head, Head)), visit.path.name)


def _validate_store(store: Store, deep: bool, bounds: Bounds) -> list[Problem]:
    """Return what is wrong with the files of a chain."""
    try:
        # Listed only once, so that a file that comes or goes meanwhile is not a problem.
        names = store.names()
    except LccodecError as error:
        return [_problem(error, store.path.name)]
    steps, has_exact = checkpoints_among(names), EXACT_NAME in names
    problems = []
    if not steps and not has_exact:
        problems.append(Problem("chain", store.path.name, store.nothing().removeprefix(f"{store.path} ")))
    _check_bounds(store, steps, bounds)
    of_exact = _validate_exact(store, deep, bounds) if has_exact else []
    examined = _Examined(deep, store.exact_step() if has_exact and not of_exact else None)
    found = {visit.step: examined.add(visit) for visit in survey(store, steps, decode=deep)}
    problems += [problem for step in steps for problem in found.get(step, ())] + of_exact
    known = {EXACT_NAME, *steps.values()}
    for name in sorted(names):
        if name.endswith(CHECKPOINT_SUFFIX) and name not in known and not name.startswith(TEMPORARY_PREFIX):
            problems.append(Problem("LCC-CHN-01", name, "not named as a checkpoint of a chain"))
    return problems


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

    def add(self, visit: Visit) -> list[Problem]:
        """Return what is wrong with a checkpoint. Its parent was added before."""
        step = visit.step
        frames = _damaged_frames(visit.reader) if visit.reader else {}
        of_bytes = _byte_problems(visit.reader, visit.path, frames) if visit.reader else []
        of_link = _link_problems(visit, self._deep)
        parents = visit.reader.manifest.parents if visit.reader else ()
        above = [parent.step for parent in parents if parent.step in self._lost]
        gone = self._gone(visit, above)
        needs = False  # whether it cannot be restored because a parent cannot
        if above and gone is None:
            needs = all(_anywhere(problem) in self._told for problem in of_link)
        elif above and gone is not None:
            needs = bool(visit.lacking((), gone))
        fresh = of_bytes or [p for p in of_link if not above or _anywhere(p) not in self._told]
        self._told.update(map(_anywhere, (*of_bytes, *of_link)))
        lost = self._lacking(visit, frames, gone)
        if lost is None or lost:
            self._lost[step] = lost
            self._cause[step] = self._cause[above[0]] if needs else step
        if needs:
            what = "in the history (the exact file is sound) " if step == self._exact else ""
            message = f"cannot be restored {what}as it needs step {self._cause[step]}"
            fresh.append(Problem("chain", visit.path.name, message))
        return fresh

    def _gone(self, visit: Visit, above: Sequence[int]) -> set[str] | None:
        """Return the arrays that parents lost and that may be needed of them, ``None`` for all."""
        gone = set[str]()
        for step in above:
            lost = self._lost[step]
            if lost is None or visit.error is not None:
                return None
            gone |= visit.needed_of(step, lost)
        return gone

    def _lacking(self, visit: Visit, frames: Collection[int], gone: set[str] | None) -> set[str] | None:
        """Return the arrays that cannot be decoded, ``None`` for all."""
        if visit.error is not None or gone is None:
            return None
        found = visit.lacking(frames, gone) if frames or gone else set[str]()
        if self._deep:
            arrays = visit.arrays().items()
            found.update(name for name, array in arrays if isinstance(array, LccodecError))
        return found


def _anywhere(problem: Problem) -> Problem:
    """Return what is compared: what a chain lacks is told again for each file that needs it."""
    return replace(problem, where="") if problem.rule == "chain" else problem


def _validate_file(path: Path, deep: bool, bounds: Bounds) -> list[Problem]:
    problems = _validate_one(DirectoryStore(path.parent), path.name, deep, bounds)
    if not problems or not is_bundle(path):
        return problems
    try:
        with BundleStore(path) as store:
            return _validate_store(store, deep, bounds)
    except LccodecError as error:
        if isinstance(error, LimitError) and is_bound(error):
            raise
        return [_problem(error, path.name)]


def _validate_one(store: Store, name: str, deep: bool, bounds: Bounds) -> list[Problem]:
    """Return what is wrong with a file of a store, and with the parents that it needs."""
    path = store.path / name
    try:
        reader = store.open(name)
    except LccodecError as error:
        return [_problem(error, name)]
    with reader:
        if bounds != UNBOUNDED:
            visit = visit_file(store, name, store.open(name))
            _check_visit(visit, bounds)
            needs = () if visit.error is not None else visit.left.needs  # decoded whole, too
            _check_bounds(store, {step: checkpoint_name(step) for step in sorted(needs)}, bounds)
        # In a damaged file, every array would have the same problem again.
        return _byte_problems(reader, path) or _link_problems(visit_file(store, name, reader, deep), deep)


def _validate_exact(store: Store, deep: bool, bounds: Bounds) -> list[Problem]:
    """Return what is wrong with the exact file of a chain, and with its link (LCC-EXA-04)."""
    path = store.path / EXACT_NAME
    if problems := _validate_one(store, EXACT_NAME, deep, bounds):
        return problems
    try:
        with open_exact(store) as exact:
            _, message = link_problem(exact.links[-1].reader, store)
            checkpoint = checkpoint_name(exact.links[-1].manifest.step or 0)
            if message is None and store.has(checkpoint):
                with open_name(store, checkpoint) as opened:
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
    reader: CheckpointReader, path: Place, frames: Mapping[int, LccodecError] | None = None
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
        for array in info.arrays:
            if array.lossy:
                where = f"{visit.reader.name}: array {array.name!r}"
                raise FormatError("LCC-EXA-03", where, "has representatives, not values")


def _error(check: Callable[[], object]) -> LccodecError | None:
    """Return the error that a check raises or returns."""
    try:
        found = check()
    except LccodecError as error:
        return error
    return found if isinstance(found, LccodecError) else None


def _problems(errors: Iterable[LccodecError | None], path: Place) -> list[Problem]:
    """Return errors in a file as problems, each once."""
    return list(dict.fromkeys(_problem(error, path.name) for error in errors if error is not None))


def _problem(error: LccodecError, place: str) -> Problem:
    if isinstance(error, DataError):
        return Problem(error.rule, error.where, error.message)
    return Problem("chain" if isinstance(error, ChainError) else "storage", place, str(error))
