"""The location of a checkpoint of DCP: what the writer and the reader have in common."""

from __future__ import annotations

from ...container.disk.system import StrPath, checked_path
from ...errors import ArgumentError

__all__ = ["Location"]


class Location:
    """The directory of a checkpoint. Every save and load can change it.

    In the list of base classes it stands before DCP's own, whose abstract methods it provides.
    """

    def __init__(self, path: StrPath) -> None:
        super().__init__()
        self._path = checked_path(path)

    @property
    def checkpoint_id(self) -> StrPath:
        """The path of the checkpoint."""
        return self._path

    def reset(self, checkpoint_id: StrPath | None = None) -> None:
        """Begin to save or load a checkpoint."""
        if checkpoint_id is not None:
            self._path = checked_path(checkpoint_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: StrPath) -> bool:
        """Return whether a checkpoint can have this name: it must be a path, not an address."""
        try:
            checked_path(checkpoint_id)
        except ArgumentError:
            return False
        return True
