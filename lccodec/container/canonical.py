"""JSON and base64 that can be written in only one way (LCC-MAN-01, LCC-MAN-08).

Source: SPEC 8.
"""

from __future__ import annotations

import binascii
import json
import re
from typing import Final

from ..constants import MAX_INTEGER_DIGITS, MAX_NESTING
from ..errors import DataError, FormatError, LimitError
from .scalars import Json

# A string that is not closed reaches to the end: looking for others inside it takes quadratic time.
_JSON_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_CURLY_TO_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))

# The two alphabets of base64. The package of that name takes twice as long for a few bytes.
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_LETTERS: Final = bytes((*b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", *b"abcdefghijklmnopqrstuvwxyz", *b"0123456789-_"))
_OTHERS: Final = bytes(set(range(256)) - set(_LETTERS))
_STANDARD: Final = bytes.maketrans(b"-_" + _OTHERS, b"+/" + bytes(len(_OTHERS)))  # NUL is skipped
# The letters that a text may end in: the bits behind the last byte are 0.
_LAST_LETTERS: Final = {left: _LETTERS[:: 4 ** (-left % 4)].decode() for left in (0, 2, 3)}

_DIGITS_TO_NINES: Final = bytes.maketrans(b"012345678", b"999999999")
_LONG_INTEGER: Final = b"9" * (MAX_INTEGER_DIGITS + 1)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def parse_json(data: bytes, where: str) -> Json:
    """Parse JSON that is written in the only way `dump_json` writes it (LCC-MAN-01)."""
    if _is_too_deep(data):  # the standard library's parser is recursive
        raise LimitError("LCC-LIM-05", where, f"nested deeper than {MAX_NESTING + 1}")

    def integer(digits: str) -> int:
        if len(digits.lstrip("-")) > MAX_INTEGER_DIGITS:
            raise LimitError("LCC-LIM-07", where, f"an integer of {len(digits)} digits")
        return int(digits)

    try:
        # A function for integers is slow, and there are many of them.
        is_long = _LONG_INTEGER in data.translate(_DIGITS_TO_NINES)
        document = json.loads(data.decode(), parse_int=integer if is_long else None)
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


def _is_too_deep(data: bytes) -> bool:
    """Return whether JSON nests deeper than LCC-LIM-05 allows, or leaves too many brackets open."""
    brackets = data.translate(_CURLY_TO_SQUARE, delete=_NOT_BRACKETS)
    if len(brackets) <= MAX_NESTING:  # as in most manifests, with those in strings
        return False
    brackets = _JSON_STRING.sub(b"", data).translate(_CURLY_TO_SQUARE, delete=_NOT_BRACKETS)
    deepest = MAX_NESTING + 1
    for _ in range(deepest):  # each round removes the innermost pairs
        if b"[]" not in brackets:
            break
        brackets = brackets.replace(b"[]", b"")
    return b"[]" in brackets or len(brackets) > deepest


def dump_json(document: Json) -> bytes:
    """Return a document as canonical JSON (LCC-MAN-01)."""
    return _ENCODER.encode(document).encode()


def first_difference(left: bytes, right: bytes) -> int:
    """Return the position of the first byte in which two byte strings differ."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def parse_base64(text: Json, size: int) -> bytes | None:
    """Return the bytes of a text (LCC-MAN-08); None if it is not the one text of `size` bytes."""
    if type(text) is not str or len(text) != (4 * size + 2) // 3 or not text.isascii():
        return None
    try:
        data = binascii.a2b_base64(text.encode("ascii").translate(_STANDARD) + b"==="[: -len(text) % 4])
    except ValueError:
        return None
    return data if len(data) == size and text[-1:] in _LAST_LETTERS[len(text) % 4] else None


def write_base64(data: bytes) -> str:
    """Return bytes as text (LCC-MAN-08)."""
    return binascii.b2a_base64(data, newline=False).translate(_URL_SAFE).rstrip(b"=").decode("ascii")
