"""What arrays need, and ranges of an array: together they are the array, and damage is found."""

import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import Chain, DataError, ExponentBuckets, LogSteps, Lossless, UniformDeadzone
from lccodec.chain.read.checkpoint import open_path
from lccodec.chain.read.replay import Ranges, decoded_together, frames_of, replay
from lccodec.constants import METHOD_RAW, PAYLOAD_OFFSET
from lccodec.container.manifest import COPY_TYPES
from lccodec.element_types import Array, components, narrow
from lccodec.errors import ChecksumError
from lccodec.frame.content import Content
from lccodec.frame.encode import RawFrame
from lccodec.frame.header import FrameHeader
from lccodec.parallel import PIECE

from ...support.directories import entries
from ...support.links import FakeLink, drift, linked, links_of
from ...support.profiles import examples
from ...support.strategies import ALL_DTYPES, bits_of, dtype_of, installed, random_array
from ...support.tuning import tune, tuned
from ...support.walks import save_all

HALF, BRAIN = COPY_TYPES[9], COPY_TYPES[10]
BLOCK = PIECE  # the smallest that the encoder can write
BLOCK_LOG2 = BLOCK.bit_length() - 1
LARGE = 2 * BLOCK + 1500
QUANTIZERS = [Lossless(), ExponentBuckets(2), UniformDeadzone(relative_step=1), LogSteps(0.5)]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, block_log2=BLOCK_LOG2)


def put_together(ranges: Ranges, count: int) -> Array:
    """Decode an array as so many processes would: each verifies some of the frames."""
    out = np.full(ranges.header.components, 7, ranges.header.kind.bits)
    parts = ranges.cut(count)
    sums = [
        ranges.decode(part, out[part], range(number, len(ranges.frames), len(parts)))
        for number, part in enumerate(parts)
    ]
    ranges.check(sums)
    return out


@pytest.mark.parametrize("quantizer", QUANTIZERS)
@pytest.mark.parametrize("name", installed(ALL_DTYPES))
def test_ranges_are_the_array(name: str, quantizer: Any) -> None:
    states = [{"w": random_array(name, (LARGE,), 0)}]
    for step in range(3):
        moved = random_array("bool", (LARGE,), step)
        other = random_array(name, (LARGE,), step + 1)
        states.append({"w": np.where(moved, other, states[-1]["w"]).astype(dtype_of(name))})
    links, decoded = links_of(states, quantizer)
    for count in (2, 5):
        ranges = Ranges.of(links, "w")
        assert ranges is not None
        found = put_together(ranges, count)
        np.testing.assert_array_equal(bits_of(found), bits_of(decoded[-1]["w"]))


def test_the_links_that_are_not_needed() -> None:
    """Links that leave the array unchanged, and those before its last frame without a reference."""
    (first, second, third) = (state["w0"] for state in drift(3, ((LARGE,),)))
    links, decoded = links_of([{"w": first}, {"w": first}, {"w": second}, {"w": third}], ExponentBuckets(3))
    ranges = Ranges.of(links, "w")
    assert ranges is not None
    assert [link.place for link, _ in ranges.frames] == ["step 0", "step 2", "step 3"]
    np.testing.assert_array_equal(put_together(ranges, 3), decoded[-1]["w"].view("u4"))


@given(st.integers(1, 1 << 20), st.integers(1, 40))
def test_the_cut(size: int, count: int) -> None:
    header = FrameHeader(METHOD_RAW, lccodec.element_types.ELEMENT_TYPES[0], False, ((size,),), 0)
    parts = Ranges("w", [], header, BLOCK).cut(count)
    assert 1 <= len(parts) <= count
    assert parts[0].start == 0
    assert parts[-1].stop == size
    assert all(a.stop == b.start for a, b in pairwise(parts))
    blocks = [-(-(part.stop - part.start) // BLOCK) for part in parts]
    assert max(blocks) - min(blocks) <= 1


def raw_link(name: str, array: np.ndarray) -> FakeLink:
    """A link as an exact file has it: a raw frame of any size."""
    kind, bits = components(array)
    header = FrameHeader(METHOD_RAW, kind, False, (array.shape,), 0)
    frame = RawFrame(header, lambda: Content(bits, kind, (array.shape,)))
    return FakeLink({name: 0}, [b"".join(frame.chunks())])


def test_raw_values() -> None:
    first, second = drift(2, ((LARGE,),))
    link = raw_link("w0", first["w0"])
    ranges = Ranges.of([link], "w0")
    assert ranges is not None
    assert ranges.header.method == METHOD_RAW
    np.testing.assert_array_equal(put_together(ranges, 3), first["w0"].view("u4"))
    links, decoded = links_of([first, second], Lossless())
    ranges = Ranges.of(linked(link, links[1]), "w0")
    assert ranges is not None
    np.testing.assert_array_equal(put_together(ranges, 3), decoded[1]["w0"].view("u4"))


def test_arrays_that_must_be_decoded_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    states = drift(2, ((30,), (40,), (LARGE,), (0,)))
    links, _ = links_of(states, ExponentBuckets(3))
    assert Ranges.of(links, "w0") is None  # in a run
    assert Ranges.of(links, "w3") is None  # empty
    assert Ranges.of(links, "w2") is not None
    tune(monkeypatch, block_log2=BLOCK_LOG2 + 1)
    other, _ = links_of(states, ExponentBuckets(3))
    assert Ranges.of(linked(links[0], other[1]), "w2") is None  # blocks of two sizes
    ranges = Ranges.of(linked(raw_link("w2", states[0]["w2"]), other[1]), "w2")
    assert ranges is not None
    assert ranges.block == 2 * BLOCK
    shorter, _ = links_of(drift(2, ((30,), (40,), (LARGE - 1,))), ExponentBuckets(3))
    assert Ranges.of(linked(shorter[0], links[1]), "w2") is None  # an error if it is decoded whole
    with pytest.raises(DataError, match="needs a parent"):
        Ranges.of(linked(*links[1:]), "w2")


@pytest.mark.slow
@given(st.integers(0, 2), st.integers(0, 1 << 20), st.integers(1, 255), st.integers(1, 4))
@examples(2)
def test_damage_is_found_as_in_the_whole(link: int, place: int, value: int, count: int) -> None:
    """Behind right digests, only by CRC, sum and the rules."""
    with tuned(block_log2=BLOCK_LOG2):
        links, _ = links_of(drift(3, ((LARGE,),)), ExponentBuckets(3))
    frame = bytearray(links[link].frames[0])
    frame[place % len(frame)] ^= value
    links[link].frames[0] = bytes(frame)

    def found(decode: Callable[[], object]) -> bool:
        try:
            decode()
        except DataError as error:
            assert error.where.startswith((f"step {link}", "step 2", "frame"))
            return True
        return False

    def divided() -> None:
        if (ranges := Ranges.of(links, "w0")) is None:
            raise DataError("LCC", "frame", "decoded whole")
        put_together(ranges, count)

    assert found(lambda: list(replay(links, [0])))
    assert found(divided)


def test_a_wrong_value_of_an_older_link_is_in_the_sum() -> None:
    """Only the sum of the newest frame is checked: it shows what is wrong in older ones."""
    states = drift(3, ((LARGE,),))
    links, _ = links_of(states, ExponentBuckets(3))
    other, _ = links_of([states[0], {"w0": states[1]["w0"] * 2}], ExponentBuckets(3))
    ranges = Ranges.of(linked(links[0], other[1], links[2]), "w0")
    assert ranges is not None
    with pytest.raises(ChecksumError, match="step 2: array 'w0'"):
        put_together(ranges, 2)


@pytest.mark.slow
def test_every_damaged_byte_of_files_is_found(tmp_path: Path) -> None:
    """The digests are checked once, by one range or another."""
    states = drift(3, ((LARGE,),))
    chain = Chain(tmp_path, "lc-3", roles={"w0": "weight"}, newest="history")
    save_all(chain, states)
    expected = chain.restore()["w0"]
    for path in entries(tmp_path):
        sound = path.read_bytes()
        with open_path(path) as file:
            length = file.links[-1].reader.trailer.payload_length
        for place in range(PAYLOAD_OFFSET, PAYLOAD_OFFSET + length, length // 7):
            data = bytearray(sound)
            data[place] ^= 1
            path.write_bytes(data)
            with pytest.raises(DataError), open_path(tmp_path / "000000000002.lcc.h5") as file:
                ranges = Ranges.of(file.links, "w0")
                assert ranges is not None
                put_together(ranges, 3)
        path.write_bytes(sound)
    with open_path(tmp_path / "000000000002.lcc.h5") as file:
        ranges = Ranges.of(file.links, "w0")
        assert ranges is not None
        np.testing.assert_array_equal(put_together(ranges, 3), expected.view("u4"))


def test_links_without_a_frame_of_that_name() -> None:
    links = linked(FakeLink({"v": 0}, [b""]), FakeLink({"w": None}, []))
    with pytest.raises(DataError, match="has no such array"):
        Ranges.of(links, "w")


def test_what_is_decoded_together() -> None:
    """Arrays that share a frame of some link, directly or through others, whatever their order."""
    first = FakeLink({"a": 0, "b": 0, "c": 1, "gone": 1, "d": 2, "e": 3}, [b""] * 4)
    second = FakeLink({"c": 0, "a": None, "b": None, "gone": 0, "e": 1, "d": None}, [b""] * 2)
    third = FakeLink({"e": 0, "d": 1, "b": 2, "a": 3, "c": 3}, [b""] * 4)
    together = decoded_together([first, second, third])
    names = [[third.index_names[index] for index in group] for group in together]
    assert names == [["e"], ["d"], *[["b", "a", "c"]] * 3]
    assert together[2] is together[3] is together[4]
    assert decoded_together([first])[2] == [2, 3]
    assert [len(group) for group in decoded_together([third])] == [1, 1, 1, 2, 2]


def test_a_copy_is_decoded_with_its_source() -> None:
    first = FakeLink({"a": 0, "c": None, "b": 1, "d": 2}, [b""] * 3, copies={"c": ("b", HALF)})
    second = FakeLink({"d": None, "c": 0, "b": 1, "a": 2}, [b""] * 3, copies={"d": ("a", BRAIN)})
    third = FakeLink({"a": None, "b": None, "c": None, "d": None}, [])
    assert decoded_together([first]) == [[0], [1, 2], [1, 2], [3]]
    assert decoded_together([first, second, third]) == [[0, 3], [1, 2], [1, 2], [0, 3]]


def test_the_frames_of_an_array() -> None:
    links, _ = links_of(drift(3, ((300,), (20,))), lccodec.Lossless())
    assert frames_of(links, "w0") == [(link, 0) for link in links]
    links[1].numbers["w1"] = None
    links[1].copies["w1"] = ("w0", BRAIN)
    links[2].numbers["w1"] = None
    assert frames_of(links, "w1") == [(links[0], 0), (links[1], 0)]


def test_the_sum_of_a_source_is_checked() -> None:
    """Its values are needed by the copy alone: no other sum would show that they are wrong."""
    values = np.arange(300, dtype=np.float32)
    frame = lccodec.encode(values, lccodec.Lossless())
    wrong = bytearray(frame)
    wrong[-12] ^= 1
    wrong[-4:] = zlib.crc32(wrong[:-4]).to_bytes(4, "little")
    newer = lccodec.encode(-values, lccodec.Lossless())
    for own, copies in ((frame, True), (bytes(wrong), False)):
        links = linked(
            FakeLink({"c": None, "w": 0}, [own], copies={"c": ("w", BRAIN)}),
            FakeLink({"c": None, "w": 0}, [newer]),
        )
        ((_, found),) = replay(links, [1])
        np.testing.assert_array_equal(found.array(), -values)
        if copies:
            ((_, found),) = replay(links, [0])
            np.testing.assert_array_equal(found.bits, narrow(values))
            both = dict(replay(links, [1, 0]))
            np.testing.assert_array_equal(both[0].bits, narrow(values))
            np.testing.assert_array_equal(both[1].array(), -values)
            memory = np.zeros(300, np.uint16)
            ((_, found),) = replay(links, [0], into={0: memory})
            assert found.bits is memory
        else:
            for wanted in ([0], [1, 0]):
                with pytest.raises(ChecksumError, match="LCC-FRM-09"):
                    list(replay(links, wanted))
