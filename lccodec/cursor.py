"""A cursor that never reads past the end of stored bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, Protocol

from .errors import TruncatedError

_CHUNK_BYTES: Final = 1 << 22


class Stored(Protocol):
    """Stored bytes: a memoryview, or an object that reads each part when it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> memoryview: ...


class Cursor:
    """Reads little-endian integers and slices from stored bytes, in order; errors name `where`.

    It reads from `position` up to `end`, by default all bytes.
    """

    def __init__(self, data: Stored, where: str, position: int = 0, end: int | None = None) -> None:
        self.data = data
        self.where = where
        self.position = position
        self.end = len(data) if end is None else end

    @property
    def remaining(self) -> int:
        """Bytes that have not been read yet."""
        return self.end - self.position

    def take(self, size: int, what: str) -> memoryview:
        """Return the next `size` bytes; raise ``TruncatedError`` if fewer are left (LCC-FRM-02)."""
        self.skip(size, what)
        return self.data[self.position - size : self.position]

    def next_byte(self) -> int | None:
        """Return the next byte without moving on; ``None`` at the end."""
        return self.data[self.position : self.position + 1][0] if self.remaining else None

    def skip(self, size: int, what: str) -> None:
        """Move on as `take` does, without reading."""
        if size > self.remaining:
            message = f"{what} takes {size} bytes at {self.position}, {self.remaining} left"
            raise TruncatedError("LCC-FRM-02", self.where, message)
        self.position += size

    def chunks(self, size: int, what: str) -> Iterator[memoryview]:
        """Yield the next `size` bytes, at most 4 MiB at a time."""
        if size > self.remaining:
            self.take(size, what)  # raises the error before the first chunk
        end = self.position + size
        while self.position < end:
            yield self.take(min(_CHUNK_BYTES, end - self.position), what)

    def integer(self, form: str, what: str) -> int:
        """Return the next integer of a :mod:`struct` format such as ``"H"``, little-endian."""
        form = "<" + form
        return int(struct.unpack(form, self.take(struct.calcsize(form), what))[0])
