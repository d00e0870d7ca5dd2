"""What a save measures: extremes, movements, errors, and samples of the state before.

Which components are sampled, and which are drawn by their size.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lccodec import Chain
from lccodec.chain.read.replay import DecodedArray
from lccodec.chain.save.measurement import (
    NOTHING,
    PIECE,
    Drawn,
    Measurement,
    Samples,
    Sampling,
    _distance,
    with_extremes,
)
from lccodec.chain.save.plan import candidates
from lccodec.constants import ELEMENT_TYPES
from lccodec.container.checkpoint import open_checkpoint
from lccodec.container.manifest import QUANTILES, Figures, Manifest, StoredFigures, combined, read_figures
from lccodec.container.tree import flatten
from lccodec.element_types import components, work
from lccodec.policy.policy import Candidate
from lccodec.policy.roles import Assignment, Role

from ...support.damage import flip
from ...support.digits import adam_digits
from ...support.runs import arrays_of, run_states
from ...support.walks import save_all


def rms(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))


def check(chain: Chain, states: list, step: int) -> int:
    """Compare the figures of a step with the true ones; return how many arrays lost something."""
    found = {array.name: array.figures for array in chain.info(step).arrays}
    before = arrays_of(states[step - 1]) if step else {}
    decoded, lossy = arrays_of(chain.restore(step, exact=False)), 0
    for name, array in arrays_of(states[step]).items():
        measured, x = found[name], array.astype(np.float64)
        if array.dtype.kind != "f":
            assert measured == Figures()
            continue
        error = decoded[name] - x
        assert measured.spread == pytest.approx(x.std() or rms(x), rel=0.1)
        assert measured.error == pytest.approx(rms(error), rel=0.1)
        lossy += measured.error != 0
        if not step:
            assert measured.movement is None and measured.lag is None
            continue
        movement = x - before[name]
        assert measured.movement == pytest.approx(rms(movement), rel=0.1)
        if movement.any():
            assert measured.lag == pytest.approx(-np.sum(error * movement) / np.sum(movement**2), abs=0.1)
    return lossy


def saved(directory: Path, states: Sequence, policy: str, how: str) -> Chain:
    """Save states in this process, in the background, or each by a chain that is opened anew."""
    chain = Chain(directory, policy, keyframe_every=2, workers=2 if how == "workers" else None)
    for step, state in enumerate(states):
        if how == "anew":
            chain.close()
            chain = Chain(directory, None if step else policy, keyframe_every=2)
        if how == "workers":
            chain.save_async(step, state)
        else:
            chain.save(step, state)
    chain.wait()
    return chain


WAYS = [("balanced", "sync"), ("balanced", "workers"), ("balanced", "anew"), ("small", "sync")]
every_way = pytest.mark.parametrize(("policy", "how"), WAYS)


@pytest.mark.slow
@every_way
def test_of_a_run(tmp_path: Path, policy: str, how: str) -> None:
    states = run_states(7)
    with saved(tmp_path, states, policy, how) as chain:
        assert any(chain.info(step).parent is None for step in range(1, 7))
        assert all(check(chain, states, step) for step in range(7))


def joined(state: dict, names: list[str]) -> np.ndarray:
    """The arrays of these names end to end, float64."""
    arrays = arrays_of(state)
    return np.concatenate([arrays[name].ravel().astype(np.float64) for name in names])


@pytest.mark.slow
@every_way
def test_of_a_network_that_learns(tmp_path: Path, policy: str, how: str) -> None:
    """Arrays of up to 173,056 elements, of which 8,192 at most are measured."""
    states = adam_digits(6)
    with saved(tmp_path, states, policy, how) as chain:
        for step, state in enumerate(states):
            info, restored = chain.info(step), chain.restore(step, exact=False)
            compared = [(a.figures, [a.name]) for a in info.arrays]
            for role, figures in info.figures.items():
                compared.append((figures, [a.name for a in info.arrays if a.role == role]))
            assert set(info.figures) == {"weight", "first_moment", "second_moment"}
            for figures, names in compared:
                x, decoded = joined(state, names), joined(restored, names)
                assert figures.error == pytest.approx(rms(decoded - x), rel=0.1)
                if not step:
                    assert figures.movement is None and figures.lag is None
                    continue
                moved = x - joined(states[step - 1], names)
                assert figures.movement == pytest.approx(rms(moved), rel=0.1)
                intervals = rms(decoded - x) / rms(moved)
                assert figures.error_in_movements == pytest.approx(intervals, rel=0.1)
                lag = -np.sum((decoded - x) * moved) / np.sum(moved**2)
                assert figures.lag == pytest.approx(lag, abs=0.1 * max(intervals, 1))
            assert info.figures["weight"].error > 0
            assert all((figures.lag is not None) == (step > 0) for figures, _ in compared)


def test_without_the_original_no_movement_is_known(tmp_path: Path) -> None:
    states = run_states(3)
    for step, state in enumerate(states):
        with Chain(tmp_path, None if step else "balanced", newest="history") as chain:
            chain.save(step, state)
            found = chain.info(step).figures["weight"]  # one of its arrays is exact, and moved as known
            assert found.error > 0
            assert (found.movement, found.lag, found.error_in_movements) == (None, None, None)
            lossy = [a.figures for a in chain.info(step).arrays if a.lossy and a.role == "weight"]
            assert lossy and all(each.movement is None and each.lag is None for each in lossy)


def test_exact_arrays_lose_nothing(tmp_path: Path) -> None:
    states = run_states(3)
    with Chain(tmp_path, "lossless") as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
            assert check(chain, states, step) == 0


def taken(arrays: list[Candidate], before: Samples = NOTHING) -> Measurement:
    return Measurement(arrays, Sampling(arrays), {0}, before)


def measured(
    x: np.ndarray,
    decoded: np.ndarray | None = None,
    before: np.ndarray | None = None,
    role: Role = "other",
) -> Figures:
    known = {"": Assignment(role, "")}
    found = {"": x if before is None else before}
    parents = {c.name: DecodedArray(c.kind, c.shape, c.bits) for c in candidates(flatten(found), {})}
    arrays = candidates(flatten({"": x}), parents, {}, known)
    past = NOTHING if before is None else taken(candidates(flatten(found), {}, {}, known)).samples
    lost = x + x.dtype.type(1)  # how values lie is kept where something was lost
    after = candidates(flatten({"": lost if decoded is None else decoded}), {})
    lossy = {c.name: DecodedArray(c.kind, c.shape, c.bits) for c in after}
    saved = None if before is None else Manifest(3, None, "lossless", {}, 0, [], (1,), ())
    figures = taken(arrays, past).figures(lossy, saved)
    return read_figures(figures, 1)[0]


def test_a_state_that_is_one_movement_behind() -> None:
    before, x = np.array([1.0, 2, 4]), np.array([2.0, 4, 4])
    assert measured(x, before, before).lag == 1
    assert measured(x, x, before).lag == 0
    assert measured(x, 2 * x - before, before).lag == -1
    assert measured(x, before, x) == measured(x, before, x)
    still = measured(x, before, x)
    assert (still.movement, still.lag) == (0, None)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_what_is_not_finite_is_left_out(dtype: type) -> None:
    x, d, p = (
        np.array(values, dtype)
        for values in ([np.nan, 3, 5, 5, 1], [0, 3, np.inf, 4, 1], [0, 3, 0, 4, -np.inf])
    )
    full = np.array([3, 5], dtype), np.array([3, 4], dtype), np.array([3, 4], dtype)
    found, plain = measured(x, d, p), measured(*full)
    for name in ("spread", "movement", "error", "lag", "rms"):
        assert getattr(found, name) == getattr(plain, name)
    assert (found.minimum, found.maximum, found.zeros, found.not_finite) == (1, 5, 0, 1)
    assert found.quantiles is None
    assert measured(np.full(3, np.nan, np.float32)) == Figures()  # a restore says it


def test_a_complex_number_is_two() -> None:
    x, d = np.array([3 + 4j, 1j]), np.array([3 + 2j, 0])
    assert measured(x, d) == measured(x.view(np.float64), d.view(np.float64))


def test_equal_values_spread_as_far_as_they_are_from_0() -> None:
    assert measured(np.full(9, -0.5)).spread == 0.5
    assert measured(np.array([np.nan, -0.5, -0.5])).spread == 0.5
    assert measured(np.zeros(4, np.float32)).spread == 0


@pytest.mark.parametrize("mean", [1e6, -1e9, 1e160])
def test_values_that_lie_close_together_far_from_0(mean: float) -> None:
    x = mean * (1 + 1e-8 * np.random.default_rng(0).normal(size=1000))
    found = measured(x, 2 * x)
    assert found.rms == pytest.approx(min(abs(mean), 3.4e38), rel=0.01)
    assert found.spread == pytest.approx(min(np.std(x / mean) * abs(mean), 3.4e38), rel=0.01)


def test_arrays_in_another_order_moved_as_far(tmp_path: Path) -> None:
    x, y = np.arange(9.0), np.arange(100.0, 109.0)
    with Chain(tmp_path, "lossless") as chain:
        save_all(chain, [{"x": x, "y": y}, {"y": y + 2, "x": x + 1}, {"y": y, "x": x + 2}])
        moved = [{a.name: a.figures.movement for a in chain.info(step).arrays} for step in (1, 2)]
    assert moved == [{"y": 2, "x": 1}, {"y": 2, "x": 1}]


def test_a_role_is_its_arrays_end_to_end() -> None:
    rng = np.random.default_rng(0)
    sizes = (30, 500)
    x, d, p = ([rng.normal(0, 10.0**i, n) for i, n in enumerate(sizes)] for _ in range(3))
    parts = [measured(*arrays) for arrays in zip(x, d, p, strict=True)]
    found = combined(zip(parts, sizes, strict=True))
    whole = measured(*(np.concatenate(each) for each in (x, d, p)))
    for name in ("movement", "error", "lag", "error_in_movements"):
        assert getattr(found, name) == pytest.approx(getattr(whole, name), rel=0.02)
    assert (found.minimum, found.maximum) == (whole.minimum, whole.maximum)
    assert found.rms == pytest.approx(whole.rms, rel=0.01)
    new = (Figures(1.0, None, 9.0, None), 10)
    partly = combined([*zip(parts, sizes, strict=True), new])  # its movement is not known
    assert (partly.movement, partly.lag, partly.error_in_movements) == (None, None, None)
    assert partly.error == pytest.approx(np.sqrt((530 * found.error**2 + 10 * 9.0**2) / 540))
    assert combined([new]) == Figures(1.0, None, 9.0, None)
    assert combined([]) == Figures()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("sign", [-1, 1, 0])
def test_extremes_are_those_of_all_elements(dtype: type, sign: int) -> None:
    """Also where a single one is not in the sample, and where all have one sign."""
    x = np.random.default_rng(0).normal(size=70_000)
    x = (np.abs(x) * sign if sign else x).astype(dtype)
    parts = x.view(np.float32) if dtype is np.complex64 else x
    found = measured(x)
    assert found.minimum == pytest.approx(float(parts.min()), rel=2**-8)
    assert found.maximum == pytest.approx(float(parts.max()), rel=2**-8)
    assert found.not_finite == 0
    x[[4321, 4323]] = 7, np.nan
    x[69_999] = -np.inf
    found = measured(x)
    assert (found.maximum, found.not_finite) == (7, 2)


def test_zeros_are_a_share_and_all_of_them_only_if_all_are() -> None:
    x = np.zeros(100_000, np.float32)
    assert measured(x).zeros == 1
    x[17] = 1
    assert measured(x).zeros == 1 - 2**-8
    x[::2] = 1
    assert measured(x).zeros == pytest.approx(0.5, abs=0.02)
    assert measured(np.array([0.0, -0.0, 1, np.nan])).zeros == pytest.approx(2 / 3, rel=0.01)


@pytest.mark.parametrize("size", [1, 7, 600, 50_000])
def test_quantiles_are_those_of_the_values(size: int) -> None:
    x = np.random.default_rng(size).gamma(2, size=size).astype(np.float32)
    found = measured(x).quantiles
    assert found is not None and list(found) == sorted(found)
    shares = [float(np.mean(x <= value * 1.004)) for value in found]  # rounded by less
    assert shares == pytest.approx(QUANTILES, abs=0.06 + 1 / size)


def wide(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Second moments as wide as those of a large embedding: now, as restored, and before."""
    rng = np.random.default_rng(size)
    scales = rng.lognormal(0, 1.5, size)
    v = scales**2 * rng.gamma(2, 0.5, size)
    x = 0.97 * v + 0.03 * np.square(scales * rng.normal(size=size))
    return tuple(a.astype(np.float32) for a in (x, x * rng.uniform(0.97, 1.04, size), v))


@pytest.mark.parametrize("size", [9_000, 70_000, 2_500_000])
def test_few_elements_decide_over_second_moments(size: int) -> None:
    x, decoded, before = wide(size)
    found = measured(x, decoded, before, "second_moment")
    assert found.rms == pytest.approx(rms(x), rel=0.03)
    assert found.spread == pytest.approx(x.std(dtype=np.float64), rel=0.03)
    assert found.error == pytest.approx(rms(decoded.astype(np.float64) - x), rel=0.05)
    assert found.movement == pytest.approx(rms(x.astype(np.float64) - before), rel=0.1)
    if size > 1 << 18:  # others of its elements count for too much or too little
        assert measured(x, decoded, before).rms != pytest.approx(rms(x), rel=0.1)


def test_second_moments_that_are_no_numbers() -> None:
    x, decoded, before = wide(300_000)
    plain = measured(x, decoded, before, "second_moment")
    x[::1000], decoded[7::1000], before[5::1000] = np.nan, np.inf, -np.inf
    found = measured(x, decoded, before, "second_moment")
    assert found.not_finite == 300
    for name in ("rms", "movement", "error"):
        assert getattr(found, name) == pytest.approx(getattr(plain, name), rel=0.1)
    nothing = np.full(300_000, np.nan, np.float32)
    assert measured(nothing, nothing, nothing, "second_moment") == Figures()


@pytest.mark.parametrize("value", [0.0, -0.5, 1e-30])
def test_equal_second_moments(value: float) -> None:
    x = np.full(300_000, value, np.float32)
    found = measured(x, x + np.float32(1), x, "second_moment")
    assert found.spread == found.rms == pytest.approx(abs(value), rel=0.01)
    assert (found.movement, found.error, found.lag) == (0, 1, None)


@given(
    st.sampled_from([np.float16, np.float32, np.float64]).flatmap(
        lambda dtype: arrays.arrays(dtype, st.integers(1, 40), elements=arrays.from_dtype(np.dtype(dtype)))
    ),
    st.integers(1, 9),
)
def test_as_numpy_finds_them(x: np.ndarray, piece: int) -> None:
    kind, bits = components(x)
    found: list[int] = []
    pieces = [bits[start : start + piece] for start in range(0, bits.size, piece)]
    assert list(map(id, with_extremes(pieces, kind, found))) == list(map(id, pieces))
    *patterns, bad = found
    low, high = work(np.array(patterns, kind.bits), kind).tolist()
    finite = x[np.isfinite(x)]
    assert bad == x.size - finite.size
    if finite.size:
        assert (low, high) == (float(finite.min()), float(finite.max()))
    else:
        assert math.isnan(low) and math.isnan(high)


RNG = np.random.default_rng(0)
BASE = {
    "model": {
        "large.weight": RNG.normal(0, 1, (700, 500)).astype(np.float32),
        "small.weight": RNG.normal(0, 1, (30, 100)).astype(np.float32),
        "bias": RNG.normal(0, 1, 5).astype(np.float32),
    }
}


def state(step: int) -> dict[str, dict[str, np.ndarray]]:
    return {"model": {name: array * np.float32(1 + step / 100) for name, array in BASE["model"].items()}}


def figures(directory: Path, step: int) -> StoredFigures:
    with open_checkpoint(directory / f"{step:012d}.lcc.h5") as reader:
        assert reader.manifest.figures is not None
        return reader.manifest.figures


def figures_of_second(directory: Path, *, anew: bool, **options: object) -> StoredFigures:
    """Save two steps, in one chain or in two; return the figures of the second."""
    chain = Chain(directory, "balanced", **options)
    chain.save(0, state(0))
    if anew:
        chain.close()
        chain = Chain(directory)
    with chain:
        chain.save(1, state(1))
    return figures(directory, 1)


def test_the_exact_file_has_all_of_it(tmp_path: Path) -> None:
    anew = figures_of_second(tmp_path / "anew", anew=True)
    assert anew == figures_of_second(tmp_path / "kept", anew=False)
    assert not np.isnan(anew.read("movement", 3)).any()


@pytest.mark.slow
def test_a_state_that_grows_is_sampled_in_other_places(tmp_path: Path) -> None:
    """A chain that stays open looks into the exact file then, as one that is opened anew does."""
    names = [f"{number}.weight" for number in range(40)]
    first = {name: RNG.normal(0, 1, (100, 200)).astype(np.float32) for name in names[:10]}
    second = {name: array * np.float32(1.01) for name, array in first.items()}
    second |= {name: RNG.normal(0, 1, (100, 200)).astype(np.float32) for name in names[10:]}
    found = []
    for place in ("kept", "anew"):
        chain = Chain(tmp_path / place, "balanced")
        chain.save(0, first)
        if place == "anew":
            chain.close()
            chain = Chain(tmp_path / place)
        with chain:
            chain.save(1, second)
        found.append(figures(tmp_path / place, 1))
    assert found[0] == found[1]
    np.testing.assert_allclose(found[0].read("movement", 40)[:10], 0.01, rtol=0.2)


def test_what_lost_nothing_is_known_without_an_exact_file(tmp_path: Path) -> None:
    kept = figures_of_second(tmp_path / "kept", anew=False, newest="history")
    anew = figures_of_second(tmp_path / "anew", anew=True, newest="history")
    assert anew.since == 0
    assert np.isnan(anew.read("movement", 3)).tolist() == [True, True, False]
    assert anew.read("movement", 3)[2] == kept.read("movement", 3)[2]
    assert anew.read("error", 3).tolist() == kept.read("error", 3).tolist()


@pytest.mark.parametrize("place", [400, 1000, -40])
def test_a_damaged_exact_file_stops_no_save(tmp_path: Path, place: int) -> None:
    with Chain(tmp_path, "balanced") as chain:
        chain.save(0, state(0))
    path = tmp_path / "exact.lcc.h5"
    flip(path, place)
    with Chain(tmp_path) as chain:
        chain.save(1, state(1))
    assert figures(tmp_path, 1).since is None


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
            assert arrays[index].reshape(-1)[:: found.distances[index]].size == size
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
