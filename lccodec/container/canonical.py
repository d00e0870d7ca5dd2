"""JSON and base64 that can be written in only one way (LCC-MAN-01, LCC-MAN-08).

Source: SPEC 8.
"""

from __future__ import annotations

import binascii
import json
import re
from contextlib import suppress
from typing import Final

import numpy as np

from ..constants import MAX_INTEGER_DIGITS, MAX_NESTING
from ..errors import DataError, FormatError, LimitError
from .scalars import Json

# A string that is not closed reaches to the end: looking for others inside it takes quadratic time.
_JSON_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_CURLY_TO_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))

# The two alphabets of base64. The package of that name takes twice as long for a few bytes.
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_STANDARD: Final = bytes.maketrans(b"-_", b"+/")


def parse_json(data: bytes, where: str) -> Json:
    """Parse JSON that is written in the only way `dump_json` writes it (LCC-MAN-01)."""
    # The standard library's parser is recursive, so the depth is bounded first. Each round removes
    # the innermost pairs of brackets.
    brackets = _JSON_STRING.sub(b"", data).translate(_CURLY_TO_SQUARE, delete=_NOT_BRACKETS)
    for _ in range(MAX_NESTING + 1):
        if b"[]" not in brackets:
            break
        brackets = brackets.replace(b"[]", b"")
    if b"[]" in brackets or len(brackets) > MAX_NESTING:
        raise LimitError("LCC-LIM-05", where, f"nested deeper than {MAX_NESTING + 1}")

    def integer(digits: str) -> int:
        if len(digits.lstrip("-")) > MAX_INTEGER_DIGITS:
            raise LimitError("LCC-LIM-07", where, f"an integer of {len(digits)} digits")
        return int(digits)

    try:
        document = json.loads(data.decode(), parse_int=integer)
        canonical = dump_json(document)  # refuses NaN, infinities and lone surrogates, which `loads` accepts
    except DataError:
        raise
    except ValueError as error:
        raise FormatError("LCC-MAN-01", where, f"not JSON: {error}") from error
    # This finds duplicate keys too: the parser has kept only one of them.
    if canonical != data:
        place = first_difference(canonical, data)
        raise FormatError("LCC-MAN-01", f"{where}: byte {place}", "not in canonical form")
    return document


def dump_json(document: Json) -> bytes:
    """Return a document as canonical JSON (LCC-MAN-01)."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def first_difference(left: bytes, right: bytes) -> int:
    """Return the position of the first byte in which two byte strings differ."""
    size = min(len(left), len(right))
    differ = np.frombuffer(left[:size], np.uint8) != np.frombuffer(right[:size], np.uint8)
    return int(differ.argmax()) if differ.any() else size


def parse_base64(text: Json, size: int) -> bytes | None:
    """Return the bytes of a text (LCC-MAN-08); None if it is not the one text of `size` bytes."""
    if type(text) is str and len(text) == (4 * size + 2) // 3:
        with suppress(ValueError):
            data = binascii.a2b_base64(text.encode("ascii").translate(_STANDARD) + b"==="[: -len(text) % 4])
            if write_base64(data) == text:
                return data
    return None


def write_base64(data: bytes) -> str:
    """Return bytes as text (LCC-MAN-08)."""
    return binascii.b2a_base64(data, newline=False).translate(_URL_SAFE).rstrip(b"=").decode("ascii")
