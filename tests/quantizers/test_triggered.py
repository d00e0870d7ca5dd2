import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import (
    ArgumentError,
    Balanced,
    ExponentBuckets,
    LogSteps,
    Lossless,
    Policy,
    Triggered,
    UniformDeadzone,
    decode,
    encode,
)
from lccodec.element_types import components
from lccodec.frame.content import MAX_SHARED_COMPONENTS
from lccodec.policy.presets import resolve_policy
from lccodec.policy.roles import Assignment
from lccodec.quantizers.clusters import Clusters
from lccodec.quantizers.registry import parse_quantizer, quantizer_json

from ..support.adam import adam_states
from ..support.chains import HistoryChain
from ..support.strategies import dtype_of

FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


def calm(threshold: float, then: object = UniformDeadzone(relative_step=0.5)) -> Policy:
    return Policy("calm", {"weight": Triggered(then, threshold)})


def rms(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.abs(array.astype(np.complex128)) ** 2)))


def waits(array: np.ndarray, reference: np.ndarray, threshold: float = 0.1) -> bool:
    kind, bits = components(array)
    return Triggered(Lossless(), threshold).waits(bits, components(reference)[1], kind)


@pytest.mark.slow
@given(
    moves=st.lists(st.floats(0, 0.3), min_size=1, max_size=8),
    threshold=st.floats(1e-3, 0.5),
    size=st.sampled_from([1, 40, MAX_SHARED_COMPONENTS + 1]),
    scale=st.sampled_from([1e-20, 1e-3, 1.0, 1e15]),
    seed=st.integers(0, 2**32),
)
def test_the_error_of_what_waits_is_carried_and_bounded(
    moves: list[float], threshold: float, size: int, scale: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    walk = rng.standard_normal(size).astype(np.float32)
    stored = None
    with (
        tempfile.TemporaryDirectory() as directory,
        HistoryChain(directory, calm(threshold, Lossless())) as chain,
    ):
        for step, move in enumerate([0.0, *moves]):
            walk = (walk + move * rng.standard_normal(size)).astype(np.float32)
            state = (walk * scale).astype(np.float32)
            chain.save(step, {"w": state})
            restored = chain.restore()["w"]
            assert rms(restored.astype(float) - state) <= threshold * rms(state) * (1 + 1e-6)
            if (restored != state).any():  # it waits, on what it was
                np.testing.assert_array_equal(restored, stored)
            stored = restored


def test_a_quiet_array_takes_nothing_until_its_drift_adds_up(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    start = {name: rng.standard_normal(50_000).astype(np.float32) for name in ("quiet", "loud")}
    with HistoryChain(tmp_path, calm(0.035), roles={"*": "weight"}) as chain:
        stored = []
        for step in range(5):
            state = {
                "quiet": start["quiet"] * np.float32(1 + 0.01 * step),
                "loud": start["loud"] * (1 + step),
            }
            chain.save(step, state)
            stored.append([array.stored_bytes for array in chain.info().arrays if array.name == "quiet"])
            if step in (1, 2, 3):
                np.testing.assert_array_equal(chain.restore()["quiet"], start["quiet"])
        assert stored[1:4] == [[0], [0], [0]]
        assert stored[4][0] > 0
        assert rms(chain.restore()["quiet"] - state["quiet"]) < 0.01


def test_small_arrays_wait_one_by_one(tmp_path: Path) -> None:
    state = {name: np.linspace(1, 2, 30) for name in "abc"}
    with HistoryChain(tmp_path, calm(0.01), roles={"*": "weight"}) as chain:
        chain.save(0, state)
        chain.save(1, state | {"b": state["b"] * 1.2, "c": state["c"] * 1.001})
        assert [array.stored_bytes > 0 for array in chain.info().arrays] == [False, True, False]


@pytest.mark.parametrize("name", FLOATS)
def test_every_type_has_its_measure(name: str) -> None:
    rng = np.random.default_rng(0)
    before = rng.standard_normal(70_000).astype(dtype_of(name))
    assert waits((before * 1.05).astype(before.dtype), before)
    assert not waits((before * 1.2).astype(before.dtype), before)


@pytest.mark.parametrize("hard", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 99_999])
def test_what_is_not_finite_does_not_wait(hard: float, place: int, tmp_path: Path) -> None:
    before = np.ones(100_000, np.float32)
    after = before.copy()
    after[place] = hard
    assert waits(before, before)
    assert not waits(after, before)
    assert not waits(before, after)
    with HistoryChain(tmp_path, calm(0.5)) as chain:
        for step, array in enumerate([before, after]):
            chain.save(step, {"w": array})
        np.testing.assert_array_equal(chain.restore()["w"], after)


def test_extremes_do_not_wait() -> None:
    """Where squares overflow or vanish, and where the values are 0."""
    zero, huge, tiny = np.zeros(9), np.full(9, 1e300), np.full(9, 1e-300)
    assert not waits(huge, -huge)
    assert not waits(tiny, 2 * tiny)
    assert not waits(zero, tiny)
    assert not waits(zero, np.ones(9))


def test_alone_an_array_is_coded_by_what_it_triggers() -> None:
    rng = np.random.default_rng(0)
    before = rng.standard_normal(1000)
    after = before + 1e-3 * rng.standard_normal(1000)
    frame = encode(after, Triggered(ExponentBuckets(3), 0.9), before)
    assert frame == encode(after, ExponentBuckets(3), before)
    assert rms(decode(frame, before) - after) < 1e-3


def test_balanced_spends_nothing_on_what_waits(tmp_path: Path) -> None:
    """The arrays that do not wait have the bytes of the others, and the target holds."""
    states = adam_states(4)
    for state, first in zip(states, [states[0]] * 4, strict=True):
        state["model"]["flat"] = first["model"]["flat"] * np.float32(1.0001)
    policy = Balanced(
        "calm",
        Balanced(error=1).roles | {"weight": Triggered(UniformDeadzone(relative_step=2.0), 0.005)},
        max_bytes=60_000,
    )
    assert resolve_policy(json.loads(json.dumps(policy.to_json()))) == policy
    with HistoryChain(tmp_path, policy, keyframe_every=100) as chain:
        sizes = [chain.save(step, state) for step, state in enumerate(states)]
        assert 44_000 < max(sizes[1:]) < 70_000
        stored = {array.name: array.stored_bytes for array in chain.info().arrays}
    assert stored["model/flat"] == 0
    assert stored["model/large"] > 0


def test_text_and_json() -> None:
    policy = Policy(
        "mine", {"weight": Triggered(ExponentBuckets(2), 0.01)}, {"*head*": Triggered(Lossless(), 0.1)}
    )
    assert str(policy).splitlines()[1:3] == [
        "  *head*    Triggered(then=Lossless(), threshold=0.1)",
        "  weight    Triggered(then=ExponentBuckets(bits=2), threshold=0.01)",
    ]
    assert Policy.from_json(json.loads(json.dumps(policy.to_json()))) == policy
    for then in (Clusters(8), ExponentBuckets(1), Lossless(), UniformDeadzone(step=1.0)):
        assert parse_quantizer(quantizer_json(Triggered(then, 0.5))) == Triggered(then, 0.5)


@pytest.mark.parametrize("threshold", [0, 1, -0.1, np.nan, np.inf, "0.1", None])
def test_thresholds(threshold: object) -> None:
    with pytest.raises(ArgumentError, match="threshold must be a number between 0 and 1"):
        Triggered(Lossless(), threshold)


@pytest.mark.parametrize(
    "then",
    [
        *(LogSteps(1.0), Triggered(Lossless(), 0.1), UniformDeadzone(relative_step=5.0, absolute=True)),
        *("Lossless", None, Lossless),
    ],
)
def test_quantizers_that_do_not_wait(then: object) -> None:
    with pytest.raises(ArgumentError, match="Triggered: then must"):
        Triggered(then, 0.1)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ({"then": {"quantizer": "Huffman"}}, "unknown quantizer"),
        ({"then": {"quantizer": "LogSteps"}}, "then must be another quantizer; got LogSteps"),
        ({"then": "Lossless"}, "then must be another quantizer; got 'Lossless'"),
        ({}, "missing"),
    ],
)
def test_json_that_is_no_trigger(value: dict[str, object], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        parse_quantizer({"quantizer": "Triggered", "threshold": 0.1, **value})


def test_second_moments_do_not_wait(tmp_path: Path) -> None:
    trigger = Triggered(Lossless(), 0.1)
    with pytest.raises(ArgumentError, match="second moments must not be Triggered"):
        Policy("x", {"second_moment": trigger})
    with pytest.raises(ArgumentError, match="second moments must not be Triggered"):
        Balanced("x", {"second_moment": trigger}, error=1)
    state = {"exp_avg_sq": np.ones(9), "w": np.ones(9)}
    with HistoryChain(
        tmp_path, Policy("x", patterns={"*": trigger}), roles={"exp_avg_sq": "second_moment"}
    ) as chain:
        with pytest.raises(ArgumentError, match="'exp_avg_sq': second moments"):
            chain.save(0, state)  # at once, not when a run has trained up to its first delta
        assert chain.steps == []
    late = {"exp_avg_sq": np.ones(9), "w": np.ones(9)}
    with HistoryChain(tmp_path / "late", Policy("x", patterns={"*": trigger})) as chain:
        chain.save(0, {"w": late["w"]})
        for step in (1, 2, 3):  # moments that come with the first step of an optimizer cost no checkpoint
            late = {name: array * 1.01 for name, array in late.items()}
            chain.save(step, late, roles={"exp_avg_sq": Assignment("second_moment", "as the test says")})
            np.testing.assert_array_equal(chain.restore()["exp_avg_sq"], late["exp_avg_sq"])
    with HistoryChain(tmp_path, Policy("y", patterns={"*sq": LogSteps(), "*": trigger})) as chain:
        chain.save(0, state)
        chain.save(1, {name: array * 2 for name, array in state.items()})
