"""What is examined: the checkpoints of a directory or a bundle, or one file, by rising step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..chain.life.pins import pinned_steps
from ..chain.read.bundle import describe_exact_in
from ..chain.read.exact import describe_exact
from ..chain.read.survey import Visit, survey, visit_file
from ..chain.store.directory import Place, no_checkpoint, place_steps
from ..container.bundle.bundle import Bundle, is_bundle
from ..container.reader import open_checkpoint
from ..errors import ArgumentError


@dataclass(frozen=True)
class Source:
    """Checkpoints, by the numbers that stand for them in a report.

    Attributes
    ----------
    place
        Where they lie; ``None`` for one file. Its parents are looked for in its directory.
    steps
        The files by rising step. A file without a step has the number 0.
    """

    path: Path
    kind: Literal["chain", "bundle", "file"]
    place: Place | None
    steps: Mapping[int, Path]

    def close(self) -> None:
        """Close the bundle, if it is one."""
        if isinstance(self.place, Bundle):
            self.place.close()

    def visits(self, *, decode: bool) -> Iterator[tuple[int, Visit]]:
        """Yield the checkpoints with their numbers. A visit is valid until the next one."""
        if self.place is None:
            for number in self.steps:
                yield number, visit_file(self.path, open_checkpoint(self.path), decode=decode)
            return
        numbers = {path: number for number, path in self.steps.items()}
        for visit in survey(self.place, self.steps, decode=decode, rising=True):
            yield numbers[visit.path], visit

    def pins(self) -> frozenset[int]:
        """Return the pinned steps."""
        return frozenset(pinned_steps(self.place) if isinstance(self.place, Path) else ())

    def exact_bytes(self) -> int:
        """Return the bytes of the exact file; 0 if there is none."""
        if self.place is None:
            return 0
        found = (
            describe_exact_in(self.place) if isinstance(self.place, Bundle) else describe_exact(self.place)
        )
        return int(found["bytes"] or 0) if found else 0


def open_source(path: Path) -> Source:
    """Open a chain, a bundle or a checkpoint file.

    Raises
    ------
    ArgumentError
        If a directory or a bundle holds no checkpoint.
    DataError, StorageError
        If a file is neither a checkpoint nor a bundle, is damaged, or cannot be read.
    """
    if not path.is_dir() and not is_bundle(path):
        with open_checkpoint(path) as reader:  # its error says why it is none
            return Source(path, "file", None, {reader.manifest.step or 0: path})
    place = path if path.is_dir() else Bundle(path)
    kind: Literal["chain", "bundle"] = "chain" if isinstance(place, Path) else "bundle"
    source = Source(path, kind, place, place_steps(place))
    if not source.steps:
        source.close()
        raise ArgumentError(no_checkpoint(path))
    return source
