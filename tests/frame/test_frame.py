"""Frames: what is decoded, what is refused, what is written chunk by chunk."""

import functools
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import (
    BFLOAT16_BITS,
    ArgumentError,
    ChecksumError,
    DataError,
    ExponentBuckets,
    FormatError,
    LimitError,
    LogSteps,
    Lossless,
    Quantizer,
    TruncatedError,
    UniformDeadzone,
    UnsupportedError,
    decode,
    encode,
)
from lccodec.constants import MAX_EXPANSION, METHOD_RAW
from lccodec.element_types import Array, components
from lccodec.frame.content import Content, array_sum
from lccodec.frame.decode import decode_components
from lccodec.frame.encode import Effort, RawFrame, encode_content
from lccodec.frame.header import FrameHeader, parse_header

from ..support.bounds import bounded
from ..support.frames import sealed
from ..support.strategies import (
    ALL_DTYPES,
    FLOATS,
    INTEGERS,
    Pair,
    array_and_reference,
    arrays,
    bits_of,
    dtype_of,
    installed,
    random_array,
)
from ..support.tuning import tune

VECTORS = Path(__file__).parents[2] / "spec" / "vectors"
LOSSY = [
    *(ExponentBuckets(2), ExponentBuckets(8), LogSteps(0.5)),
    *(UniformDeadzone(relative_step=1), UniformDeadzone(max_error=1e-2)),
]


@given(array_and_reference())
def test_lossless_is_bit_exact(pair: Pair) -> None:
    array, reference = pair
    restored = decode(encode(array, Lossless(), reference), reference)
    assert (restored.dtype, restored.shape) == (array.dtype, array.shape)
    assert restored.flags.c_contiguous and restored.flags.writeable
    np.testing.assert_array_equal(bits_of(restored), bits_of(array))


@given(array_and_reference(INTEGERS), st.sampled_from(LOSSY))
def test_integers_are_exact_under_every_quantizer(pair: Pair, quantizer: Any) -> None:
    array, reference = pair
    restored = decode(encode(array, quantizer, reference), reference)
    np.testing.assert_array_equal(restored, array)


@given(array_and_reference(), st.sampled_from([*LOSSY, Lossless()]))
def test_decoding_into_an_array_even_the_reference(pair: Pair, quantizer: Any) -> None:
    array, reference = pair
    frame = encode(array, quantizer, reference)
    expected = bits_of(decode(frame, reference))
    out = np.empty(array.shape, array.dtype)
    assert decode(frame, reference, out) is out
    np.testing.assert_array_equal(bits_of(out), expected)
    if reference is not None:
        target = np.ascontiguousarray(reference).reshape(reference.shape)
        decode(frame, target, target)
        np.testing.assert_array_equal(bits_of(target), expected)


@given(array_and_reference(FLOATS[:-1]), st.sampled_from(LOSSY))
def test_a_second_generation_decodes_to_itself(pair: Pair, quantizer: Any) -> None:
    """Same bytes for the same array, whatever its layout."""
    array, reference = pair
    frame = encode(array, quantizer, reference)
    assert encode(np.array(array, order="F"), quantizer, reference) == frame


def test_several_blocks() -> None:
    rng = np.random.default_rng(0)
    before = rng.standard_normal((1 << 20) + 12345).astype(np.float32)
    after = before + (rng.standard_normal(before.size) * 1e-3).astype(np.float32)
    after[-1] = np.nan
    np.testing.assert_array_equal(bits_of(decode(encode(after, Lossless(), before), before)), bits_of(after))
    restored = decode(encode(after, UniformDeadzone(max_error=1e-4), before), before)
    assert np.nanmax(np.abs(restored - after)) <= 1e-4
    assert np.isnan(restored[-1])


def test_header_round_trip_and_size() -> None:
    frame = encode(np.zeros((2, 3), np.int16), Lossless())
    header = parse_header(frame)
    assert isinstance(header, FrameHeader)
    assert header.to_bytes() == frame[: header.size]
    assert header.size == 8 + 2 * 8
    assert (header.shapes, header.kind.name, header.relative) == (((2, 3),), "int16", False)


def test_a_run_may_have_as_many_components_as_its_limit() -> None:
    kind = parse_header(encode(np.zeros(3, np.uint8), Lossless())).kind
    run, larger = (
        FrameHeader(1, kind, True, ((first,), (1,)), 20, run=True) for first in ((1 << 22) - 1, 1 << 22)
    )
    assert parse_header(run.to_bytes()) == run
    with pytest.raises(LimitError) as caught:
        parse_header(larger.to_bytes())
    assert caught.value.rule == "LCC-LIM-09"


def test_fixed_cost_of_a_frame() -> None:
    """Bytes of a frame beside its stream: header, extent, codebook of three, block, checksums."""
    before = np.zeros(1_000_000, np.float32)
    after = before.copy()
    for start, value in enumerate((1.0, -1.0, 2.0)):
        after[start::1000] = value
    frame = encode(after, ExponentBuckets(2), before)
    assert parse_header(frame).method_name == "codebook"
    assert len(encode(before, ExponentBuckets(2), before)) <= 47 - 12 + 2


@pytest.mark.parametrize("name", ["float32", "float64", "uint8"])
def test_zeros_stay_inside_the_expansion_limit(name: str) -> None:
    array = np.zeros(5_000_000, name)
    frame = encode(array, Lossless())
    assert array.nbytes <= MAX_EXPANSION * len(frame)
    assert len(frame) == -(-array.nbytes // MAX_EXPANSION)
    np.testing.assert_array_equal(decode(frame), array)


@given(st.binary(max_size=100))
def test_array_sum_is_the_written_formula(data: bytes) -> None:
    filled = data + bytes(-len(data) % 8)
    words = struct.unpack(f"<{len(filled) // 8}Q", filled)
    expected = sum((2 * i + 1) * word for i, word in enumerate(words)) % 2**64
    assert array_sum(np.frombuffer(data, np.uint8)) == expected


def test_array_sum_over_pieces() -> None:
    words = np.random.default_rng(0).integers(0, 2**64, 200_001, dtype=np.uint64)
    expected = sum((2 * i + 1) * int(word) for i, word in enumerate(words)) % 2**64
    assert array_sum(words) == expected


def test_another_reference_is_noticed() -> None:
    rng = np.random.default_rng(0)
    before = rng.standard_normal((64, 64)).astype(np.float32)
    after = before + np.float32(0.1)
    for quantizer in (Lossless(), ExponentBuckets(3)):
        frame = encode(after, quantizer, before)
        for other in (before + np.float32(1), np.ascontiguousarray(before.T), np.roll(before, 1)):
            with pytest.raises(ChecksumError) as caught:
                decode(frame, other)
            assert caught.value.rule == "LCC-FRM-09"


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "bool"])
@pytest.mark.parametrize("quantizer", [Lossless(), ExponentBuckets(3)])
def test_every_prefix_and_extension_is_an_error(name: str, quantizer: Any) -> None:
    frame = encode(random_array(name, (90,), 7), quantizer)
    for length in range(len(frame)):
        with pytest.raises((TruncatedError, ChecksumError)):
            decode(frame[:length])
        if length > parse_header(frame).size + 12:  # even where the CRC of the rest is right
            with pytest.raises(DataError):
                decode(sealed(frame[:length]))
    with pytest.raises(DataError):
        decode(frame + b"\x00")
    with pytest.raises(DataError):
        decode(sealed(frame + b"\x00"))


@pytest.mark.parametrize("quantizer", [Lossless(), ExponentBuckets(3)])
def test_every_flipped_bit_is_an_error(quantizer: Any) -> None:
    frame = encode(random_array("float32", (60,), 8, special=0.05), quantizer)
    for bit in range(8 * len(frame)):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DataError):
            decode(bytes(damaged))


def header(magic=b"LC", version=1, method=0, dtype=5, flags=0, ndim=1, log2=0, shape=(1,)) -> bytes:
    head = struct.pack("<2s6B", magic, version, method, dtype, flags, ndim, log2)
    return head + struct.pack(f"<{len(shape)}Q", *shape)


@pytest.mark.parametrize(
    ("changes", "error", "rule"),
    [
        ({"magic": b"PK"}, FormatError, "LCC-FRM-01"),
        ({"version": 2}, UnsupportedError, "LCC-VER-01"),
        ({"method": 4}, UnsupportedError, "LCC-FRM-03"),
        ({"flags": 8}, UnsupportedError, "LCC-FRM-04"),
        ({"flags": 4}, UnsupportedError, "LCC-FRM-12"),
        ({"flags": 2}, FormatError, "LCC-FRM-11"),  # a run gives its dimensions array by array
        ({"flags": 1}, UnsupportedError, "LCC-FRM-04"),  # a raw frame has no reference
        ({"dtype": 15}, UnsupportedError, "LCC-FRM-06"),
        ({"method": 2, "log2": 20}, FormatError, "LCC-FRM-06"),  # integers have no codebook
        ({"ndim": 33, "shape": (1,) * 33}, LimitError, "LCC-FRM-05"),
        ({"log2": 5}, LimitError, "LCC-LIM-02"),  # raw frames have no blocks
        ({"method": 1, "log2": 23}, LimitError, "LCC-LIM-02"),
        ({"method": 1, "log2": 2}, LimitError, "LCC-LIM-02"),
        ({"shape": (1 << 41,)}, LimitError, "LCC-LIM-01"),
        ({"shape": (1 << 40, 1 << 40), "ndim": 2}, LimitError, "LCC-LIM-01"),
        ({"shape": (0, 1 << 63), "ndim": 2}, LimitError, "LCC-LIM-01"),
        ({"method": 1, "log2": 20, "shape": (1 << 38,)}, LimitError, "LCC-LIM-03"),  # a bomb
        ({"shape": (1 << 12,)}, TruncatedError, "LCC-FRM-02"),
    ],
)
def test_hostile_headers_name_their_rule(changes: dict[str, Any], error: type[DataError], rule: str) -> None:
    frame = sealed(header(**changes) + b"\x07" + bytes(12))
    with pytest.raises(error) as caught:
        decode(frame)
    assert caught.value.rule == rule


def test_a_bool_is_zero_or_one() -> None:
    frame = bytearray(encode(np.array([True, False]), Lossless()))
    place = len(frame) - 12 - 2
    frame[place] = 2
    frame[-12:-4] = struct.pack("<Q", array_sum(np.array([2, 0], np.uint8)))
    with pytest.raises(FormatError) as caught:
        decode(sealed(bytes(frame)))
    assert caught.value.rule == "LCC-FRM-10"


def test_arguments_are_checked() -> None:
    array = np.ones((2, 3), np.float32)
    frame = encode(array, Lossless(), np.zeros_like(array))
    with pytest.raises(ArgumentError, match="coded against a reference"):
        decode(frame)
    for reference, match in (
        (np.zeros((3, 2), np.float32), r"shape \(2, 3\); got \(3, 2\)"),
        (np.zeros((2, 3)), "float64"),
    ):
        with pytest.raises(ArgumentError, match=match):
            encode(array, Lossless(), reference)
        with pytest.raises(ArgumentError, match=match):
            decode(frame, reference)
    for out in (np.empty((3, 2), np.float32), np.empty((2, 3), np.float64), np.empty((3, 2), np.float32).T):
        with pytest.raises(ArgumentError, match="out"):
            decode(encode(array, Lossless()), out=out)


def test_out_may_have_either_byte_order_and_must_be_writable() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    before = array[::-1].copy()
    for frame, reference in ((encode(array, Lossless()), None), (encode(array, Lossless(), before), before)):
        for order in "<>":
            out = np.zeros((2, 3), f"{order}i4")
            assert decode(frame, reference, out) is out
            np.testing.assert_array_equal(out, array)
        out = np.zeros((2, 3), np.int32)
        out.flags.writeable = False
        with pytest.raises(ArgumentError, match="writable"):
            decode(frame, reference, out)
        assert not out.any()


@pytest.mark.parametrize("quantizer", [UniformDeadzone(step=0.5, absolute=True), Lossless()])
def test_a_frame_without_a_reference_replaces_the_array_that_is_given_as_one(quantizer: Quantizer) -> None:
    array = np.random.default_rng(0).standard_normal(500)
    frame = encode(array, quantizer)
    out = np.full(500, 7.0)
    decode(frame, reference=out, out=out)
    np.testing.assert_array_equal(out, decode(frame))


@pytest.mark.parametrize("name", ["run-raw", "run-planes", "run-codebook-ordered"])
def test_a_run_is_read_through_its_checkpoint(name: str) -> None:
    frame = (VECTORS / "valid" / f"{name}.lcf").read_bytes()
    with pytest.raises(ArgumentError, match="a run of arrays; read them through their checkpoint"):
        decode(frame)


@pytest.mark.bfloat16
def test_bfloat16_as_float32() -> None:
    array = random_array("bfloat16", (50,), 9)
    for quantizer in (Lossless(), UniformDeadzone(step=0.1)):
        frame = encode(array, quantizer)
        wide = decode(frame, dtype="float32")
        assert wide.dtype == np.float32
        np.testing.assert_array_equal(bits_of(wide), bits_of(decode(frame).astype(np.float32)))
    assert decode(encode(np.ones(3), Lossless()), dtype="float32").dtype == np.float64
    assert dtype_of("bfloat16") == array.dtype


CODED = {
    "exact": Lossless(),
    "buckets": ExponentBuckets(3),
    "share": UniformDeadzone(share=0.5),
    "keyframe": UniformDeadzone(relative_step=1 / 64, absolute=True),
    "logarithm": LogSteps(0.01),
}


@functools.cache
def large(dtype: str) -> tuple[Content, Array]:
    """The content of an array of more than a block, and the components of a reference."""
    rng = np.random.default_rng(0)
    rows = (np.abs(rng.normal(size=(1 << 18,))) + 1e-3).astype(np.float32)
    array = np.concatenate([rows * np.float32(1 + k / 50) for k in range(20)]).reshape(-1, 4096)
    before = array * np.float32(1.01) + np.float32(1e-4) * np.tile(rows, 20).reshape(array.shape)
    if dtype == "bfloat16":
        array, before = ((a.view("<u4") >> 16).astype("<u2").view(BFLOAT16_BITS) for a in (array, before))
    else:
        array, before = array.astype(dtype), before.astype(dtype)
    (kind, bits), (_, reference) = components(array), components(before)
    return Content(bits, kind, (array.shape,), None), reference


@pytest.mark.slow
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("name", CODED)
@pytest.mark.parametrize(
    ("dtype", "effort"), [("<f4", "normal"), ("<f4", "high"), ("<f8", "normal"), ("bfloat16", "normal")]
)
def test_memory_of_a_large_array_is_that_of_pieces(
    dtype: str, name: str, relative: bool, effort: Effort
) -> None:
    """Beside the array, its reference and the frame; this array has more than a block."""
    content, reference = large(dtype)
    out = reference.copy()
    quantizer = CODED[name]
    base = out if relative and not quantizer.absolute else None
    with bounded(600, 60 << 20):
        content = Content(content.bits, content.kind, content.shapes, base)
        for piece in encode_content(content, quantizer, out, effort=effort):
            del piece


def test_units_are_not_lost_without_a_word() -> None:
    class Quantity(np.ndarray):
        units = "m"

    array = np.ones(3).view(Quantity)
    assert decode(encode(array, Lossless())).tolist() == [1, 1, 1]  # what the class has is not of the array
    array.units = "s"
    for values, reference in ((array, None), (np.ones(3), array)):
        with pytest.raises(ArgumentError, match=r"Quantity, which is more .* keep beside it: units"):
            encode(values, Lossless(), reference)


def made(*members: np.ndarray) -> RawFrame:
    found = [components(array) for array in members]
    kind, shapes, run = found[0][0], tuple(array.shape for array in members), len(members) > 1
    bits = np.concatenate([bits for _, bits in found]) if run else found[0][1]
    header = FrameHeader(METHOD_RAW, kind, False, shapes, 0, run)
    return RawFrame(header, lambda: Content(bits, kind, shapes, run=run))


@given(arrays())
def test_any_array(array: np.ndarray) -> None:
    frame = made(array)
    data = b"".join(frame.chunks())
    assert len(data) == frame.length
    np.testing.assert_array_equal(decode_components(data, None), components(array)[1])


@pytest.mark.parametrize("name", installed(ALL_DTYPES))
def test_it_is_the_frame_of_the_encoder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    array = random_array(name, (300, 7), 5, special=1.0)
    if name == "bool":
        array = np.array([True, False, True])
    encoded = encode(array, "lossless")
    assert encoded[3] == 0
    for size in (16, 128, 1 << 18):
        tune(monkeypatch, chunk_bytes=size)
        assert b"".join(made(array).chunks()) == encoded


@given(st.lists(st.integers(1, 300), min_size=2, max_size=5))
def test_runs(sizes: list[int]) -> None:
    members = [random_array("float32", (size,), size, 1.0) for size in sizes]
    data = b"".join(made(*members).chunks())
    expected = np.concatenate([bits_of(array) for array in members])
    np.testing.assert_array_equal(bits_of(decode_components(data, None)), expected)


def test_an_array_that_changes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value is read once: the checksums are those of what is written."""
    tune(monkeypatch, chunk_bytes=800)
    array = np.zeros(1000)
    chunks = []
    for number, chunk in enumerate(made(array).chunks()):
        array += 1
        chunks.append(bytes(chunk))
        assert bytes(chunk) == chunks[number]
    decoded = decode_components(b"".join(chunks), None).view(np.float64)
    assert set(decoded) == set(range(1, 11))
