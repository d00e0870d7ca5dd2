"""What is known of the exact file of a store without decoding it.

Source: SPEC 9 (LCC-EXA).
"""

from __future__ import annotations

from typing import Any

from ...constants import EXACT_NAME
from ...container.reader import CheckpointReader
from ...errors import DataError, FormatError, LccodecError, StorageError
from .names import checkpoint_name
from .store import Store


def check_exact(reader: CheckpointReader) -> None:
    """Raise ``FormatError`` if a file of that name is not an exact file (LCC-EXA-01)."""
    if not reader.manifest.is_exact:
        raise FormatError("LCC-EXA-01", reader.name, "has the name of an exact file, and is another file")


def link_problem(exact: CheckpointReader, store: Store) -> tuple[bool, str | None]:
    """Return whether an exact file holds the state of its step, and what is wrong (LCC-EXA-04).

    If the history has a checkpoint of the step, it must name the file.
    """
    step = exact.manifest.step or 0
    name = checkpoint_name(step)
    if not store.has(name):
        return True, None
    try:
        with store.open(name) as reader:
            named = reader.manifest.exact
    except LccodecError as error:
        return True, f"the checkpoint of step {step} is damaged, and its exact file is not: {error}"
    if named != exact.root:
        return False, f"the exact file belongs to another checkpoint of step {step}"
    return True, None


def older_problem(step: int, newest: int) -> str:
    """Return what is wrong with an exact file that a newer checkpoint has left behind."""
    return f"the exact file is of step {step}, and the newest checkpoint of step {newest}"


def describe_exact(store: Store) -> dict[str, Any] | None:
    """Return what is known of the exact file without decoding it; ``None`` without one.

    Returns
    -------
    dict or None
        ``step`` and ``bytes`` of the file, and ``problem``: why a restore of the newest state does
        not take it, or ``None``. Step and bytes are ``None`` if it cannot be opened.
    """
    if not store.has(EXACT_NAME):
        return None
    try:
        with store.open(EXACT_NAME) as reader:
            check_exact(reader)
            step, newest = reader.manifest.step or 0, max(store.checkpoints(), default=0)
            problem = older_problem(step, newest) if step < newest else link_problem(reader, store)[1]
            return {"step": step, "bytes": reader.file_size, "problem": problem}
    except (DataError, StorageError) as error:
        return {"step": None, "bytes": None, "problem": str(error)}
