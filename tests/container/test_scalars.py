"""Scalars and metadata: one way to write each value, and hostile entries (LCC-STA-04 to -06)."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.constants import MAX_INTEGER_DIGITS
from lccodec.container.scalars import (
    advice,
    is_unicode,
    metadata_strings,
    parse_scalars,
    scalar_json,
    scalar_value,
)
from lccodec.errors import ArgumentError, FormatError, LimitError


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
