"""The policy of fields: a bound in every checkpoint of a chain, and nothing lossy by accident."""

from pathlib import Path

import numpy as np
import pytest

import lccodec

X = np.linspace(0, 6, 64)
RNG = np.random.default_rng(0)
NOISE = RNG.random((2000, 3))


def state(step: int) -> dict[str, np.ndarray]:
    """Return a wave that moves, on land that has no value, with what else a simulation keeps."""
    wave = np.sin(X - 0.05 * step)[:, None, None] * np.cos(X)[:, None] * np.cos(X[:8])
    ice = np.float32(1e3) * np.sin(X + 0.1 * step).astype(np.float32)[:, None] * np.ones(64, np.float32)
    ice += np.arange(64, dtype=np.float32) / 7
    ice[:9, 20:30] = 1e20
    return {
        "wave": wave,
        "ice": ice,
        "particles": NOISE + step,
        "ids": np.arange(5000) + step,
        "mask": (wave[..., 0] > 0).astype(np.float64),
        "axis": X,
    }


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"hindsight": 3}, {"workers": 2}, {"keyframe_every": 2}])
def test_the_bound_holds_at_every_step(tmp_path: Path, options: dict[str, int]) -> None:
    with lccodec.Chain(tmp_path, lccodec.fields(relative_error=1e-4), **options) as chain:
        for step in range(8):
            chain.save(step, state(step))
    with lccodec.Chain(tmp_path) as chain:
        found = [chain.restore(step) for step in range(8)]
    for step, restored in enumerate(found):
        for name, array in state(step).items():
            if name not in ("wave", "ice"):
                np.testing.assert_array_equal(restored[name], array)
                continue
            real = np.abs(array) < 1e15
            bound = 1e-4 * float(np.ptp(array[real].astype(np.float64)))
            off = np.abs(restored[name].astype(np.float64) - array)
            assert off[real].max() <= bound
            np.testing.assert_array_equal(restored[name][~real], array[~real])


def test_a_plan_says_what_is_smooth(tmp_path: Path) -> None:
    with lccodec.Chain(tmp_path, lccodec.fields(relative_error=1e-4)) as chain:
        told = {array.name: array for array in chain.plan(state(0))}
        chain.save(0, state(0))
        info = chain.info()
        later = {array.name: array for array in chain.plan(state(1))}
    for plan in (told, later):
        assert {name for name, array in plan.items() if array.lossy} == {"wave", "ice"}
        assert plan["wave"].why.endswith("; smooth")
        assert plan["wave"].guarantee == "error at most 0.0001 of the range"
        assert plan["particles"].why.endswith("; not smooth")
        assert plan["mask"].why.endswith("; not smooth")
        assert plan["axis"].why == "nothing names it"
        assert plan["particles"].quantizer == "Lossless()"
    assert {array.name for array in info.arrays if array.lossy} == {"wave", "ice"}
    assert info.file_bytes < sum(array.nbytes for array in state(0).values())


def test_the_first_save_counts_what_it_loses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with lccodec.Chain(tmp_path, lccodec.fields(relative_error=1e-4)) as chain:
        chain.save(0, state(0))
    lossy = state(0)["wave"].nbytes + state(0)["ice"].nbytes
    assert f"'fields' is lossy for {lossy} bytes" in caplog.text


def test_an_estimate_is_what_a_save_stores(tmp_path: Path) -> None:
    x = np.linspace(0, 9, 1100)
    field = np.sin(x)[:, None] * np.cos(x)
    with lccodec.Chain(tmp_path, lccodec.fields(1e-4)) as chain:
        (estimate,) = chain.plan({"field": field}).estimates()
        chain.save(0, {"field": field})
        (array,) = chain.info().arrays
    assert estimate.stored_bytes == pytest.approx(array.stored_bytes, abs=1)
    assert not estimate.sampled


def test_small_fields_have_frames_of_their_own(tmp_path: Path) -> None:
    wave = np.sin(X)[:, None] * np.cos(X)
    with lccodec.Chain(tmp_path, lccodec.fields(1e-4)) as chain:
        chain.save(0, {"a": wave, "b": wave[::-1].copy()})
        assert {array.method for array in chain.info().arrays} == {"smooth"}


def test_a_chain_goes_on_with_the_recorded_bound(tmp_path: Path) -> None:
    with lccodec.Chain(tmp_path, lccodec.fields(relative_error=1e-4)) as chain:
        chain.save(0, state(0))
    with lccodec.Chain(tmp_path) as chain:
        assert chain.policy == lccodec.fields(relative_error=1e-4)
        chain.save(1, state(1))
        assert {array.name for array in chain.info().arrays if array.lossy} == {"wave", "ice"}
