"""Removing checkpoints: children before their parents, with a flush of the directory between them.

So every checkpoint that is there can be restored, after a kill or a loss of power at any moment.
Steps without descendants are removed together, then their parents, and so on: there are as many
flushes as there are deltas in a row.

Source: SPEC 9 (LCC-CHN-09).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..container.folder import Folder
from ..container.reader import peek_parent
from ..container.system import storage_errors


def waves(steps: Mapping[int, Path]) -> list[list[int]]:
    """Return steps in groups: each group holds no parent of a step of its own or a later group.

    Parents are those that the files name; nothing is verified.
    """
    heights = dict.fromkeys(sorted(steps, reverse=True), 0)
    for step, height in heights.items():  # children have higher steps
        parent = peek_parent(steps[step])
        if parent is not None and parent < step and parent in heights:
            heights[parent] = max(heights[parent], height + 1)
    groups: list[list[int]] = [[] for _ in range(max(heights.values(), default=-1) + 1)]
    for step, height in heights.items():
        groups[height].append(step)
    return groups


def remove_steps(folder: Folder, steps: Mapping[int, Path]) -> None:
    """Remove checkpoints that no other checkpoint needs. The caller holds the directory's lock.

    Raises
    ------
    StorageError
        If the operating system refuses. Every checkpoint that is still there can be restored.
    """
    with storage_errors("cannot remove files of", folder.path):
        for group in waves(steps):
            folder.remove(steps[step].name for step in group)
