"""Frames of components, as tests ask for them, and frames damaged behind a right checksum."""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from lccodec.constants import ElementType
from lccodec.element_types import Array
from lccodec.frame.encode import Content, encode_content
from lccodec.quantizers import Quantizer


def encode_components(
    bits: Array,
    kind: ElementType,
    shapes: Sequence[tuple[int, ...]],
    quantizer: Quantizer,
    reference: Array | None,
    out: Array | None = None,
    *,
    run: bool = False,
    **settings: Any,
) -> Iterator[bytes]:
    content = Content(bits, kind, tuple(shapes), reference, run)
    return encode_content(content, quantizer, out, **settings)


def sealed(frame: bytes) -> bytes:
    """The frame with its CRC made right, so that damage gets past it."""
    return frame[:-4] + struct.pack("<I", zlib.crc32(frame[:-4]))
