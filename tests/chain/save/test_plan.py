"""What a step stores: nothing that did not change, the smaller of two codings, each array once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import Chain, Lossless, Policy, UniformDeadzone, encode
from lccodec.frame.content import MAX_SHARED_COMPONENTS

from ...support.adam import adam_states
from ...support.walks import walk


def test_what_did_not_change_costs_at_most_16_bytes(tmp_path: Path) -> None:
    still = {f"still {i}": np.random.default_rng(i).standard_normal(100) for i in range(500)}
    with Chain(tmp_path, policy="lc-2") as chain:
        chain.save(0, {"weight": np.zeros(10), **still})
        with_still = chain.save(1, {"weight": np.ones(10), **still})
        info = chain.info()
    assert {a.method for a in info.arrays if a.name != "weight"} == {"unchanged"}
    with Chain(tmp_path / "other", policy="lc-2") as chain:
        chain.save(0, {"weight": np.zeros(10)})
        without = chain.save(1, {"weight": np.ones(10)})
    assert with_still - without <= 16 * len(still)


def test_one_object_twice_is_stored_once(tmp_path: Path) -> None:
    shared = np.random.default_rng(0).standard_normal((50, 50))
    with Chain(tmp_path, policy="lossless") as chain:
        alone = chain.save(0, {"a": shared, "b": None})
        twice = chain.save(1, {"a": shared + 1, "b": None})
        tied = shared + 2
        chain.save(2, {"a": tied, "b": tied})
        state = chain.restore()
        chain.save(3, {"a": tied + 1, "b": [tied, tied]})
    assert state["a"] is state["b"]
    assert alone and twice
    with Chain(tmp_path) as chain:
        last = chain.restore()
    assert last["b"][0] is last["b"][1] is not last["a"]
    np.testing.assert_array_equal(last["a"], tied + 1)


def test_lossless_takes_the_smaller_coding(tmp_path: Path) -> None:
    """A first moment alone, weights and second moments as differences, every bit of all."""
    states = adam_states(3)
    with Chain(tmp_path, "lossless") as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
            restored = chain.restore()
            for part, arrays in state.items():
                for name, array in arrays.items():
                    np.testing.assert_array_equal(restored[part][name], array)
        stored = {array.name: array for array in chain.info().arrays}
    for name, array in stored.items():
        if array.shape[0] > MAX_SHARED_COMPONENTS:
            assert array.relative == (not name.startswith("exp_avg/"))
    last, before = (state["exp_avg"]["large"] for state in states[:0:-1])
    assert stored["exp_avg/large"].stored_bytes < 0.98 * len(encode(last, Lossless(), before))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_starts_at_zero_takes_no_more_than_its_difference(tmp_path: Path, dtype: type) -> None:
    """As the moments of a run that is tuned finely from another's weights."""
    rng = np.random.default_rng(0)
    m = (1e-4 * rng.standard_normal(100_000)).astype(dtype)
    state = {"exp_avg": m, "exp_avg_sq": m**2}
    with Chain(tmp_path, "lossless") as chain:
        chain.save(0, {name: np.zeros_like(array) for name, array in state.items()})
        chain.save(1, state)
        for array in chain.info().arrays:
            frame = encode(state[array.name], Lossless(), np.zeros_like(m))
            assert array.stored_bytes <= 1.0001 * len(frame)


def test_absolute_quantizers_need_no_parent(tmp_path: Path) -> None:
    """Neither alone nor in a run; what is unchanged is still taken from the parent."""
    generator = np.random.default_rng(0)
    policy = Policy("m", {"first_moment": UniformDeadzone(relative_step=1.0, absolute=True)})
    names = ["exp_avg/large", "exp_avg/small", "exp_avg/smaller"]
    moments = {
        name: generator.normal(size=size).astype(np.float32)
        for name, size in zip(names, (40_000, 500, 5), strict=True)
    }
    with Chain(tmp_path, policy=policy, roles={"exp_avg*": "first_moment"}) as chain:
        chain.save(0, {**moments, "w": np.ones(3)})
        moments = {name: -moment for name, moment in moments.items()}
        chain.save(1, {**moments, "w": np.ones(3)})
        restored = chain.restore()
        info = chain.info()
    assert info.parent == 0
    assert not any(array.relative for array in info.arrays)
    for name, moment in moments.items():
        assert (restored[name] * moment >= 0).all()
        assert 0.5 < np.linalg.norm(restored[name]) / np.linalg.norm(moment) < 1.1


def test_an_array_in_another_order_is_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a policy looks at all arrays before any is coded."""
    converted = 0
    contiguous = np.ascontiguousarray

    def counted(array: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal converted
        converted += array.shape == (300, 200)
        return contiguous(array, *arguments, **options)

    states = [np.asfortranarray(state["layer"]["weight"]) for state in walk(3, shape=(300, 200))]
    with Chain(tmp_path, "balanced") as chain:
        chain.save(0, {"weight": states[0]})
        monkeypatch.setattr(np, "ascontiguousarray", counted)
        for step in (1, 2):
            chain.save(step, {"weight": states[step]})
    assert converted == 2
