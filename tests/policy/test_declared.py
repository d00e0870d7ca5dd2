"""What files declare of their arrays is obeyed, and only what a user says by name goes before."""

import json
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec.policy.declared import DECLARED, ENTRY, declarations, parse, write
from lccodec.policy.policy import Declaration

X = np.linspace(0, 6, 60)
FIELD = 4000 + 4000 * np.sin(X)[:, None] * np.cos(X)


@pytest.mark.parametrize(
    ("attributes", "name", "why"),
    [
        ({"x": {"CLASS": "DIMENSION_SCALE"}}, "x", "a dimension scale"),
        ({"x": {"axis": "T"}}, "x", "an axis"),
        ({"x": {"axis": np.array(1)}}, "x", "an axis"),
        ({"x": {"bounds": "b"}}, "x", "a coordinate with bounds"),
        ({"x": {"bounds": "b"}, "b": {}}, "b", "the bounds of x"),
        ({"x": {"positive": "Down"}}, "x", "a vertical coordinate"),
        ({"x": {"standard_name": "latitude"}}, "x", "the coordinate latitude"),
        ({"x": {"units": "degrees_north"}}, "x", "a coordinate in degrees_north"),
        ({"x": {"units": "days since 2000-01-01"}}, "x", "a coordinate in days since 2000-01-01"),
        ({"t": {"coordinates": "lat x"}, "x": {}}, "x", "a coordinate of t"),
        ({"g/t": {"coordinates": "x"}, "x": {}}, "x", "a coordinate of g/t"),
        ({"g/t": {"coordinates": "x"}, "x": {}, "g/x": {}}, "g/x", "a coordinate of g/t"),
        ({"g/t": {"coordinates": "/h/x"}, "h/x": {}}, "h/x", "a coordinate of g/t"),
        ({"mesh": {"node_coordinates": "x y"}, "x": {}}, "x", "a node of mesh"),
        ({"mesh": {"face_node_connectivity": "x"}, "x": {}}, "x", "the connectivity of mesh"),
        ({"entry": {"axes": ["x", "."]}, "entry/x": {}}, "entry/x", "an axis of entry"),
    ],
)
def test_coordinates_are_exact(attributes: dict[str, Any], name: str, why: str) -> None:
    arrays = [path for path in attributes if path not in ("entry", "mesh")]
    assert declarations(attributes, arrays)[name] == Declaration(why, exact=True)


def test_a_name_of_a_dimension_is_a_coordinate() -> None:
    found = declarations({}, ["g/x", "y"], {"g/x": ("x",), "y": ("x", "y")})
    assert found == {"g/x": Declaration("a coordinate", exact=True)}


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (
            {"_FillValue": np.float32([1e20])},
            Declaration("declares _FillValue", fills=(float(np.float32(1e20)),)),
        ),
        (
            {"_FillValue": -1, "missing_value": [-2, -1.0]},
            Declaration("declares _FillValue, missing_value", fills=(-2.0, -1.0)),
        ),
        ({"valid_range": [0, 9]}, Declaration("declares valid_range", minimum=0, maximum=9)),
        ({"valid_min": 0.5}, Declaration("declares valid_min", minimum=0.5)),
        ({"scale_factor": 0.1}, Declaration("declares packed numbers")),
        ({"valid_range": [9, 0]}, None),
        ({"_FillValue": np.nan, "missing_value": "none", "units": "m", "valid_range": [1]}, None),
    ],
)
def test_fill_values_and_limits(own: dict[str, Any], expected: Declaration | None) -> None:
    assert declarations({"x": own}, ["x"]).get("x") == expected


def test_text_of_declarations() -> None:
    found = {"a~1b": Declaration("why", True), "c": Declaration("", False, (1.5, -9999.0), None, 3.0)}
    assert parse(write(found)) == found
    for text in (
        "",
        "[]",
        "{",
        '{"a": 1}',
        '{"a": ["", 1, [], "x", null]}',
        '{"a": ["", 1, [1e999], null, null]}',
    ):
        assert parse(text) == {}
    assert parse(None) == {}


def _state(**declared: Declaration) -> dict[str, Any]:
    return {
        "t": np.where(FIELD < 1000, -9999.0, FIELD),
        "x": np.linspace(0, 1, 2000) ** 2,
        ENTRY: {DECLARED[1]: write(declared)},
    }


FOUND = {
    "t": Declaration("declares _FillValue", fills=(-9999.0,), minimum=1000, maximum=7900),
    "x": Declaration("an axis", exact=True),
}


@pytest.mark.parametrize("policy", [lccodec.fields(relative_error=1e-4), lccodec.fields(max_error=0.5)])
@pytest.mark.parametrize("hindsight", [0, 4])
def test_a_chain_obeys(tmp_path: Any, policy: lccodec.Policy, hindsight: int) -> None:
    state = _state(**FOUND)
    state["t"].flat[7] = 9000  # beyond the limits
    state["t"].flat[9] = -9999  # one of few
    with lccodec.Chain(tmp_path, policy, hindsight=hindsight) as chain:
        for step in range(5):
            chain.save(step, state)
        told = {each.name: each for each in chain.info(2).arrays}
        assert (told["x"].why, told["x"].lossy, told["x"].quantizer) == ("an axis", False, "Lossless()")
        assert "fill=(-9999.0,)" in told["t"].quantizer
        why = {each.name: (each.why, each.lossy) for each in chain.plan(state)}
        assert why["t"] == ("declares _FillValue; smooth", True)
        assert why["x"] == ("an axis", False)
        for step in range(4):  # the newest is exact
            back = chain.restore(step)
            assert back["x"].tobytes() == state["x"].tobytes()
            valid = (state["t"] >= 1000) & (state["t"] <= 7900)
            assert back["t"][~valid].tobytes() == state["t"][~valid].tobytes()
            bound = 0.5 if policy.roles["other"] == lccodec.Smooth(0.5, rough="exact") else 1e-4 * 6900
            assert 0 < np.abs(back["t"] - state["t"]).max() <= bound
            assert back["t"][valid].min() >= 1000
            assert back["t"][valid].max() <= 7900


def test_what_is_asked_by_name_goes_before(tmp_path: Any) -> None:
    smooth = lccodec.Smooth(max_error=1e-3)
    policy = lccodec.fields(relative_error=1e-4, patterns={"[xt]": smooth})
    with lccodec.Chain(tmp_path / "a", policy) as chain:
        plan = {each.name: each for each in chain.plan(_state(**FOUND))}
        assert plan["x"].quantizer == "Smooth(max_error=0.001)"
        assert (
            plan["t"].quantizer == "Smooth(max_error=0.001, minimum=1000.0, maximum=7900.0, fill=(-9999.0,))"
        )
    with lccodec.Chain(tmp_path / "b", lccodec.fields(relative_error=1e-4), roles={"x": "other"}) as chain:
        assert next(each for each in chain.plan(_state(**FOUND)) if each.name == "x").lossy
    with lccodec.Chain(tmp_path / "c", lccodec.fields(relative_error=1e-4)) as chain:
        plan = {each.name: each for each in chain.plan(_state(**FOUND), roles={"x": "other"})}
        assert plan["x"].lossy


def test_a_quantizer_that_knows_no_fill_values_leaves_the_array_exact(tmp_path: Any) -> None:
    steps = lccodec.UniformDeadzone(max_error=1e-3)
    with lccodec.Chain(tmp_path, lccodec.Policy("p", {"other": steps}, {"t": steps})) as chain:
        assert not any(each.lossy for each in chain.plan(_state(**FOUND)))


@pytest.mark.parametrize("text", ["{", json.dumps({"t": ["", False, ["x"], None, None]})])
def test_declarations_that_are_damaged_are_none(tmp_path: Any, text: str) -> None:
    state = _state()
    state[ENTRY][DECLARED[1]] = text
    with lccodec.Chain(tmp_path, lccodec.fields(relative_error=1e-4)) as chain:
        assert all(each.lossy for each in chain.plan(state))


@pytest.mark.parametrize("hindsight", [0, 4])
def test_a_chain_that_is_coded_anew_obeys(tmp_path: Any, hindsight: int) -> None:
    state = _state(**FOUND)
    with lccodec.Chain(tmp_path / "a", "lossless") as chain:
        for step in range(5):
            chain.save(step, {**state, "t": state["t"] + (state["t"] > 0) * step})
        chain.compact(lccodec.fields(max_error=0.5), directory=tmp_path / "b", hindsight=hindsight)
    with lccodec.Chain(tmp_path / "b") as chain:
        for step in range(5):
            back, t = chain.restore(step), state["t"] + (state["t"] > 0) * step
            assert back["x"].tobytes() == state["x"].tobytes()
            assert back["t"][t < 0].tobytes() == t[t < 0].tobytes()
            assert np.abs(back["t"] - t).max() <= 0.5


def test_what_is_coded_in_memory_obeys() -> None:
    state = _state(**FOUND)
    policy = lccodec.fields(relative_error=1e-3)
    for reference in (None, {**state, "t": state["t"] * 1.1}):
        back = lccodec.load(lccodec.save(state, policy=policy, reference=reference), reference=reference)
        assert back["x"].tobytes() == state["x"].tobytes()
        assert back["t"][state["t"] < 0].tobytes() == state["t"][state["t"] < 0].tobytes()
        assert 0 < np.abs(back["t"] - state["t"]).max() <= 1e-3 * 6900


def test_a_lossy_chain_that_is_coded_again_obeys(tmp_path: Any) -> None:
    state = _state(**FOUND)
    with lccodec.Chain(tmp_path / "a", lccodec.fields(relative_error=1e-4), newest="history") as chain:
        for step in range(3):
            chain.save(step, {**state, "t": state["t"] + (state["t"] > 0) * np.sin(step)})
        chain.compact(lccodec.fields(relative_error=1e-3), directory=tmp_path / "b")
    with lccodec.Chain(tmp_path / "b") as chain:
        for step in range(3):
            back, t = chain.restore(step), state["t"] + (state["t"] > 0) * np.sin(step)
            assert back["x"].tobytes() == state["x"].tobytes()
            assert back["t"][t < 0].tobytes() == t[t < 0].tobytes()
            valid = (t >= 1000) & (t <= 7900)
            assert np.abs(back["t"] - t)[valid].max() <= 1e-3 * np.ptp(t[valid])
