from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.cursor import Cursor
from lccodec.entropy import bits
from lccodec.entropy.bits import pack, packed_size, unpack
from lccodec.errors import TruncatedError


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
def test_forms(width: int, data: bytes) -> None:
    packed = np.frombuffer(data, np.uint8)
    values = bits._part_numpy(packed, width)
    for part in (bits._part_loop, bits._part):
        assert part(packed, width).tolist() == values.tolist()
    for join in (bits._join_numpy, bits._join_loop, bits._join):
        assert join(values, width).tolist() == packed.tolist()
