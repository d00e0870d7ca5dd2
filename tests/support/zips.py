"""Zip archives byte by byte, so that every field of them can say something else."""

import struct
import zlib
from dataclasses import dataclass, field

STORED, DEFLATED = 0, 8
SIZES_BEHIND, UTF8 = 1 << 3, 1 << 11


@dataclass
class Part:
    """A member; `local` and `central` replace fields of one of its two headers."""

    name: str | bytes
    data: bytes
    method: int = STORED
    local: dict[str, int | bytes] = field(default_factory=dict)
    central: dict[str, int | bytes] = field(default_factory=dict)
    packed: bytes | None = None  # its bytes in the file, if they are not those of `data`
    behind: bytes = b""  # what follows them


def deflated(data):
    """Return the raw deflate stream of some bytes."""
    packer = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def archive(*parts, end=None, end_64=None, before=b"", after=b""):
    """Return the bytes of an archive.

    `end` replaces fields of its end record; `end_64` adds one of 64 bits, and does the same.
    """
    body, directory = before, b""
    for part in parts:
        name = part.name if isinstance(part.name, bytes) else part.name.encode()
        packed = part.packed
        if packed is None:
            packed = deflated(part.data) if part.method == DEFLATED else part.data
        said = {
            "signature": b"PK\x03\x04",
            "flags": 0 if isinstance(part.name, bytes) else UTF8,
            "method": part.method,
            "crc": zlib.crc32(part.data),
            "stored": len(packed),
            "size": len(part.data),
            "name": name,
            "extra": b"",
        }
        here = said | part.local
        start = len(body)
        body += struct.pack(
            "<4s5H3L2H",
            *(here["signature"], 20, here["flags"], here["method"], 0, 33),
            *(
                here["crc"],
                here["stored"],
                here["size"],
                len(here["name"]),
                here.get("extra_size", len(here["extra"])),
            ),
        )
        body += here["name"] + here["extra"] + packed + part.behind
        there = said | {"signature": b"PK\x01\x02", "header": start, "disk": 0} | part.central
        directory += struct.pack(
            "<4s6H3L5H2L",
            *(there["signature"], 20, 20, there["flags"], there["method"], 0, 33),
            *(there["crc"], there["stored"], there["size"], len(there["name"]), len(there["extra"])),
            *(0, there["disk"], 0, 0, there["header"]),
        )
        directory += there["name"] + there["extra"]
    fields = {"part": 0, "count": len(parts), "nbytes": len(directory), "start": len(body), "comment": 0}
    fields |= end or {}
    place = len(body) + len(directory)
    if end_64 is not None:
        wider = {"size": 44, "count": len(parts), "start": len(body), "place": place} | end_64
        directory += struct.pack(
            "<4sQ2H2L4Q",
            *(b"PK\x06\x06", wider["size"], 45, 45, 0, 0, wider["count"], wider["count"]),
            *(place - len(body), wider["start"]),
        )
        directory += struct.pack("<4sLQL", b"PK\x06\x07", 0, wider["place"], 1)
    tail = struct.pack(
        "<4s4H2LH",
        *(b"PK\x05\x06", fields["part"], fields["part"], fields["count"], fields["count"]),
        *(fields["nbytes"], fields["start"], fields["comment"]),
    )
    return body + directory + tail + after


def wide(*numbers):
    """Return the extra field with sizes of 64 bits."""
    return struct.pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers)
