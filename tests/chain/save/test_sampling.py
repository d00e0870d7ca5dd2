"""Which components are sampled, and which are drawn by their size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.chain.read.replay import DecodedArray
from lccodec.chain.save.plan import candidates
from lccodec.chain.save.sampling import PIECE, Drawn, Sampling, _distance
from lccodec.container.tree import flatten
from lccodec.element_table import ELEMENT_TYPES
from lccodec.element_types import components, work
from lccodec.policy.policy import Candidate


def sampling(*arrays: np.ndarray) -> Sampling:
    return Sampling(candidates(flatten(list(arrays)), {}))


def test_a_small_state_is_sampled_whole() -> None:
    arrays = np.zeros((30, 50), np.float32), np.zeros(7, np.complex64), np.zeros(9, np.int8), np.zeros(0)
    found = sampling(*arrays)
    assert found.distances == [1, 1, 1, 1]
    batches = [(group.indices, group.sizes.tolist()) for group in found.groups]
    assert batches == [([0], [1500]), ([1], [14])]


@pytest.mark.parametrize("shape", [(1000, 1000), (900, 9), (40_000,), (300, 50, 3, 3), ()])
def test_the_sample_takes_a_sixteenth_of_a_large_state(shape: tuple[int, ...]) -> None:
    arrays = [np.zeros(shape, np.float32)] * 3 + [np.zeros((2000, 2000), np.float32)]
    found = sampling(*(array.copy() for array in arrays))
    total = 0
    for group in found.groups:
        for index, size in zip(group.indices, group.sizes.tolist(), strict=True):
            assert found.of(index, arrays[index].reshape(-1)).size == size
            assert min(64, arrays[index].size) <= size <= 8192
            total += size
    assert total <= max(sum(array.size for array in arrays) / 16, 1 << 18)


@pytest.mark.parametrize("row", [1, 64, 75, 4608, 257, 50_000])
def test_every_column_is_in_the_sample(row: int) -> None:
    size = row * 8192
    columns = np.arange(0, size, _distance(size, 8192, row)) % row
    counts = np.bincount(columns, minlength=row)
    assert counts.max() - counts.min() <= 1 + 8192 // size


def test_many_arrays_are_measured_in_batches() -> None:
    found = sampling(*(np.zeros(3000, np.float32) for _ in range(100)))
    assert 1 < len(found.groups) < 40
    assert [index for group in found.groups for index in group.indices] == list(range(100))


def after(state: dict[str, np.ndarray], before: dict[str, np.ndarray]) -> list[Candidate]:
    """The arrays of a state that follows on another one."""
    parents = {c.name: DecodedArray(c.kind, c.shape, c.bits) for c in candidates(flatten(before), {})}
    return candidates(flatten(state), parents)


def test_a_state_is_sampled_as_the_one_before_only_if_it_has_the_same_arrays() -> None:
    large, small = np.zeros((1000, 300), np.float32), np.zeros(5, np.float32)
    before = {"large": large, "small": small}
    found = Sampling(after(before, {}))
    assert found.fits(after(before, before), before)
    assert not found.fits(after(before, {}), before)  # they may have other types
    assert not found.fits(after({"small": small, "large": large}, before), before)
    assert not found.fits(after({"large": large}, before), before)
    assert not found.fits(after({**before, "small": np.zeros(6, np.float32)}, before), before)
    drawn, left = after(before, before), after(before, before)
    drawn[0].role, left[1].inherited = "second_moment", True
    assert not found.fits(drawn, before) and Sampling(drawn).fits(drawn, before)
    assert not found.fits(left, before)


def heavy(size: int, spread: float = 3.0) -> np.ndarray:
    return np.random.default_rng(size).lognormal(0, spread, size).astype(np.float32)


def drawn(x: np.ndarray, distance: int) -> Drawn:
    kind, bits = components(x)
    found = Drawn.of(bits, kind, distance)
    assert found is not None
    np.testing.assert_array_equal(found.bits, bits[found.places])
    return found


@given(st.integers(2, 500), st.integers(4, 200), st.integers(0, 499), st.floats(0, 4))
def test_as_many_as_their_sizes_say(distance: int, count: int, rest: int, spread: float) -> None:
    size = distance * count + rest
    x = heavy(size, spread) * np.where(np.arange(size) % 3, 1, -1).astype(np.float32)
    if count < 20 and Drawn.of(x.view(np.uint32), components(x)[0], distance) is None:
        return  # a few at equal distances say little: all of them may be large
    found = drawn(x, distance)
    places = found.places.astype(np.int64)
    assert (np.diff(places) > 0).all() and (places % distance).all()
    expected = np.minimum(np.abs(x.astype(np.float64)) * found.rate, 1)
    off = np.sqrt((expected * (1 - expected)).sum())  # as if each were drawn by chance
    assert expected.sum() <= -(-size // distance) / 2 + 1 + 4 * off
    expected[::distance] = 0
    assert set(np.flatnonzero(expected > 1 - 1e-6)) <= set(places.tolist())
    assert abs(places.size - expected.sum()) <= 1 + 4 * off


@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
def test_sums_are_those_of_all_elements(spread: float) -> None:
    """Each element counts one over the probability of being drawn."""
    x = heavy(200_000, spread).astype(np.float64)
    found = drawn(x, 49)
    sizes = found.bits.view(np.float64)
    counts = 1 / np.minimum(sizes * found.rate, 1)
    x[::49] = 0
    for power in (1, 2):
        assert np.sum(counts * sizes**power) == pytest.approx(np.sum(x**power), rel=0.05)


def test_parts_give_the_same() -> None:
    x = heavy(3 * PIECE + 1234)
    kind, bits = components(x)
    for most in (PIECE, 2 * PIECE):
        parts = (bits[start : start + most] for start in range(0, bits.size, most))
        found = Drawn.of_parts(bits[::50], parts, bits.size, kind, 50)
        whole = drawn(x, 50)
        assert found is not None and found.rate == whole.rate
        np.testing.assert_array_equal(found.places, whole.places)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("row", [64, 233, 4096, 32_768])
def test_no_column_is_preferred(dtype: type, row: int) -> None:
    x = np.full(64 * 32_768, 1 + 1j if dtype is np.complex64 else 1).astype(dtype)
    found = drawn(x, 257)
    components_of_row = row * (2 if dtype is np.complex64 else 1)
    assert found.places.size == pytest.approx(found.rate * x.view(x.real.dtype).size, rel=0.02)
    width = components_of_row // 8  # eighths of a row
    counts = np.bincount(found.places % components_of_row // width, minlength=8)[:8]
    assert counts.min() > 0.8 * counts.max()


def test_bfloat16() -> None:
    kind = next(each for each in ELEMENT_TYPES if each.name == "bfloat16")
    bits = (heavy(5000).view(np.uint32) >> 16).astype(np.uint16)
    found = Drawn.of(bits, kind, 50)
    assert found is not None
    assert work(found.bits, kind).max() == work(bits, kind).max()


def test_the_same_of_another_array() -> None:
    found = drawn(heavy(3000), 50)
    np.testing.assert_array_equal(found.again(np.arange(3000)), found.places)


def test_what_is_not_finite_is_not_drawn() -> None:
    x = heavy(1000)
    x[[3, 500, 999]] = np.nan, np.inf, -np.inf
    kind, _ = components(x)
    assert np.isfinite(work(drawn(x, 50).bits, kind)).all()


@pytest.mark.parametrize("x", [np.zeros(99), np.full(99, np.nan), np.full(99, 1e308)])
def test_without_a_sum_nothing_is_drawn(x: np.ndarray) -> None:
    kind, bits = components(x)
    with np.errstate(over="ignore"):
        assert Drawn.of(bits, kind, 10) is None
