"""What a frame tells of what it changes of its reference."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.element_types import components
from lccodec.entropy.stream_reader import finish
from lccodec.errors import ChecksumError, DataError, FormatError, LimitError
from lccodec.frame import planes
from lccodec.frame.content import array_sum
from lccodec.frame.decode import Changed, changed, decode_components, may_tell
from lccodec.frame.encode import MAX_BLOCK_COMPONENTS
from lccodec.frame.header import parse_header

from ..support.frames import sealed
from ..support.strategies import FLOATS, INTEGERS, installed, random_array
from ..support.tuning import tune


def told(frame: bytes, reference: np.ndarray) -> tuple[Changed | None, np.ndarray]:
    """What a frame says that it changes, and the components that it decodes to."""
    stored, before = memoryview(frame), components(reference)[1]
    bits = decode_components(stored, before)
    if not may_tell(parse_header(stored)):
        return None, bits
    return finish(changed(stored, before, array_sum(before))), bits


@given(
    st.sampled_from(installed([name for name in FLOATS + INTEGERS if name != "bool"])),
    st.integers(0, 20_000),
    st.sampled_from([0.0, 0.001, 0.02, 0.3, 1.0]),
    st.integers(0, 2**32),
)
def test_it_is_where_they_differ_or_unknown(name: str, size: int, share: float, seed: int) -> None:
    reference = random_array(name, (size,), seed)
    chosen = np.random.default_rng(seed).random(size) < share
    array = np.where(chosen, random_array(name, (size,), seed + 1), reference).astype(reference.dtype)
    frame = lccodec.encode(array, lccodec.Lossless(), reference=reference)
    found, bits = told(frame, reference)
    if found is not None:
        np.testing.assert_array_equal(found.places, np.flatnonzero(bits != components(reference)[1]))
        np.testing.assert_array_equal(found.bits, bits[found.places])
        assert found.total == array_sum(bits)
    else:
        assert share > 0.001 or size < 5000 or name.startswith("complex")  # places are of elements


def test_places_of_several_blocks() -> None:
    reference = np.zeros(2 * MAX_BLOCK_COMPONENTS + 9, np.uint8)
    array = reference.copy()
    places = [3, MAX_BLOCK_COMPONENTS, 2 * MAX_BLOCK_COMPONENTS + 8]
    array[places] = 7, 1, 255
    found, _ = told(lccodec.encode(array, lccodec.Lossless(), reference=reference), reference)
    assert found is not None
    assert found.places.tolist() == places
    assert found.bits.tolist() == [7, 1, 255]


def frame_of(reference: np.ndarray, places: Any, step: int) -> bytes:
    """The exact frame of an array that differs from its reference at some places."""
    array = reference.copy()
    array[places] += step
    return lccodec.encode(array, lccodec.Lossless(), reference=reference)


def test_other_frames_do_not_tell() -> None:
    rng = np.random.default_rng(0)
    zeros, noise = np.zeros(5000), rng.standard_normal(5000)
    for frame in (
        lccodec.encode(zeros, lccodec.Lossless()),  # without a reference
        lccodec.encode(noise, lccodec.UniformDeadzone(step=1.0), reference=zeros),  # a codebook
        lccodec.encode(noise, lccodec.Lossless(), reference=zeros),  # all differ
        lccodec.encode(rng.integers(0, 2**64, 5000, np.uint64).view("f8"), lccodec.Lossless()),  # raw
    ):
        assert told(frame, zeros)[0] is None


def test_another_reference_is_an_error() -> None:
    reference = np.arange(20_000, dtype=np.uint16)
    frame = memoryview(frame_of(reference, slice(None, None, 100), 1))
    for place in (0, 7):  # that the frame changes, and that it does not
        other = reference.copy()
        other[place] += 3
        with pytest.raises(ChecksumError, match="LCC-FRM-09"):
            finish(changed(frame, other, array_sum(other)))


def test_damage_is_an_error_or_the_same_changes() -> None:
    reference = np.arange(20_000, dtype=np.uint16)
    frame = frame_of(reference, slice(None, None, 50), 300)
    for place in range(parse_header(memoryview(frame)).size, len(frame) - 4, 7):
        wrong = bytearray(frame)
        wrong[place] ^= 0x11
        try:
            found = finish(changed(memoryview(sealed(wrong)), reference, array_sum(reference)))
        except DataError:  # the array sum is wrong, if nothing else
            continue
        assert found is None  # it seems to have a whole plane


def test_bytes_left_over_are_an_error() -> None:
    reference = np.zeros(20_000, np.uint8)
    frame = frame_of(reference, 5, 1)
    size = parse_header(memoryview(frame)).size
    block = int.from_bytes(frame[size : size + 4], "little")
    longer = frame[:size] + (block + 1).to_bytes(4, "little") + frame[size + 4 : -12] + b"\0" + frame[-12:]
    for wrong in (longer, frame[:-12] + b"\0" + frame[-12:]):
        with pytest.raises(FormatError, match="LCC-FRM-07"):
            finish(changed(memoryview(sealed(wrong)), reference, 0))


def test_a_lack_of_memory_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise MemoryError

    reference = np.zeros(20_000, np.uint8)
    frame = lccodec.encode(reference, lccodec.Lossless(), reference=reference)
    monkeypatch.setattr(planes, "_joined", none)
    with pytest.raises(LimitError, match="not enough memory") as caught:
        finish(changed(memoryview(frame), reference, 0))
    assert caught.value.rule == "LCC-LIM-02"


def test_of_a_frame_that_changes_much_only_the_first_blocks_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of all blocks may be more than there is memory."""
    tune(monkeypatch, blocks_at_a_time=1)
    reference = np.zeros(2 * MAX_BLOCK_COMPONENTS + 9, np.uint8)
    array = np.arange(reference.size, dtype=np.uint32).astype(np.uint8) & 3
    frame = lccodec.encode(array, lccodec.Lossless(), reference=reference)
    read = list[slice]()

    class Recording:
        def __len__(self) -> int:
            return len(frame)

        def __getitem__(self, part: slice) -> memoryview:
            read.append(part)
            return memoryview(frame)[part]

    assert finish(changed(Recording(), reference, 0)) is None
    start = parse_header(memoryview(frame)).size
    first = start + 4 + int.from_bytes(frame[start : start + 4], "little")
    assert read[-1] == slice(start + 4, first)
