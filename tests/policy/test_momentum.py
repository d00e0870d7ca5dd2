"""Steps of first moments: what they explain of the movement says how fine they must be."""

from __future__ import annotations

import numpy as np
import pytest

from lccodec import Balanced, UniformDeadzone, decode, encode
from lccodec.element_types import Array, components
from lccodec.policy.momentum import correlations, moment_scale, moment_width
from lccodec.policy.policy import Candidate, Past
from lccodec.policy.roles import Role

MOMENT = "optimizer/state/0/exp_avg"
CHOSEN = {MOMENT: UniformDeadzone(relative_step=1.6, absolute=True)}


def candidate(name: str, role: Role, array: Array, before: Array | None = None) -> Candidate:
    kind, bits = components(array)
    known = None if before is None else components(before)[1]
    past = None if known is None else Past(1, known)
    return Candidate(name, role, "", kind, array.shape, bits, known, past)


def run_of_adam(interval: int, size: int = 2000, still: float = 0.0) -> list[Candidate]:
    """Return the arrays of a delta after random gradients, `interval` updates after the last.

    A share of the elements is `still`: they have moments, and have not moved since.
    """
    rng = np.random.default_rng(interval)
    moving = np.arange(size) >= still * size
    w, m, v = np.zeros(size), np.zeros(size), np.full(size, 1.0)
    before = w
    for iteration in range(60 + interval):
        if iteration == 60:
            before = w
        m = 0.9 * m + 0.1 * rng.standard_normal(size)
        w = w - 1e-3 * m / np.sqrt(v) * (moving if iteration >= 60 else 1)
    arrays = [array.astype(np.float32) for array in (w, before, m, v)]
    return [
        candidate("model/w", "weight", arrays[0], arrays[1]),
        candidate(MOMENT, "first_moment", arrays[2], arrays[2]),
        candidate(f"{MOMENT}_sq", "second_moment", arrays[3]),
    ]


@pytest.mark.parametrize("interval", [5, 20, 100])
def test_a_moment_explains_less_of_a_longer_movement(interval: int) -> None:
    (found,) = correlations(run_of_adam(interval), CHOSEN).values()
    # Of a sum of moments with a memory of 0.9: their covariance with the last over the spreads.
    lags = 0.9 ** np.abs(np.subtract.outer(np.arange(interval), np.arange(interval)))
    expected = lags[-1].sum() / np.sqrt(lags.sum())
    assert found == pytest.approx(-expected, abs=0.06)


def test_elements_that_did_not_move_say_nothing() -> None:
    """As of embeddings: a batch touches some rows, and the moments of all others stay."""
    (dense,) = correlations(run_of_adam(5, 4000), CHOSEN).values()
    (sparse,) = correlations(run_of_adam(5, 4000, still=0.8), CHOSEN).values()
    assert sparse == pytest.approx(dense, abs=0.08)


def test_nothing_is_said_of_a_weight_that_stays_or_is_new() -> None:
    w, m, v = run_of_adam(5)
    w.past = Past(1, w.bits)
    assert correlations([w, m, v], CHOSEN) == {}
    w.past = None
    assert correlations([w, m, v], CHOSEN) == {}


def test_values_that_are_not_finite_are_left_out() -> None:
    w, m, v = run_of_adam(20)
    (clean,) = correlations([w, m, v], CHOSEN).values()
    broken = w.bits.view(np.float32).copy()
    broken[7], broken[8] = np.nan, np.inf
    w.bits = broken.view(np.uint32)
    (found,) = correlations([w, m, v], CHOSEN).values()
    assert found == pytest.approx(clean, abs=0.01)


def test_finer_where_the_moment_explains_more() -> None:
    assert moment_scale(1.0) < moment_scale(-0.5) == 1.0 < moment_scale(0.25) < moment_scale(0.0) <= 2.5
    assert moment_width(0.05) < moment_width(0.25) < moment_width(1.0)


@pytest.mark.parametrize(("interval", "finer"), [(5, True), (100, False)])
def test_a_policy_follows(interval: int, finer: bool) -> None:
    c = run_of_adam(interval, 5000)[1]
    settled = Balanced().settle(run_of_adam(interval, 5000))
    quantizer = settled.choose(c.name, c.role, c.kind, c.bits.size)
    assert isinstance(quantizer, UniformDeadzone)
    assert quantizer.relative_step is not None
    assert (quantizer.relative_step < 1.6) is finer


def test_a_promise_widens_or_narrows_moments() -> None:
    c = run_of_adam(20, 5000)[1]
    steps = []
    for intervals in (0.05, 0.25, 1.0):
        settled = Balanced(intervals=intervals).settle(run_of_adam(20, 5000))
        quantizer = settled.choose(c.name, c.role, c.kind, c.bits.size)
        assert isinstance(quantizer, UniformDeadzone)
        steps.append(quantizer.relative_step)
    assert steps == sorted(steps)
    assert len(set(steps)) == 3


@pytest.mark.parametrize("policy", [Balanced(), Balanced(intervals=1.0)], ids=["balanced", "a promise"])
def test_a_moment_of_one_size_is_never_all_in_the_zone(policy: Balanced) -> None:
    """A gain of representatives cannot help where there are none."""
    w, m, v = run_of_adam(100, 5000)
    m.bits = np.copysign(np.float32(0.1), m.bits.view(np.float32)).view(np.uint32)
    settled = policy.settle([w, m, v])
    quantizer = settled.choose(m.name, m.role, m.kind, m.bits.size)
    decoded = decode(encode(m.bits.view(np.float32), quantizer))
    assert np.square(decoded).sum() > 0.2 * np.square(m.bits.view(np.float32)).sum()
