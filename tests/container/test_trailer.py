"""The trailer: its fields, and hostile ones (LCC-TRL)."""

from __future__ import annotations

import itertools

import pytest

from lccodec.constants import (
    FORMAT_MAJOR,
    FORMAT_MINOR,
    MAX_MANIFEST_BYTES,
    PAYLOAD_OFFSET,
    TRAILER_MAGIC,
    TRAILER_SIZE,
)
from lccodec.container.reader import open_bytes
from lccodec.container.trailer import Trailer, parse_trailer
from lccodec.errors import DataError, FormatError, LimitError, UnsupportedError

from ..support.checkpoints import FILE


def test_trailer_fields() -> None:
    trailer = Trailer(payload_length=0x1122334455, manifest_length=0x667788, root=bytes(range(32)))
    data = trailer.to_bytes()
    assert len(data) == TRAILER_SIZE
    assert data[:8] == TRAILER_MAGIC
    bounds = itertools.pairwise([8, 10, 12, *range(16, 57, 8)])
    numbers = [int.from_bytes(data[start:stop], "little") for start, stop in bounds]
    end = PAYLOAD_OFFSET + 0x1122334455
    assert numbers == [
        FORMAT_MAJOR,
        FORMAT_MINOR,
        1,
        PAYLOAD_OFFSET,
        0x1122334455,
        end,
        0x667788,
        end + 0x667788 + 88,
    ]
    assert data[56:] == bytes(range(32))
    assert parse_trailer(data, "here") == trailer


@pytest.mark.parametrize(
    ("offset", "value", "error", "rule"),
    [
        (0, b"LCCODEX\x1a", FormatError, "LCC-TRL-01"),
        (8, b"\2\0", UnsupportedError, "LCC-TRL-03"),
        (8, b"\0\0", UnsupportedError, "LCC-TRL-03"),
        (12, b"\0", UnsupportedError, "LCC-TRL-04"),
        (12, b"\2", UnsupportedError, "LCC-TRL-04"),
        (15, b"\1", UnsupportedError, "LCC-TRL-04"),
        (16, b"\0", FormatError, "LCC-TRL-06"),
        (24, b"\xff" * 8, FormatError, "LCC-TRL-06"),
        (32, b"\xff" * 8, FormatError, "LCC-TRL-06"),
        (40, (MAX_MANIFEST_BYTES + 1).to_bytes(8, "little"), LimitError, "LCC-LIM-04"),
        (48, b"\0", FormatError, "LCC-TRL-06"),
    ],
)
def test_hostile_trailers(offset: int, value: bytes, error: type[DataError], rule: str) -> None:
    data = bytearray(FILE[-TRAILER_SIZE:])
    data[offset : offset + len(value)] = value
    with pytest.raises(error) as caught:
        parse_trailer(bytes(data), "here")
    assert caught.value.rule == rule
    with pytest.raises(DataError):
        open_bytes(FILE[:-TRAILER_SIZE] + data)


def test_declared_sizes_do_not_become_allocations() -> None:
    huge = Trailer(payload_length=1 << 60, manifest_length=1 << 25).to_bytes()
    with pytest.raises(FormatError, match="says that the file has"):
        open_bytes(FILE[:-TRAILER_SIZE] + huge)
