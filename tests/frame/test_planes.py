import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import Lossless, decode, encode
from lccodec.constants import ELEMENT_TYPES, STREAM_SPARSE, ElementType
from lccodec.cursor import Cursor
from lccodec.element_types import Array, components, zigzag
from lccodec.entropy.stream_writer import write_stream
from lccodec.frame import planes
from lccodec.frame.content import SUM_MASK, array_sum
from lccodec.frame.planes import read_block, write_block

from ..support.strategies import REALS, Pair, array_and_reference, dtype_of
from ..support.tuning import tune


def changed(kind: ElementType, size: int, places: Array, seed: int, largest: int) -> tuple[Array, Array]:
    """Components that differ from others at some places by steps of up to a size."""
    rng = np.random.default_rng(seed)
    before = rng.integers(0, 2, size) if kind.kind == "b" else rng.integers(0, 2 ** (8 * kind.size - 1), size)
    before = before.astype(kind.bits)
    after = before.copy()
    if kind.kind == "b":
        after[places] ^= 1
        return after, before
    steps = rng.integers(1, largest + 1, places.size) * rng.choice([-1, 1], places.size)
    after[places] += steps.astype(f"i{kind.size}").view(kind.bits)
    return after, before


def check_all_ways(after: Array, before: Array, kind: ElementType, first: int = 0) -> None:
    """Whether and how changes are searched makes no difference: not to bytes, sums and values."""
    codes = zigzag(after, before, kind.is_float)
    planes_of = ((codes >> (8 * place)).astype(np.uint8) for place in range(kind.size))
    expected = b"".join(b"".join(write_stream(plane)) for plane in planes_of)
    for out in (None, np.zeros_like(before), before.copy()):
        base = before if out is None or not out.any() else out
        pieces, total = write_block(after, base, kind, first, out)
        assert b"".join(pieces) == expected
        assert total & SUM_MASK == array_sum(after, first)
        assert out is None or np.array_equal(out, after)
    for out in (np.empty_like(before), before.copy()):
        base = before if not np.array_equal(out, before) else out
        read_block(Cursor(memoryview(expected), "block"), base, kind, out)
        np.testing.assert_array_equal(out, after)


@given(
    st.sampled_from(ELEMENT_TYPES),
    st.integers(1, 700),
    st.integers(0, 60),
    st.sampled_from([1, 3, 300, 2**40]),
    st.sampled_from([0, 64]),
    st.integers(0, 2**32),
)
def test_few_changes_in_small_parts(
    kind: ElementType, size: int, count: int, largest: int, spread: int, seed: int
) -> None:
    """Parts, batches and bounds are made small, so that arrays of any form cross them."""
    rng = np.random.default_rng(seed)
    places = np.unique(rng.integers(0, spread or size, count) % size)
    with pytest.MonkeyPatch.context() as patch:
        tune(patch, plane_min_components=1, plane_piece_bytes=256)
        patch.setattr(planes, "PIECE", 64)
        tune(patch, plane_part_multiple=8, plane_words_at_a_time=4, plane_places_at_a_time=5)
        after, before = changed(kind, size, places, seed, min(largest, 2 ** (8 * kind.size - 2)))
        check_all_ways(after, before, kind, first=int(rng.integers(0, 100)))


@pytest.mark.parametrize("name", ["uint8", "bfloat16", "float32", "complex128"])
@pytest.mark.parametrize("size", [8_191, 8_193, 300_007])
@pytest.mark.parametrize("every", [3, 4, 64, 1_000, 1 << 20])
def test_changes_at_every_so_many_components(name: str, size: int, every: int) -> None:
    (kind,) = (kind for kind in ELEMENT_TYPES if kind.name == name)
    after, before = changed(kind, size, np.arange(0, size, every), every, 127 if kind.size == 1 else 10_000)
    check_all_ways(after, before, kind)


def test_changes_at_equal_distances_are_not_taken_for_noise() -> None:
    """Of a long run a sample is looked at, one symbol in sixteen."""
    kind, size = ELEMENT_TYPES[10], 1 << 20
    after, before = changed(kind, size, np.arange(0, size, 16), 0, 10_000)
    check_all_ways(after, before, kind)
    pieces, _ = write_block(after, before, kind)
    assert pieces[0][0] == STREAM_SPARSE


def test_one_dense_part_among_others() -> None:
    kind = ELEMENT_TYPES[10]
    size = 3 * planes._PIECE_BYTES // kind.size + 5
    few = np.arange(0, size, 100)
    middle = np.arange(size // 3, size // 2)
    check_all_ways(*changed(kind, size, np.union1d(few, middle), 0, 3), kind)


@pytest.mark.parametrize("offset", [1, 3])
def test_components_that_are_not_at_whole_words(offset: int) -> None:
    after, before = changed(ELEMENT_TYPES[10], 20_000, np.arange(offset, 20_000, 99), 0, 2)
    check_all_ways(after[offset:], before[offset:], ELEMENT_TYPES[10])


def test_an_array_that_changes_between_search_and_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs is copied once, perhaps when it is equal; what was equal is not read again."""
    before = np.arange(20_000, dtype=np.int32)
    after = before.copy()
    after[[5, 700, 19_999]] += 1
    search = planes.true_places

    def changing(mask: Array) -> Array:
        found = search(mask)
        after[5] -= 1
        after[9_000] += 1
        return found

    monkeypatch.setattr(planes, "true_places", changing)
    monkeypatch.setattr(planes, "differing", planes._differing)  # there the array changes
    frame = encode(after, Lossless(), before)
    decoded = decode(frame, before)  # the sum of what was stored
    assert np.flatnonzero(decoded != before).tolist() == [700, 19_999]


def test_small_movements_take_the_low_planes_only() -> None:
    rng = np.random.default_rng(0)
    before = rng.standard_normal(50_000).astype(np.float32)
    after = before * (1 + rng.standard_normal(50_000).astype(np.float32) * 1e-6)
    assert len(encode(after, Lossless(), before)) < after.nbytes * 0.25
    assert len(encode(after, Lossless())) > after.nbytes * 0.8


def looks_smaller_alone(array: np.ndarray, reference: np.ndarray) -> bool:
    kind, bits = components(array)
    return Lossless().stands_alone(bits, components(reference)[1], kind)


@pytest.mark.parametrize("name", REALS)
@pytest.mark.parametrize("kept", [0.0, 0.2, 0.99, 0.9999])
def test_the_smaller_coding_is_told_from_a_sample(name: str, kept: float) -> None:
    """Of what forgets its past at different rates, as moments do."""
    rng = np.random.default_rng(0)
    scale = 2.0 ** rng.normal(-9, 1, 100_000)
    before = rng.standard_normal(scale.size)
    after = (kept * before + (1 - kept**2) ** 0.5 * rng.standard_normal(scale.size)) * scale
    before, after = (x.astype(dtype_of(name)) for x in (before * scale, after))
    alone, relative = (len(encode(after, Lossless(), base)) for base in (None, before))
    assert looks_smaller_alone(after, before) == (alone < relative)
    assert (kept < 0.9) == (alone < relative)


@given(array_and_reference())
def test_any_array_can_be_looked_at(pair: Pair) -> None:
    array, reference = pair
    if reference is not None and array.size:
        same = np.array_equal(components(array)[1], components(reference)[1])
        assert not (looks_smaller_alone(array, reference) and same)


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 4, 8]), st.integers(0, 12), st.booleans(), st.booleans())
@np.errstate(over="ignore")  # of a loop in Python
def test_both_forms_split_and_join_alike(
    seed: int, size: int, count: int, is_float: bool, referred: bool
) -> None:
    rng = np.random.default_rng(seed)
    bits, reference = (np.frombuffer(rng.bytes(count * size), f"u{size}") for _ in range(2))
    reference = reference if referred else reference[:0]
    is_float &= size > 1
    written = []
    for split in (planes._split, planes._split_loop, planes.split):
        rows = tuple(np.zeros((size, count), np.uint8))
        split(bits, reference, is_float, rows)
        written.append(np.stack(rows).tobytes())
    assert len(set(written)) == 1
    for join in (planes._join, planes._join_loop, planes.join):
        out = np.zeros_like(bits)
        join(rows, reference, is_float, out)
        np.testing.assert_array_equal(out, bits)
        if referred:
            own = reference.copy()  # in place
            join(rows, own, is_float, own)
            np.testing.assert_array_equal(own, bits)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=20), st.integers(0, 12))
def test_both_forms_find_the_words_that_differ(pairs: list[tuple[int, int]], most: int) -> None:
    words, old = np.array(pairs, np.uint64).reshape(-1, 2).T.copy()
    expected = planes._differing(words, old, most)
    assert expected[0] == (np.count_nonzero(words != old) > most)
    for form in (planes._differing_loop, planes.differing):
        found = form(words, old, most)
        assert found[0] == expected[0]
        for each, other in zip(found[1:], expected[1:], strict=True):
            np.testing.assert_array_equal(each, other)


@given(st.sets(st.integers(0, 5000), max_size=5))
def test_few_elements_are_put_between_others(places):
    array, at = np.arange(5000), np.array(sorted(places), np.int64)
    found = planes._between(array, at, -1 - at)
    np.testing.assert_array_equal(found, np.insert(array, at, -1 - at))
