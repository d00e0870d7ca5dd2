"""Smooth frames: blocks of rows, sums of parts, arrays that change, limits of hostile bytes.

Numbers of any size and of either sign: what is written is read, in few bytes.
"""

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import LimitError, Smooth, decode, encode
from lccodec.constants import MAX_SMOOTH_COMPONENTS
from lccodec.cursor import Cursor
from lccodec.element_types import components, unzigzag, zigzag
from lccodec.entropy import runs
from lccodec.entropy.runs import pack, packed_size, unpack
from lccodec.errors import ArgumentError, DataError, FormatError, TruncatedError
from lccodec.frame import smooth
from lccodec.frame.content import SUM_MASK, Content, array_sum
from lccodec.frame.decode import decode_range
from lccodec.frame.encode import FrameCoder, encode_content
from lccodec.frame.header import block_shapes, parse_header
from lccodec.frame.smooth import read_numbers, write_numbers

from ..support.frames import sealed
from ..support.strategies import ALL_DTYPES, REALS, Pair, array_and_reference, dtype_of, random_array

X = np.linspace(0, 3, 60)
FIELD = np.sin(X)[:, None, None] + np.cos(2 * X[:50, None]) * X[:40]


@given(st.lists(st.integers(0, 40), max_size=5).map(tuple), st.integers(10, 14))
def test_blocks_are_rows(shape: tuple[int, ...], log2: int) -> None:
    blocks = list(block_shapes(shape, log2, 0))
    sizes = [math.prod(block) for block in blocks]
    assert sum(sizes) == math.prod(shape)
    assert max(sizes, default=0) <= 1 << log2
    assert all(len(block) <= max(len(shape), 1) for block in blocks)
    if 0 < math.prod(shape) <= 1 << log2:
        assert blocks == [shape or (1,)]


def test_an_offset_of_0_makes_no_negative_zero() -> None:
    for offset, negative in ((0.0, False), (-0.0, True), (None, True)):
        out = np.ones(1, np.uint32)
        limits = smooth._Limits(offset=offset)
        limits.finish(np.array([-0.0]), None, components(np.zeros(1, np.float32))[0], out)
        assert (out == (0x80000000 if negative else 0)).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_several_blocks(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be written in any order, and their sums add up where they do not end at a word."""
    monkeypatch.setattr(smooth, "block_log2", lambda size: 16)  # noqa: ARG005
    array = np.ascontiguousarray(FIELD[:, :43, :37]).astype(dtype)
    kind, bits = components(array)
    content = Content(bits, kind, (array.shape,))
    coder = FrameCoder(content, Smooth(max_error=1e-2))
    assert len(coder.parts) == 2
    blocks = {n: coder.write_block(coder.parts[n]) for n in reversed(range(len(coder.parts)))}
    frame = b"".join(coder.join(blocks[number] for number in range(len(coder.parts))))
    assert frame == b"".join(encode_content(content, Smooth(max_error=1e-2)))
    assert np.abs(decode(frame).astype(float) - array).max() <= 1e-2
    assert sum(total for _, total in blocks.values()) & SUM_MASK == array_sum(components(decode(frame))[1])


def test_out_may_be_the_reference() -> None:
    before = FIELD + 0.01 * FIELD**2
    kind, bits = components(FIELD)
    reference = components(before.copy())[1]
    content = Content(bits, kind, (FIELD.shape,), reference)
    frame = b"".join(encode_content(content, Smooth(max_error=1e-3), reference))
    restored = decode(frame, before)
    np.testing.assert_array_equal(reference.view(np.float64).reshape(FIELD.shape), restored)
    own = before.copy()
    decode(frame, own, out=own)
    np.testing.assert_array_equal(own, restored)
    assert len(frame) < len(encode(FIELD, Smooth(max_error=1e-3)))


def test_a_range_is_the_whole_array() -> None:
    frame = memoryview(encode(FIELD, Smooth(max_error=1e-3)))
    out = np.empty(FIELD.size, np.uint64)
    decode_range(frame, slice(0, FIELD.size), None, out)
    np.testing.assert_array_equal(out.view(np.float64).reshape(FIELD.shape), decode(frame))
    with pytest.raises(ArgumentError):
        decode_range(frame, slice(0, 1 << 16), None, out[: 1 << 16])


@pytest.mark.parametrize("relative", [False, True])
def test_few_bytes_do_not_ask_for_much(relative: bool) -> None:
    """The bytes of zeros are padded, and a frame that claims a component more is refused."""
    zeros = np.zeros(1 << 20, np.float16)
    frame = encode(zeros, Smooth(max_error=1.0), zeros if relative else None)
    assert parse_header(frame).relative == relative
    np.testing.assert_array_equal(decode(frame, zeros if relative else None), zeros)
    assert len(frame) == (1 << 20) // MAX_SMOOTH_COMPONENTS
    claimed = sealed(frame[:8] + struct.pack("<Q", (1 << 20) + 1) + frame[16:])
    with pytest.raises(LimitError, match="LCC-LIM-12"):
        decode(claimed, np.zeros((1 << 20) + 1, np.float16))


def test_every_prefix_is_refused() -> None:
    frame = encode(FIELD[:9, :8, :7], Smooth(max_error=1e-2))
    assert parse_header(frame).method_name == "smooth"
    for end in range(len(frame)):
        with pytest.raises(DataError):
            decode(frame[:end])


def stored(numbers: np.ndarray) -> bytes:
    return b"".join(write_numbers(numbers))


@given(st.integers(0, 3000), st.integers(0, 53), st.integers(0, 2**32))
def test_round_trip(count: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 1 << width, count, np.uint64)
    cursor = Cursor(memoryview(stored(numbers)), "here")
    np.testing.assert_array_equal(read_numbers(cursor, count), numbers)
    assert cursor.remaining == 0
    if width <= 8:
        small = numbers.astype(np.uint8)
        found = read_numbers(Cursor(memoryview(stored(small)), "here"), count)
        np.testing.assert_array_equal(found, small)


@pytest.mark.parametrize(
    ("usual", "largest", "bits"),
    [(0, 255, 8), (0, 256, 16), (0, 65_535, 16), (0, 65_536, 32), (100, 2**17 - 1, 32), (0, 2**32, 64)],
)
def test_numbers_take_the_memory_that_the_widest_needs(usual: int, largest: int, bits: int) -> None:
    numbers = np.full(1000, usual, np.uint64)
    numbers[::3] = largest
    found = read_numbers(Cursor(memoryview(stored(numbers)), "here"), 1000)
    assert found.dtype == f"u{bits // 8}"
    np.testing.assert_array_equal(found, numbers)


@pytest.mark.parametrize("scale", [40, 1000, 30_000, 10**7])
def test_near_the_entropy(scale: int) -> None:
    steps = np.rint(np.random.default_rng(0).standard_normal(200_000) * scale).astype(np.int64)
    numbers = zigzag(steps.view(np.uint64), None, is_float=False)
    entropy = np.log2(scale * np.sqrt(2 * np.pi * np.e)) / 8  # of a bell, bytes a number
    assert len(stored(numbers)) < 1.02 * entropy * numbers.size + 500


def test_refused() -> None:
    for head in (0x00, 0x0F, 0x80, 0x18, 0xFF):
        with pytest.raises(FormatError, match="LCC-SMO-07"):
            read_numbers(Cursor(memoryview(bytes([head, *bytes(40)])), "here"), 2)
    whole = stored(np.array([1, 300, 70_000], np.uint64))
    for end in range(len(whole)):
        with pytest.raises(TruncatedError):
            read_numbers(Cursor(memoryview(whole[:end]), "here"), 3)


@given(array_and_reference())
def test_zigzag_is_undone(pair: Pair) -> None:
    array, reference = pair
    kind, x = components(array)
    r = None if reference is None else components(reference)[1]
    out = np.empty_like(x)
    unzigzag(zigzag(x, r, kind.is_float), r, kind.is_float, out)
    np.testing.assert_array_equal(out, x)
    if r is not None:  # in place of the reference
        unzigzag(zigzag(x, r.copy(), kind.is_float), r, kind.is_float, r)
        np.testing.assert_array_equal(r, x)


@pytest.mark.parametrize("name", ALL_DTYPES)
def test_no_reference_is_a_reference_of_zeros(name: str) -> None:
    kind, x = components(random_array(name, (500,), 3, special=0.5))
    np.testing.assert_array_equal(zigzag(x, None, kind.is_float), zigzag(x, np.zeros_like(x), kind.is_float))


@pytest.mark.parametrize("name", REALS)
def test_neighbours_differ_by_one(name: str) -> None:
    dtype = dtype_of(name)
    kind, _ = components(np.zeros(1, dtype))
    one = np.ones(1, dtype).view(kind.bits)
    for pattern in (one, one | kind.bits.type(1 << (8 * kind.size - 1))):  # 1.0 and -1.0
        others, same = np.concatenate([pattern + 1, pattern - 1]), np.concatenate([pattern, pattern])
        steps = zigzag(others, same, kind.is_float)
        assert sorted(steps.tolist()) == [1, 2]
    zeros = np.array([0.0, -0.0], dtype).view(kind.bits)
    assert zigzag(zeros[1:], zeros[:1], kind.is_float).tolist() == [1]  # -0.0 comes right before +0.0


@given(st.integers(1, 8), st.integers(0, 100), st.integers(0, 2**32))
def test_unpack_is_the_inverse_of_pack(width: int, count: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 1 << width, count).astype(np.uint8)
    packed = pack(values, width)
    assert packed.dtype == np.uint8
    assert packed.size == packed_size(count, width)
    np.testing.assert_array_equal(unpack(packed.tobytes(), count, width), values)


@given(st.integers(1, 8), st.integers(1, 40), st.integers(0, 2**32))
def test_the_first_value_lies_in_the_lowest_bits(width: int, count: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 1 << width, count).astype(np.uint8)
    number = sum(int(v) << (width * i) for i, v in enumerate(values))
    assert pack(values, width).tobytes() == number.to_bytes(packed_size(count, width), "little")


def test_cursor_reads_in_order_and_stops_at_the_end() -> None:
    cursor = Cursor(memoryview(b"\x01\x02\x03\x00\x00\x00abc"), "here")
    assert cursor.integer("H", "a number") == 0x0201
    assert cursor.integer("I", "another") == 3
    assert bytes(cursor.take(2, "letters")) == b"ab"
    assert cursor.remaining == 1
    with pytest.raises(TruncatedError, match=r"here: letters takes 2 bytes at 8, 1 left \[LCC-FRM-02\]"):
        cursor.take(2, "letters")
    with pytest.raises(TruncatedError, match="here: letters takes 2 bytes at 8, 1 left"):
        cursor.skip(2, "letters")
    cursor.skip(1, "a letter")
    assert cursor.remaining == 0


@given(st.sampled_from([2, 4]), st.binary(max_size=60))
def test_both_forms_pack_the_same(width: int, data: bytes) -> None:
    packed = np.frombuffer(data, np.uint8)
    values = runs._part_numpy(packed, width)
    for part in (runs._part_loop, runs._part):
        assert part(packed, width).tolist() == values.tolist()
    for join in (runs._join_numpy, runs._join_loop, runs._join):
        assert join(values, width).tolist() == packed.tolist()
