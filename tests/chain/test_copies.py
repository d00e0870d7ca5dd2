"""Weights in mixed precision: a copy takes no bytes, and is the rounding of what is decoded."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import Chain, ChecksumError, Keep
from lccodec.element_types import BFLOAT16_BITS, narrow, widen

from ..support.damage import flip
from ..support.walks import assert_same, save_all

SHAPES = {"fc.weight": (40, 30), "fc.bias": (300,), "head.weight": (7, 300)}


def rounded(values: np.ndarray, name: str = "bfloat16") -> np.ndarray:
    return values.astype(np.float16) if name == "float16" else narrow(values).view(BFLOAT16_BITS)


def training(steps: int, dtype: str = "bfloat16") -> list[dict[str, Any]]:
    """A run whose optimizer keeps the float32 of the model's weights."""
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    states = []
    for step in range(steps):
        for name, shape in SHAPES.items():
            weights[name] = weights[name] + rng.normal(0, 1e-3, shape).astype(np.float32)
        states.append(
            {
                "model": {name: rounded(array, dtype) for name, array in weights.items()},
                "optimizer": {
                    "exp_avg": {n: (a * 0.1 + step).astype(np.float32) for n, a in weights.items()},
                    "exp_avg_sq": {n: np.square(a * 0.1) + 1e-6 for n, a in weights.items()},
                    "master": dict(weights),
                },
                "step": step,
            }
        )
    return states


def methods(chain: Chain, step: int) -> dict[str, str]:
    return {array.name: array.method for array in chain.info(step).arrays}


def assert_rounded(chain: Chain, step: int, dtype: str = "bfloat16") -> None:
    """The model of a step is its weights as they decode, rounded; and each is so on its own."""
    state = chain.restore(step, dtype="bits", exact=False)
    for name in SHAPES:
        expected = rounded(state["optimizer"]["master"][name], dtype)
        assert_same(state["model"][name], expected)
        key = f"model/{name}"
        assert_same(chain.restore(step, keys=[key], dtype="bits", exact=False), {key: expected})


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("policy", ["lossless", "balanced", "lc-3"])
def test_a_chain(tmp_path: Path, policy: str, dtype: str) -> None:
    states = training(4, dtype)
    with Chain(tmp_path, policy, newest="exact", keyframe_every=3) as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
            assert_same(chain.restore(dtype="bits"), state)
    with lccodec.open(tmp_path / "exact.lcc.h5") as exact:
        assert [array.method for array in exact.info().arrays].count("copy") == 3
    for step, state in enumerate(states):
        found = methods(chain, step)
        assert [name for name, method in found.items() if method == "copy"] == [f"model/{n}" for n in SHAPES]
        assert_rounded(chain, step, dtype)
        if policy == "lossless":
            assert_same(chain.restore(step, dtype="bits"), state)
        with chain.restore_iter(step, dtype="bits", exact=False) as leaves:
            assert_same(
                dict(leaves)["model/fc.weight"],
                chain.restore(step, dtype="bits", exact=False)["model"]["fc.weight"],
            )
    assert lccodec.validate(tmp_path, deep=True) == []


def test_the_plan_says_why(tmp_path: Path) -> None:
    first, second = training(2)
    chain = Chain(tmp_path, "balanced")
    chain.save(0, first)
    plan = {array.name: array for array in chain.plan(second)}
    copy, master = plan["model/fc.weight"], plan["optimizer/master/fc.weight"]
    assert (copy.stored, copy.frame, copy.role, copy.lossy) == ("copy", None, "weight", True)
    assert copy.why == "a parameter of the optimizer; the rounding of 'optimizer/master/fc.weight'"
    assert (master.stored, master.role, master.why) == ("delta", "weight", "the float32 of a weight")
    estimates = dict(zip(plan, chain.plan(second).estimates(), strict=True))
    assert (estimates["model/fc.weight"].stored_bytes, estimates["model/fc.weight"].error) == (0, 0.0)
    chain.save(1, second)
    info = {array.name: array for array in chain.info(1).arrays}
    assert (info["model/fc.weight"].stored_bytes, info["model/fc.weight"].lossy) == (0, True)
    assert info["optimizer/master/fc.weight"].role == "weight"
    assert info["model/fc.weight"].figures.error > 0


def test_without_copies_a_chain_is_larger(tmp_path: Path) -> None:
    """A copy takes no frame; an array of which one bit differs takes a whole one."""
    sizes = []
    for name, changed in (("copy", 0), ("other", 1)):
        with Chain(tmp_path / name, "lossless") as chain:
            for step, state in enumerate(training(3)):
                for array in state["model"].values():
                    array.view(np.uint16).reshape(-1)[0] ^= changed
                chain.save(step, state)
                assert_same(chain.restore(step, dtype="bits"), state)
        sizes.append(sum(chain.info(step).file_bytes for step in chain.steps))
    assert sizes[0] < 0.95 * sizes[1]


@pytest.mark.parametrize("exact", ["model/*", "*/master/*"])
def test_an_exact_array_is_no_copy_of_a_lossy_one(tmp_path: Path, exact: str) -> None:
    policy = lccodec.Policy("mine", {"weight": lccodec.ExponentBuckets(2)}, {exact: lccodec.Lossless()})
    with Chain(tmp_path, policy, newest="history") as chain:
        for step, state in enumerate(training(3)):
            chain.save(step, state)
            found = chain.restore(step, dtype="bits")
            assert_same(found["model"], state["model"])
            lost = any(
                (found["optimizer"]["master"][n] != state["optimizer"]["master"][n]).any() for n in SHAPES
            )
            assert lost == (step > 0 and exact == "model/*")
            copied = methods(chain, step)["model/fc.weight"] == "copy"
            assert copied == (exact != "model/*")


@pytest.mark.parametrize(
    ("patterns", "copied"),
    [
        ({"*": lccodec.ExponentBuckets(3)}, True),
        ({"model/*": lccodec.ExponentBuckets(4), "*": lccodec.ExponentBuckets(3)}, False),
        ({"*": lccodec.UniformDeadzone(max_error=1e-3)}, False),
        ({"*": lccodec.Lossless()}, True),
    ],
)
def test_a_copy_keeps_what_the_policy_promises_of_it(
    tmp_path: Path, patterns: dict[str, Any], copied: bool
) -> None:
    policy = lccodec.Policy("mine", {}, patterns)
    with Chain(tmp_path, policy, newest="history") as chain:
        for step, state in enumerate(training(2)):
            chain.save(step, state)
            assert (methods(chain, step)["model/fc.weight"] == "copy") == copied
            for name in SHAPES if "*" in patterns and patterns["*"].max_error is not None else ():
                found = chain.restore(step, dtype="float32")["model"][name]
                assert np.abs(found - widen(state["model"][name].view(np.uint16))).max() <= 1e-3


def test_what_did_not_change_is_no_copy(tmp_path: Path) -> None:
    (state,) = training(1)
    with Chain(tmp_path, "balanced") as chain:
        chain.save(0, state)
        decoded = chain.restore(0, dtype="bits", exact=False)
        for step in (1, 2):
            chain.save(step, decoded)
            assert set(methods(chain, step).values()) == {"unchanged"}
            assert_rounded(chain, step)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"hindsight": 4}, {"keyframe_every": 3}])
def test_the_life_of_a_chain(tmp_path: Path, options: dict[str, Any]) -> None:
    chain = Chain(tmp_path / "run", "balanced", **options)
    with chain:
        save_all(chain, training(10))
    if "hindsight" in options:
        assert "interpolated" in {chain.info(step).kind for step in chain.steps}

    def check(found: Chain) -> None:
        assert lccodec.validate(found.directory, deep=True) == []
        for step in found.steps:
            assert set(list(methods(found, step).values())[:3]) == {"copy"}
            assert_rounded(found, step)

    check(chain)
    average = chain.average(last=3, dtype="bits")
    assert average["model"]["fc.weight"].dtype == BFLOAT16_BITS
    chain.compact(keyframe_every=5)
    check(chain)
    chain.fork(tmp_path / "fork", 8)
    check(Chain(tmp_path / "fork"))
    chain.compact("small", hindsight=4, directory=tmp_path / "small")
    check(Chain(tmp_path / "small"))
    chain.prune(Keep(latest=2, every=3), rewrite=True)
    check(chain)
    lccodec.bundle(chain.directory, tmp_path / "run.lcc")
    assert lccodec.validate(tmp_path / "run.lcc", deep=True) == []
    chain.rollback(chain.steps[-2])
    check(chain)


def test_single_files(tmp_path: Path) -> None:
    (state,) = training(1)
    lccodec.save_file(state, tmp_path / "a.lcc.h5")
    assert_same(lccodec.load_file(tmp_path / "a.lcc.h5", dtype="bits"), state)
    with lccodec.open(tmp_path / "a.lcc.h5") as file:
        assert_same(file.get("model/fc.weight", dtype="bits"), state["model"]["fc.weight"])
        assert sum(array.stored_bytes for array in file.info().arrays if array.method == "copy") == 0


def test_damage_to_a_source_is_damage_to_its_copy(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless") as chain:
        save_all(chain, training(3))
    path = tmp_path / "000000000001.lcc.h5"
    with lccodec.chain.read.checkpoint.open_file(path) as file:
        link = file.links[-1]
        frame = link.frame_of(link.names["optimizer/master/head.weight"])
        place = lccodec.constants.PAYLOAD_OFFSET + sum(f.length for f in link.manifest.frames[: frame + 1])
    flip(path, place - 20)
    for step in (1, 2):
        for key in ("model/head.weight", "optimizer/master/head.weight"):
            with pytest.raises(ChecksumError):
                chain.restore(step, keys=[key])
        assert_same(chain.restore(step, keys=["step"]), {"step": step})
    rules = {problem.rule for problem in lccodec.validate(tmp_path, deep=True)}
    assert rules == {"LCC-MAN-08", "chain"}


KINDS = st.sampled_from(["rounded", "one bit", "still", "gone"])


@pytest.mark.slow
@given(
    st.lists(st.tuples(KINDS, KINDS), min_size=1, max_size=5),
    st.sampled_from(["lossless", "balanced", "lc-3"]),
    st.integers(1, 3),
    st.sampled_from(["bfloat16", "float16"]),
)
def test_any_course(
    tmp_path_factory: pytest.TempPathFactory,
    course: list[tuple[str, str]],
    policy: str,
    keyframe_every: int,
    dtype: str,
) -> None:
    """Copies come and go. What is exact is as it was; a copy is the rounding of what is decoded."""
    rng = np.random.default_rng(1)
    master = {name: rng.normal(size=(20, 30)).astype(np.float32) for name in "ab"}
    directory = tmp_path_factory.mktemp("course")
    with Chain(directory, policy, newest="history", keyframe_every=keyframe_every) as chain:
        for step, kinds in enumerate(course):
            model = {}
            for name, kind in zip("ab", kinds, strict=True):
                if kind != "still":
                    master[name] = master[name] + rng.normal(0, 1e-3, (20, 30)).astype(np.float32)
                if kind != "gone":
                    model[name] = rounded(master[name], dtype)
                if kind == "one bit":
                    model[name].view(np.uint16)[3, 4] ^= 1
            state = {"half": model, "params": {f"{n}.weight": a.copy() for n, a in master.items()}}
            chain.save(step, state)
            found = chain.restore(step, dtype="bits")
            exact = policy == "lossless" or (step == 0 and policy == "lc-3")
            assert_same(found, state) if exact else None
            for name, kind in zip("ab", kinds, strict=True):
                method = methods(chain, step).get(f"half/{name}")
                assert (method is None) == (kind == "gone")
                if method == "copy":
                    assert kind != "one bit"
                    assert_same(found["half"][name], rounded(found["params"][f"{name}.weight"], dtype))
                elif method is not None:
                    assert_same(found["half"][name], state["half"][name])
        assert lccodec.validate(directory, deep=True) == []
