"""What the files of strangers may ask for: bytes and checkpoints (SPEC 13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..arguments import integer
from ..errors import LimitError

_BYTES_RULE: Final = "max_bytes"
_DELTAS_RULE: Final = "max_deltas"


@dataclass(frozen=True)
class Bounds:
    """The most that a checkpoint may ask for; ``None`` for no bound.

    Raises ``ArgumentError`` if one is not an integer, or below 0.
    """

    # Bytes that all of its arrays have together, once they are decoded, and those of its parents
    # that share frames with them. An array of which a part is asked for counts whole.
    max_bytes: int | None = None
    max_deltas: int | None = None  # checkpoints that it needs beside itself

    def __post_init__(self) -> None:
        for name in (_BYTES_RULE, _DELTAS_RULE):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name))

    def check_deltas(self, needed: int, where: str) -> None:
        """Raise ``LimitError`` if a checkpoint needs too many others."""
        if self.max_deltas is not None and needed > self.max_deltas:
            message = f"it needs {needed:,} other checkpoints, and max_deltas is {self.max_deltas:,}"
            raise LimitError(_DELTAS_RULE, where, message)

    def check_bytes(self, nbytes: int, where: str) -> None:
        """Raise ``LimitError`` if arrays decode to too many bytes."""
        if self.max_bytes is not None and nbytes > self.max_bytes:
            message = f"its arrays have {nbytes:,} bytes, and max_bytes is {self.max_bytes:,}"
            raise LimitError(_BYTES_RULE, where, message)


#: No bounds.
UNBOUNDED: Final = Bounds()


def is_bound(error: LimitError) -> bool:
    """Return whether an error is one of a caller's bounds, and not of a limit of the format."""
    return error.rule in (_BYTES_RULE, _DELTAS_RULE)
