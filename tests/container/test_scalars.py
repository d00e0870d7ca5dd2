"""Scalars and metadata: one way to write each value, and hostile entries (LCC-STA-04 to -06).

JSON and base64 have one way to be written; all others are refused (LCC-MAN-01, LCC-MAN-08).
"""

import itertools
import json
import math
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.constants import MAX_INTEGER_DIGITS, MAX_NESTING
from lccodec.container.scalars import (
    advice,
    dump_json,
    first_difference,
    is_unicode,
    metadata_strings,
    parse_base64,
    parse_json,
    parse_scalars,
    scalar_json,
    scalar_value,
    write_base64,
)
from lccodec.errors import ArgumentError, DataError, FormatError, LimitError


@pytest.mark.parametrize(
    ("scalars", "rule"),
    [
        ({}, "LCC-STA-04"),
        (None, "LCC-STA-04"),
        ([1.5], "LCC-STA-04"),
        ([[]], "LCC-STA-04"),
        ([{}], "LCC-STA-04"),
        ([{"f": 1}], "LCC-STA-04"),
        ([{"x": "1.0"}], "LCC-STA-04"),
        ([{"f": "1.0", "b": ""}], "LCC-STA-04"),
        ([{"f": "1"}], "LCC-STA-05"),
        ([{"f": "1.00"}], "LCC-STA-05"),
        ([{"f": " 1.0"}], "LCC-STA-05"),
        ([{"f": "1_0.0"}], "LCC-STA-05"),
        ([{"f": "NaN"}], "LCC-STA-05"),
        ([{"f": "-nan"}], "LCC-STA-05"),
        ([{"f": "infinity"}], "LCC-STA-05"),
        ([{"f": "1e400"}], "LCC-STA-05"),
        ([{"f": "٣.0"}], "LCC-STA-05"),
        ([{"f": ""}], "LCC-STA-05"),
        ([{"f": "9" * 10**7}], "LCC-STA-05"),
        ([{"b": "QQ"}], "LCC-STA-05"),
        ([{"b": "QR=="}], "LCC-STA-05"),
        ([{"b": "Q Q=="}], "LCC-STA-05"),
        ([{"b": "QQ==\n"}], "LCC-STA-05"),
        ([{"b": "é==="}], "LCC-STA-05"),
        (["\udfff"], "LCC-STA-06"),
        ([10**MAX_INTEGER_DIGITS], "LCC-LIM-07"),
    ],
)
def test_hostile_scalars(scalars: Any, rule: str) -> None:
    with pytest.raises((FormatError, LimitError)) as caught:
        parse_scalars(scalars, "here")
    assert caught.value.rule == rule
    assert caught.value.where.startswith("here")


@given(st.floats() | st.binary())
def test_what_json_has_no_place_for_comes_back(value: float | bytes) -> None:
    entry = json.loads(json.dumps(scalar_json(value)))
    assert parse_scalars([entry], "here") == [entry]
    back = scalar_value(entry)
    assert type(back) is type(value)
    assert repr(back) == repr(value)  # NaN and the sign of a zero count


@given(st.none() | st.booleans() | st.integers() | st.text())
def test_what_json_has_stands_for_itself(value: object) -> None:
    assert parse_scalars([value], "here") == [value]
    assert scalar_value(value) is value


def test_an_error_names_the_place_in_the_list() -> None:
    with pytest.raises(FormatError) as caught:
        parse_scalars([1, None, {"f": "1"}], "file: scalars")
    assert caught.value.where == "file: scalars[2]"


@given(st.text(st.characters(), max_size=5))
def test_lone_surrogates_are_what_utf_8_has_no_bytes_for(text: str) -> None:
    try:
        text.encode()
        encodable = True
    except UnicodeEncodeError:
        encodable = False
    assert is_unicode(text) == encodable


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", ""),
        (7, "7"),
        (True, "true"),
        (np.bool_(False), "false"),
        (np.int8(-3), "-3"),
        (np.float32(0.5), "0.5"),
        (float("nan"), "NaN"),
        (-math.inf, "-Infinity"),
        (np.str_("text"), "text"),
    ],
)
def test_metadata_become_strings(value: object, text: str) -> None:
    found = metadata_strings({"key": value})
    assert found == {"key": text}
    assert type(found["key"]) is str


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ([("key", "value")], "a mapping from strings to strings; got list"),
        ("key", "a mapping from strings to strings; got str"),
        ({"key": None}, "metadata 'key' must be a string or a number; got None"),
        ({"key": [1]}, r"metadata 'key' must be a string or a number; got \[1\]"),
        ({"key": 1j}, "metadata 'key'"),
        ({3: "value"}, "a key of metadata must be a string; got 3"),
        ({"key": "\ud800"}, "metadata 'key': .* lone surrogate"),
        ({"\ud800": "value"}, "lone surrogate"),
    ],
)
def test_metadata_that_are_refused(metadata: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        metadata_strings(metadata)


def test_no_metadata() -> None:
    assert metadata_strings(None) == metadata_strings({}) == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("torch._C.Generator", "; save its get_state(), and give that to set_state()"),
        ("torch.Tensor", "; give its adapter: Chain(..., adapter=lccodec.adapters.torch)"),
        ("torch.storage.UntypedStorage", ""),
        ("jaxlib._jax.ArrayImpl", "; give its adapter: Chain(..., adapter=lccodec.adapters.jax)"),
        ("jax._src.random.prng.PRNGKeyArray", "; give its adapter: Chain(..., adapter=lccodec.adapters.jax)"),
        ("jaxlib._jax.PjitFunction", "; leave functions out"),
        ("equinox._module.Module", "; give its adapter: Chain(..., adapter=lccodec.adapters.jax)"),
        ("flax.linen.linear.Dense", "; save the variables that its init returns"),
        ("program.Thing", ""),
    ],
)
@pytest.mark.parametrize("derived", [False, True])
def test_what_to_write_instead_of_a_value(name: str, text: str, derived: bool) -> None:
    module, _, last = name.rpartition(".")
    kind = type(last, (), {"__module__": module, "__qualname__": last})
    value = (type("Own", (kind,), {}) if derived else kind)()
    found = advice(value)
    assert found.startswith(text)
    assert bool(found) == bool(text)


def test_functions_come_from_the_target() -> None:
    assert advice(print) == advice(lambda: 0)
    assert "leave functions out" in advice(print)
    assert not advice(int)


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
