"""What is alike of several arrays at the same step is one flag; what differs is not."""

from lccodec.inspect.findings import Finding, grouped
from lccodec.inspect.report import ArrayRow

STEPS = [0, 10, 20]


def row(name, role="weight", of=None):
    return ArrayRow(name, role, "", "float32", (10,), 10, "", 0, 0, of)


def finding(of, place=2, severity="warning", number=None):
    many = "stop moving" if number is None else "move {} times as far"
    one = "stops moving" if number is None else f"moves {number} times as far"
    return Finding(severity, "frozen", of, place, one, many, number)


def sentences(found, rows):
    return [flag.sentence for flag in grouped(found, rows, STEPS)]


def test_one_array():
    (flag,) = grouped([finding(row("a~1b"))], [row("a~1b"), row("c")], STEPS)
    assert (flag.severity, flag.kind, flag.array, flag.arrays) == ("warning", "frozen", "a~1b", ["a~1b"])
    assert (flag.since, flag.step, flag.sentence) == (10, 20, "a/b stops moving.")


def test_several_arrays():
    rows = [row(f"w{i}") for i in range(12)]
    (flag,) = grouped([finding(each) for each in rows[:5]], rows, STEPS)
    assert flag.sentence == "5 weights stop moving: w0, w1, w2 and 2 more."
    assert (flag.array, flag.arrays) == ("w0", ["w0", "w1", "w2", "w3", "w4"])
    assert sentences([finding(each) for each in rows], rows)[0].startswith("All 12 weights stop moving: ")


def test_numbers_of_several_arrays():
    rows = [row(name) for name in "abc"]
    found = [finding(rows[0], number=10.2), finding(rows[1], number=31.0)]
    assert sentences(found, rows) == ["2 weights move 10 to 31 times as far: a, b."]
    found = [finding(rows[0], number=10.2), finding(rows[1], number=10.4)]
    assert sentences(found, rows) == ["2 weights move 10 times as far: a, b."]


def test_what_differs_stays_apart():
    rows = [row("a"), row("b"), row("m", "first_moment")]
    found = [finding(rows[0]), finding(rows[1], place=1), finding(rows[2])]
    assert len(grouped(found, rows, STEPS)) == 3
    assert len(grouped([finding(rows[0]), finding(rows[1], severity="error")], rows, STEPS)) == 2


def test_moments_are_named_by_their_weights():
    rows = [row(f"m/{name}", "first_moment", of=f"model/{name}") for name in "ab"] + [row("w")]
    assert sentences([finding(each) for each in rows[:2]], rows) == [
        "All 2 first moments stop moving: model/a, first moment; model/b, first moment."
    ]


def test_what_is_of_no_step():
    (flag,) = grouped([finding(row("a"), place=None)], [row("a"), row("b")], STEPS)
    assert (flag.since, flag.step, flag.when) == (None, None, "")
    (first,) = grouped([finding(row("a"), place=0)], [row("a"), row("b")], STEPS)
    assert (first.since, first.step, first.when) == (None, 0, "step 0")
