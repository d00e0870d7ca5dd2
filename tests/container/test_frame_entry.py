"""The entry of a frame that is not cut."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from lccodec.container.frame_entry import FrameEntry, chunks_of


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_length_and_digest(chunks: list[bytes]) -> None:
    data = b"".join(chunks)
    expected = FrameEntry(len(data), sha256(data).digest()[:16])
    assert FrameEntry.of(data) == FrameEntry.of(chunks) == FrameEntry.of(memoryview(data)) == expected


def test_a_whole_frame_is_one_chunk() -> None:
    assert chunks_of(b"ab") == (b"ab",)
    assert chunks_of([b"a", b"b"]) == [b"a", b"b"]
