"""What saves go by: the policy that is given, recorded, or usual; what is said of it once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import ArgumentError, Balanced, Chain, LccodecWarning, Policy, UniformDeadzone
from lccodec.policy.presets import POLICIES
from lccodec.policy.record import read_record
from lccodec.policy.roles import Assignment

from ...support.chains import HistoryChain
from ...support.walks import NAMES, assert_same, walk


@pytest.mark.parametrize(
    "policy", ["lossless", "lc-2", Policy("mine", {"weight": UniformDeadzone(step=0.5)})]
)
def test_without_a_policy_a_chain_goes_on_with_the_one_it_has(tmp_path: Path, policy: str | Policy) -> None:
    states = walk(6)
    with HistoryChain(tmp_path, policy=policy, roles={"layer/bias": "other"}) as chain:
        chain.save(0, states[0])
        chain.save(1, states[1])
        recorded, roles = chain.policy, chain.roles
    for step in (2, 3):
        with HistoryChain(tmp_path) as chain:
            assert (chain.policy, chain.roles) == (recorded, roles)
            chain.save(step, states[step])
            np.testing.assert_array_equal(chain.restore()["layer"]["bias"], states[step]["layer"]["bias"])
            exact = bool((chain.restore()["layer"]["weight"] == states[step]["layer"]["weight"]).all())
            assert exact == (policy == "lossless")
            assert chain.info().policy == chain.info(0).policy


def test_another_policy_is_said_aloud(tmp_path: Path) -> None:
    states = walk(6)
    HistoryChain(tmp_path, policy="lossless").save(0, states[0])
    chain = HistoryChain(tmp_path, policy="lc-3")
    with pytest.warns(
        LccodecWarning, match="with the policy 'lossless', and now continues with 'lc-3'"
    ) as told:
        chain.save(1, states[1])
    assert told[0].filename == __file__
    chain.save(2, states[2])  # once
    HistoryChain(tmp_path, policy="lc-3").save(3, states[3])
    HistoryChain(tmp_path, policy=POLICIES["lc-3"]).save(4, states[4])


def test_a_new_chain_is_balanced(tmp_path: Path) -> None:
    assert HistoryChain(tmp_path).policy == HistoryChain(tmp_path / "new").policy == POLICIES["balanced"]


def test_the_policy_is_that_of_the_newest_checkpoint_that_can_be_read(tmp_path: Path) -> None:
    states = walk(4)
    with HistoryChain(tmp_path, policy="lossless") as chain:
        chain.save(0, states[0])
        chain.save(1, states[1])
    (tmp_path / NAMES[1]).write_bytes(b"damaged")
    assert HistoryChain(tmp_path).policy.name == "lossless"
    (tmp_path / NAMES[0]).write_bytes(b"damaged")
    with pytest.warns(LccodecWarning, match=f"cannot be read; saves are lossless: .*{NAMES[1]}"):
        assert HistoryChain(tmp_path).policy.name == "lossless"


def test_a_policy_that_is_given_needs_none_that_can_be_read(tmp_path: Path) -> None:
    """Nothing is said of lossless, nor of a policy that the chain never had."""
    states = walk(3)
    HistoryChain(tmp_path, policy="lc-3").save(0, states[0])
    (tmp_path / NAMES[0]).write_bytes(b"damaged")
    chain = HistoryChain(tmp_path, policy="lc-3")
    with pytest.warns(LccodecWarning) as told:
        chain.save(1, states[1])
    assert [f"{NAMES[0]}" in str(warning.message) for warning in told] == [True]
    assert "writes a keyframe instead of a delta" in str(told[0].message)
    assert read_record(chain.info().policy).policy == POLICIES["lc-3"]


def test_a_policy_of_another_version_is_not_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = walk(3)
    with monkeypatch.context() as patch:
        patch.setattr("lccodec.chain.save.saver.write_record", lambda _: {"quantizer": "of the future"})
        HistoryChain(tmp_path, policy="lc-3").save(0, states[0])
    chain = HistoryChain(tmp_path)
    with pytest.warns(LccodecWarning, match="saves are lossless"):
        chain.save(1, states[1])
    assert_same(chain.restore(), states[1])


def test_a_target_out_of_reach_is_told_once(tmp_path: Path) -> None:
    states = walk(5, shape=(300, 40))
    with HistoryChain(tmp_path, Balanced(ratio=1e6)) as chain:
        chain.save(0, states[0])
        with pytest.warns(LccodecWarning, match=r"ratio=1000000\.0 cannot be met") as told:
            chain.save(1, states[1])
        assert told[0].filename == __file__
        chain.save(2, states[2])
        for step in range(3):
            chain.restore(step)


@pytest.mark.parametrize(
    ("how", "resumes"),
    [
        ("restore", True),
        ("open", False),
        ("restore later", False),
        ("restore old", False),
        ("exact", False),
        ("rollback", True),
    ],
)
def test_steps_are_narrow_after_a_run_goes_on_from_a_lossy_state(
    tmp_path: Path, how: str, resumes: bool
) -> None:
    """For three deltas, each wider than the one before."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal(100_000).astype(np.float32)
    chain = Chain(tmp_path, "balanced", newest="exact" if how == "exact" else "history")
    sizes = []
    for step in range(12):
        if (step, how) == (6, "rollback"):  # the same chain, which has saved before
            chain.save(6, {"weight": np.zeros_like(weight)})
            chain.rollback(5)
            chain.restore()
        elif step == 6:
            chain = Chain(tmp_path, "balanced")
        if (step, how) in [(6, "restore"), (6, "exact"), (8, "restore later")]:
            chain.restore()
        elif (step, how) == (6, "restore old"):
            chain.restore(4)
        weight = weight + np.float32(0.01) * rng.standard_normal(weight.size).astype(np.float32)
        sizes.append(chain.save(step, {"weight": weight}))
    before, narrow, after = sizes[3:6], sizes[6:9], sizes[9:]
    if resumes:
        assert narrow[0] > narrow[1] > narrow[2] > 1.2 * max(before)
        assert narrow[0] > 2 * max(before)
    else:
        assert max(narrow) < 1.1 * max(before)
    assert max(after) < 1.1 * max(before)


@pytest.mark.parametrize("method", ["save", "save_async", "plan"])
def test_a_setting_of_the_chain_that_is_given_to_a_save(tmp_path: Path, method: str) -> None:
    words = [{"w": np.ones(3)}] if method == "plan" else [0, {"w": np.ones(3)}]
    chain = Chain(tmp_path)
    with pytest.raises(ArgumentError, match=r"does not accept policy=: .*Chain\(directory, policy=\.\.\.\)$"):
        getattr(chain, method)(*words, policy="small")
    with pytest.raises(TypeError, match="unexpected keyword argument 'rolls'"):
        getattr(chain, method)(*words, rolls={})
    assert chain.steps == []


@pytest.mark.slow
@pytest.mark.parametrize("method", ["save", "save_async"])
def test_roles_for_one_save_are_by_name_or_pattern(tmp_path: Path, method: str) -> None:
    state = {"fc": {"x": np.ones(3), "y": np.zeros(3)}, "z": np.ones(3)}
    given: dict[str, Any] = {"fc/*": "weight", "z": Assignment("second_moment", "as the test says")}
    with Chain(tmp_path, "lc-3", newest="history") as chain:
        planned = {array.name: array.role for array in chain.plan(state, roles=given)}
        getattr(chain, method)(0, state, roles=given)
    with Chain(tmp_path, roles={"fc/y": "other"}) as chain:
        getattr(chain, method)(1, state, roles=given)
    found = [{array.name: array.role for array in chain.info(step).arrays} for step in (0, 1)]
    assert found[0] == planned == {"fc/x": "weight", "fc/y": "weight", "z": "second_moment"}
    assert found[1] == {**planned, "fc/y": "other"}  # what the chain was given goes before


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"w": "heavy"}, "the role of 'w' must be one of"),
        ({"v": "weight"}, "no array is named\n  'v'"),
        (["w"], "roles must be a mapping"),
    ],
)
def test_roles_for_one_save_are_checked(tmp_path: Path, roles: Any, message: str) -> None:
    chain = Chain(tmp_path)
    with pytest.raises(ArgumentError, match=message):
        chain.save(0, {"w": np.ones(3)}, roles=roles)
    assert chain.latest is None
