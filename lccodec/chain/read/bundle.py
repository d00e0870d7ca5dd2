"""What is in a bundle: its checkpoints opened in place, and its exact file.

Source: SPEC 9 (LCC-BUN, LCC-EXA-04).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...container.bundle.bundle import Bundle, is_bundle
from ...container.disk.system import checked_path
from ...container.reader import CheckpointReader
from ...errors import ArgumentError, ChainError, FormatError, LccodecError, warn
from ..store.directory import step_index
from .checkpoint import OpenCheckpoint, open_file
from .exact import ExactFile
from .info import CheckpointInfo


class BundledCheckpoint(OpenCheckpoint):
    """An open checkpoint of a bundle. Its parents come from the same bundle."""

    def __init__(self, bundle: Bundle, reader: CheckpointReader) -> None:
        self._bundle = bundle
        super().__init__(reader, bundle)

    def close(self) -> None:
        """Close the file. Closing again does nothing."""
        super().close()
        self._bundle.close()


class BundledExact(ExactFile):
    """The open exact file of a bundle. Where it is damaged, the history takes its place."""

    def __init__(self, bundle: Bundle, reader: CheckpointReader) -> None:
        self._bundle = bundle
        super().__init__(reader, self._history)

    def _history(self, error: LccodecError) -> OpenCheckpoint:
        path, newest = self._bundle.path, self._bundle.steps[-1]
        if self.links[-1].manifest.step != newest:
            raise error
        warn(f"{path}: the exact file is damaged; returned the newest state of the history: {error}")
        return open_path(path, step=newest, exact=False)

    def close(self) -> None:
        """Close the file. Closing again does nothing."""
        super().close()
        self._bundle.close()


def open_path(path: str | os.PathLike[str], *, step: int | None = None, exact: bool = True) -> OpenCheckpoint:
    """Open a checkpoint file, or a step of a bundle, as :func:`lccodec.open`."""
    checked = checked_path(path)
    if step is None:
        try:
            return open_file(checked)
        except FormatError:
            if not is_bundle(checked):
                raise
    elif not is_bundle(checked):
        raise ArgumentError(f"{checked} is not a bundle: pass step= for bundles only")
    bundle = Bundle(checked)
    try:
        reader = _open_step(bundle, step, exact)
        made = BundledExact if reader.manifest.is_exact else BundledCheckpoint
        return made(bundle, reader)
    except BaseException:
        bundle.close()
        raise


def _open_step(bundle: Bundle, step: int | None, exact: bool) -> CheckpointReader:
    newest = bundle.steps[-1]
    wanted = newest if step is None else step_index(step)
    if exact and (step is None or wanted >= newest):
        reader, problem = open_exact_in(bundle)
        if reader is not None and wanted in (newest, reader.manifest.step):
            if problem is not None:
                warn(f"{bundle.path}: {problem}")
            return reader
        if reader is not None:
            reader.close()
        elif problem is not None and wanted == newest:
            warn(f"{bundle.path}: {problem}; returned the newest state of the history")
    if wanted not in bundle.index.checkpoints:
        nearest = min(bundle.steps, key=lambda s: abs(s - wanted))
        raise ChainError(f"{bundle.path} has no step {wanted}; the nearest is {nearest}")
    return bundle.open(wanted)


def open_exact_in(bundle: Bundle) -> tuple[CheckpointReader | None, str | None]:
    """Open the exact file of a bundle if it is of its newest step (LCC-EXA-04).

    Returns
    -------
    tuple
        The file, or None; and what is wrong with it, or None.
    """
    newest = bundle.steps[-1]
    try:
        reader = bundle.open_exact()
    except LccodecError as error:
        return None, f"the exact file cannot be used: {error}"
    if reader is None:
        return None, None
    try:
        with bundle.open(newest) as checkpoint:
            named = checkpoint.manifest.exact
    except LccodecError as error:
        if reader.manifest.is_exact and reader.manifest.step == newest:
            return reader, f"the checkpoint of step {newest} is damaged, and its exact file is not: {error}"
        named = None
    if is_newest_exact(reader, newest, named):
        return reader, None
    reader.close()
    return None, f"its exact file is not that of step {newest}"


def is_newest_exact(reader: CheckpointReader, newest: int, named: bytes | None) -> bool:
    """Return whether a file is the exact file of the newest checkpoint, or of a newer step.

    `named` is the root that the checkpoint names.
    """
    step = reader.manifest.step or 0
    return reader.manifest.is_exact and (step > newest or (step == newest and reader.root == named))


def describe_exact_in(bundle: Bundle) -> dict[str, Any] | None:
    """Return what is known of the exact file of a bundle, as `newest.describe_exact`."""
    if bundle.index.exact is None:
        return None
    reader, problem = open_exact_in(bundle)
    if reader is not None:
        reader.close()
    step = None if reader is None else reader.manifest.step
    return {"step": step, "bytes": bundle.index.exact.length, "problem": problem}


def with_exact_in(info: CheckpointInfo, path: Path) -> CheckpointInfo:
    """Return what is known of a checkpoint; `exact` also for the exact file in its bundle."""
    with Bundle(path) as opened:
        reader, _ = open_exact_in(opened)
        if reader is None:
            return info
        step = reader.manifest.step
        reader.close()
        return replace(info, exact=info.step == step)
