"""A check of the user holds for what is decoded, or nothing is lost."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import (
    ArgumentError,
    Chain,
    Checked,
    LccodecWarning,
    Lossless,
    Policy,
    Smooth,
    decode,
    encode,
    fields,
)
from lccodec.quantizers.registry import parse_quantizer, quantizer_json

X = np.linspace(0, 6, 80)
FIELD = np.sin(X)[:, None] * np.cos(X)


def energy_within(share: float) -> Callable[[np.ndarray, np.ndarray], bool]:
    def check(decoded: np.ndarray, original: np.ndarray) -> bool:
        old, new = (float(np.square(each, dtype=np.float64).sum()) for each in (original, decoded))
        return abs(new - old) <= share * old

    return check


def always(_decoded: np.ndarray, _original: np.ndarray) -> bool:
    return True


def never(_decoded: np.ndarray, _original: np.ndarray) -> bool:
    return False


@given(st.integers(1, 8), st.sampled_from(["float16", "float32", "float64"]))
def test_the_check_holds(power: int, dtype: str) -> None:
    check = energy_within(10.0**-power)
    array = FIELD.astype(dtype)
    restored = decode(encode(array, Checked(Smooth(max_error=0.1), check)))
    assert check(restored, array)
    assert np.abs(restored.astype(np.float64) - array).max() <= 0.1


def test_the_largest_bound_is_taken() -> None:
    seen = []

    def third(decoded: np.ndarray, original: np.ndarray) -> bool:
        seen.append(float(np.abs(decoded - original).max()))
        return len(seen) == 3

    frame = encode(FIELD, Checked(Smooth(relative_error=0.05), third))
    assert len(seen) == 3
    assert len(frame) == len(encode(FIELD, Smooth(max_error=0.05 * float(np.ptp(FIELD)) / 16)))
    assert seen[2] < seen[1] < seen[0]


@pytest.mark.parametrize("check", [None, never])
def test_what_does_not_hold_is_exact(check: Any) -> None:
    checked = Checked(Smooth(max_error=0.1), check)
    for array in (FIELD, FIELD * 1j, np.zeros((0, 3)), np.array(0.5), np.full(9, math.nan)):
        np.testing.assert_array_equal(decode(encode(array, checked)), array)


def test_rough_arrays_are_not_tried() -> None:
    noise = np.random.default_rng(0).random((50, 50))
    checked = Checked(Smooth(max_error=0.1, rough="exact"), always)
    np.testing.assert_array_equal(decode(encode(noise, checked)), noise)


@pytest.mark.slow
def test_a_chain_checks_what_it_will_decode(tmp_path: Path) -> None:
    check = energy_within(1e-5)
    quantizer = Checked(Smooth(max_error=0.1), check)
    policy = fields(1e-3, patterns={"wave": quantizer, "never": Checked(Smooth(1.0), never)})
    states = [
        {"wave": np.sin(X + step / 50)[:, None] * np.cos(X), "never": FIELD + step} for step in range(4)
    ]
    with Chain(tmp_path, policy, newest="history") as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
            told = {array.name: array for array in chain.info().arrays}
            assert (told["wave"].lossy, told["never"].lossy) == (True, False)
        why = {array.name: array.why for array in chain.plan({n: a + 1 for n, a in states[0].items()})}
        restored = [chain.restore(step) for step in range(4)]
    assert why["wave"].endswith("; the check holds")
    assert why["never"].endswith("; the check does not hold")
    for found, state in zip(restored, states, strict=True):
        assert check(found["wave"], state["wave"])
        np.testing.assert_array_equal(found["never"], state["never"])


@pytest.mark.slow
@pytest.mark.parametrize("keyframes", [1, 8])
def test_what_a_chain_restores_is_what_the_check_saw_last(tmp_path: Path, keyframes: int) -> None:
    seen: dict[tuple[int, float], bytes] = {}

    def mean_of_squares(decoded: np.ndarray, original: np.ndarray) -> bool:
        seen[original.size, float(original.flat[0])] = decoded.tobytes()
        return energy_within(1e-2)(decoded, original)

    policy = fields(1e-3, patterns={"*": Checked(Smooth(max_error=0.05), mean_of_squares)})
    sizes = (1, 2, 3, 7, 64, 65, 500, 501, 1023, 1024, 1025, 3000, 5000)
    with Chain(tmp_path, policy, newest="history", keyframe_every=keyframes) as chain:
        for step in range(3):
            # Arrays of one size begin with different numbers, so `seen` tells them apart.
            state = {
                f"{size}.{turn}": np.cos(np.linspace(step, 6 + step, size) + turn / 10).astype(np.float32)
                for size in sizes
                for turn in range(2)
            }
            chain.save(step, state)
            lossy = {array.shape[0] for array in chain.info().arrays if array.lossy}
            assert any(64 <= size < 1024 for size in lossy)
            for name, restored in chain.restore(step).items():
                original = state[name]
                if restored.tobytes() != original.tobytes():
                    assert restored.tobytes() == seen[original.size, float(original[0])], name


def test_a_resumed_chain_needs_the_check_again(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    policy = fields(1e-3, patterns={"wave": Checked(Smooth(max_error=0.1), energy_within(1e-5))})
    with Chain(tmp_path, policy, newest="history") as chain:
        chain.save(0, {"wave": FIELD})
    lossy = []
    for step, given_policy in enumerate((None, policy), 1):
        with Chain(tmp_path, given_policy, newest="history") as chain:
            chain.save(step, {"wave": FIELD * (1 + step)})
            lossy.append(chain.info().arrays[0].lossy)
    assert lossy == [False, True]
    assert not recwarn.list  # the policy is the same


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("waits", [False, True])
def test_saves_in_the_background_ask_the_check(tmp_path: Path, workers: int | None, waits: bool) -> None:
    """Workers do not have it: a thread of this process saves."""
    check, processes = energy_within(1e-5), set[int]()

    def asked(decoded: np.ndarray, original: np.ndarray) -> bool:
        processes.add(os.getpid())
        return check(decoded, original)

    policy = fields(1e-3, patterns={"wave": Checked(Smooth(max_error=0.1), asked)})
    told = pytest.warns(LccodecWarning, match="`Checked` is a function of this process")
    with told, Chain(tmp_path, policy, newest="history", workers=workers) as chain:
        if waits:
            chain.save(0, {"wave": FIELD})
        chain.save_async(1, {"wave": FIELD * 2}).result()
        assert all(chain.info(step).arrays[0].lossy for step in chain.steps)
        restored = chain.restore(1)["wave"]
    assert processes == {os.getpid()}
    assert check(restored, FIELD * 2)


def test_json_has_no_function() -> None:
    quantizer = Checked(Smooth(max_error=0.1), energy_within(1e-5))
    found = parse_quantizer(quantizer_json(quantizer))
    assert found == quantizer
    assert isinstance(found, Checked) and found.check is None
    assert Policy("p", patterns={"a": quantizer}).to_json()


@pytest.mark.parametrize("arguments", [(Lossless(),), (Smooth(1.0), 3), (None, energy_within(1.0))])
def test_arguments(arguments: Any) -> None:
    with pytest.raises(ArgumentError, match="Checked"):
        Checked(*arguments)
