"""Balanced deltas: estimates on a sample, what shares a step, how fine steps are, what holds."""

import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import POLICIES, ArgumentError, Balanced, LogSteps, Lossless, UniformDeadzone, decode, encode
from lccodec.element_types import Array, components, element_type
from lccodec.policy import balanced
from lccodec.policy.balanced import (
    SAMPLE,
    correlations,
    entropy,
    iterations,
    left,
    moment_scale,
    moment_width,
    sample,
    widest,
)
from lccodec.policy.policy import Candidate, Past
from lccodec.policy.presets import resolve_policy
from lccodec.policy.record import Record, write_record
from lccodec.policy.roles import Role, assign_roles, find_moments

from ..support.adam import ARRAYS, State, adam_states
from ..support.candidates import candidate
from ..support.chains import HistoryChain, deltas
from ..support.tuning import tune


def full(state: State) -> int:
    return sum(array.nbytes for part in state.values() for array in part.values())


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [20, 40])
def test_the_ratio_is_met(tmp_path: Path, ratio: float) -> None:
    states = adam_states(6)
    sizes, _ = deltas(Balanced(ratio=ratio), tmp_path, states)
    for size in sizes:
        assert 0.85 * ratio < full(states[0]) / size < 1.5 * ratio


@pytest.mark.slow
def test_the_bytes_are_met(tmp_path: Path) -> None:
    sizes, _ = deltas(Balanced(max_bytes=50_000), tmp_path, adam_states(4))
    assert 35_000 < max(sizes) < 57_000


@pytest.mark.slow
@pytest.mark.parametrize("error", [0.3, 0.8])
def test_the_error_is_met_by_all_weights_together(tmp_path: Path, error: float) -> None:
    """Without second moments that tell them apart."""
    states = [{"model": state["model"]} for state in adam_states(8)]
    _, restored = deltas(Balanced(error=error), tmp_path, states)
    off = moved = 0.0
    for name in ("large", "flat"):
        last, before = (s["model"][name].astype(np.float64) for s in states[:-3:-1])
        off += np.square(restored["model"][name] - last).sum()
        moved += np.square(last - before).sum()
    assert np.sqrt(off / moved) == pytest.approx(error, rel=0.2)


@pytest.mark.slow
def test_what_matters_more_gets_more_bytes(tmp_path: Path) -> None:
    states = adam_states(5)
    _, restored = deltas(Balanced(ratio=30), tmp_path, states)
    errors = {name: np.std(restored["model"][name] - states[-1]["model"][name]) for name in ("large", "flat")}
    assert errors["large"] < 0.6 * errors["flat"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["balanced", "small"])
def test_an_update_of_the_presets_stays_bounded(tmp_path: Path, name: str) -> None:
    """|m / (sqrt(v) + eps)| of every element, after five lossy deltas."""
    states = adam_states(6)
    _, restored = deltas(POLICIES[name], tmp_path, states)
    for array in ARRAYS:
        before, after = (
            np.abs(s["exp_avg"][array].astype(float)) / (np.sqrt(s["exp_avg_sq"][array].astype(float)) + 1e-8)
            for s in (states[-1], restored)
        )
        assert (after <= before * 8 / 3 * LogSteps(3.0).max_ratio ** 0.5).all()


def candidates(states: list[State]) -> list[Candidate]:
    """The arrays of a delta from the first state to the second."""
    before, now = (
        {f"{part}/{name}": array for part, arrays in state.items() for name, array in arrays.items()}
        for state in states
    )
    roles = roles_of({name: array.shape for name, array in now.items()})
    return [candidate(name, array, roles[name], before=before[name]) for name, array in now.items()]


@pytest.mark.parametrize(
    ("target", "match"),
    [
        ({"ratio": 5000}, r"^ratio=5000 cannot be met: about \d+ is the nearest$"),
        ({"ratio": 1e6}, r"^ratio=1000000\.0 cannot be met: about \d+ is the nearest$"),
        ({"max_bytes": 2000}, r"^max_bytes=2000 cannot be met: about \d+ is the nearest$"),
        ({"error": 1e-5}, r"^error=1e-05 cannot be met: about 0\.\d+ is the nearest$"),
    ],
)
@pytest.mark.parametrize("joint", [False, True])
def test_a_target_out_of_reach_takes_the_nearest_and_tells(
    target: dict[str, float], match: str, joint: bool
) -> None:
    arrays = candidates(adam_states(2))
    settled = Balanced(**target, joint=joint).settle(arrays)
    assert settled.shortfall is not None
    assert re.search(match, settled.shortfall)
    nearest = {"error": 1e-9} if "error" in target else {"max_bytes": 1}
    extreme = Balanced(**nearest, joint=joint).settle(arrays)
    for name in ("model/large", "model/flat"):
        steps = [p.choose(name, "weight", arrays[0].kind, 1 << 16) for p in (settled, extreme)]
        one, other = (getattr(step, "then", step) for step in steps)
        assert one == other


def test_a_target_within_reach_has_no_shortfall() -> None:
    arrays = candidates(adam_states(2))
    for target in ({"ratio": 20}, {"max_bytes": 50_000}, {"error": 0.5}):
        assert Balanced(**target).settle(arrays).shortfall is None
    assert Balanced(ratio=500).settle([]).shortfall is None
    assert POLICIES["lc-3"].settle(arrays).shortfall is None
    assert Balanced(ratio=500).shortfall is None


@pytest.mark.parametrize("hard", [np.nan, np.inf, -1.0, 0.0])
def test_hard_second_moments(tmp_path: Path, hard: float) -> None:
    """They are kept as they are, and weights are balanced without them."""
    states = adam_states(3)
    for state in states:
        state["exp_avg_sq"]["large"][:] = hard
        state["exp_avg_sq"]["flat"][::2] = hard
        del state["exp_avg_sq"]["small"]  # a moment without its partner
    _, restored = deltas(POLICIES["balanced"], tmp_path, states)
    np.testing.assert_array_equal(restored["exp_avg_sq"]["large"], states[-1]["exp_avg_sq"]["large"])
    np.testing.assert_array_equal(restored["exp_avg_sq"]["flat"][::2], states[-1]["exp_avg_sq"]["flat"][::2])


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float16])
def test_second_moments_of_another_type(tmp_path: Path, dtype: type) -> None:
    """Those of an optimizer of 8 bits are integers, which tell no curvature; all are kept."""
    states = adam_states(3)
    for state in states:
        for name, v in state["exp_avg_sq"].items():
            state["exp_avg_sq"][name] = (v / v.max() * 255).astype(dtype)
    _, restored = deltas(Balanced(error=0.8, joint=True), tmp_path, states)
    if dtype != np.float16:
        for name, v in states[-1]["exp_avg_sq"].items():
            np.testing.assert_array_equal(restored["exp_avg_sq"][name], v)


def test_states_without_anything_to_balance(tmp_path: Path) -> None:
    for number, state in enumerate(({"n": np.arange(5)}, {}, {"w": np.ones(3)}, {"w": np.zeros(1000)})):
        with HistoryChain(tmp_path / str(number), Balanced(error=1.0)) as chain:
            chain.save(0, state)
            chain.save(1, {name: array + 1 for name, array in state.items()})
            for name, array in chain.restore().items():
                np.testing.assert_allclose(array, state[name] + 1)


def test_json() -> None:
    policy = Balanced("mine", patterns={"*head*": Lossless()}, max_bytes=1e6)
    assert resolve_policy(policy.to_json()) == policy
    assert write_record(Record(POLICIES["small"])) == "small"
    assert resolve_policy(POLICIES["small"].to_json()) == POLICIES["small"]
    with pytest.raises(ArgumentError, match="unexpected"):
        resolve_policy(policy.to_json() | {"speed": 1})


@pytest.mark.parametrize(
    "target", [{"ratio": 2, "error": 1}, {"ratio": 0}, {"error": float("nan")}, {"max_bytes": "1"}]
)
def test_at_most_one_sound_target(target: dict[str, float]) -> None:
    with pytest.raises(ArgumentError, match="policy 'balanced'"):
        Balanced(**target)


@pytest.mark.parametrize("movements", [1.0, (1.0,), (2.0, 1.0), (0.0, 1.0), ("a", 1.0)])
def test_limits_of_steps_must_be_two_numbers(movements: object) -> None:
    with pytest.raises(ArgumentError, match="movements"):
        Balanced(movements=movements)


def test_a_role_may_be_given_another_quantizer(tmp_path: Path) -> None:
    policy = Balanced(error=1.0, roles={"weight": UniformDeadzone(max_error=1e-4)})
    states = adam_states(3)
    _, restored = deltas(policy, tmp_path, states)
    for name, array in states[-1]["model"].items():
        assert np.abs(restored["model"][name] - array).max() <= 1e-4
        np.testing.assert_array_equal(restored["exp_avg_sq"][name], states[-1]["exp_avg_sq"][name])


def roles_of(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Role]:
    return {name: assignment.role for name, assignment in assign_roles(shapes).items()}


def test_moments_are_found_by_their_numbers_where_one_is_left_out() -> None:
    """Both biases of a recurrent layer have the same moments, which are stored once."""
    weights: dict[str, tuple[int, ...]] = {"m.w": (2, 3), "m.b": (3,), "m.c": (3,), "m.head": (4,)}
    moments = {f"state/{i}/exp_avg": shape for i, shape in ((0, (2, 3)), (1, (3,)), (3, (4,)))}
    roles: dict[str, Role] = dict.fromkeys(weights, "weight")
    roles |= dict.fromkeys(moments, "first_moment")
    assert find_moments(roles, weights | moments, "first_moment") == {
        "m.w": "state/0/exp_avg",
        "m.b": "state/1/exp_avg",
        "m.head": "state/3/exp_avg",
    }
    assert find_moments(roles, weights | moments | {"m.head": (5,)}, "first_moment") == {}
    twice = {name.replace("/3/", "/0/more/0/"): shape for name, shape in moments.items()}
    roles |= dict.fromkeys(twice, "first_moment")
    assert find_moments(roles, weights | moments | twice, "first_moment") == {}


def test_weights_and_their_second_moments() -> None:
    shapes = {"a/fc/w": (2, 3), "a/fc/b": (3,), "opt/0/nu/a/fc/w": (2, 3), "opt/0/nu/a/fc/b": (3,)}
    roles = roles_of(shapes)
    assert find_moments(roles, shapes, "second_moment") == {
        "a/fc/w": "opt/0/nu/a/fc/w",
        "a/fc/b": "opt/0/nu/a/fc/b",
    }
    moments = {f"state/{i}/{n}": s for n in ("exp_avg", "exp_avg_sq") for i, s in enumerate([(2, 3), (3,)])}
    numbered = {"m.w": (2, 3), "m.b": (3,), **moments}
    assert find_moments(roles_of(numbered), numbered, "second_moment") == {
        "m.w": "state/0/exp_avg_sq",
        "m.b": "state/1/exp_avg_sq",
    }
    other = {"w": (2,), "opt/v": (3,)}
    assert find_moments(roles_of(other), other, "second_moment") == {}


def test_what_takes_no_bytes_counts_for_a_ratio() -> None:
    rng = np.random.default_rng(0)
    before = rng.normal(size=20_000).astype(np.float32)
    after = before + rng.normal(0, 1e-3, 20_000).astype(np.float32)
    arrays = [candidate("w", after, "weight", before=before)]
    told = "w", "weight", arrays[0].kind, after.size

    def step(ratio: float, spared: int) -> object:
        return Balanced(ratio=ratio).settle(arrays, 1.0, spared).choose(*told)

    assert step(60, after.nbytes // 2) == step(40, 0) != step(60, 0)


def test_a_few_of_many_samples_tell_as_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    start = {f"w{i}": rng.standard_normal(900).astype(np.float32) for i in range(30)}
    moved = {name: array + np.float32(0.01) * rng.standard_t(4, 900) for name, array in start.items()}
    states = [{"model": start}, {"model": {name: array.astype(np.float32) for name, array in moved.items()}}]
    (all_of_them,), whole = deltas(Balanced(error=0.8), tmp_path / "all", states)
    tune(monkeypatch, pool_samples=3000)
    (few,), restored = deltas(Balanced(error=0.8), tmp_path / "few", states)
    assert abs(few / all_of_them - 1) < 0.15
    for name, array in states[1]["model"].items():
        error, least = (np.std(state["model"][name] - array) for state in (restored, whole))
        assert error < 1.2 * least


def test_small_arrays_are_one_part() -> None:
    rng = np.random.default_rng(0)
    arrays = []
    for name, size in (("model/a", 900), ("model/b", 700), ("model/large", 1 << 17), ("model/still", 900)):
        before = rng.standard_normal(size).astype(np.float32)
        after = before if name == "model/still" else before + np.float32(0.01) * rng.standard_normal(size)
        arrays.append(candidate(name, after.astype(np.float32), "weight", before=before))
    found = balanced.find_parts(Balanced(), arrays, waiting={"model/b"})
    assert [part.names for part in found] == [["model/a", "model/still"], ["model/large"]]
    assert found[0].count == 1800
    assert found[1].nbytes(2.0) < found[1].nbytes(1.0)


FLOAT = element_type(np.dtype(np.float32))
differences = st.lists(st.floats(-100, 100), min_size=1, max_size=50).map(np.array)


def test_the_entropy_of_even_bins() -> None:
    assert entropy(np.array([-2.0, -1.0, 0.0, 1.0] * 5), 1.0) == pytest.approx(2)
    assert entropy(np.array([3.0] * 9), 1.0) == 0


@given(differences, st.floats(0.01, 100))
def test_the_entropy_is_at_most_that_of_as_many_bins_as_elements(d: np.ndarray, step: float) -> None:
    assert -1e-9 <= entropy(d, step) <= np.log2(d.size) + 1e-9
    assert entropy(-d, step) == pytest.approx(entropy(d, step))


def test_a_smaller_step_costs_more_and_leaves_less() -> None:
    d = np.random.default_rng(0).standard_normal(4000)
    steps = [0.03, 0.1, 0.3, 1.0, 3.0]
    bits, rest = [entropy(d, step) for step in steps], [left(d, step) for step in steps]
    assert bits == sorted(bits, reverse=True)
    assert rest == sorted(rest)


@given(differences)
def test_a_zone_that_is_wider_than_all_leaves_all(d: np.ndarray) -> None:
    assert left(d, 1e4) == pytest.approx(float(np.mean(d**2)))
    assert entropy(d, 1e4) == 0


def test_what_is_left_in_a_bin_is_that_of_an_even_spread() -> None:
    d = np.linspace(10, 20, 10_000)
    assert left(d, 0.5) == pytest.approx(0.5**2 / 12)


def test_of_nothing_nothing_is_left() -> None:
    assert left(np.empty(0), 1.0) == 0


@pytest.mark.parametrize("size", [0, 1, SAMPLE, SAMPLE + 1, 10 * SAMPLE])
@pytest.mark.parametrize("relative", [False, True])
def test_a_sample_is_of_the_array_and_of_bounded_size(size: int, relative: bool) -> None:
    rng = np.random.default_rng(size)
    after = rng.standard_normal(size).astype(np.float32)
    before = rng.standard_normal(size).astype(np.float32) if relative else None
    all_of_it = after if before is None else after - before
    reference = None if before is None else before.view(np.uint32)
    found, share = sample(after.view(np.uint32), reference, FLOAT, False)
    assert found.dtype == np.float64
    assert share == (1 if size else 0)
    assert min(size, SAMPLE) <= found.size <= 2 * SAMPLE
    if size <= SAMPLE:
        np.testing.assert_array_equal(found, all_of_it)
    else:
        assert set(found) <= set(all_of_it.astype(np.float64))
        assert found[0] == all_of_it[0]
        assert found[-1] in all_of_it[-size // 10 :]  # and so it is of the whole array


@pytest.mark.parametrize("columns", [768, 1024, 2304])
def test_a_sample_sees_all_columns_of_a_matrix(columns: int) -> None:
    """As of joined projections, whose columns are of queries, keys and values."""
    values = np.tile(np.arange(columns, dtype=np.float32) * 3 // columns, (64, 1))
    found, _ = sample(values.reshape(-1).view(np.uint32), None, FLOAT, False)
    assert np.bincount(found.astype(int)).min() > found.size / 10


def test_what_is_not_finite_is_left_out_and_counted() -> None:
    values = np.array([1, np.nan, np.inf, 2], np.float32)
    found, share = sample(values.view(np.uint32), None, FLOAT, False)
    assert found.tolist() == [1, 2]
    assert share == 0.5


def test_a_sample_does_not_change_with_the_array() -> None:
    values = np.ones(10, np.float32)
    found, _ = sample(values.view(np.uint32), None, FLOAT, False)
    values[:] = 2
    assert found.tolist() == [1] * 10


@given(st.integers(1, 500), st.floats(0.05, 0.9))
def test_the_widest_zone_leaves_its_share(size: int, share: float) -> None:
    d = np.random.default_rng(size).standard_t(3, size)
    zone = widest(d, share)
    outside = np.square(d[np.abs(d) >= zone * (1 - 1e-12)]).sum()
    further = np.square(d[np.abs(d) >= zone * (1 + 1e-12)]).sum()
    assert further <= share * np.square(d).sum() * (1 + 1e-9) <= outside * (1 + 1e-8)


def test_of_nothing_any_zone_leaves_a_share() -> None:
    assert widest(np.zeros(5), 0.1) == widest(np.zeros(0), 0.1) == math.inf


MOMENT = "optimizer/state/0/exp_avg"
CHOSEN = {MOMENT: UniformDeadzone(relative_step=1.6, absolute=True)}


def with_past(name: str, role: Role, array: Array, before: Array | None = None) -> Candidate:
    past = None if before is None else Past(1, components(before)[1])
    return candidate(name, array, role, before=before, past=past)


def run_of_adam(interval: int, size: int = 2000, still: float = 0.0) -> list[Candidate]:
    """Return the arrays of a delta after random gradients, `interval` updates after the last.

    A share of the elements is `still`: they have moments, and have not moved since.
    """
    rng = np.random.default_rng(interval)
    moving = np.arange(size) >= still * size
    w, m, v = np.zeros(size), np.zeros(size), np.full(size, 1.0)
    before = w
    for iteration in range(60 + interval):
        if iteration == 60:
            before = w
        m = 0.9 * m + 0.1 * rng.standard_normal(size)
        w = w - 1e-3 * m / np.sqrt(v) * (moving if iteration >= 60 else 1)
    arrays = [array.astype(np.float32) for array in (w, before, m, v)]
    return [
        with_past("model/w", "weight", arrays[0], arrays[1]),
        with_past(MOMENT, "first_moment", arrays[2], arrays[2]),
        with_past(f"{MOMENT}_sq", "second_moment", arrays[3]),
    ]


@pytest.mark.parametrize("interval", [5, 20, 100])
def test_a_moment_explains_less_of_a_longer_movement(interval: int) -> None:
    (found,) = correlations(run_of_adam(interval), CHOSEN).values()
    # Of a sum of moments with a memory of 0.9: their covariance with the last over the spreads.
    lags = 0.9 ** np.abs(np.subtract.outer(np.arange(interval), np.arange(interval)))
    expected = lags[-1].sum() / np.sqrt(lags.sum())
    assert found == pytest.approx(-expected, abs=0.06)


def test_a_run_may_go_by_the_signs_of_its_moments() -> None:
    rng = np.random.default_rng(0)
    m = rng.laplace(size=2000).astype(np.float32)
    v = with_past(f"{MOMENT}_sq", "second_moment", np.ones(2000, np.float32))
    for update, with_v, expected in ((np.sign(m), False, 1.0), (m, False, 1.0), (np.sign(m), True, 0.71)):
        arrays = [
            with_past("model/w", "weight", -1e-3 * update, np.zeros(2000, np.float32)),
            with_past(MOMENT, "first_moment", m, m),
        ]
        (found,) = correlations([*arrays, v] if with_v else arrays, CHOSEN).values()
        assert found == pytest.approx(-expected, abs=0.02)


def test_elements_that_did_not_move_say_nothing() -> None:
    """As of embeddings: a batch touches some rows, and the moments of all others stay."""
    (dense,) = correlations(run_of_adam(5, 4000), CHOSEN).values()
    (sparse,) = correlations(run_of_adam(5, 4000, still=0.8), CHOSEN).values()
    assert sparse == pytest.approx(dense, abs=0.08)


def test_nothing_is_said_of_a_weight_that_stays_or_is_new() -> None:
    w, m, v = run_of_adam(5)
    w.past = Past(1, w.bits)
    assert correlations([w, m, v], CHOSEN) == {}
    w.past = None
    assert correlations([w, m, v], CHOSEN) == {}


def test_values_that_are_not_finite_are_left_out() -> None:
    w, m, v = run_of_adam(20)
    (clean,) = correlations([w, m, v], CHOSEN).values()
    broken = w.bits.view(np.float32).copy()
    broken[7], broken[8] = np.nan, np.inf
    w.bits = broken.view(np.uint32)
    (found,) = correlations([w, m, v], CHOSEN).values()
    assert found == pytest.approx(clean, abs=0.01)


def test_finer_where_the_moment_explains_more() -> None:
    assert moment_scale(1.0) < moment_scale(-0.5) == 1.0 < moment_scale(0.4) < moment_scale(0.0) <= 2.5
    assert moment_width(0.05) < moment_width(0.25) < moment_width(1.0)


@pytest.mark.parametrize(("interval", "finer"), [(5, True), (100, False)])
def test_a_policy_follows(interval: int, finer: bool) -> None:
    c = run_of_adam(interval, 5000)[1]
    settled = Balanced().settle(run_of_adam(interval, 5000))
    quantizer = settled.choose(c.name, c.role, c.kind, c.bits.size)
    assert isinstance(quantizer, UniformDeadzone)
    assert quantizer.relative_step is not None
    assert (quantizer.relative_step < 2.8) is finer


@pytest.mark.parametrize(
    ("count", "before", "expected"), [(30, 20, 10), (20, 20, math.inf), (3, 9, math.inf)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_optimizers_count_iterations(count: int, before: int, expected: float, dtype: type) -> None:
    step, slower = (
        candidate(
            f"optimizer/state/{place}/step", np.array(now, dtype), "other", before=np.array(then, dtype)
        )
        for place, now, then in ((0, count, before), (1, 900, 0))
    )
    assert iterations([*run_of_adam(20), step]) == expected
    assert iterations([step, slower]) == min(expected, 900)


def test_a_moment_reaches_some_iterations_whatever_it_explains() -> None:
    steps = []
    for passed in (None, 100, 20, 8):
        arrays = run_of_adam(100, 5000)
        counts = np.array(500, np.int32), np.array(500 - (passed or 0), np.int32)
        count = candidate("optimizer/count", counts[0], "other", before=counts[1])
        settled = Balanced().settle(arrays if passed is None else [*arrays, count])
        quantizer = settled.choose(MOMENT, "first_moment", arrays[1].kind, 5000)
        assert isinstance(quantizer, UniformDeadzone)
        steps.append(quantizer.relative_step)
    assert steps[0] == steps[1] >= steps[2] > steps[3]


def test_a_promise_widens_or_narrows_moments() -> None:
    c = run_of_adam(20, 5000)[1]
    steps = []
    for intervals in (0.05, 0.25, 1.0):
        settled = Balanced(intervals=intervals).settle(run_of_adam(20, 5000))
        quantizer = settled.choose(c.name, c.role, c.kind, c.bits.size)
        assert isinstance(quantizer, UniformDeadzone)
        steps.append(quantizer.relative_step)
    assert steps == sorted(steps)
    assert len(set(steps)) == 3


@pytest.mark.parametrize("policy", [Balanced(), Balanced(intervals=1.0)], ids=["balanced", "a promise"])
def test_a_moment_of_one_size_is_never_all_in_the_zone(policy: Balanced) -> None:
    """A gain of representatives cannot help where there are none."""
    w, m, v = run_of_adam(100, 5000)
    m.bits = np.copysign(np.float32(0.1), m.bits.view(np.float32)).view(np.uint32)
    settled = policy.settle([w, m, v])
    quantizer = settled.choose(m.name, m.role, m.kind, m.bits.size)
    decoded = decode(encode(m.bits.view(np.float32), quantizer))
    assert np.square(decoded).sum() > 0.2 * np.square(m.bits.view(np.float32)).sum()


def step_of(policy: Balanced, moved: Array, error: Array | float = 0.0) -> float:
    """The step of a weight whose differences are its movement and an error, in movements."""
    before = np.random.default_rng(1).normal(size=moved.size)
    w = with_past("model/fc.weight", "weight", before + moved, before + error)
    w.past = Past(1, before.view(np.uint64))
    quantizer = policy.settle([w]).choose(w.name, w.role, w.kind, w.bits.size)
    return (quantizer.bin_width(moved - error) or 0.0) / float(np.sqrt(np.square(moved).mean()))


def test_steps_of_weights_are_some_movements_wide() -> None:
    rng = np.random.default_rng(0)
    policy, normal = Balanced(movements=(1.2, 3.0)), 0.01 * rng.normal(size=5_000)
    assert step_of(policy, normal) == pytest.approx(1.3, abs=0.1)  # by the share
    sparse = normal * np.where(rng.random(5_000) < 0.2, 1.0, 0.01)  # most move by little
    assert step_of(Balanced(movements=(0.01, 3.0)), sparse) < 0.1
    assert step_of(policy, sparse) == pytest.approx(1.2, abs=0.1)
    error = 0.3 * rng.normal(size=5_000)  # of a jump before
    assert step_of(Balanced(movements=(1.2, 1e3)), normal, error) > 20
    assert step_of(policy, normal, error) == pytest.approx(3.0, rel=0.2)


def test_a_target_of_bytes_or_error_has_no_such_limits() -> None:
    moved = 0.01 * np.random.default_rng(0).normal(size=5_000)
    assert step_of(Balanced(max_bytes=1e6), moved) < 1
    assert step_of(Balanced(error=5.0), moved) > 3


def test_what_a_loss_has_judged_moves_the_limits() -> None:
    moved = 0.01 * np.random.default_rng(0).normal(size=5_000)
    widths = [step_of(Balanced(intervals=0.25, width=width), moved) for width in (0.5, 1.0, 2.0)]
    assert widths == pytest.approx([0.6, 1.2, 2.4], rel=0.3)


@pytest.mark.parametrize(("lost", "wide"), [(0.2, False), (0.8, True)])
def test_a_jump_does_not_widen_what_a_loss_has_judged(lost: float, wide: bool) -> None:
    """Weights move farther than the errors that were judged let expect."""
    rng = np.random.default_rng(0)
    moved, error = (0.01 * size * rng.normal(size=5_000) for size in (1.0, lost))
    step, unjudged = (step_of(Balanced(intervals=0.25, width=width), moved, error) for width in (2.0, 1.0))
    assert (step > 1.3 * unjudged) is wide


@pytest.mark.parametrize(
    ("octaves", "policy", "step"),
    [
        (0.01, Balanced(), 0.4),
        (0.14, Balanced(), 0.7),
        (0.3, Balanced(), 1.0),
        (0.01, Balanced(error=0.5), 0.4),
        (0.01, Balanced(ratio=30), 1.0),
    ],
)
def test_steps_of_second_moments_are_narrower_where_they_move_slowly(
    octaves: float, policy: Balanced, step: float
) -> None:
    rng = np.random.default_rng(0)
    before = np.exp2(rng.normal(-20, 2, 5_000))
    after = before * np.exp2(rng.normal(0, octaves, 5_000))
    v = candidate("opt/exp_avg_sq/fc.weight", after, "second_moment", before=before * 1.2)
    v.past = Past(1, before.view(np.uint64))
    quantizer = policy.settle([v]).choose(v.name, v.role, v.kind, v.bits.size)
    assert isinstance(quantizer, LogSteps)
    assert quantizer.step == pytest.approx(step, abs=0.05)
    v.past = None  # nothing is known of how they move
    unknown = policy.settle([v]).choose(v.name, v.role, v.kind, v.bits.size)
    assert unknown == LogSteps(1.0 if policy.ratio else 0.4)


@pytest.mark.parametrize(("movement", "limited"), [(0.02, False), (0.5, True)])
def test_a_step_is_at_most_a_quarter_of_the_spread_of_the_weights(movement: float, limited: bool) -> None:
    rng = np.random.default_rng(0)
    before = rng.normal(0, 0.1, 5_000)
    after = before + rng.normal(0, movement * 0.1, 5_000)
    w = candidate("fc.weight", after, "weight", before=before)
    w.past = Past(1, before.view(np.uint64))
    quantizer = Balanced().settle([w]).choose(w.name, w.role, w.kind, w.bits.size)
    step = quantizer.bin_width(after - before)
    assert step is not None
    assert (step < 0.9 * 1.35 * movement * 0.1) == limited
    assert step <= 1.1 * after.std() / 4
