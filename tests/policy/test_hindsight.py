"""What is coded at the ends of groups and between them: steps in movements, or nothing."""

import numpy as np
import pytest

from lccodec import Balanced, LogSteps, Lossless, Policy, UniformDeadzone
from lccodec.element_types import components, work
from lccodec.policy.hindsight import between_quantizers, end_quantizers, strays
from lccodec.policy.policy import Candidate, Past
from lccodec.policy.presets import POLICIES
from lccodec.policy.roles import Role

from ..support.candidates import candidate

RNG = np.random.default_rng(0)
BALANCED = POLICIES["balanced"]
SIZE = 1000


def array_of(role: Role, values: np.ndarray, before: np.ndarray | None) -> Candidate:
    own, other = (None if x is None else x.astype(np.float32) for x in (values, before))
    return candidate("a", own, role, "", other)


def noise(scale: float) -> np.ndarray:
    return scale * RNG.standard_normal(SIZE)


def test_ends_have_steps_of_the_typical_movement() -> None:
    weight = array_of("weight", noise(1), noise(1))
    for moved, step in (([1.0], 2.25), ([1, 1.5, 2], 2.25 * 1.5), ([1, 1, 1, 1, 100], 2.25)):
        assert end_quantizers(BALANCED, [weight], {"a": moved}) == {"a": UniformDeadzone(step=step)}
    wider = Balanced(intervals=0.5, width=1.5)
    assert end_quantizers(wider, [weight], {"a": [1.0]}) == {"a": UniformDeadzone(step=2.25 * 1.5)}


@pytest.mark.parametrize("moved", [{}, {"a": []}, {"a": [0.0]}, {"a": [float("nan")]}, {"a": [float("inf")]}])
def test_an_end_without_a_movement_is_as_the_policy_says(moved: dict[str, list[float]]) -> None:
    assert end_quantizers(BALANCED, [array_of("weight", noise(1), noise(1))], moved) == {}


def test_ends_of_other_roles_and_policies_are_as_the_policy_says() -> None:
    moved = {"a": [1.0]}
    for role in ("first_moment", "second_moment", "other"):
        assert end_quantizers(BALANCED, [array_of(role, noise(1), noise(1))], moved) == {}
    weight = array_of("weight", noise(1), noise(1))
    for policy in (POLICIES["lossless"], POLICIES["lc-3"], Policy("exact", {"weight": Lossless()})):
        assert end_quantizers(policy, [weight], moved) == {}
    small = array_of("weight", noise(1)[:10], noise(1)[:10])
    assert end_quantizers(BALANCED, [small], moved) == {}


def test_what_a_walk_is_off_takes_nothing() -> None:
    x = noise(10)
    weight = array_of("weight", x, x + noise(1.5))
    assert between_quantizers(BALANCED, [weight], {"a": [1.0] * 8}, 4) == {"a": None}
    jump = between_quantizers(BALANCED, [weight], {"a": [0.2, 0.2, 0.2, 30.0]}, 1)
    assert jump == {"a": UniformDeadzone(step=2.25 * 0.2)}
    # Steps that cannot be scaled: as the policy says.
    assert between_quantizers(POLICIES["lc-3"], [weight], {"a": [0.2]}, 1) == {}
    assert between_quantizers(BALANCED, [weight], {}, 1) == {}


def test_what_turns_is_coded_and_what_hardly_moves() -> None:
    """A circle is farther off than a walk; and before a restart of the rate, little is far."""
    x = noise(10)
    turn = array_of("weight", x, x + noise(2.3))
    for number, coded in ((4, {"a": UniformDeadzone(step=2.25)}), (1, {"a": UniformDeadzone(step=2.25)})):
        assert between_quantizers(BALANCED, [turn], {"a": [1.0] * 8}, number) == coded
    slow = array_of("weight", x, x + noise(0.5))
    rate = [1.0, 1.0, 1.0, 0.4, 0.1, 1.0, 1.0, 1.0]
    assert between_quantizers(BALANCED, [slow], {"a": rate}, 3) == {"a": None}
    assert between_quantizers(BALANCED, [slow], {"a": rate}, 5) == {"a": UniformDeadzone(step=2.25 * 0.1)}


def test_a_circle_strays_and_a_restart_and_a_walk_does_not() -> None:
    angles = np.linspace(0, np.pi, 8)
    one, other = noise(1), noise(1)
    circle = [np.cos(angle) * one + np.sin(angle) * other for angle in angles]
    walk = list(np.cumsum([noise(0.1) for _ in range(8)], axis=0))
    line = [step * one + 0.1 * each for step, each in enumerate(walk)]
    calm = [each * (1.0 if step < 5 else 0.5) for step, each in enumerate(np.diff(walk, axis=0))]
    restart = list(np.cumsum([*calm, noise(0.15), noise(0.15)], axis=0))
    assert strays([circle])
    assert strays([circle, walk])
    assert strays([restart])
    assert not any(map(strays, ([walk], [line], [walk, line], [[one] * 8], [walk[:2]], [])))
    assert not strays([[np.full(3, np.nan)] * 8])


def test_a_young_run_strays_whose_biases_are_ahead_of_its_weights() -> None:
    walk = list(np.cumsum([noise(0.1) for _ in range(8)], axis=0))
    way, shaken = np.linspace(0, 1, 8), [0.01 * noise(1)[:100] for _ in range(8)]
    for part, expected in ((way, False), (np.sqrt(way), True)):
        small = [ahead + each for ahead, each in zip(part, shaken, strict=True)]
        assert strays([walk, small]) is expected
        assert not strays([walk, [point[:50] for point in small]])  # too few to tell
    assert not strays([walk, list(np.cumsum([noise(0.1)[:100] for _ in range(8)], axis=0))])


def test_a_first_moment_that_carries_the_run_on_is_coded() -> None:
    now, other = noise(0.1), noise(0.1)
    moment = array_of("first_moment", now, other)
    like, unlike = (components(each.astype(np.float32))[1] for each in (now + 0.5 * other, other))
    assert between_quantizers(BALANCED, [moment], {}, 1, {"a": like}) == {}
    assert between_quantizers(BALANCED, [moment], {}, 1, {"a": unlike}) == {"a": None}
    near = array_of("first_moment", now, now + 0.3 * other)
    assert between_quantizers(BALANCED, [near], {}, 1, {"a": like}) == {"a": None}


def test_an_end_is_as_fine_as_its_own_interval_asks() -> None:
    weight = array_of("weight", noise(1), noise(1))
    weight.past = Past(1, components((work(weight.bits, weight.kind) + 0.25).astype(np.float32))[1])
    copy = array_of("weight", noise(1), noise(1))
    copy.name, copy.step = "b", 3.0  # since the end before, its weight has moved by so much
    found = end_quantizers(BALANCED, [copy, weight], {"a": [1.0, 1.0, 1.0]})
    steps = [coder.step for coder in found.values() if isinstance(coder, UniformDeadzone)]
    assert steps == pytest.approx([2.25 * 0.25, 0.25], rel=1e-3)


def test_a_first_moment_takes_nothing_unless_it_is_of_another_size() -> None:
    moment = noise(0.1)
    assert between_quantizers(BALANCED, [array_of("first_moment", moment, noise(0.1))], {}, 1) == {"a": None}
    wide = {"a": UniformDeadzone(relative_step=2 * 2.8, absolute=True, dead_zone=0.39)}
    for reset in (np.zeros(SIZE), 0.01 * moment):
        assert between_quantizers(BALANCED, [array_of("first_moment", reset, moment)], {}, 1) == wide


def test_second_moments_must_be_near_and_positive() -> None:
    v = np.exp(noise(1))
    for reference, fits in (
        (v * np.exp(noise(0.3).clip(-0.5, 0.5)), True),
        (np.where(np.arange(SIZE) == 7, 8 * v, v), False),
        (np.where(np.arange(SIZE) == 7, 0, v), False),
        (np.where(np.arange(SIZE) == 7, -v, v), False),
    ):
        found = between_quantizers(BALANCED, [array_of("second_moment", v, reference)], {}, 1)
        assert found == {"a": None if fits else LogSteps(2.0)}
    assert between_quantizers(BALANCED, [array_of("second_moment", v, None)], {}, 1) == {"a": LogSteps(2.0)}
    zeros = np.where(np.arange(SIZE) < 500, 0, v)  # of rows that were never touched
    assert between_quantizers(BALANCED, [array_of("second_moment", zeros, zeros)], {}, 1) == {"a": None}


def test_nothing_that_must_be_exact_is_left_as_its_reference() -> None:
    x = noise(1)
    for policy, role in ((BALANCED, "other"), (POLICIES["lossless"], "weight")):
        assert between_quantizers(policy, [array_of(role, x, x + 1e-9)], {"a": [1.0]}, 1) == {}
    assert between_quantizers(BALANCED, [array_of("weight", x, None)], {"a": [1.0]}, 1) == {}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("role", ["weight", "first_moment", "second_moment"])
def test_what_is_not_finite_is_coded(role: Role, bad: float) -> None:
    x = np.abs(noise(1))
    spoiled = np.where(np.arange(SIZE) == 3, bad, x)
    for values, reference in ((spoiled, x), (x, spoiled)):
        found = between_quantizers(BALANCED, [array_of(role, values, reference)], {"a": [1.0]}, 1)
        assert found.get("a", ...) is not None
