"""Blocks of a frame that are decoded apart: the whole, and the errors of the whole.

Blocks of frames: how many there are, which holds a component, and where they begin.

What a frame tells of what it changes of its reference.
"""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import (
    ArgumentError,
    ChecksumError,
    DataError,
    ExponentBuckets,
    LimitError,
    LogSteps,
    Lossless,
    UniformDeadzone,
    encode,
)
from lccodec.constants import ELEMENT_TYPES, METHOD_CODEBOOK, METHOD_PLANES, METHOD_RAW, METHOD_SMOOTH
from lccodec.element_types import Array, components
from lccodec.entropy.stream_reader import finish
from lccodec.errors import FormatError
from lccodec.frame import decode, planes
from lccodec.frame.content import Content, array_sum
from lccodec.frame.decode import Changed, changed, check_array_sum, decode_components, decode_range, may_tell
from lccodec.frame.encode import MAX_BLOCK_COMPONENTS, RawFrame
from lccodec.frame.header import (
    FrameHeader,
    block_count,
    block_number,
    block_shapes,
    block_starts,
    blocks_of,
    head_size,
    parse_header,
    whole_blocks,
)
from lccodec.parallel import PIECE

from ..support.frames import sealed
from ..support.profiles import examples
from ..support.strategies import ALL_DTYPES, FLOATS, INTEGERS, dtype_of, installed, random_array
from ..support.tuning import tune, tuned

BLOCK = PIECE  # the smallest that the encoder can write
BLOCK_LOG2 = BLOCK.bit_length() - 1
QUANTIZERS = [
    *(Lossless(), ExponentBuckets(2), ExponentBuckets(8), UniformDeadzone(relative_step=1), LogSteps(0.5))
]


@st.composite
def frames(draw: st.DrawFn) -> tuple[bytes, Array | None]:
    """A frame of several blocks, and the components of its reference."""
    name, seed = draw(st.sampled_from(installed(ALL_DTYPES))), draw(st.integers(0, 99))
    size = draw(st.sampled_from([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 300_000, 2 * BLOCK]))
    array = random_array(name, (size,), seed, draw(st.sampled_from([0.0, 0.1, 1.0])))
    if draw(st.booleans()):
        array[size // 3 :] = array[:1]  # so that planes are smaller than raw values
    how = draw(st.sampled_from(["none", "any", "near"]))
    reference = None if how == "none" else random_array(name, (size,), seed + 1)
    if reference is not None and how == "near":
        reference = np.where(random_array("bool", (size,), seed), array, reference).astype(dtype_of(name))
    if how == "none" and draw(st.booleans()):
        kind, bits = components(array)
        raw = RawFrame(
            FrameHeader(METHOD_RAW, kind, False, ((size,),), 0), lambda: Content(bits, kind, ((size,),))
        )
        return b"".join(raw.chunks()), None
    effort = draw(st.sampled_from(["normal", "high"]))
    with tuned(block_log2=BLOCK_LOG2):
        frame = encode(array, draw(st.sampled_from(QUANTIZERS)), reference, effort=effort)
    return frame, None if reference is None else components(reference)[1]


@st.composite
def frames_and_parts(draw: st.DrawFn) -> tuple[bytes, Array | None, list[slice]]:
    frame, reference = draw(frames())
    size = parse_header(frame).components
    places = draw(st.lists(st.integers(0, -(-size // BLOCK)), max_size=4))
    ends = sorted({0, size, *(min(place * BLOCK, size) for place in places)})
    parts = [slice(low, high) for low, high in pairwise(ends)] or [slice(0, 0)]
    return frame, reference, draw(st.permutations(parts))


def in_parts(frame: bytes, reference: Array | None, parts: list[slice], *, in_place: bool) -> Array:
    """Decode a frame part by part; the first one checks the CRC."""
    header, data = parse_header(frame), memoryview(frame)
    out = np.full(header.components, 7, header.kind.bits)
    if in_place and reference is not None:
        out[:] = reference
    total = 0
    for number, part in enumerate(parts):
        target = out[part]
        base = None if reference is None else target if in_place else reference[part]
        decode_range(data, part, base, target, check_crc=number == 0)
        total += array_sum(target, part.start * target.itemsize // 8)
    check_array_sum(data, total)
    return out


@given(frames_and_parts(), st.booleans())
def test_parts_are_the_whole(case: tuple[bytes, Array | None, list[slice]], in_place: bool) -> None:
    frame, reference, parts = case
    whole = decode_components(memoryview(frame), None if reference is None else reference.copy())
    np.testing.assert_array_equal(in_parts(frame, reference, parts, in_place=in_place), whole)


def outcome(decode: Any) -> Array | None:
    try:
        return decode()
    except DataError:
        return None


@pytest.mark.slow
@given(
    frames_and_parts(),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=3),
    st.booleans(),
)
@examples(2)
def test_parts_of_damaged_frames_have_the_outcome_of_the_whole(
    case: tuple[bytes, Array | None, list[slice]], damage: list[tuple[int, int]], seal: bool
) -> None:
    """Both decode to the same values, or both raise errors in the bytes, and nothing else."""
    frame, reference, parts = case
    header = parse_header(frame)
    data = bytearray(frame)
    for place, value in damage:
        data[header.size + place % (len(data) - header.size)] ^= value  # the header is as it was
    damaged = sealed(bytes(data)) if seal else bytes(data)
    base = reference if header.relative else None
    whole = outcome(lambda: decode_components(memoryview(damaged), None if base is None else base.copy()))
    found = outcome(lambda: in_parts(damaged, base, parts, in_place=False))
    assert (whole is None) == (found is None)
    if whole is not None and found is not None:
        np.testing.assert_array_equal(found, whole)
    if not seal and damaged != frame:
        assert found is None


@given(frames(), st.data())
@examples(1 / 2)
def test_every_truncation_is_found(case: tuple[bytes, Array | None], data: st.DataObject) -> None:
    frame, reference = case
    size = parse_header(frame).components
    cut = frame[: data.draw(st.integers(0, len(frame) - 1))]
    out = np.zeros(size, parse_header(frame).kind.bits)
    with pytest.raises(DataError):
        decode_range(memoryview(cut), slice(0, size), reference, out)


class Counted:
    """Bytes that note what is read of them."""

    def __init__(self, data: bytes) -> None:
        self.data, self.read = data, 0

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, part: slice) -> memoryview:
        found = memoryview(self.data)[part]
        self.read += len(found)
        return found


@pytest.mark.slow
@pytest.mark.parametrize("quantizer", [Lossless(), ExponentBuckets(8)])
def test_only_what_is_needed_is_read(quantizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, block_log2=BLOCK_LOG2)
    reference = random_array("float32", (16 * BLOCK,), 1, 0)
    for base in (None, reference):
        frame = encode(reference + random_array("float32", reference.shape, 2, 0), quantizer, base)
        out = reference.view("u4")[5 * BLOCK : 6 * BLOCK].copy()
        data = Counted(frame)
        decode_range(data, slice(5 * BLOCK, 6 * BLOCK), out, out, check_crc=False)
        assert data.read < len(frame) / 8
        decode_range(data, slice(5 * BLOCK, 6 * BLOCK), out, out)
        assert data.read > len(frame)


def test_parts_that_are_not_blocks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, block_log2=BLOCK_LOG2)
    array = np.arange(300_000, dtype=np.float32)
    frame = memoryview(encode(array, ExponentBuckets(3), array + 1))
    bits = array.view("u4").copy()
    parts = (1, BLOCK), (0, 1000), (BLOCK, 299_999), (2 * BLOCK, 3 * BLOCK), (BLOCK, 0), (-BLOCK, BLOCK)
    for start, stop in parts:
        with pytest.raises(ArgumentError, match=r"are not blocks of 2\*\*17"):
            decode_range(frame, slice(start, stop), bits, bits)
    for reference, out in ((bits[:BLOCK], bits[:1000]), (None, bits[:BLOCK]), (bits[:5], bits[:BLOCK])):
        with pytest.raises(ArgumentError, match=f"must have {BLOCK} components"):
            decode_range(frame, slice(0, BLOCK), reference, out)


def test_a_wrong_reference_shows_in_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, block_log2=BLOCK_LOG2)
    array = np.arange(300_000, dtype=np.float32)
    frame = encode(array, UniformDeadzone(max_error=0.1), array + 1)
    reference = (array + 1).view("u4")
    parts = [slice(0, 2 * BLOCK), slice(2 * BLOCK, 300_000)]
    in_parts(frame, reference, parts, in_place=False)
    reference[299_999] ^= 1
    with pytest.raises(ChecksumError, match="the reference is not the one it was coded against"):
        in_parts(frame, reference, parts, in_place=False)


def test_a_lack_of_memory_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise MemoryError

    frame = encode(np.arange(20_000, dtype=np.float32), Lossless())
    with monkeypatch.context() as patch, pytest.raises(LimitError, match="for a block") as caught:
        patch.setattr(planes, "read_block", none)
        decode_components(frame, None)
    assert caught.value.rule == "LCC-LIM-02"
    with monkeypatch.context() as patch, pytest.raises(LimitError, match="for 80000 decoded bytes") as caught:
        patch.setattr(decode, "np", SimpleNamespace(empty=none, uint8=np.uint8))
        decode_components(frame, None)
    assert caught.value.rule == "LCC-LIM-03"


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


def test_a_lack_of_memory_for_changes_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise MemoryError

    reference = np.zeros(20_000, np.uint8)
    frame = lccodec.encode(reference, lccodec.Lossless(), reference=reference)
    monkeypatch.setattr(planes, "Codes", none)
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
