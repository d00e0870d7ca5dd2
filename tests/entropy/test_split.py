"""Split streams: symbols of components with a small reference stand apart (LCC-STR-08)."""

import struct
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.constants import ELEMENT_TYPES, STREAM_SPLIT, ElementType
from lccodec.cursor import Cursor
from lccodec.entropy.runs import Sparse, dense
from lccodec.entropy.split import References, Small, find_small
from lccodec.entropy.stream_reader import decode_runs, finish, read_stream, reading
from lccodec.entropy.stream_writer import write_plane, write_stream
from lccodec.errors import ChecksumError, FormatError, LimitError
from lccodec.frame import planes
from lccodec.frame.content import SUM_MASK, array_sum
from lccodec.frame.planes import read_block, reading_codes, write_block

from ..support.tuning import tuned

KINDS = {kind.name: kind for kind in ELEMENT_TYPES}
SIZES = [KINDS[name] for name in ("uint8", "bfloat16", "float32", "float64")]


def size_of(component: int, kind: ElementType) -> int:
    return component & (1 << 8 * kind.size - 1) - 1


def stored(bounds: list[int], reference: np.ndarray, symbols: np.ndarray, kind: ElementType) -> bytes:
    """A split stream as the specification describes it, component by component."""
    parts: list[list[int]] = [[] for _ in bounds]
    rest = symbols.tolist()
    for place, component in enumerate(reference.tolist()):
        number = sum(bound <= size_of(component, kind) for bound in bounds)
        if number < len(bounds):
            parts[number].append(rest[place])
            rest[place] = 0
    head = bytes([STREAM_SPLIT, len(bounds)])
    head += b"".join(bound.to_bytes(kind.size, "little") for bound in bounds)
    head += struct.pack(f"<{len(parts)}I", *map(len, parts))
    streams = [write_stream(np.array(run, np.uint8), 2) for run in (*parts, rest)]
    return head + b"".join(map(b"".join, streams))


def read(data: bytes, reference: np.ndarray) -> np.ndarray:
    cursor = Cursor(memoryview(data), "stream")
    symbols = dense(finish(reading(cursor, reference.size, 1, References(reference))), reference.size)
    assert cursor.remaining == 0
    return symbols


Run = tuple[ElementType, list[int], np.ndarray, np.ndarray]


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Components of a type, bounds, and symbols of which some or most are 0."""
    kind = draw(st.sampled_from(SIZES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = draw(st.integers(1, 400))
    reference = rng.integers(0, 2 ** (8 * kind.size), size, np.uint64).astype(kind.bits)
    hard = [0, 1 << 8 * kind.size - 1, (1 << 8 * kind.size) - 1, (1 << 8 * kind.size - 1) - 1]
    reference[rng.integers(0, size, 4)] = np.array(hard, kind.bits)
    some = st.integers(0, 2 ** (8 * kind.size) - 1)
    some |= st.sampled_from([size_of(int(each), kind) for each in reference])
    bounds = sorted(draw(st.sets(some, min_size=1, max_size=3)))
    share = draw(st.sampled_from([0.0, 0.02, 0.1, 0.9]))
    symbols = (rng.random(size) < share) * rng.integers(1, draw(st.sampled_from([3, 256])), size)
    return kind, bounds, reference, symbols.astype(np.uint8)


@given(runs())
def test_streams_are_read_as_the_specification_says(run: Run) -> None:
    kind, bounds, reference, symbols = run
    np.testing.assert_array_equal(read(stored(bounds, reference, symbols, kind), reference), symbols)


def test_the_runs_of_all_parts_are_wanted_at_once() -> None:
    rng, kind = np.random.default_rng(0), KINDS["bfloat16"]
    reference = rng.integers(0, 2**16, 100_000).astype(np.uint16)
    few = rng.random(reference.size) < 0.05
    symbols = np.where(few, rng.geometric(0.3, reference.size), 0).astype(np.uint8)
    data = stored([9000, 20_000], reference, symbols, kind)
    stream = reading(Cursor(memoryview(data), "stream"), reference.size, 1, References(reference))
    wanted = next(stream)
    assert len(wanted) == 6  # gaps and symbols of two parts, and of the rest
    with pytest.raises(StopIteration) as done:
        stream.send(decode_runs(wanted))
    np.testing.assert_array_equal(dense(done.value.value, reference.size), symbols)


@given(runs())
def test_another_reference_is_an_error_or_the_symbols_move(run: Run) -> None:
    """Where the parts have as many components, the array sum of the frame finds what is wrong."""
    kind, bounds, reference, symbols = run
    other = reference[::-1].copy()
    other[:1] ^= other.dtype.type(1)
    try:
        found = read(stored(bounds, reference, symbols, kind), other)
    except ChecksumError as error:
        assert error.rule == "LCC-STR-09"
    else:
        assert np.count_nonzero(found) == np.count_nonzero(symbols)


def test_parts_are_kept_for_the_next_stream() -> None:
    rng = np.random.default_rng(0)
    reference = rng.integers(0, 2**16, 300_001).astype(np.uint16)
    references = References(reference)
    for few in ([5, 900], [5, 40_000], [7], [7]):
        bounds = np.array(few, np.uint16)
        found = references.parts(bounds)
        size = reference & 0x7FFF
        first = 0
        for bound, places in zip(few, found, strict=True):
            np.testing.assert_array_equal(places, np.flatnonzero((size >= first) & (size < bound)))
            first = bound
        assert (references.parts(bounds) is found) == (few != [5, 40_000])  # these are too many to keep


def update(kind: ElementType, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Components before and after steps of about one size, of which large numbers feel little."""
    rng = np.random.default_rng(seed)
    if kind.name == "uint8":  # patterns of float8
        before = rng.choice(128, size, p=np.arange(1, 129) / (64 * 129)).astype(np.uint8)
        chance = 2.0 ** -(before / 8)
        return before, before + (rng.random(size) < chance).astype(np.uint8)
    before = rng.standard_normal(size)
    both = (before, before + 2.0**-15 * rng.standard_normal(size))
    before, after = ((wide.astype(np.float32).view(np.uint32) >> 16) for wide in both)
    if kind.name == "bfloat16":
        return before.astype(np.uint16), after.astype(np.uint16)
    # Few of the numbers that the type has, so that few of them change.
    single = [(bits << 16).astype(np.uint32) for bits in (before, after)]
    return tuple(single) if kind.size == 4 else tuple(x.view("f4").astype("f8").view("u8") for x in single)


@pytest.fixture(name="unsplit")
def _unsplit(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    with monkeypatch.context() as patch:
        patch.setattr(planes, "find_small", lambda *_: None)
        yield patch


@pytest.mark.parametrize("kind", SIZES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("size", [120_001, 200_000])
def test_updates_take_fewer_bytes(kind: ElementType, size: int, unsplit: pytest.MonkeyPatch) -> None:
    before, after = update(kind, size, 1)
    before[::1000], after[500::1000] = 2 ** (8 * kind.size) - 1, 0
    plain = b"".join(write_block(after, before, kind)[0])
    unsplit.undo()
    for out in (None, np.zeros_like(before), before.copy()):
        base = before if out is None or not out.any() else out
        pieces, total = write_block(after, base, kind, 0, out)
        data = b"".join(pieces)
        assert any(piece[0] == STREAM_SPLIT for piece in pieces)
        assert len(data) < 0.98 * len(plain)
        assert total & SUM_MASK == array_sum(after)
        assert out is None or np.array_equal(out, after)
    for out in (np.zeros_like(before), before.copy()):
        base = out if out.any() else before
        cursor = Cursor(memoryview(data), "block")
        read_block(cursor, base, kind, out)
        assert cursor.remaining == 0
        np.testing.assert_array_equal(out, after)
    codes = finish(reading_codes(Cursor(memoryview(data), "block"), before, kind))
    if codes is not None:
        np.testing.assert_array_equal(codes.places, np.flatnonzero(before != after))
    assert (codes is not None) == (kind.size < 8)  # of which many bytes change


@given(
    st.sampled_from(SIZES),
    st.integers(0, 40_000),
    st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    st.integers(0, 2**32),
)
def test_round_trip_by_any_bound(kind: ElementType, size: int, share: float, seed: int) -> None:
    """Whatever the sample says: a writer may part components by every bound."""
    rng = np.random.default_rng(seed)
    before, after = update(kind, size, seed)
    after = np.where(rng.random(size) < share, rng.integers(0, 2**63, size), after).astype(kind.bits)
    small = Small(kind.bits.type(size_of(int(rng.integers(0, 2**63)), kind)))
    with tuned(split_pays=lambda *_: True), pytest.MonkeyPatch.context() as patch:
        patch.setattr(planes, "find_small", lambda *_: small)
        data = b"".join(write_block(after, before, kind)[0])
    out = np.empty_like(before)
    read_block(Cursor(memoryview(data), "block"), before, kind, out)
    np.testing.assert_array_equal(out, after)


def test_nothing_is_small_where_nothing_is_saved() -> None:
    rng = np.random.default_rng(2)
    before = rng.standard_normal(100_000).astype(np.float32).view(np.uint32)
    after = before + (rng.random(before.size) < 0.01).astype(np.uint32)
    assert find_small(after, before) is None  # as many of all sizes
    assert find_small(before, before) is None  # nothing changed
    assert find_small(before + 1, before) is None  # all changed
    before, after = update(KINDS["bfloat16"], 10_000, 3)
    assert find_small(after, before) is None  # a small block
    same = np.full(100_000, 0x3F80, np.uint16)
    after = same + (rng.random(same.size) < 0.02)
    assert find_small(after.astype(np.uint16), same) is None  # of one size


def test_a_stream_that_saves_too_little_is_whole() -> None:
    before, after = update(KINDS["bfloat16"], 200_000, 4)
    small = find_small(after, before)
    assert small is not None
    small.add(before)
    places = np.flatnonzero(before != after)
    few = Sparse(places[:300], np.ones(300, np.uint8))
    assert small.divide(few, before.size) is None  # few symbols
    anywhere = Sparse(np.arange(0, before.size, 50), np.ones(2000, np.uint8))
    assert small.divide(anywhere, before.size) is None  # as many in the part as elsewhere
    assert small.divide(np.ones(before.size, np.uint8), before.size) is None
    assert small.divide(Sparse(places, np.ones(places.size, np.uint8)), before.size) is not None


def test_a_writer_keeps_the_limits() -> None:
    """A stream of which a byte would stand for too many symbols is whole (LCC-LIM-14)."""
    count = 1 << 22
    small = Small(np.uint16(1))
    small.add(np.zeros(count, np.uint16))
    with tuned(split_pays=lambda *_: True):
        few = Sparse(np.arange(0, 1000), np.ones(1000, np.uint8))
        assert b"".join(write_plane(few, count, small))[0] != STREAM_SPLIT
        assert b"".join(write_plane(np.ones(count, np.uint8), count, small))[0] != STREAM_SPLIT


def test_hostile_streams() -> None:
    reference = np.array([1, 200, 3], np.uint8)
    zeros, nothing = b"\0\0", b"\1"
    sound = bytes([6, 1, 5]) + struct.pack("<I", 2) + zeros + zeros
    assert read(sound, reference).tolist() == [0, 0, 0]
    for data, error, rule in (
        (bytes([6, 0]) + zeros, FormatError, "LCC-STR-08"),
        (bytes([6, 4, 1, 2, 3, 4]) + bytes(16) + zeros * 5, FormatError, "LCC-STR-08"),
        (bytes([6, 2, 5, 5]) + struct.pack("<2I", 2, 0) + zeros * 3, FormatError, "LCC-STR-08"),
        (bytes([6, 1, 255]) + struct.pack("<I", 4) + zeros * 2, FormatError, "LCC-STR-08"),
        (bytes([6, 1, 5]) + struct.pack("<I", 0) + nothing + sound, FormatError, "LCC-STR-08"),
        (bytes([6, 1, 5]) + struct.pack("<I", 1) + zeros * 2, ChecksumError, "LCC-STR-09"),
        (bytes([6, 1, 5]) + struct.pack("<I", 2) + b"\0\1" * 2, ChecksumError, "LCC-STR-09"),
    ):
        with pytest.raises(error) as caught:
            read(data, reference)
        assert caught.value.rule == rule
    with pytest.raises(FormatError, match="LCC-STR-08"):
        read_stream(Cursor(memoryview(sound), "stream"), 3)
    many = bytes([6, 1, 5]) + struct.pack("<I", 45_057) + zeros * 2
    with pytest.raises(LimitError, match="LCC-LIM-14"):
        read(many, np.zeros(45_057, np.uint8))


def test_a_frame_says_that_the_reference_is_another() -> None:
    before, after = (each.view(np.float16) for each in update(KINDS["bfloat16"], 200_000, 5))
    frame = lccodec.encode(after, lccodec.Lossless(), reference=before)
    np.testing.assert_array_equal(lccodec.decode(frame, before).view("u2"), after.view("u2"))
    other = before.copy()
    other[: other.size // 2] = 0
    with pytest.raises(ChecksumError, match=r"the reference is not the one it was coded against.*LCC-STR-09"):
        lccodec.decode(frame, other)
