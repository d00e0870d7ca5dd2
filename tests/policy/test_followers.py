"""Copies and averages of weights are known by their values, and so is which of them are trained."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec.policy.policy import Candidate
from lccodec.policy.roles import FOLLOWER, PARAMETER, PERHAPS, UNNAMED, Role
from lccodec.policy.values import mark_followers, mark_trained

from ..support.candidates import candidate

SIZE = 2_000
RNG = np.random.default_rng(0)
BEFORE = RNG.normal(size=SIZE)
MOVED = 0.01 * RNG.normal(size=SIZE)
NOISE = 0.01 * RNG.normal(size=SIZE)
WEIGHT = BEFORE + MOVED


def marked(name: str, now: np.ndarray, before: np.ndarray, why: str = UNNAMED) -> Candidate:
    """An array of no role, once it was compared with a weight."""
    single = [array.astype(np.float32) for array in (WEIGHT, BEFORE, now, before)]
    arrays = [candidate("w", single[0], "weight", before=single[1])]
    arrays.append(candidate(name, single[2], "other", why, single[3]))
    mark_followers(arrays)
    return arrays[1]


@pytest.mark.parametrize(
    ("now", "before", "follows"),
    [
        (BEFORE - 0.01 * MOVED + 0.1 * MOVED, BEFORE - 0.01 * MOVED, True),  # an average
        (BEFORE + 0.5 * MOVED, BEFORE - 20 * MOVED, True),  # a copy of a moment ago
        (BEFORE, BEFORE, False),  # a copy that rests as it was saved
        (WEIGHT + 0.1 * NOISE, WEIGHT, True),  # one that has only lost something
        (BEFORE - MOVED, BEFORE, False),  # moves away
        (BEFORE + NOISE, BEFORE, False),
        (0.1 * BEFORE + 0.1 * MOVED, 0.1 * BEFORE, False),  # is far
        (RNG.normal(size=SIZE), RNG.normal(size=SIZE), False),
    ],
)
def test_what_follows(now: np.ndarray, before: np.ndarray, follows: bool) -> None:
    found = marked("list/0", now, before)
    assert (found.role, found.why) == (("weight", FOLLOWER) if follows else ("other", UNNAMED))


def test_what_a_user_calls_exact_stays_exact() -> None:
    assert marked("target/w", BEFORE + 0.1 * MOVED, BEFORE, "given as 'target/*'").role == "other"


@pytest.mark.parametrize(
    ("name", "follows"),
    [("target_net/w", True), ("ema/shadow/0", True), ("teacher/w", False), ("ema_teacher/w", False)],
)
def test_names_of_what_is_exact(name: str, follows: bool) -> None:
    assert (marked(name, BEFORE + 0.1 * MOVED, BEFORE, "'x' is exact").role == "weight") == follows


def run(step: int) -> dict[str, Any]:
    """A weight, its moments, a copy of every 4th step, and an average in a list."""
    rng = np.random.default_rng(1)
    path = rng.normal(size=(40, 50)) + np.cumsum(0.01 * rng.normal(size=(step + 1, 40, 50)), 0)
    average = path[0]
    for own in path:
        average = 0.9 * average + 0.1 * own
    copied = path[max(step - step % 4 - 1, 0)] if step >= 4 else path[0]
    moments = {"exp_avg": 0.1 * rng.normal(size=(40, 50)), "exp_avg_sq": rng.uniform(0.5, 1, (40, 50))}
    state = {"model": {"weight": path[-1]}, "adam": {"state": {"0": moments}}}
    state |= {"target": {"weight": copied}, "ema": {"shadow_params": [average]}}
    return state


def test_a_copy_costs_little_and_rests(tmp_path: Path) -> None:
    chain = lccodec.Chain(tmp_path, newest="history")
    told, errors = [], []
    for step in range(24):
        found = chain.plan(run(step))
        both = zip(found, found.estimates(), strict=True)
        told.append({a.name.partition("/")[0]: (a.why, a.stored, e.stored_bytes) for a, e in both})
        chain.save(step, run(step))
        errors.append(chain.restore()["target"]["weight"] - run(step)["target"]["weight"])
    assert {plan["ema"][0] for plan in told[3:]} == {FOLLOWER}
    assert all(plan["ema"][2] < 8 * SIZE / 8 for plan in told[3:])
    assert all(told[step]["target"][0] == FOLLOWER for step in range(8, 24, 4))
    assert sum(plan["target"][2] for plan in told[8:]) < 4 * SIZE * 16 / 12
    assert max(float(np.sqrt(np.square(error).mean())) for error in errors) < 0.01


def array_of(name: str, role: Role, moves: bool | None = True, shape: tuple[int, ...] = (4,)) -> Candidate:
    """An array; it has no reference if it is not known whether it moves."""
    before = None if moves is None else np.full(shape, 1 - moves, np.float32)
    why = PERHAPS if role == "other" else PARAMETER
    return candidate(name, np.ones(shape, np.float32), role, why, before)


@pytest.mark.parametrize(
    ("moves", "trained"),
    [
        ([True, False, True], "ac"),
        ([True, True, True], ""),  # one of them is an average
        ([True, False, False], ""),  # one that is trained had no gradient
        ([None, None, None], ""),  # the first save
        ([True, None, True], "ac"),
    ],
)
def test_as_many_as_the_optimizer_has(moves: list[bool | None], trained: str) -> None:
    moments = [array_of(f"m{n}", "first_moment") for n in range(3)]
    arrays = [*moments, array_of("d", "weight"), array_of("e", "other", shape=(5,))]
    arrays += [array_of(name, "other", each) for name, each in zip("abc", moves, strict=True)]
    mark_trained(arrays)
    assert "".join(a.name for a in arrays[5:] if (a.role, a.why) == ("weight", PARAMETER)) == trained
    assert arrays[4].role == "other"
