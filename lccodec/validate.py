"""Check files and directories: every problem that can be found, instead of the first error.

Source: SPEC 4 (Validator).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .checkpoint import CheckpointFile, directory_steps, open_file
from .constants import CHECKPOINT_SUFFIX, TEMPORARY_PREFIX
from .container import check_skeleton, open_checkpoint
from .errors import ArgumentError, ChainError, DataError, LccodecError

__all__ = ["Problem", "validate"]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Parameters
    ----------
    rule
        The rule that is broken, ``"LCC-..."``, or ``"chain"`` or ``"storage"`` for what a chain lacks or
        the operating system refuses.
    where
        File, and place in it.
    message
        What was found.
    """

    rule: str
    where: str
    message: str


def validate(path: str | os.PathLike[str], deep: bool = False) -> list[Problem]:
    """Check a checkpoint file, or every checkpoint of a chain's directory.

    Parameters
    ----------
    path
        A file or a directory.
    deep
        Also decode every array, which checks each link of the chain against the values it was made for.

    Returns
    -------
    list of Problem
        Empty when sound.

    Raises
    ------
    ArgumentError
        If there is nothing at `path`.
    """
    target = Path(path)
    if not target.exists():
        raise ArgumentError(f"{target}: no such file or directory")
    if not target.is_dir():
        return _validate_file(target, deep)
    problems: list[Problem] = []
    try:
        steps = directory_steps(target)
    except LccodecError as error:
        return [_problem(error, target.name)]
    if not steps:
        problems.append(Problem("chain", target.name, "holds no checkpoint"))
    for checkpoint in steps.values():
        problems += _validate_file(checkpoint, deep)
    known = {checkpoint.name for checkpoint in steps.values()}
    for name in sorted(entry.name for entry in target.iterdir()):
        if name.endswith(CHECKPOINT_SUFFIX) and name not in known and not name.startswith(TEMPORARY_PREFIX):
            problems.append(Problem("LCC-CHN-01", name, "not named as a checkpoint of a chain"))
    return problems


def _validate_file(path: Path, deep: bool) -> list[Problem]:
    problems: dict[Problem, None] = {}  # each once, in the order found

    def attempt(check: Callable[[], object]) -> None:
        try:
            check()
        except LccodecError as error:
            problems[_problem(error, path.name)] = None

    def own_bytes() -> None:
        with open_checkpoint(path) as reader:
            if (found := check_skeleton(reader)) is not None:
                problems[_problem(found, path.name)] = None
            for index, entry in enumerate(reader.manifest.frames):
                if entry is not None:
                    attempt(lambda index=index: reader.frame(index))  # type: ignore[misc]

    def links() -> None:
        with open_file(path) as file:
            file.check_name()
            attempt(file.info)
            if deep:
                _decode_all(file, attempt)

    attempt(own_bytes)
    if not problems:  # a damaged file would only say the same again
        attempt(links)
    return list(problems)


def _decode_all(file: CheckpointFile, attempt: Callable[[Callable[[], object]], None]) -> None:
    for index in range(len(file.links[-1].index_names)):
        attempt(lambda index=index: file.decode(index))  # type: ignore[misc]


def _problem(error: LccodecError, place: str) -> Problem:
    if isinstance(error, DataError):
        return Problem(error.rule, error.where, error.message)
    return Problem("chain" if isinstance(error, ChainError) else "storage", place, str(error))
