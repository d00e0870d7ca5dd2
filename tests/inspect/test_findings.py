"""What is told of a run that looks wrong, and what is not."""

import math

import numpy as np
import pytest

import lccodec
from lccodec.container.manifest import Figures
from lccodec.inspect.examination import examine
from lccodec.inspect.findings import (
    Finding,
    array_flags,
    calmed,
    change_flags,
    checkpoint_flags,
    coarse_flags,
    grouped,
    in_order,
    number_flags,
    shift_flags,
    shifts,
    verdict,
)
from lccodec.inspect.report import FIGURES, ArrayRow, Checkpoint, Flag

from ..support.broken import FAULTS, trained
from ..support.runs import run_states, save_run

# --- flags ----------------------------------------------------------------------------------------


STEPS = list(range(0, 100, 10))


def row(name="w", role="weight", quantizer="UniformDeadzone()"):
    return ArrayRow(name, role, "", "float32", (10,), 10, quantizer, 0, 0)


def flags_of(role="weight", others=1, quantizer="UniformDeadzone()", **series):
    """The flags of one array, beside others that move as usual."""
    rows = [row(role=role, quantizer=quantizer), *(row(f"other{i}") for i in range(others))]
    usual = {
        "movement": 0.01,
        "rms": 1.0,
        "zeros": 0.0,
        "minimum": -1.0,
        "maximum": 1.0,
        "not_finite": 0,
        "rank": 3.0,
        "error": 0.5,
        "lag": 0.1,
    }
    figures = {
        name: [series.get(name, [usual[name]] * len(STEPS)), *[[usual[name]] * len(STEPS)] * others]
        for name in FIGURES
    }
    return array_flags(rows, STEPS, figures)


def described(flags):
    return [(flag.severity, flag.kind, flag.array, flag.step) for flag in flags]


def test_a_run_that_learns_has_no_flags(tmp_path):
    chain = save_run(tmp_path / "run", run_states(12), policy="lossless")
    assert examine(chain.directory).runs[0].flags == []


def test_not_finite():
    flags = flags_of(not_finite=[0] * 8 + [3, 5])
    assert described(flags) == [("error", "not finite", "w", 80)]
    assert flags[0].sentence == "w has elements that are NaN or infinite: 5 of 10 at step 90."
    assert (flags[0].since, flags[0].arrays) == (70, ["w"])
    flags = flags_of(not_finite=[0, 2] + [0] * 8)
    assert described(flags) == [("warning", "not finite", "w", 10)]
    assert flags[0].sentence.endswith("and none at step 90.")


def test_dead():
    assert described(flags_of(zeros=[0.1] * 7 + [1.0] * 3)) == [("warning", "dead", "w", 70)]
    always = flags_of(zeros=[1.0] * 10, movement=[None] * 10, rms=[0.0] * 10)
    assert described(always) == [("note", "dead", "w", None)]
    assert flags_of(zeros=[1.0] * 9 + [0.5]) == []
    assert flags_of(zeros=[0.5] * 8 + [1.0] * 2) == []  # a pause
    assert flags_of("first_moment", zeros=[0.5] * 5 + [1.0] * 5) == []  # they decode as 0
    exact = flags_of("first_moment", quantizer="Lossless()", zeros=[0.5] * 5 + [1.0] * 5)
    assert described(exact) == [("warning", "dead", "w", 50)]


def test_frozen():
    assert described(flags_of(movement=[None, 0.1, 0.1] + [0.0] * 7)) == [("warning", "frozen", "w", 30)]
    assert described(flags_of(movement=[None] + [0.0] * 9)) == [("note", "frozen", "w", None)]
    assert flags_of(movement=[None] + [0.1] * 7 + [0.0] * 2) == []  # a pause
    assert flags_of(others=0, movement=[None] + [0.0] * 9) == []  # nothing moves
    assert flags_of(role="other", movement=[None] + [0.0] * 9) == []


def test_exploding():
    movement = [None, *np.geomspace(0.01, 0.02, 8).tolist(), 0.9]
    flags = flags_of(movement=movement)
    assert described(flags) == [("warning", "exploding", "w", 90)]
    assert flags[0].sentence == "w moves 64 times as far as before (0.9 of its size, before 0.014)."
    assert described(flags_of(rms=[1.0] * 8 + [5e3, 1e9])) == [("error", "exploding", "w", 80)]
    assert flags_of(movement=[None, 0.5, 0.01, 0.002, 0.001, 0.01, 0.019, 0.1, 0.05, 0.2]) == []  # it varies
    assert flags_of(movement=[None] + [1e-5] * 8 + [1e-3]) == []  # small all the same
    assert flags_of("first_moment", rms=[1.0] * 9 + [50.0]) == []
    assert described(flags_of("first_moment", rms=[1.0] * 9 + [500.0])) == [("warning", "exploding", "w", 90)]
    grown = np.geomspace(1, 9_000, 10).tolist()  # gradients of a network that starts small, squared
    assert flags_of("second_moment", rms=grown) == []
    assert described(flags_of("second_moment", rms=[1.0] * 9 + [5e4])) == [("warning", "exploding", "w", 90)]
    assert flags_of(rms=[1.0, None, np.inf] + [1.0] * 7) == []


def test_those_that_explode_say_how_much():
    movement = [[None, *[0.01] * 8, last] for last in (0.2, 0.31, 0.01)]
    rows = [row("a~1b~0c"), row("d"), row("e")]
    usual = {name: [[0.5] * 10] * 3 for name in FIGURES} | {"not_finite": [[0] * 10] * 3}
    (flag,) = array_flags(rows, STEPS, {**usual, "movement": movement})
    assert flag.sentence == "2 weights move 20 to 31 times as far as before: a/b~c, d."
    assert (flag.array, flag.since, flag.step) == ("a~1b~0c", 80, 90)
    assert flag.when == "between steps 80 and 90"
    assert array_flags(rows, STEPS, {**usual, "movement": movement}, {90: 20.0}) == []  # as most do
    assert array_flags(rows, STEPS, {**usual, "movement": movement}, {90: 1.5})[0].arrays == ["a~1b~0c", "d"]


def test_an_array_that_has_one_value_says_it():
    (flag,) = flags_of(
        movement=[None] + [0.02] * 8 + [900.0],
        minimum=[-1.0] * 9 + [-50.1],
        maximum=[1.0] * 9 + [-50.0],
    )
    assert flag.sentence.endswith("(900 of its size, before 0.02); all its elements are about -50.")


def test_a_weight_that_hardly_moves_says_how_far():
    (flag,) = flags_of(movement=[None] + [0.05] * 5 + [1.2e-4] * 4)
    assert described([flag]) == [("warning", "frozen", "w", 60)]
    assert flag.sentence == (
        "w hardly moves any more, while other weights do: 0.00012 of its size, before 0.05."
    )


def test_checkpoints():
    checkpoints = [
        Checkpoint(1, "keyframe"),
        Checkpoint(2, "unreadable", sound=False, problems=["it is cut off"]),
        Checkpoint(3, "unreadable", sound=False, problems=["it is cut off"]),
        Checkpoint(9, "unreadable", sound=False, problems=["its parent is missing", "more"]),
    ]
    flags = checkpoint_flags(checkpoints, {9})
    assert described(flags) == [("error", "damaged", None, 2), ("error", "missing", None, 9)]
    assert flags[0].sentence == "Step 2 cannot be fully restored: it is cut off. Nor can 1 later step."
    (flag,) = checkpoint_flags([Checkpoint(None, "unreadable", problems=["no"])])
    assert flag.sentence == "The file cannot be fully restored: no."


def of_errors(*errors):
    """Checkpoints of such errors in spreads of the weights; of moments they are large."""
    moments = Figures(spread=1.0, error=9.0)
    found = [{} if e is None else {"weight": Figures(spread=2.0, error=2 * e)} for e in errors]
    return [
        Checkpoint(10 * i, "delta", figures=each | {"first_moment": moments}) for i, each in enumerate(found)
    ]


def test_errors_of_a_third_of_the_spread():
    assert coarse_flags(of_errors(None, 0.33, 0.1)) == []
    flags = coarse_flags(of_errors(0.1, 0.41, None, 0.5, 0.2))
    assert described(flags) == [("warning", "coarse", None, 10)]
    sentence = "Restored weights are off by 0.41 of their spread; it should be below a third."
    assert flags[0].sentence == f"{sentence} The same at 1 later step."
    assert coarse_flags(of_errors(1 / 3))[0].sentence.startswith("Restored weights are off by 0.33 of")
    assert coarse_flags([Checkpoint(0, "keyframe")]) == []


def test_a_coarse_run_is_flagged(tmp_path):
    rng = np.random.default_rng(0)
    states = [{"weight": rng.normal(size=(30, 40)).astype(np.float32)} for _ in range(3)]
    policies = [lccodec.Policy("", {"weight": lccodec.UniformDeadzone(max_error=e)}) for e in (1.5, 0.1)]
    for number, policy in enumerate(policies):
        chain = save_run(tmp_path / str(number), states, policy=policy)
        restored = chain.restore(20)["weight"]
        true = np.sqrt(np.mean((restored - states[2]["weight"]) ** 2)) / states[2]["weight"].std()
        (run,) = examine(chain.directory).runs
        assert ("coarse" in {flag.kind for flag in run.flags}) == (true > 1 / 3) == (number == 0)


def test_the_most_severe_come_first():
    flags = [Flag(severity, "dead", None, None, "") for severity in ("note", "error", "warning", "error")]
    assert [flag.severity for flag in in_order(flags)] == ["error", "error", "warning", "note"]
    found = [Flag("warning", "frozen", None, step, "") for step in (5, None, 3)]
    assert [flag.step for flag in in_order(found)] == [3, 5, None]


# --- changes --------------------------------------------------------------------------------------


def test_changes_of_a_state():
    flags = change_flags([(3, [f"new{i}" for i in range(5)], [])])
    assert flags[0].sentence == "5 arrays are new (new0, new1, new2 and 2 more)."
    assert change_flags([(3, [], ["old"])])[0].sentence == "1 array is gone (old)."
    new, gone = (
        [f"optimizer/state/{i}/{name}" for i in range(3) for name in names]
        for names in (["momentum_buffer"], ["exp_avg", "exp_avg_sq"])
    )
    assert change_flags([(3, new, gone)])[0].sentence == (
        "3 arrays are new (momentum_buffer) and 6 are gone (exp_avg, exp_avg_sq)."
    )
    assert change_flags([(3, ["a/b", "a"], ["a/c"])])[0].sentence == (
        "2 arrays are new (a/b, a) and 1 is gone (c)."
    )


def test_another_optimizer_is_called_so():
    """Also in a flat state, whose names have slashes."""
    weights = ["blocks.0.weight", "blocks.0.bias", "head"]
    gone = [f"{moment}~1{weight}" for weight in weights for moment in ("exp_avg", "exp_avg_sq")]
    new = [f"momentum_buffer~1{weight}" for weight in weights]
    roles = dict.fromkeys(new, "first_moment") | {
        name: "second_moment" if "_sq" in name else "first_moment" for name in gone
    }
    (flag,) = change_flags([(50, new, gone)], [0, 25, 50], roles)
    assert flag.sentence == (
        "The optimizer's state changed: exp_avg and exp_avg_sq are gone, momentum_buffer is new."
    )
    assert (flag.since, flag.step) == (25, 50)
    roles |= {f"model~1{weight}": "weight" for weight in weights}
    sentences = [
        change_flags([(50, *each)], [0, 25, 50], roles)[0].sentence for each in ((new, []), ([], gone))
    ]
    assert sentences == [
        "The optimizer's state changed: momentum_buffer is new.",
        "The optimizer's state changed: exp_avg and exp_avg_sq are gone.",
    ]
    (flag,) = change_flags([(50, new, gone)])
    assert flag.sentence == "3 arrays are new (momentum_buffer) and 6 are gone (exp_avg, exp_avg_sq)."


# --- grouping -------------------------------------------------------------------------------------


FEW_STEPS = [0, 10, 20]


def row_of(name, role="weight", of=None):
    return ArrayRow(name, role, "", "float32", (10,), 10, "", 0, 0, of)


def finding(of, place=2, severity="warning", number=None):
    many = "stop moving" if number is None else "move {} times as far"
    one = "stops moving" if number is None else f"moves {number} times as far"
    return Finding(severity, "frozen", of, place, one, many, number)


def sentences(found, rows):
    return [flag.sentence for flag in grouped(found, rows, FEW_STEPS)]


def test_one_array():
    (flag,) = grouped([finding(row_of("a~1b"))], [row_of("a~1b"), row_of("c")], FEW_STEPS)
    assert (flag.severity, flag.kind, flag.array, flag.arrays) == ("warning", "frozen", "a~1b", ["a~1b"])
    assert (flag.since, flag.step, flag.sentence) == (10, 20, "a/b stops moving.")


def test_several_arrays():
    rows = [row_of(f"w{i}") for i in range(12)]
    (flag,) = grouped([finding(each) for each in rows[:5]], rows, FEW_STEPS)
    assert flag.sentence == "5 weights stop moving: w0, w1, w2 and 2 more."
    assert (flag.array, flag.arrays) == ("w0", ["w0", "w1", "w2", "w3", "w4"])
    assert sentences([finding(each) for each in rows], rows)[0].startswith("All 12 weights stop moving: ")


def test_numbers_of_several_arrays():
    rows = [row_of(name) for name in "abc"]
    found = [finding(rows[0], number=10.2), finding(rows[1], number=31.0)]
    assert sentences(found, rows) == ["2 weights move 10 to 31 times as far: a, b."]
    found = [finding(rows[0], number=10.2), finding(rows[1], number=10.4)]
    assert sentences(found, rows) == ["2 weights move 10 times as far: a, b."]


def test_what_differs_stays_apart():
    rows = [row_of("a"), row_of("b"), row_of("m", "first_moment")]
    found = [finding(rows[0]), finding(rows[1], place=1), finding(rows[2])]
    assert len(grouped(found, rows, FEW_STEPS)) == 3
    assert len(grouped([finding(rows[0]), finding(rows[1], severity="error")], rows, FEW_STEPS)) == 2


def test_moments_are_named_by_their_weights():
    rows = [row_of(f"m/{name}", "first_moment", of=f"model/{name}") for name in "ab"] + [row_of("w")]
    assert sentences([finding(each) for each in rows[:2]], rows) == [
        "All 2 first moments stop moving: model/a, first moment; model/b, first moment."
    ]


def test_what_is_of_no_step():
    (flag,) = grouped([finding(row_of("a"), place=None)], [row_of("a"), row_of("b")], FEW_STEPS)
    assert (flag.since, flag.step, flag.when) == (None, None, "")
    (first,) = grouped([finding(row_of("a"), place=0)], [row_of("a"), row_of("b")], FEW_STEPS)
    assert (first.since, first.step, first.when) == (None, 0, "step 0")


# --- numbers --------------------------------------------------------------------------------------


def jumps(values, name="loss"):
    return [
        (flag.severity, flag.kind, flag.step) for flag in number_flags({name: values}, range(len(values)))
    ]


def test_numbers_that_jump():
    falling = [2.0, 1.5, 1.2, 1.0, 0.9, 0.85]
    assert jumps(falling) == []
    assert jumps([*falling, 2.5, 2.4]) == [("warning", "jumping", 6)]
    assert jumps([*falling, 0.01]) == []  # for the better
    assert jumps([-x for x in [*falling, 2.5]], "accuracy") == [("warning", "jumping", 6)]
    assert jumps([*falling, math.nan, 0.8]) == [("warning", "not finite", 6)]
    assert jumps([*falling, math.nan]) == [("error", "not finite", 6)]
    assert jumps([*falling[:3], 2.5]) == []  # too early to say
    assert jumps([0.5, 0.5, 0.5, 0.5, 0.5, 0.5001]) == []
    assert jumps([None, *falling, None]) == []


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
def test_noise_is_no_jump(noise):
    rng = np.random.default_rng(0)
    course = 2 * np.exp(-np.arange(200) / 60) + 0.3
    noisy = [course * np.exp(noise * rng.standard_normal(200)) for _ in range(40)]
    assert sum(bool(jumps(losses.tolist())) for losses in noisy) <= 4
    assert sum(bool(jumps([*losses[:150], *(20 * losses[150:])])) for losses in noisy) >= 38


def test_a_spike_that_stays_counts_sooner():
    course = [1.0, 0.9, 1.0, 0.9, 1.0, 0.9]
    assert jumps([*course, 1.6, 0.9, 1.0, 0.9, 1.0]) == []
    assert jumps([*course, 1.6, 1.7, 1.6, 1.8, 1.7]) == [("warning", "jumping", 6)]


def test_settings_that_are_changed():
    assert jumps([0.1] * 4 + [1.0] * 4, "lr") == [("warning", "changed", 4)]
    assert jumps([1.0] * 4 + [0.1] * 4, "lr") == [("note", "changed", 4)]
    assert jumps([1.0] * 4 + [0.1] * 2 + [0.01] * 4, "lr") == []  # a schedule
    assert jumps([0.1] * 2 + [1.0] * 6, "lr") == []  # a warm-up


def test_a_rise_that_stays_needs_less():
    """The loss of a run whose learning rate was 30 times too large from step 375 on."""
    losses = [4.056, 3.694, 3.438, 3.199, 3.01, 2.88, 2.822, 2.738, 2.64, 2.614, 2.604, 2.585, 2.592]
    losses += [2.556, 2.535, 3.193, 3.041, 2.96, 2.883, 2.913, 2.841, 2.785, 2.826, 2.771, 2.764, 2.782]
    (flag,) = number_flags({"train_loss": losses}, range(25, 25 + 25 * len(losses), 25))
    assert (flag.severity, flag.since, flag.step) == ("warning", 375, 400)
    assert flag.sentence == "train_loss rises suddenly from 2.54 to 3.19, and ends at 2.78."
    assert jumps([*losses[:16], *losses[12:15]]) == []  # it comes back


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("level", [0.0, 2.0])
def test_short_noisy_runs_have_no_flags(noise, level):
    rng = np.random.default_rng(1)
    course = 2 * np.exp(-np.arange(40) / 12) + 0.3 + level
    noisy = [course * np.exp(noise * rng.standard_normal(40)) for _ in range(60)]
    assert sum(bool(jumps(losses.tolist())) for losses in noisy) <= 2


def test_a_run_that_loses_all_is_an_error():
    falling = [2.3, 1.8, 1.3, 0.9, 0.7, 0.5, 0.4, 0.35]
    (flag,) = number_flags({"loss": [*falling, 1.9, 2.1, 2.5, 2.49]}, range(12))
    assert (flag.severity, flag.since, flag.step) == ("error", 7, 8)
    assert flag.sentence == (
        "loss rises suddenly from 0.35 to 1.9, and ends at 2.49, above where it started (2.3)."
    )
    (flag,) = number_flags({"loss": [*falling, 1.9, 2.1, 2.29, 2.2]}, range(12))
    assert flag.severity == "warning"  # not above
    slow = [2.3 - 0.1 * i for i in range(15)] + [0.9 + 0.1 * i for i in range(16)]
    (flag,) = number_flags({"loss": slow}, range(31))
    assert (flag.severity, flag.since, flag.step) == ("error", None, 15)
    assert flag.sentence == "loss ends at 2.4, above where it started (2.3). Its best was 0.9, at step 14."
    assert jumps([2.3, 2.2, 2.3, 2.2, 2.3, 2.4, 2.3, 2.4]) == []  # it never was better


def test_a_dip_before_a_jump_begins_it():
    falling = [2.3, 1.8, 1.3, 0.9, 0.7, 0.5, 0.4, 0.35, 0.3]
    (flag,) = number_flags({"loss": [*falling, 0.02, 1.9, 1.8, 2.0]}, range(13))
    assert (flag.since, flag.step) == (8, 9)
    assert flag.sentence == "loss falls suddenly from 0.3 to 0.02, then rises to 1.9, and ends at 2."


def test_what_explodes_is_a_warning_where_the_loss_goes_on_falling():
    flags = [Flag("error", "exploding", "w", 3, ""), Flag("error", "not finite", "w", 3, "")]

    def severities(losses):
        return [flag.severity for flag in calmed(flags, {"loss": losses, "lr": [1.0] * 6}, range(6))]

    assert severities([5.0, 4, 3, 3.2, 2, 1]) == ["warning", "error"]
    assert severities([5.0, 4, 3, 3.2, 4, 3.5]) == ["error", "error"]
    assert severities([5.0, 4, 3, 2, 2, math.nan]) == ["error", "error"]
    assert [flag.severity for flag in calmed(flags, {}, range(6))] == ["error", "error"]


# --- shifts ---------------------------------------------------------------------------------------


MANY_STEPS = list(range(0, 400, 10))
MOST_FIGURES = {"second_moment": "rms", "weight": "movement"}


def found(series, role="second_moment", steps=MANY_STEPS, saved=None):
    rows = [ArrayRow(f"a{i}", role, "", "float32", (9,), 9, "", 0, 0) for i in range(len(series))]
    unknown = [[None] * len(steps)] * len(rows)
    figures = {"rms": unknown, "movement": unknown} | {MOST_FIGURES[role]: series}
    return [
        (flag.severity, flag.kind, flag.array, flag.step)
        for flag in shift_flags(shifts(rows, steps, figures, saved or steps), steps)
    ]


def noisy(seed=0, arrays=6, noise=0.05):
    rng = np.random.default_rng(seed)
    course = np.exp(-np.arange(len(MANY_STEPS)) / 30) + 0.2
    scales = rng.lognormal(0, 3, (arrays, 1))
    return scales * course * np.exp(noise * rng.standard_normal((arrays, len(MANY_STEPS))))


@pytest.mark.parametrize("role", MOST_FIGURES)
def test_a_shift_is_found_at_its_step(role):
    series = noisy()
    series[:, 20:] *= 2
    assert found(series.tolist(), role) == [("warning", "shifting", None, 200)]


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.3])
def test_noise_is_no_shift(noise):
    assert sum(bool(found(noisy(seed, noise=noise).tolist())) for seed in range(50)) <= 1


def test_what_grows_slowly_is_no_shift():
    growing = [[scale * 1.3**i for i in range(len(MANY_STEPS))] for scale in (1, 2, 3)]
    assert found(growing) == []


def test_single_arrays_and_short_runs_are_no_shift():
    series = noisy()
    series[:2, 20:] *= 9
    assert found(series.tolist()) == []
    two = noisy(arrays=2)
    two[:, 20:] *= 9
    assert found(two.tolist()) == []
    early = noisy()
    early[:, 3:] *= 9
    assert found(early.tolist()) == []


def test_falling_is_no_shift():
    series = noisy()
    series[:, 20:] /= 5
    assert found(series.tolist()) == []


def test_movements_of_other_intervals_are_not_compared():
    series = noisy()
    series[:, -1] *= 3
    saved = [*MANY_STEPS[:-1], MANY_STEPS[-1] + 20]
    assert found(series.tolist(), "weight", steps=saved) == []
    assert found(series.tolist(), "weight") == [("warning", "shifting", None, 390)]


def test_unknown_and_zero_figures_are_left_out():
    series = noisy().tolist()
    for row in series[:3]:
        row[::2] = [None] * len(row[::2])
    series[3] = [0.0] * len(MANY_STEPS)
    assert found(series) == []
    assert found([]) == []
    assert found([[None] * len(MANY_STEPS)] * 4) == []


def said(series, role="weight"):
    rows = [ArrayRow(f"a{i}", role, "", "float32", (9,), 9, "", 0, 0) for i in range(len(series))]
    unknown = [[None] * len(MANY_STEPS)] * len(rows)
    figures = {"rms": unknown, "movement": unknown} | {MOST_FIGURES[role]: series}
    (flag,) = shift_flags(shifts(rows, MANY_STEPS, figures, MANY_STEPS), MANY_STEPS)
    return flag


def test_a_shift_says_how_many_arrays_and_how_far():
    series = noisy(noise=0.001)
    series[:, 20:] *= 20
    flag = said(series.tolist())
    assert flag.sentence == (
        "All 6 weights move farther at once, typically 19 times as far, as when the learning rate changes."
    )
    assert (flag.since, flag.step, flag.arrays) == (190, 200, [f"a{i}" for i in range(6)])
    series[0, 20:] /= 20
    assert said(series.tolist()).sentence.startswith(
        "5 of 6 weights move farther at once, typically 19 times as far."
    )
    assert said(series.tolist(), "second_moment").sentence.startswith(
        "Gradients grow: 5 of 6 second moments rise"
    )


# --- verdict --------------------------------------------------------------------------------------


AT = 200


def examined(directory, policy, **options):
    with lccodec.Chain(directory, policy=policy, newest="history") as chain:
        for step, state, metrics in trained(**options):
            chain.save(step, state, metrics=metrics)
    return examine(directory).runs[0]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["balanced", "lossless"])
@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_learns_is_healthy(tmp_path, policy, seed):
    run = examined(tmp_path / "run", policy, seed=seed)
    assert run.verdict.state == "healthy", run.verdict
    assert run.verdict.sentence.startswith("Healthy: test_loss falls from ")
    assert ("Restored weights are off by" in run.verdict.sentence) == (policy == "balanced")


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["balanced", "lossless"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", FAULTS)
def test_the_step_of_a_broken_run_is_named(tmp_path, fault, policy, seed):
    run = examined(tmp_path / "run", policy, fault=fault, at=AT, seed=seed)
    assert run.verdict.state != "healthy"
    found = [flag for flag in run.flags if flag.severity != "note"]
    # A state that is saved at the step of the fault does not show it yet.
    assert {flag.step for flag in found} & {AT, AT + 20}, found
    assert all(AT <= flag.step <= AT + 60 for flag in found), found
    assert any(f"between steps {step - 20} and {step}" in run.verdict.sentence for step in (AT, AT + 20))
    if fault == "dead layer":
        assert any("model/in.weight" in flag.arrays for flag in found), found
    if fault == "other optimizer":
        assert "momentum_buffer" in run.verdict.sentence


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 18))  # of runs by which nothing was tuned
def test_data_in_order_shows_in_the_gradients(tmp_path, seed):
    run = examined(tmp_path / "run", "balanced", fault="data in order", at=AT, seed=seed)
    assert {flag.step for flag in run.flags if flag.kind == "shifting"} & {AT + 20, AT + 40}
    assert "Gradients grow" in run.verdict.sentence
    healthy = examined(tmp_path / "healthy", "balanced", seed=seed)
    assert healthy.verdict.state == "healthy", healthy.verdict


def test_a_verdict_has_two_sentences():
    flags = [
        Flag("warning", "jumping", None, 20, "loss rises.", 10),
        Flag("warning", "exploding", "a", 20, "a moves far.", 10),
        Flag("warning", "frozen", "a", 40, "a stops.", 30),
        Flag("note", "dead", "b", None, "b is 0."),
    ]
    assert verdict(flags, {}).sentence == (
        "Look at what happened between steps 10 and 20: loss rises. a moves far. 1 more finding."
    )
    assert verdict([flags[0], flags[2]], {}).sentence == (
        "Look at what happened between steps 10 and 20: loss rises. Between steps 30 and 40: a stops."
    )
    assert verdict([Flag("warning", "frozen", "a", 4, "a stops.")], {}).sentence == "Look at step 4: a stops."
    assert (
        verdict([Flag("warning", "frozen", "a", None, "a stops.")], {}).sentence == "Look at this: a stops."
    )


def test_a_verdict_says_one_thing_of_an_array():
    flags = [
        Flag("warning", "exploding", "a", 20, "a moves far.", 10, ["a"]),
        Flag("warning", "frozen", "a", 30, "a stops.", 20, ["a"]),
        Flag("warning", "frozen", "a", 40, "2 weights stop: a, b.", 30, ["a", "b"]),
    ]
    assert verdict(flags, {}).sentence.endswith(
        ": a moves far. Between steps 30 and 40: 2 weights stop: a, b. 1 more finding."
    )


def test_a_verdict_begins_with_the_first_finding():
    """Also if a later one is graver."""
    flags = [
        Flag("error", "jumping", None, 40, "loss rises.", 30),
        Flag("warning", "changed", None, 30, "lr changes.", 20),
        Flag("warning", "shifting", None, 20, "Weights move farther.", 10),
    ]
    assert verdict(flags, {}).sentence == (
        "Broken between steps 10 and 20: Weights move farther. Between steps 30 and 40: loss rises. "
        "1 more finding."
    )


def test_a_broken_run_says_where():
    broken = [Flag("error", "jumping", None, 20, "loss rises.", since) for since in (10, None)]
    assert verdict(broken[:1], {}).sentence == "Broken between steps 10 and 20: loss rises."
    assert verdict(broken[1:], {}).sentence == "Broken from step 20 on: loss rises."
    lost = Flag("error", "missing", None, 1, "Step 1 cannot be fully restored.")
    assert verdict([lost], {}).sentence == "Broken: Step 1 cannot be fully restored."
    assert verdict([lost, *broken[:1]], {}).sentence == (
        "Broken between steps 10 and 20: Step 1 cannot be fully restored. loss rises."
    )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (0.05, "5 % of their spread, or 0.5 of what they move between saves, as usual."),
        (0.3, "30 % of their spread, or 3 of what they move between saves, more than usual."),
        (0.08, "8 % of their spread, or 0.8 of what they move between saves, as usual."),
        (0.0, ""),
    ],
)
def test_a_healthy_run_says_what_it_lost(error, words):
    figures = {"weight": Figures(spread=1.0, movement=0.1, error=error)}
    found = verdict(
        [], {"loss": [2.0, 1.0]}, [Checkpoint(step, "delta", figures=figures) for step in range(3)]
    )
    lost = f" Restored weights are off by {words}" if words else ""
    assert found.sentence == f"Healthy: loss falls from 2 to 1, and no array stands out.{lost}"


def test_moments_that_are_far_off_are_said():
    """A healthy run whose moments lost much resumes badly from an older step."""
    figures = {
        "weight": Figures(spread=1.0, movement=0.1, error=0.05),
        "first_moment": Figures(spread=1.0, movement=0.1, error=0.1),
        "second_moment": Figures(spread=1.0, movement=0.1, error=2.0),
    }
    found = verdict([], {}, [Checkpoint(step, "delta", figures=figures) for step in range(3)])
    assert found.state == "healthy"
    assert found.sentence.endswith(
        "as usual. Restored second moments are off by 20 of what they move: resume from an exact state."
    )
