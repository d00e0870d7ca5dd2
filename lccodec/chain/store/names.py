"""The names of the files of a chain: which step each holds or pins.

The name of a checkpoint is its step in at least twelve digits, and a suffix (LCC-CHN-01). Other
files are never touched.

Source: SPEC 9.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ...arguments import as_integer
from ...constants import CHECKPOINT_SUFFIX, EXACT_NAME, PIN_SUFFIX
from ...container.folder import is_temporary
from ...errors import ArgumentError, FormatError

#: Beside the checkpoints, what a writer keeps for itself: `lccodec.chain.save.hash_reference`.
HASHES_FOLDER: Final = ".hashes"

_STEP: Final = "([0-9]{12}|[1-9][0-9]{12,15})"
_CHECKPOINT: Final = re.compile(_STEP + re.escape(CHECKPOINT_SUFFIX))
_PIN: Final = re.compile(_STEP + re.escape(PIN_SUFFIX))


def checkpoint_name(step: int) -> str:
    """Return the name of the checkpoint of a step (LCC-CHN-01)."""
    return f"{step:012d}{CHECKPOINT_SUFFIX}"


def pin_name(step: int) -> str:
    """Return the name of the pin of a step (LCC-CHN-07)."""
    return f"{step:012d}{PIN_SUFFIX}"


def checkpoints_among(names: Iterable[str]) -> dict[int, str]:
    """Return the checkpoints among names, by rising step."""
    return dict(sorted((int(match[1]), name) for name in names if (match := _CHECKPOINT.fullmatch(name))))


def is_checkpoint(name: str) -> bool:
    """Return whether a name is that of a checkpoint of the history."""
    return _CHECKPOINT.fullmatch(name) is not None


def pins_among(names: Iterable[str]) -> list[int]:
    """Return the steps that have a pin among names, rising."""
    return sorted(int(match[1]) for name in names if (match := _PIN.fullmatch(name)))


def is_of_chain(name: str) -> bool:
    """Return whether lccodec gives files that name."""
    patterns = (_CHECKPOINT, _PIN)
    return name == EXACT_NAME or is_temporary(name) or any(each.fullmatch(name) for each in patterns)


def check_name(name: str, step: int | None) -> None:
    """Raise ``FormatError`` if a chain's file is not named after the step it holds (LCC-CHN-01)."""
    if (match := _CHECKPOINT.fullmatch(name)) and int(match[1]) != step:
        raise FormatError("LCC-CHN-01", name, f"holds step {step}")


def step_index(step: object) -> int:
    """Return a step as an int; raise ``ArgumentError`` if it is no integer, NumPy's or other."""
    index = as_integer(step)
    if index is None:
        raise ArgumentError(f"a step must be an integer; got {step!r}")
    return index
