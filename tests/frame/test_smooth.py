"""Smooth frames: blocks of rows, sums of parts, arrays that change, limits of hostile bytes."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import LimitError, Smooth, decode, encode
from lccodec.constants import MAX_SMOOTH_COMPONENTS
from lccodec.element_types import components
from lccodec.errors import ArgumentError, DataError
from lccodec.frame import smooth
from lccodec.frame.content import SUM_MASK, Content, array_sum
from lccodec.frame.decode import decode_range
from lccodec.frame.encode import FrameCoder, encode_content
from lccodec.frame.header import block_shapes, parse_header

from ..support.frames import sealed

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
