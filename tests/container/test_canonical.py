"""JSON and base64 have one way to be written; all others are refused (LCC-MAN-01, LCC-MAN-08)."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.constants import MAX_INTEGER_DIGITS, MAX_NESTING
from lccodec.container.canonical import (
    dump_json,
    first_difference,
    parse_base64,
    parse_json,
    write_base64,
)
from lccodec.errors import DataError

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
HOSTILE: list[tuple[bytes, str]] = [
    (b"", "LCC-MAN-01"),
    (b"\xff", "LCC-MAN-01"),
    (b"\xef\xbb\xbf{}", "LCC-MAN-01"),
    (b"nul", "LCC-MAN-01"),
    (b'{"a', "LCC-MAN-01"),
    (b"[1,", "LCC-MAN-01"),
    (b"[1}", "LCC-MAN-01"),
    (b"[1, 2]", "LCC-MAN-01"),
    (b'{"a":1,"a":1}', "LCC-MAN-01"),
    (b"[" * 10**6, "LCC-LIM-05"),
    (b'"' + b"\\" * 10**6, "LCC-MAN-01"),
    (b'"' + b'\\"' * 10**6, "LCC-MAN-01"),
    (b"-" + b"7" * (MAX_INTEGER_DIGITS + 1), "LCC-LIM-07"),
]


@pytest.mark.parametrize(("data", "rule"), HOSTILE, ids=itertools.count())
def test_hostile_json(data: bytes, rule: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_json(data, "here")
    assert caught.value.rule == rule
    assert caught.value.where.startswith("here")


@given(DOCUMENTS)
def test_json_is_read_as_it_was_written(document: Any) -> None:
    assert parse_json(dump_json(document), "here") == document


def test_brackets_in_strings_do_not_nest() -> None:
    deep: Any = "[{" * 1000 + '"\\'
    for _ in range(MAX_NESTING + 1):
        deep = [deep]
    assert parse_json(dump_json(deep), "here") == deep
    with pytest.raises(DataError, match="LCC-LIM-05"):
        parse_json(dump_json([deep]), "here")


@pytest.mark.parametrize("size", [0, 1, 2, 3, 16, 32])
def test_base64_is_read_as_it_was_written(size: int) -> None:
    data = os.urandom(size)
    text = write_base64(data)
    assert parse_base64(text, size) == data
    for other in (text + "=", text + "\n", text + "A", text.encode(), None):
        assert parse_base64(other, size) is None


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_base64_has_one_text_for_each_bytes(size: int) -> None:
    """Each last letter, and each other letter in the middle."""
    start = "Qr-_9z"[: (4 * size + 2) // 3 - 1]
    texts = [start + chr(code) for code in range(256)] + [chr(code) + start for code in range(256)]
    for text in texts:
        data = parse_base64(text, size)
        assert data is None or write_base64(data) == text
    bits = 8 * size - 6 * len(start)  # in the last letter
    assert sum(parse_base64(text, size) is not None for text in texts[:256]) == 2**bits


@pytest.mark.parametrize("text", ["A" * 21 + "B", "+" * 22, "é" * 22, "A" * 21, "A" * 21 + "="])
def test_other_texts_of_the_same_bytes_are_refused(text: str) -> None:
    assert parse_base64("A" * 22, 16) == bytes(16)
    assert parse_base64(text, 16) is None


@pytest.mark.parametrize(
    ("left", "right", "place"),
    [
        *((b"abc", b"abd", 2), (b"abc", b"ab", 2), (b"", b"a", 0), (b"ab", b"ab", 2), (b"xb", b"ab", 0)),
        (bytes(1000) + b"a" + bytes(7), bytes(1000) + b"b" + bytes(7), 1000),
    ],
)
def test_the_first_difference(left: bytes, right: bytes, place: int) -> None:
    assert first_difference(left, right) == place


def test_brackets_that_stay_open_count_as_depth() -> None:
    for count, rule in ((65, "LCC-MAN-01"), (66, "LCC-LIM-05")):
        with pytest.raises(DataError) as caught:
            parse_json(b"[" * count, "here")
        assert caught.value.rule == rule
