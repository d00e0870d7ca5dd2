"""A state that has other arrays is flagged; if all are moments, as another optimizer."""

from lccodec.inspect.findings import change_flags


def test_changes_of_a_state():
    flags = change_flags([(3, [f"new{i}" for i in range(5)], [])])
    assert flags[0].sentence == "5 arrays are new (new0, new1, new2, and 2 more)."
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
