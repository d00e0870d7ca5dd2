"""What may be passed at the waist, and that all else is an `ArgumentError` that says so."""

import fractions
import json
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import (
    POLICIES,
    ArgumentError,
    Balanced,
    ExponentBuckets,
    LogSteps,
    Lossless,
    Policy,
    Triggered,
    UniformDeadzone,
    decode,
    encode,
)
from lccodec.errors import as_integer, as_number
from lccodec.quantizers.clusters import Clusters
from lccodec.quantizers.registry import parse_quantizer, quantizer_json

ARRAY = np.linspace(0, 1, 50, dtype=np.float32)
FRAME = encode(ARRAY, Lossless())


@pytest.mark.parametrize(
    ("name", "quantizer"),
    [("lossless", Lossless()), ("lc-2", ExponentBuckets(2)), ("lc-3", ExponentBuckets(3))],
)
def test_presets_that_have_one_meaning(name: str, quantizer: Any) -> None:
    before = ARRAY * np.float32(0.9)
    assert encode(ARRAY, name) == encode(ARRAY, quantizer)
    assert encode(ARRAY, name, before, effort="high") == encode(ARRAY, quantizer, before, effort="high")


@pytest.mark.parametrize("quantizer", [None, 3, UniformDeadzone, ExponentBuckets, POLICIES["lc-3"], {}])
def test_what_is_no_quantizer(quantizer: Any) -> None:
    with pytest.raises(ArgumentError, match="is not a quantizer"):
        encode(ARRAY, quantizer)


def test_a_class_is_to_be_made_one_of() -> None:
    with pytest.raises(ArgumentError, match=r"make one of it, as UniformDeadzone\(\.\.\.\)"):
        encode(ARRAY, UniformDeadzone)


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (np.ma.masked_array([1.0], [True]), "the array must be a plain array; got a masked array"),
        *(
            (array, f"the array must be a NumPy array; got {type(array).__name__}")
            for array in ([1.0, 2.0], [[1.0], [2.0, 3.0]], (1.0,), None, "abc", b"abc", {"w": 1})
        ),
        *(
            (np.array(values), "cannot be stored")
            for values in ([None], ["a"], [b"a"], np.zeros(2, np.longdouble), np.zeros(2, "V4"))
        ),
        *((array, "cannot be stored") for array in (np.array([1], "datetime64[s]"), object())),
    ],
)
def test_what_is_no_array(array: Any, match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        encode(array, Lossless())
    if "cannot" not in match and array is not None:  # None is no reference, and no place to decode into
        with pytest.raises(ArgumentError, match=match.replace("the array must", "the reference must")):
            encode(ARRAY, Lossless(), array)
        with pytest.raises(ArgumentError, match="out must be"):
            decode(FRAME, out=array)


def test_what_numpy_takes_for_an_array() -> None:
    assert decode(encode(np.float32(3), Lossless())) == 3
    assert decode(encode(memoryview(ARRAY), Lossless())).dtype == np.float32


@pytest.mark.parametrize("frame", ["x", None, 3, [1], object(), np.zeros((4, 4))[:, ::2]])
def test_what_is_no_frame(frame: Any) -> None:
    with pytest.raises(ArgumentError, match="a frame must be bytes in one piece; got"):
        decode(frame)


@pytest.mark.parametrize(
    "frame", [FRAME, bytearray(FRAME), memoryview(FRAME), np.frombuffer(FRAME, np.uint8)]
)
def test_forms_of_bytes(frame: Any) -> None:
    np.testing.assert_array_equal(decode(frame), ARRAY)
    with pytest.raises(lccodec.TruncatedError):
        decode(frame[:0])


@pytest.mark.parametrize(
    "dtype",
    ["float64", "float16", np.float32, np.float64, np.dtype("float32"), np.dtype("float64"), 3, b"bits"],
)
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_dtypes_that_are_not_handed_out(dtype: Any, name: str) -> None:
    array = ARRAY if name == "float32" else np.arange(9, dtype="<u2").view(lccodec.BFLOAT16_BITS)
    with pytest.raises(ArgumentError, match="'float32' or 'bits'"):
        decode(encode(array, Lossless()), dtype=dtype)


def test_numbers_of_numpy_are_pythons_own() -> None:
    pairs = [
        (ExponentBuckets(bits=np.int64(3)), ExponentBuckets(3)),
        (UniformDeadzone(max_error=np.float32(1e-3)), UniformDeadzone(max_error=float(np.float32(1e-3)))),
        (UniformDeadzone(step=np.int8(2)), UniformDeadzone(step=2)),
        (UniformDeadzone(relative_step=np.array(0.5)), UniformDeadzone(relative_step=0.5)),
        (UniformDeadzone(step=fractions.Fraction(1, 2)), UniformDeadzone(step=0.5)),
        (Clusters(np.uint8(7), np.float16(0.5)), Clusters(7, 0.5)),
        (LogSteps(np.float64(2)), LogSteps(2.0)),
        (Triggered(ExponentBuckets(2), np.float32(0.5)), Triggered(ExponentBuckets(2), 0.5)),
    ]
    for quantizer, plain in pairs:
        assert quantizer == plain
        assert hash(quantizer) == hash(plain)
        text = json.dumps(quantizer_json(quantizer))
        assert json.loads(text) == quantizer_json(plain)
        assert parse_quantizer(json.loads(text)) == plain
        assert "np." not in repr(quantizer)
        frames = [encode(ARRAY, q) for q in (quantizer, plain)]
        assert frames[0] == frames[1]
    balanced = Balanced(ratio=np.float32(50))
    assert json.dumps(balanced.to_json()) == json.dumps(Balanced(ratio=50.0).to_json())
    assert Policy("p", smallest=np.int64(5)) == Policy("p", smallest=5)


@pytest.mark.parametrize(
    "make",
    [
        ExponentBuckets,
        lambda x: UniformDeadzone(step=x),
        lambda x: UniformDeadzone(max_error=x),
        lambda x: UniformDeadzone(relative_step=x),
        Clusters,
        lambda x: Clusters(8, pruned=x),
        lambda x: Clusters(8, sigma=x),
        LogSteps,
        lambda x: Triggered(ExponentBuckets(2), x),
        lambda x: Balanced(ratio=x),
        lambda x: Balanced(max_bytes=x),
        lambda x: Balanced(error=x),
        lambda x: Policy("p", smallest=x),
    ],
)
@pytest.mark.parametrize(
    "value",
    [True, np.True_, "1", b"1", 1j, np.complex64(0.5), np.array([0.5, 0.5]), [1], -1, float("nan")],
    ids=repr,
)
def test_what_is_no_number(make: Any, value: Any) -> None:
    with pytest.raises(ArgumentError):
        make(value)


def test_an_integer_that_no_float_is_near_to() -> None:
    for make in (UniformDeadzone, Clusters, LogSteps, ExponentBuckets):
        with pytest.raises(ArgumentError):
            make(10**400)


@pytest.mark.parametrize("effort", ["", "higher", None, 3, ["high"], {}])
def test_effort(effort: Any) -> None:
    with pytest.raises(ArgumentError, match="effort must be one of"):
        encode(ARRAY, Lossless(), effort=effort)
    with pytest.raises(ArgumentError, match="effort must be one of normal, high; got"):
        lccodec.Policy("mine", effort=effort)


def test_integers_and_numbers() -> None:
    assert [as_integer(x) for x in (3, np.uint8(3), np.array(3))] == [3] * 3
    assert [as_integer(x) for x in (True, 3.0, "3", None)] == [None] * 4
    assert [type(as_number(x)) for x in (3, 3.0, np.float16(3), np.int8(3))] == [int, float, float, float]
