"""Flags: what stands out is flagged, and what learns is not."""

import numpy as np

import lccodec
from lccodec.container.figures import Figures
from lccodec.inspect.examination import examine
from lccodec.inspect.findings import array_flags, checkpoint_flags, coarse_flags, in_order
from lccodec.inspect.report import FIGURES, ArrayRow, Checkpoint, Flag

from ...support.runs import run_states, save_run

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
