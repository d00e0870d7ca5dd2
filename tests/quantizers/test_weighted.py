import json
from pathlib import Path

import numpy as np
import pytest

from lccodec import ArgumentError, Balanced, Triggered, UniformDeadzone, decode, encode
from lccodec.element_types import components
from lccodec.parallel import PIECE
from lccodec.policy import balanced
from lccodec.policy.presets import resolve_policy
from lccodec.quantizers import grid
from lccodec.quantizers.uniform import Weighted

from ..support.adam import adam_states
from ..support.chains import HistoryChain
from ..support.strategies import dtype_of
from ..support.walks import save_all

STEP = UniformDeadzone(relative_step=2.0)


def weighted(moment: np.ndarray, typical: float = 1.0) -> Weighted:
    kind, bits = components(moment)
    return Weighted(STEP, bits, kind, typical)


def case(name: str = "float32", size: int = PIECE + 5000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An array, its reference and moments over 2**24, as they are found inside arrays."""
    rng = np.random.default_rng(0)
    before = rng.standard_normal(size)
    after = before + 0.1 * rng.standard_normal(size)
    moment = 2.0 ** rng.normal(0, 4, size)
    return after.astype(dtype_of(name)), before.astype(dtype_of(name)), moment.astype(np.float32)


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_the_zone_of_each_element(name: str) -> None:
    after, before, moment = case(name)
    coded = decode(encode(after, weighted(moment), before), before) != before
    d = np.abs(after.astype(float) - before)
    edge = 0.6 * 2 * np.sqrt(np.mean(d**2)) * np.clip(moment.astype(float) ** -0.125, 0.7, 4)
    tells = np.abs(d / edge - 1) > 0.02  # not what is within rounding of an edge
    np.testing.assert_array_equal(coded[tells], (d > edge)[tells])


def test_a_flat_moment_changes_nothing() -> None:
    after, before, moment = case()
    assert encode(after, weighted(np.full_like(moment, 3), 3.0), before) == encode(after, STEP, before)


def test_the_weighted_error_is_lower_at_the_same_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the root of the second moment as its weight, and means as representatives."""
    monkeypatch.setattr(grid, "lead", np.zeros_like)
    after, before, moment = case(size=500_000)

    def weigh(quantizer: object) -> tuple[int, float]:
        frame = encode(after, quantizer, before)
        error = decode(frame, before).astype(float) - after
        return len(frame), float(np.sum(error**2 * np.sqrt(moment)))

    size, damage = weigh(weighted(moment, typical=float(np.mean(moment**0.25)) ** 4))
    finer, coarser = (weigh(UniformDeadzone(relative_step=step)) for step in (2.0, 2.2))
    assert size < finer[0]
    assert damage < finer[1] < coarser[1]


@pytest.mark.parametrize("hard", [0.0, -1.0, np.nan, np.inf, 1e-45])
def test_hard_moments(hard: float) -> None:
    """A negative moment or NaN does not change the zone; 0 and infinity give its extremes."""
    after, before, moment = case()
    moment[:] = hard
    after[::1000] = np.nan
    restored = decode(encode(after, weighted(moment), before), before)
    np.testing.assert_array_equal(np.isnan(restored), np.isnan(after))
    rms = 0.1
    assert np.nanmax(np.abs(restored - after)) < 0.6 * 2 * rms * 4 * 1.1
    if hard == -1 or np.isnan(hard):
        np.testing.assert_array_equal(restored, decode(encode(after, STEP, before), before))


@pytest.mark.slow
def test_balanced_weighs_with_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With means, the same bytes give less weighted error; files restore the closed loop."""
    monkeypatch.setattr(grid, "lead", np.zeros_like)
    monkeypatch.setattr(balanced, "lead", np.zeros_like)
    states = adam_states(6)
    sizes, damages = [], []
    for policy in (Balanced(error=0.9), Balanced(error=0.83, joint=True)):
        directory = tmp_path / str(policy.joint)
        with HistoryChain(directory, policy, keyframe_every=100) as chain:
            sizes.append(sum([chain.save(step, state) for step, state in enumerate(states)][1:]))
        restored = HistoryChain(directory).restore()["model"]["large"]
        error = restored - states[-1]["model"]["large"].astype(float)
        damages.append(np.sum(error**2 * np.sqrt(states[-1]["exp_avg_sq"]["large"])))
    assert sizes[1] < 1.01 * sizes[0]
    assert damages[1] < 0.95 * damages[0]


@pytest.mark.parametrize("error", [0.1, 3.0])
def test_small_arrays_and_those_without_moments_are_as_before(tmp_path: Path, error: float) -> None:
    states = [{"model": state["model"], "exp_avg_sq": {}} for state in adam_states(3)]
    files = []
    for joint in (False, True):
        policy = Balanced("x", error=error, joint=joint)
        with HistoryChain(tmp_path / str(joint), policy, roles={"model/*": "weight"}) as chain:
            save_all(chain, states)
            files.append(chain.restore()["model"])
    for name, array in files[0].items():
        np.testing.assert_array_equal(array, files[1][name])
    assert not np.array_equal(files[0]["large"], states[-1]["model"]["large"])


def test_a_trigger_goes_first(tmp_path: Path) -> None:
    states = adam_states(2)
    states[1]["model"]["flat"] = states[0]["model"]["flat"] * np.float32(1.0001)
    policy = Balanced(error=0.8, joint=True, roles={"weight": Triggered(STEP, 0.005)}, keyframes="exact")
    with HistoryChain(tmp_path, policy) as chain:
        save_all(chain, states)
        methods = {array.name: array.method for array in chain.info().arrays}
    assert methods["model/flat"] == "unchanged"
    assert methods["model/large"] == "codebook"


def test_what_lies_before_the_first_bin_is_in_it() -> None:
    """Where no difference would reach the zone without moments."""
    before = np.zeros(30_000, np.float32)
    after = np.where(np.arange(before.size) % 2, 1, -1).astype(np.float32)  # half a step: 0.6 do not wait
    restored = decode(encode(after, weighted(np.full_like(after, 1e9)), before), before)
    np.testing.assert_array_equal(restored, after)
    assert not decode(encode(after, STEP, before), before).any()


def test_json_and_text() -> None:
    policy = Balanced("mine", ratio=50, joint=True)
    assert resolve_policy(json.loads(json.dumps(policy.to_json()))) == policy
    assert str(policy).startswith("mine, ratio=50, joint\n")
    assert "joint" not in Balanced(ratio=50).to_json()
    with pytest.raises(ArgumentError, match="joint must be True or False"):
        Balanced(ratio=50, joint=1)
