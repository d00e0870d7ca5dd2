import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from lccodec import POLICIES, ArgumentError, Balanced, LogSteps, Lossless, UniformDeadzone
from lccodec.policy.policy import Candidate
from lccodec.policy.presets import resolve_policy
from lccodec.policy.record import Record, write_record
from lccodec.policy.roles import Role, assign_roles, find_moments

from ..support.adam import ARRAYS, State, adam_states
from ..support.candidates import candidate
from ..support.chains import HistoryChain, deltas


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
