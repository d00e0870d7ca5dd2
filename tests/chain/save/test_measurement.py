"""What a save measures, beside what was really lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lccodec import Chain
from lccodec.chain.read.info import Figures, combined, read_figures
from lccodec.chain.read.replay import DecodedArray
from lccodec.chain.save.measurement import Measurement
from lccodec.chain.save.plan import candidates
from lccodec.container.tree import flatten

from ...support.runs import arrays_of, run_states


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


@pytest.mark.parametrize("policy", ["balanced", "small"])
@pytest.mark.parametrize("how", ["sync", "workers", "anew"])
def test_of_a_run(tmp_path: Path, policy: str, how: str) -> None:
    states = run_states(7)
    chain = Chain(tmp_path, policy, keyframe_every=2, workers=2 if how == "workers" else None)
    for step, state in enumerate(states):
        if how == "anew":
            chain.close()
            chain = Chain(tmp_path, keyframe_every=2) if step else Chain(tmp_path, policy, keyframe_every=2)
        if how == "workers":
            chain.save_async(step, state)
        else:
            chain.save(step, state)
    with chain:
        chain.wait()
        assert any(chain.info(step).parent is None for step in range(1, 7))
        assert all(check(chain, states, step) for step in range(7))


def test_exact_arrays_lose_nothing(tmp_path: Path) -> None:
    states = run_states(3)
    with Chain(tmp_path, "lossless") as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
            assert check(chain, states, step) == 0


def measured(x: np.ndarray, decoded: np.ndarray | None = None, before: np.ndarray | None = None) -> Figures:
    found = {"": x if before is None else before}
    parents = {c.name: DecodedArray(c.kind, c.shape, c.bits) for c in candidates(flatten(found), {})}
    arrays = candidates(flatten({"": x}), parents)
    past = {} if before is None else Measurement(candidates(flatten(found), {})).samples
    after = candidates(flatten({"": x if decoded is None else decoded}), {})
    figures = Measurement(arrays).figures(
        {c.name: DecodedArray(c.kind, c.shape, c.bits) for c in after}, past, None if before is None else 3
    )
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
    assert measured(x, d, p) == measured(*full)
    assert measured(np.full(3, np.nan, np.float32)) == Figures()


def test_a_complex_number_is_two() -> None:
    x, d = np.array([3 + 4j, 1j]), np.array([3 + 2j, 0])
    assert measured(x, d) == measured(x.view(np.float64), d.view(np.float64))


def test_equal_values_spread_as_far_as_they_are_from_0() -> None:
    assert measured(np.full(9, -0.5)).spread == 0.5
    assert measured(np.array([np.nan, -0.5, -0.5])).spread == 0.5
    assert measured(np.zeros(4, np.float32)).spread == 0


def test_a_role_is_its_arrays_end_to_end() -> None:
    rng = np.random.default_rng(0)
    sizes = (30, 500)
    x, d, p = ([rng.normal(0, 10.0**i, n) for i, n in enumerate(sizes)] for _ in range(3))
    parts = [measured(*arrays) for arrays in zip(x, d, p, strict=True)]
    found = combined(zip(parts, sizes, strict=True))
    whole = measured(*(np.concatenate(each) for each in (x, d, p)))
    for name in ("movement", "error", "lag", "error_in_movements"):
        assert getattr(found, name) == pytest.approx(getattr(whole, name), rel=0.02)
    new = (Figures(1.0, None, 9.0, None), 10)
    assert combined([*zip(parts, sizes, strict=True), new]) == found  # its movement is not known
    assert combined([new]) == Figures(1.0, None, 9.0, None)
    assert combined([]) == Figures()
