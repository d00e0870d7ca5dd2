from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from lccodec import ChainError, ChecksumError, ExponentBuckets, FormatError, Lossless
from lccodec.chain import DecodedArray, array_header, encode_array, replay, wants_keyframe


@dataclass
class FakeLink:
    """A checkpoint in memory: a frame or None by name, in order."""

    frames: dict[str, bytes | None]
    place: str = "link"
    index_names: list[str] = field(init=False)
    names: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.index_names = list(self.frames)
        self.names = {name: index for index, name in enumerate(self.frames)}

    def has_frame(self, index: int) -> bool:
        return self.frames[self.index_names[index]] is not None

    def frame(self, index: int) -> bytes:
        frame = self.frames[self.index_names[index]]
        assert frame is not None
        return frame

    def frame_head(self, index: int, size: int) -> bytes:
        return self.frame(index)[:size]


def walk(steps: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return list(np.cumsum(rng.standard_normal((steps, 300)).astype(np.float32), axis=0))


def links_of(arrays: list[np.ndarray], quantizer: object) -> tuple[list[FakeLink], list[np.ndarray]]:
    """A chain of one array, and what the writer has as decoded after each step."""
    links, decoded = [], []
    parent: DecodedArray | None = None
    for step, array in enumerate(arrays):
        frame, parent = encode_array(array, quantizer, parent, keyframe=step == 0)  # type: ignore[arg-type]
        links.append(FakeLink({"w": None if frame is None else b"".join(frame)}, f"step {step}"))
        decoded.append(parent.array().copy())
    return links, decoded


@pytest.mark.parametrize("quantizer", [Lossless(), ExponentBuckets(2)])
def test_replay_gives_what_the_writer_had(quantizer: object) -> None:
    links, decoded = links_of(walk(6), quantizer)
    for step in range(6):
        np.testing.assert_array_equal(replay(links[: step + 1], 0).array(), decoded[step])


def test_an_array_that_did_not_change_has_no_frame() -> None:
    array = walk(1)[0]
    links, _ = links_of([array, array, array + 1, array + 1], Lossless())
    assert [link.has_frame(0) for link in links] == [True, False, True, False]
    np.testing.assert_array_equal(replay(links, 0).array(), array + 1)
    assert array_header(links[:2], 0).shape == (300,)


def test_arrays_are_found_by_name() -> None:
    first, second = walk(2)
    links, _ = links_of([first, second], Lossless())
    other = links_of([second], Lossless())[0][0].frames["w"]
    links[0] = FakeLink({"new": other, "w": links[0].frames["w"]})
    np.testing.assert_array_equal(replay(links, 0).array(), second)


def test_a_new_shape_or_dtype_is_stored_anew() -> None:
    links, _ = links_of([np.zeros(3), np.zeros(4), np.zeros(4, np.float32)], ExponentBuckets(3))
    assert [replay(links[: n + 1], 0).array().shape for n in range(3)] == [(3,), (4,), (4,)]
    assert not array_header(links, 0).relative


def test_what_a_chain_lacks_is_named() -> None:
    links, _ = links_of(walk(3), Lossless())
    with pytest.raises(FormatError, match="step 2: array 'w': a keyframe's array needs a parent"):
        replay(links[2:], 0)
    with pytest.raises(ChainError, match="step 2: array 'w': link, its parent, has no such array"):
        replay([links[0], FakeLink({"v": None}), links[2]], 0)
    with pytest.raises(ChecksumError, match="step 2: array 'w'"):
        replay([links[0], links[2]], 0)


def test_keyframe_rule() -> None:
    assert not wants_keyframe(31, 10, 10, 32)
    assert wants_keyframe(32, 0, 10, 32)
    assert wants_keyframe(1, 11, 10, 32)
    assert wants_keyframe(0, 0, 10, 0)
