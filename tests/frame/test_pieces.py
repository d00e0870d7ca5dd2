"""Blocks of frames: how many there are, which holds a component, and where they begin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.constants import METHOD_CODEBOOK, METHOD_PLANES, METHOD_RAW, METHOD_SMOOTH
from lccodec.element_table import ELEMENT_TYPES
from lccodec.errors import FormatError
from lccodec.frame.header import FrameHeader, parse_header
from lccodec.frame.pieces import block_count, block_number, block_starts, blocks_of, head_size, whole_blocks
from lccodec.frame.smooth import block_shapes

SINGLE = next(kind for kind in ELEMENT_TYPES if kind.name == "float32")
SHAPES = st.lists(st.integers(1, 90), min_size=1, max_size=3).map(tuple)


@given(SHAPES, st.sampled_from([METHOD_PLANES, METHOD_SMOOTH]), st.integers(10, 14))
def test_blocks_are_numbered_in_their_order(shape: tuple[int, ...], method: int, log2: int) -> None:
    header = FrameHeader(method, SINGLE, False, (shape,), log2)
    sizes = [int(np.prod(each)) for each in block_shapes(shape, log2, 0)]
    if method == METHOD_PLANES:
        sizes = [min(1 << log2, header.components - i) for i in range(0, header.components, 1 << log2)]
    assert block_count(header) == len(sizes)
    start = 0
    for number, size in enumerate(sizes):
        for component in {start, start + size - 1}:
            assert block_number(header, component) == number
            assert whole_blocks(header, component, component + 1) == (start, start + size)
        if method == METHOD_SMOOTH:
            assert [int(np.prod(each)) for each in block_shapes(shape, log2, start)] == sizes[number:]
        start += size


def test_nothing_has_no_blocks() -> None:
    for method in (METHOD_RAW, METHOD_PLANES, METHOD_CODEBOOK):
        assert block_count(FrameHeader(method, SINGLE, False, ((0, 3),), 10 * (method != METHOD_RAW))) == 0


def test_the_head_of_a_run_has_all_codebooks() -> None:
    frame = lccodec.encode(np.ones(100, np.float32), lccodec.ExponentBuckets(2))
    header = parse_header(frame)
    [start] = block_starts(memoryview(frame)[head_size(memoryview(frame), header) :], header, 1, last=True)
    assert start == 0
    with pytest.raises(FormatError, match="not 1 whole blocks"):
        block_starts(memoryview(frame)[head_size(memoryview(frame), header) :], header, 1, last=False)
    with pytest.raises(FormatError, match="not 3 whole blocks"):
        block_starts(memoryview(frame)[:6], header, 3, last=True)


def test_the_blocks_of_a_part_of_a_field_end_with_it() -> None:
    header = FrameHeader(METHOD_SMOOTH, SINGLE, True, ((2, 70_000),), 16)
    found = [(start, length) for start, length, _ in blocks_of(header, 35_000, 105_000)]
    assert found == [(35_000, 35_000), (70_000, 35_000)]
