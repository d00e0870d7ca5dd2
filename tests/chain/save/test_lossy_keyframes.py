"""Lossy keyframes: deltas are taken against them as they are decoded, and moments stay safe."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import POLICIES, Balanced, Chain, LogSteps, Policy, UniformDeadzone
from lccodec.quantizers.uniform import KeyframeSteps

from ...support.adam import adam_states
from ...support.chains import HistoryChain
from ...support.directories import entries
from ...support.strategies import INTEGERS, arrays, bits_of, dtype_of, installed, random_array
from ...support.walks import assert_restores, assert_same, save_all

FLOATS = installed(["float16", "bfloat16", "float32", "float64"])

#: Every element of a delta is within this of what was saved, if the reference is as decoded.
BOUND = 1e-3

LOSSY = Policy(
    "lossy",
    {"weight": UniformDeadzone(max_error=BOUND), "second_moment": LogSteps(1.0)},
    keyframes={
        "weight": KeyframeSteps(first=1 / 4),
        "first_moment": UniformDeadzone(relative_step=5.0, absolute=True),
        "second_moment": LogSteps(1.0),
    },
)


def finite_of(*arrays: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.logical_and.reduce([np.isfinite(array) for array in arrays])


def state_of(name: str, seed: int, special: float, scale: float = 1.0) -> dict[str, Any]:
    """Weights and moments of one type, with hard values, beside arrays that must be exact."""
    rng = np.random.default_rng(seed)
    moment = random_array(name, (300,), seed + 1, special)
    second = np.abs(random_array(name, (300,), seed + 2, special))
    second[rng.random(300) < 0.2] = 0
    weight = random_array(name, (20, 15), seed, special)
    with np.errstate(all="ignore"):
        weight = (weight.astype(float) * scale).astype(weight.dtype)
    exact = {kind: random_array(kind, (9,), seed) for kind in INTEGERS}
    return {
        "weight": weight,
        "optimizer": {"exp_avg": moment, "exp_avg_sq": second},
        "empty": {"weight": weight[:0], "exp_avg_sq": second[:0]},
        "tiny": {"weight": weight.reshape(-1)[:1]},
        "other": {**exact, "table": random_array(name, (30,), seed + 3, 0.5)},
    }


def check_moments(saved: dict[str, Any], found: dict[str, Any]) -> None:
    with np.errstate(invalid="ignore"):
        before, after = (s["exp_avg_sq"].astype(np.longdouble) for s in (saved, found))
        kept = np.isfinite(before) & (before > 0)
        assert not (after < 0).any()
        np.testing.assert_array_equal(after == 0, before == 0)
        ratio = after[kept] / before[kept]
        most = LogSteps(1.0).max_ratio * (1 + 1e-6)
        assert ((ratio < most) & (ratio > 1 / most)).all()
        first, back = (s["exp_avg"].astype(np.longdouble) for s in (saved, found))
        sound = np.isfinite(first)
        assert (np.abs(back) <= np.abs(first) * 2.69)[sound].all()
        assert (back * first >= 0)[sound].all()
    np.testing.assert_array_equal(bits_of(found["exp_avg"][~sound]), bits_of(saved["exp_avg"][~sound]))


@given(
    st.sampled_from(FLOATS),
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.02, 1.0]),
    st.sampled_from(["deltas", "keyframes"]),
)
def test_any_state_of_any_type(name: str, seed: int, special: float, second: str) -> None:
    states = [state_of(name, seed, special), state_of(name, seed, special, 1.001)]
    states.append(states[1] | {"new": {"weight": random_array(name, (400,), seed, special)}})
    with tempfile.TemporaryDirectory() as directory:
        chain = HistoryChain(directory, LOSSY, keyframe_every=0 if second == "keyframes" else 9)
        for step, state in enumerate(states):
            chain.save(step, state)
            reopened = HistoryChain(directory).restore(step)
            assert_same(chain.restore(step), reopened)
            for part in ("other", "empty"):
                assert_same(reopened[part], state[part])
            assert reopened["weight"].dtype == dtype_of(name)
            check_moments(state["optimizer"], reopened["optimizer"])
        assert [chain.info(step).parent is None for step in chain.steps] == [
            True,
            *[second == "keyframes"] * 2,
        ]
        if second == "keyframes":
            return
        # Errors of the keyframe do not stay: the delta was taken against what it decodes to.
        first, restored = (chain.restore(step)["weight"].astype(np.longdouble) for step in (0, 1))
        saved = states[1]["weight"].astype(np.longdouble)
        sound = finite_of(first, saved)
        assert (np.abs(restored[sound] - saved[sound]) <= BOUND).all()


@pytest.mark.slow
@pytest.mark.parametrize("every", [0, 2])
@pytest.mark.parametrize("policy", ["balanced", "small"])
def test_keyframes_among_deltas(tmp_path: Path, every: int, policy: str) -> None:
    """A chain that is opened anew for each save goes on as one that stays open."""
    states = adam_states(6)
    kept = Chain(tmp_path / "kept", policy, keyframe_every=every)
    for step, state in enumerate(states):
        kept.save(step, state)
        with Chain(tmp_path / "anew", policy, keyframe_every=every) as chain:
            chain.save(step, state)
    assert [kept.info(step).deltas for step in kept.steps] == [step % (every + 1) for step in range(6)]
    for step in kept.steps:
        assert_same(Chain(tmp_path / "anew").restore(step), kept.restore(step))
    for one, other in zip(*(entries(tmp_path / name) for name in ("kept", "anew")), strict=True):
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
def test_a_later_keyframe_is_about_as_exact_as_a_delta_and_as_large_as_the_first(tmp_path: Path) -> None:
    states = adam_states(12)
    with HistoryChain(tmp_path, "balanced", keyframe_every=9) as chain:
        sizes = [chain.save(step, state) for step, state in enumerate(states)]
        errors = [
            np.std(chain.restore(step)["model"]["large"] - states[step]["model"]["large"])
            for step in chain.steps
        ]
    full = sum(array.nbytes for part in states[0].values() for array in part.values())
    assert full / 8 < sizes[0] < full / 4  # the first knows no movement
    assert 0.8 * sizes[0] < sizes[10] < 1.2 * sizes[0]
    assert errors[10] < 1.2 * errors[9]


def test_arrays_that_the_parent_does_not_have_are_as_in_a_keyframe(tmp_path: Path) -> None:
    """Whether steps are chosen for a target or not; integers and small arrays are exact."""
    rng = np.random.default_rng(0)
    old = {"weight": rng.standard_normal(5000)}
    new = {"weight": rng.standard_normal(5000), "bias": rng.standard_normal(100)}
    for number, policy in enumerate((POLICIES["balanced"], Balanced(error=0.5), LOSSY)):
        with HistoryChain(tmp_path / str(number), policy) as chain:
            chain.save(0, {"old": old})
            chain.save(1, {"old": old, "new": new, "count": np.arange(5000)})
            assert chain.info(1).parent == 0
            found = chain.restore(1)
        error = np.abs(found["new"]["weight"] - new["weight"]).max()
        assert 0 < error < 0.5
        np.testing.assert_array_equal(found["count"], np.arange(5000))
        if policy is not LOSSY:
            np.testing.assert_array_equal(found["new"]["bias"], new["bias"])


def test_a_plan_tells_of_arrays_that_only_keyframes_lose_of(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    state = {"weight": rng.standard_normal(5000), "table": rng.standard_normal(5000)}
    with HistoryChain(
        tmp_path, Policy("x", keyframes={"weight": KeyframeSteps()}), keyframe_every=1
    ) as chain:
        assert {array.name: array.lossy for array in chain.plan(state)} == {"weight": True, "table": False}
        chain.save(0, state)
        assert {array.name: array.lossy for array in chain.info().arrays} == {"weight": True, "table": False}
        state["weight"] += rng.standard_normal(5000)
        chain.save(1, state)
        assert_same(chain.restore(1), state)


@pytest.mark.parametrize("policy", ["lossless", "lc-2", "lc-3"])
def test_the_other_presets_have_exact_keyframes(tmp_path: Path, policy: str) -> None:
    states = adam_states(3)
    with HistoryChain(tmp_path, policy, keyframe_every=1) as chain:
        save_all(chain, states)
        assert_restores(chain, states, (0, 2))


@pytest.mark.slow
def test_layers_that_rest_take_part(tmp_path: Path) -> None:
    """An array of which nothing, or nothing of a sample, moved has no share to choose."""
    states = adam_states(4)
    for state in states:
        state["model"]["flat"] = states[0]["model"]["flat"].copy()
    states[2]["model"]["flat"][7] += 1
    with HistoryChain(tmp_path, "balanced", keyframe_every=2) as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
            flat = chain.restore(step)["model"]["flat"]
            assert np.abs(flat - state["model"]["flat"]).max() < 0.01


@pytest.mark.slow
@given(arrays(FLOATS, special=0.0))
def test_one_weight(array: np.ndarray) -> None:
    with tempfile.TemporaryDirectory() as directory, HistoryChain(directory, "balanced") as chain:
        chain.save(0, {"weight": array})
        chain.save(1, {"weight": array * array.dtype.type(2)})
        restored = HistoryChain(directory).restore(1)["weight"]
    assert (restored.shape, restored.dtype) == (array.shape, array.dtype)
    assert np.isfinite(restored).all()
