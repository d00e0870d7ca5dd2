"""The steps of files, read from their names or from the names of their folders; originals in them.

A number is a step only if it is a whole one, and if it is clear which number is meant. In a name
with several, a word says it (`_STEP_WORDS`, the first kind that occurs); without such a word, it is
the number in which the names differ. Nothing is guessed: decimals, dates, numbers after different
words, and names with a number beside names without one are refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ...container.disk.system import storage_errors
from ...errors import ArgumentError
from .formats import READ, SHOWN, is_state
from .header import INDEX_SUFFIX

#: Words before a number, from the best on. Those of the second list end in the word.
_STEP_WORDS: Final = (
    re.compile(r"it|its|.*(?:steps?|iters?|iterations?|updates?)"),
    re.compile(r".*(?:checkpoint|ckpt|chkpt)"),
    re.compile(r"ep|.*epochs?"),
)
_ANY_WORD: Final = len(_STEP_WORDS)  # the rank of all other words

_TOKEN: Final = re.compile(
    r"(?P<word>[A-Za-z]*)[ _=.-]*"
    r"(?:(?P<date>[0-9]{4}([-_.])[0-9]{1,2}\3[0-9]{1,2}(?![0-9])|[0-9]{1,2}([-_.])[0-9]{1,2}\4[0-9]{4}(?![0-9]))"
    r"|(?P<decimal>[0-9]+(?:\.[0-9]+)+(?:[eE][-+]?[0-9]+)?|[0-9]+[eE]-?[0-9]+)"
    r"|(?P<short>[0-9]+[kKmMbBtT])(?![A-Za-z0-9])"
    r"|(?P<whole>[0-9]+))"
)
_SHARD: Final = re.compile(r"-[0-9]+-of-[0-9]+$")  # a part of a state, which an index names
_MAX_FOLDERS_OF_ONE_FILE: Final = 2  # that are searched for its step, from the nearest on
_MAX_SHOWN_FILES: Final = 5  # in one error

Source = Literal["names", "folders"]


@dataclass(frozen=True)
class Numbering:
    """Files by rising step, and where their numbers are: in their names, or in their folders'."""

    steps: dict[int, Path]
    source: Source


@dataclass(frozen=True)
class _Number:
    """A number in a name. `step` is None if it is not a whole one; `word` may call it a step."""

    text: str
    word: str  # empty if it is not one of `_STEP_WORDS`
    rank: int
    step: int | None


def number_files(paths: Sequence[Path]) -> Numbering | None:
    """Return files by rising step; None if none of them has a number.

    Names come first, without their suffixes; then the folders in which the paths differ, from the
    nearest on. Of a single file, a folder counts if a word says that its number is a step, or if
    the number is the whole name. Folders with such a word come before names with other numbers.

    Raises
    ------
    ArgumentError
        If it is not clear which numbers are the steps, if some names have none, or if two files
        have the same step. The message names the files.

    Examples
    --------
    >>> number_files([Path("v2_step10.npz"), Path("v2_step9.npz")]).steps  # doctest: +ELLIPSIS
    {9: ...Path('v2_step9.npz'), 10: ...Path('v2_step10.npz')}
    >>> numbering = number_files([Path("checkpoint-500/model.npz")])
    >>> list(numbering.steps), numbering.source
    ([500], 'folders')
    >>> number_files([Path("final.npz")])
    """
    stems, folders = [_stem(path) for path in paths], _folders(paths)
    for path, stem in zip(paths, stems, strict=True):
        if _SHARD.search(stem):
            raise ArgumentError(f"{path} is one shard of a state: give its index, *{INDEX_SUFFIX}")
    if not any(map(_is_a_step, stems)):  # checkpoint-500/llama2.npz
        for names in folders:
            if all(map(_has_step_word, names)) and (file_numbers := _numbers(names, paths)) is not None:
                return _numbering(file_numbers, paths, "folders")
    numbers = _numbers(stems, paths)
    # A number that all names share, and no word calls a step, says nothing: a/model2, b/model2.
    alike = len(paths) > 1 and len({path.name for path in paths}) == 1 and not _is_a_step(stems[0])
    if numbers is None or alike:
        for names in folders:
            if (file_numbers := _numbers(names, paths)) is not None:
                return _numbering(file_numbers, paths, "folders")
    return None if numbers is None else _numbering(numbers, paths, "names")


def _stem(path: Path) -> str:
    """Return the name of a file without the suffix of its format."""
    suffix = max((ending for ending in READ if path.name.endswith(ending)), key=len, default=path.suffix)
    return path.name.removesuffix(suffix)


def _numbering(numbers: Sequence[int], paths: Sequence[Path], source: Source) -> Numbering:
    by_number: dict[int, Path] = {}
    for step, path in zip(numbers, paths, strict=True):
        if step in by_number:
            raise ArgumentError(f"by their names, {by_number[step]} and {path} are both of step {step}")
        by_number[step] = path
    return Numbering({step: by_number[step] for step in sorted(by_number)}, source)


def _folders(paths: Sequence[Path]) -> list[list[str]]:
    """Return the names of the folders that may have the steps, from the nearest on."""
    above = [path.parts[-2::-1] for path in paths]
    if len(paths) == 1:
        near = [name for name in above[0][:_MAX_FOLDERS_OF_ONE_FILE] if _is_a_step(name)]
        return [near[:1]] if near else []
    levels = [list(level) for level in zip(*above, strict=False)]
    return [level for level in levels if len(set(level)) > 1]


def _is_a_step(name: str) -> bool:
    return name.isdecimal() or _has_step_word(name)


def _has_step_word(name: str) -> bool:
    """Return whether a name has a number after a word such as step."""
    return any(number.rank < _ANY_WORD for number in _tokens(name))


def _numbers(names: Sequence[str], paths: Sequence[Path]) -> list[int] | None:
    """Return the step in each name, or None if no name has a number."""
    candidates = [_candidates(name) for name in names]
    if not any(candidates):
        return None
    if lacking := [path for path, numbers in zip(paths, candidates, strict=True) if not numbers]:
        other = next(path for path, numbers in zip(paths, candidates, strict=True) if numbers)
        raise ArgumentError(f"{other} has a number, but {_listed(lacking)} has none: all files need one")
    for path, numbers in zip(paths, candidates, strict=True):
        if broken := next((number for number in numbers if number.step is None), None):
            raise ArgumentError(f"{path}: a step must be a whole number; got {broken.text}")
    columns = (
        list(zip(*candidates, strict=True)) if len({len(numbers) for numbers in candidates}) == 1 else []
    )
    if len(columns) > 1:
        columns = [column for column in columns if len({number.step for number in column}) > 1]
    if len(columns) != 1:
        path, numbers = next((p, e) for p, e in zip(paths, candidates, strict=True) if len(e) > 1)
        texts = " and ".join(number.text for number in numbers)
        raise ArgumentError(f"{path}: it is not clear which number is the step: {texts}")
    if len({number.word for number in columns[0]}) > 1:
        raise ArgumentError(
            f"{_listed(paths)}: the numbers follow different words, and it is not clear which is the step"
        )
    return [number.step or 0 for number in columns[0]]


def _candidates(name: str) -> list[_Number]:
    """Return the numbers of a name that may be its step: those with the best word."""
    tokens = _tokens(name)
    best = [number for number in tokens if number.rank == min(token.rank for token in tokens)]
    if best and best[0].rank == _ANY_WORD:  # a loss beside a number without a word is no step
        best = [number for number in best if number.step is not None] or best
    return best


def _tokens(name: str) -> list[_Number]:
    tokens = []
    for match in _TOKEN.finditer(name):
        word = (match["word"] or "").lower()
        rank = next((r for r, words in enumerate(_STEP_WORDS) if words.fullmatch(word)), _ANY_WORD)
        if match["short"] and rank == _ANY_WORD:
            continue  # of a name, as in llama-7b
        text = next(match[kind] for kind in ("date", "decimal", "short", "whole") if match[kind])
        tokens.append(
            _Number(text, word if rank < _ANY_WORD else "", rank, int(text) if match["whole"] else None)
        )
    return tokens


def files_below(directory: Path) -> list[Path]:
    """Return the files of states in a directory; without one, the only such file of each folder.

    Parts of a state that an index names are left out. If there is no file, or a folder has several,
    that is an ``ArgumentError``.

    Examples
    --------
    >>> import tempfile
    >>> run = Path(tempfile.mkdtemp())
    >>> for step in (1, 2):
    ...     (run / f"step{step}").mkdir()
    ...     (run / f"step{step}" / "weights.npz").touch()
    >>> sorted(path.relative_to(run).as_posix() for path in files_below(run))
    ['step1/weights.npz', 'step2/weights.npz']
    """
    if files := _states_in(directory):
        return files
    with storage_errors("cannot list", directory):
        folders = sorted(path for path in directory.iterdir() if path.is_dir() and path.name[0] != ".")
    inner = {folder: states for folder in folders if (states := _states_in(folder))}
    if not inner:
        raise ArgumentError(f"{directory}: no file of a state ({', '.join(SHOWN)}) in it or in its folders")
    for folder, states in inner.items():
        if len(states) > 1:
            names = _listed([path.relative_to(folder) for path in states])
            raise ArgumentError(
                f"{folder} has several files: {names}. Give those to save, as in"
                f" {directory}/*/{states[0].name}"
            )
    return [path for states in inner.values() for path in states]


def _states_in(directory: Path) -> list[Path]:
    with storage_errors("cannot list", directory):
        files = [path for path in sorted(directory.iterdir()) if is_state(path)]
    return [path for path in files if not _SHARD.search(_stem(path))]


def _listed(paths: Collection[Path]) -> str:
    shown = ", ".join(map(str, list(paths)[:_MAX_SHOWN_FILES]))
    return shown + (" and others" if len(paths) > _MAX_SHOWN_FILES else "")
