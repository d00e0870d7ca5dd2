"""Entries of frames, and tables of pieces: a piece is verified without the rest."""

import struct
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.constants import METHOD_RAW, PIECE_ENTRY_SIZE
from lccodec.container.piece_table import (
    FrameEntry,
    FrameHasher,
    PieceTable,
    chunks_of,
    hashed,
    hashed_beside,
)
from lccodec.element_types import components
from lccodec.errors import ChecksumError, DataError, FormatError
from lccodec.frame.content import Content
from lccodec.frame.decode import decode_range
from lccodec.frame.encode import RawFrame
from lccodec.frame.header import FrameHeader, block_count, head_size, parse_header, raw_pieces, whole_blocks
from lccodec.parallel import PIECE

from ..support.tuning import tune

BLOCK_LOG2 = PIECE.bit_length() - 1
SIZE = 3 * PIECE + 1000


def values(dtype: str = "f4", size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(size).astype(dtype)


def raw_frame(array: np.ndarray) -> tuple[RawFrame, bytes]:
    kind, bits = components(array)
    header = FrameHeader(METHOD_RAW, kind, False, (array.shape,), 0)
    frame = RawFrame(header, lambda: Content(bits, kind, (array.shape,)))
    return frame, b"".join(frame.chunks())


FRAMES: dict[str, Callable[[], bytes]] = {
    "planes": lambda: lccodec.encode(values(), "lossless"),
    "codebook": lambda: lccodec.encode(values(), lccodec.ExponentBuckets(3)),
    "wide": lambda: lccodec.encode(values(), lccodec.UniformDeadzone(max_error=1e-3)),
    "few bytes": lambda: lccodec.encode(np.zeros(SIZE, np.float32), "lossless"),
    "raw": lambda: raw_frame(values("f8"))[1],
    "smooth": lambda: lccodec.encode(
        values().reshape(-1, 8).cumsum(axis=0, dtype="f4"), lccodec.Smooth(max_error=0.01)
    ),
}


@pytest.fixture(scope="module", params=FRAMES)
def frame(request: pytest.FixtureRequest) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        tune(patch, block_log2=BLOCK_LOG2)
        patch.setattr("lccodec.frame.smooth.MAX_SMOOTH_BLOCK_LOG2", BLOCK_LOG2)
        return FRAMES[request.param]()


@cache
def decoded(frame: bytes) -> np.ndarray:
    return lccodec.decode(frame).reshape(-1)


def parsed(frame: bytes) -> PieceTable:
    return PieceTable.parse(hashed(frame)[1], len(frame), "here")


def test_a_table_has_all_blocks(frame: bytes) -> None:
    header = parse_header(frame)
    entry, data = hashed(frame)
    assert entry == FrameEntry(len(frame), sha256(data).digest()[:16], len(data))
    table = parsed(frame)
    assert table.pieces[0].length == head_size(memoryview(frame), header)
    assert sum(piece.blocks for piece in table.pieces) == block_count(header) > 1
    for start, piece in zip(table.starts, table.pieces, strict=True):
        assert piece.digest == sha256(frame[start : start + piece.length]).digest()[:16]
    table.verify(memoryview(frame), "here")
    table.check(memoryview(frame), header)
    assert len(data) <= 3 * PIECE_ENTRY_SIZE + len(frame) // 100


@given(data=st.data())
def test_however_the_bytes_come(frame: bytes, data: st.DataObject) -> None:
    begin = st.integers(0, 200) | st.integers(0, len(frame))
    ends = sorted({0, *data.draw(st.lists(begin, max_size=12)), len(frame)})
    chunks = [frame[a:b] for a, b in pairwise(ends)]
    assert hashed(chunks) == hashed_beside(iter(chunks)) == hashed(frame)
    hasher = FrameHasher()
    for each in frame[:300]:
        hasher.update(bytes([each]))
    hasher.update(frame[300:])
    assert hasher.finish() == hashed(frame)


@given(st.binary(max_size=100))
def test_what_is_no_frame_is_one_piece(data: bytes) -> None:
    assert hashed(data) == (FrameEntry(len(data), sha256(data).digest()[:16]), b"")
    assert hashed([data[:5], data[5:]]) == hashed(data)


def test_frames_of_one_block_have_no_table() -> None:
    for array in (values(size=100), values(size=PIECE), np.zeros(0), np.float64(3)):
        assert hashed(lccodec.encode(np.asarray(array), "lossless"))[1] == b""
    assert hashed(raw_frame(values(size=PIECE))[1])[1] == b""


@pytest.mark.parametrize("dtype", ["u1", "f4", "f8"])
@pytest.mark.parametrize("size", [1000, PIECE, 9 * PIECE, 9 * PIECE + 1])
def test_how_long_the_table_of_a_raw_frame_is(dtype: str, size: int) -> None:
    """It is known before the frame is made: so several can be written at once."""
    frame, data = raw_frame(values(dtype, size))
    assert len(hashed(data)[1]) == frame.table_pieces * PIECE_ENTRY_SIZE
    assert frame.table_pieces == raw_pieces(parse_header(data))


@given(data=st.data())
def test_a_part_is_read_alone(frame: bytes, data: st.DataObject) -> None:
    header, read = parse_header(frame), list[int]()

    def bytes_of(start: int, size: int) -> bytes:
        read.append(size)
        return frame[start : start + size]

    start = data.draw(st.integers(0, header.components - 1))
    stop = data.draw(st.integers(start + 1, min(start + 2000, header.components)))
    start, stop = whole_blocks(header, start, stop)
    part = parsed(frame).part(bytes_of, header, start, stop, "here")
    found = decode_range(part, slice(start, stop), None, check_crc=False, begin=(part.component, part.offset))
    whole = decoded(frame).view(found.dtype)
    np.testing.assert_array_equal(found, whole[start:stop])
    most = max(piece.length for piece in parsed(frame).pieces)
    assert sum(read) <= parsed(frame).pieces[0].length + 2 * most
    with pytest.raises(FormatError, match="are not in the pieces"):
        part[0 : len(frame)]


@pytest.mark.parametrize("threads", [1, 3])
def test_damage_of_a_piece_is_found_where_it_is(
    frame: bytes, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(monkeypatch, piece_task_bytes=1 << 10)  # several tasks
    header, table = parse_header(frame), parsed(frame)
    last = len(table.pieces) - 1
    data = bytearray(frame)
    data[table.starts[last] + 5] ^= 1
    if last > 1:
        first = whole_blocks(header, 0, 1)
        table.part(lambda at, size: bytes(data[at : at + size]), header, *first, "here")
    end = whole_blocks(header, header.components - 1, header.components)
    with pytest.raises(ChecksumError, match=f"here: piece {last} does not match"):
        table.part(lambda at, size: bytes(data[at : at + size]), header, *end, "here")
    with pytest.raises(ChecksumError, match=f"piece {last}"):
        table.verify(memoryview(data), "here", threads)
    table.verify(memoryview(frame), "here", threads)


@pytest.mark.parametrize(("start", "stop"), [(0, SIZE + 1), (SIZE, SIZE), (2 * SIZE, 2 * SIZE + 1), (-1, 5)])
def test_components_that_a_frame_does_not_have(
    start: int, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(monkeypatch, block_log2=BLOCK_LOG2)
    data = lccodec.encode(values(), "lossless")
    with pytest.raises(FormatError, match=f"components {start} to {stop} of {SIZE}") as caught:
        parsed(data).holding(parse_header(data), start, stop)
    assert caught.value.rule == "LCC-PCS-03"


def cut_anew(frame: bytes, *pieces: tuple[int, int]) -> bytes:
    """A table with right digests of pieces, given by blocks and length."""
    ends = accumulate((length for _, length in pieces), initial=0)
    parts = [frame[start : start + length] for start, (_, length) in zip(ends, pieces, strict=False)]
    return b"".join(
        struct.pack("<IQ16s", blocks, len(part), sha256(part).digest()[:16])
        for (blocks, _), part in zip(pieces, parts, strict=True)
    )


@pytest.mark.parametrize("size", [0, 1, 15, 17, 18, 40])
def test_a_first_piece_that_ends_within_the_codebook(size: int) -> None:
    data = lccodec.encode(values(size=PIECE), lccodec.ExponentBuckets(3))
    header = parse_header(data)
    table = PieceTable.parse(cut_anew(data, (0, size), (1, len(data) - size)), len(data), "here")
    with pytest.raises(FormatError, match="does not end at the first block") as whole:
        table.check(memoryview(data), header)
    with pytest.raises(FormatError, match="does not end at the first block") as part:
        table.part(lambda at, size: data[at : at + size], header, 0, PIECE, "here")
    assert whole.value.rule == part.value.rule == "LCC-PCS-03"


#: What a field of a table becomes.
CHANGES: dict[str, Callable[[int], int]] = {
    "0": lambda _: 0,
    "1": lambda _: 1,
    "less": lambda old: max(old - 1, 0),
    "more": lambda old: min(old + 1, 2**32 - 1),
    "most": lambda _: 2**32 - 1,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("field", "form"), [(0, "<I"), (4, "<Q")])
def test_any_table_is_read_or_refused(frame: bytes, change: str, field: int, form: str) -> None:
    header, sound = parse_header(frame), hashed(frame)[1]
    for place in range(0, min(len(sound), 4 * PIECE_ENTRY_SIZE), PIECE_ENTRY_SIZE):
        table = bytearray(sound)
        (old,) = struct.unpack_from(form, table, place + field)
        struct.pack_into(form, table, place + field, CHANGES[change](old))
        for start in (0, header.components // 2, header.components - 1):
            part = whole_blocks(header, start, start + 1)
            try:
                found = PieceTable.parse(bytes(table), len(frame), "here")
                found.part(lambda at, size: frame[at : at + size], header, *part, "here")
            except DataError as error:
                assert error.rule in ("LCC-PCS-01", "LCC-PCS-02", "LCC-PCS-03")
            else:
                assert table == sound


def test_the_frame_in_a_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, block_log2=BLOCK_LOG2)
    array = values(size=400_000).reshape(-1, 100)
    lccodec.save_file({"w": array}, tmp_path / "one.lcc.h5")
    assert lccodec.save({"w": array}) == (tmp_path / "one.lcc.h5").read_bytes()
    with lccodec.open(tmp_path / "one.lcc.h5") as file:
        np.testing.assert_array_equal(file.get("w", rows=slice(3000, 3010)), array[3000:3010])
        np.testing.assert_array_equal(file.get("w"), array)
    assert lccodec.validate(tmp_path / "one.lcc.h5", deep=True) == []


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_length_and_digest(chunks: list[bytes]) -> None:
    data = b"".join(chunks)
    expected = FrameEntry(len(data), sha256(data).digest()[:16]), b""
    assert hashed(data) == hashed(chunks) == hashed(memoryview(data)) == expected


def test_a_whole_frame_is_one_chunk() -> None:
    assert chunks_of(b"ab") == (b"ab",)
    assert chunks_of([b"a", b"b"]) == [b"a", b"b"]
