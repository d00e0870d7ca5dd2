"""Trees of states, there and back, and the leaves that names stand for."""

import json
import math
from collections import OrderedDict, namedtuple
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.constants import MAX_INTEGER_DIGITS, MAX_NESTING
from lccodec.container import tree
from lccodec.container.scalars import parse_scalars
from lccodec.container.tree import array_names, flatten, leaves_of, parse_tree, select, unflatten
from lccodec.errors import ArgumentError, FormatError, LimitError

from ..support.strategies import STATES
from ..support.tuning import tuned


def same(left: Any, right: Any) -> bool:
    """Equality of states: types, the order of keys, the sign of zeros and NaN count."""
    if isinstance(left, np.ndarray):
        return left is right
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return repr(left) == repr(right)


def nested(depth: int) -> Any:
    state: Any = 1
    for _ in range(depth):
        state = [state]
    return state


class Quantity(np.ndarray):
    """An array with units, as those of unyt and astropy."""

    units: str | None


class Slotted(np.ndarray):
    __slots__ = ("scale",)

    def __array_finalize__(self, other: Any) -> None:
        self.scale = 3


def with_units(units: str | None) -> Quantity:
    array = np.ones(2).view(Quantity)
    array.units = units
    return array


# --- round trips ----------------------------------------------------------------------------------


@given(STATES)
def test_round_trip(state: Any) -> None:
    flat = flatten(state)
    tree, scalars = json.loads(json.dumps([flat.tree, flat.scalars]))
    parse_tree(tree, len(flat.arrays), len(scalars), "tree")
    parse_scalars(scalars, "scalars")
    assert same(unflatten(tree, flat.arrays, scalars), state)


def test_document_order_is_kept() -> None:
    flat = flatten({"z": np.zeros(1), "a": [np.zeros(2), 1], "m": (2, np.zeros(3))})
    assert flat.tree == {"z": 0, "a": ["l", 1, None], "m": ["t", None, 2]}
    assert flat.names == ["z", "a/0", "m/1"]
    assert flat.scalars == [1, 2]


def test_an_array_in_two_places_is_one_array() -> None:
    shared = np.arange(3)
    flat = flatten({"embedding": shared, "head": [shared, shared.copy()]})
    assert flat.tree == {"embedding": 0, "head": ["l", 0, 1]}
    assert array_names(flat.tree) == {"embedding": 0, "head/0": 0, "head/1": 1}
    state = unflatten(flat.tree, flat.arrays, flat.scalars)
    assert state["embedding"] is state["head"][0]


def test_numpy_scalars_are_arrays_and_never_shared() -> None:
    one = np.float32(1)
    flat = flatten([one, one, np.bool_(True), np.float64(2.5)])
    assert flat.tree == ["l", 0, 1, 2, 3]
    assert [(a.shape, a.dtype.name) for a in flat.arrays] == [
        ((), "float32"),
        ((), "float32"),
        ((), "bool"),
        ((), "float64"),
    ]


def test_temporary_arrays_are_not_taken_for_each_other() -> None:
    class Lazy(dict[str, int]):
        def items(self) -> Any:
            return ((key, np.full(3, value)) for key, value in super().items())

    flat = flatten(Lazy({str(i): i for i in range(100)}))
    assert [int(a[0]) for a in flat.arrays] == list(range(100))


def test_arrays_of_subclasses_that_have_nothing_more(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(16))
    plain = [np.ones(2).view(np.matrix), np.memmap(tmp_path / "a", "f8"), with_units(None)]
    assert [type(array) for array in flatten(plain).arrays] == [np.ndarray] * 3


def test_dict_subclasses_become_dicts() -> None:
    flat = flatten(OrderedDict(b=1, a=2))
    assert same(unflatten(flat.tree, flat.arrays, flat.scalars), {"b": 1, "a": 2})


@pytest.mark.parametrize("value", [-0.0, math.inf, -math.inf, math.nan, 5e-324, -2.2250738585072014e-308])
def test_floats_are_exact(value: float) -> None:
    flat = flatten(value)
    parse_scalars(flat.scalars, "scalars")
    assert same(unflatten(flat.tree, [], json.loads(json.dumps(flat.scalars))), value)


def test_limits_are_reached_and_not_passed() -> None:
    flat = flatten(nested(MAX_NESTING))
    parse_tree(flat.tree, 0, 1, "tree")
    largest = 10**MAX_INTEGER_DIGITS - 1
    parse_scalars(flatten([largest, -largest]).scalars, "scalars")


# --- what cannot be saved -------------------------------------------------------------------------


CYCLE: list[Any] = []
CYCLE.append({"again": CYCLE})


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": {"b": object()}}, "'a/b' is a builtins.object, not a dict"),
        (object(), "the state is a builtins.object"),
        ({"a": namedtuple("Point", "x")(1)}, "'a' is a .*Point, not"),
        ({"a": IntEnum("Color", "RED")(1)}, "'a' is a .*Color, not"),
        ({"a": {1}}, "'a' is a builtins.set"),
        ({"a": 1j}, "'a' is a builtins.complex"),
        ({"a": bytearray(b"x")}, "'a' is a builtins.bytearray"),
        ({"a": np.array([None])}, "'a' has dtype object"),
        ({"a": np.str_("x")}, "'a' has dtype [<>]U1"),
        ({"a": np.datetime64("2020-01-01")}, "'a' has dtype datetime64"),
        ({"a": np.ma.zeros(3)}, "'a' is a masked array"),
        ({"a": with_units("m")}, "'a' is a .*Quantity, which is more .* keep beside it: units$"),
        ({"a": np.zeros(2).view(Slotted)}, "'a' is a .*Slotted, .*: scale$"),
        ({"a": {7: 1}}, "'a' has the key 7, which is not a str"),
        ({7: 1}, "the state has the key 7, which is not a str"),
        ({np.str_("a"): 1}, "which is not a str"),
        ({"\ud800": 1}, "the key .* without lone surrogates"),
        ({"a": "\ud800"}, "'a' is a string with a lone surrogate"),
        ({"a": 10**MAX_INTEGER_DIGITS}, "'a' is an integer of more than 4096 digits"),
        ({"a": -(10**100_000)}, "'a' is an integer of more than 4096 digits"),
        (nested(MAX_NESTING + 1), "'0/0/0' nests deeper than 64"),
        ({"a": CYCLE}, "contains itself"),
    ],
)
def test_refused_states(state: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        flatten(state)


def outcome(state: Any, many: int) -> Any:
    """What `flatten` returns, or its error, if dicts of so many children are taken at once."""
    with tuned(many_names=many):
        try:
            flat = flatten(state)
        except ArgumentError as error:
            return str(error)
    return repr(flat.tree), flat.names, flat.scalars, [id(array) for array in flat.arrays]


@given(STATES)
def test_many_arrays_at_once_are_as_one_by_one(state: Any) -> None:
    assert outcome(state, 1) == outcome(state, 1 << 30)
    assert outcome({"again": state, "first": state}, 1) == outcome({"again": state, "first": state}, 1 << 30)


TIED, OTHER = np.zeros(3), np.ones(2)


@pytest.mark.parametrize(
    "state",
    [
        {"a": TIED, "b": OTHER},
        {"a": TIED, "b": TIED},
        {"x": TIED, "m": {"a": OTHER, "b": TIED}},
        {"m": {"a~": TIED, "b": OTHER}},
        {"m/n": {"a/b": TIED, "b": OTHER}},
        {"m": {"ü": TIED, "": OTHER}, "": TIED},
        {"m": {"a\ud800": TIED}},
        {"m": {7: TIED}},
        {"m": {np.str_("a"): TIED}},
        {"m": {"a": TIED, "b": np.array([None])}},
        {"m": {"a": TIED, "b": np.ma.zeros(3)}},
        {"m": {"a": TIED, "b": np.float32(1)}},
        OrderedDict(a=TIED, b=OTHER),
        [[TIED, OTHER], {"a": TIED}],
    ],
)
def test_what_is_special_among_many_arrays(state: Any) -> None:
    assert outcome(state, 1) == outcome(state, 1 << 30)


def test_limits_hold_for_many_arrays_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"model": {f"w{number}": np.zeros(1) for number in range(100)}}
    deep: Any = {"a": TIED}
    for _ in range(MAX_NESTING):
        deep = {"a": deep}
    assert outcome(deep, 1) == outcome(deep, 1 << 30)
    assert "nests deeper" in outcome(deep, 1)
    characters = sum(len(f"model/w{number}/") for number in range(100)) + len("model/")
    for limit, value in (("MAX_ARRAYS", 100), ("MAX_NAME_CHARACTERS", characters)):
        monkeypatch.setattr(tree, limit, value)
        assert len(outcome(state, 1)) == 4
        assert outcome(state, 1) == outcome(state, 1 << 30)
        monkeypatch.setattr(tree, limit, value - 1)
        assert "more than" in outcome(state, 1)
        assert outcome(state, 1) == outcome(state, 1 << 30)
        monkeypatch.undo()


# --- hostile trees and scalars --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "arrays", "scalars", "rule"),
    [
        ("text", 0, 0, "LCC-STA-01"),
        (True, 2, 0, "LCC-STA-01"),
        (0.0, 1, 0, "LCC-STA-01"),
        ([], 0, 0, "LCC-STA-01"),
        ([0], 1, 0, "LCC-STA-01"),
        (["x", 0], 1, 0, "LCC-STA-01"),
        ([["l"], 0], 1, 0, "LCC-STA-01"),
        ({"a": ["l", "t"]}, 0, 0, "LCC-STA-01"),
        (-1, 1, 0, "LCC-STA-02"),
        (1, 1, 0, "LCC-STA-02"),
        (0, 0, 0, "LCC-STA-02"),
        (["l", 10**5000], 1, 0, "LCC-STA-02"),
        (["l", 1, 0], 2, 0, "LCC-STA-02"),
        (["l", 0, 2, 1], 3, 0, "LCC-STA-02"),
        (["l", 0, 0], 2, 0, "LCC-STA-02"),
        ({}, 1, 0, "LCC-STA-02"),
        (None, 0, 0, "LCC-STA-03"),
        (["t", None], 0, 2, "LCC-STA-03"),
        ({"\ud800": None}, 0, 1, "LCC-STA-06"),
    ],
)
def test_hostile_trees(tree: Any, arrays: int, scalars: int, rule: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_tree(tree, arrays, scalars, "here")
    assert caught.value.rule == rule
    assert caught.value.where.startswith("here")


def test_hostile_nesting() -> None:
    tree: Any = None
    for _ in range(100_000):
        tree = ["l", tree]
    with pytest.raises(LimitError) as caught:
        parse_tree(tree, 0, 1, "here")
    assert caught.value.rule == "LCC-LIM-05"


MODEL = {
    "m": {"a/b": np.zeros(1), "a~b": np.zeros(2), "": np.zeros(3)},
    "lr": 0.1,
    "empty": {},
    "l": [1, (2, 3)],
}


@pytest.mark.parametrize(
    ("names", "arrays", "scalars"),
    [
        (["m/a~1b"], ["m/a~1b"], {}),
        (["m/a~0b", "lr"], ["m/a~0b"], {"lr": 0.1}),
        (["m/"], ["m/"], {}),
        (["m", "m/a~1b"], ["m/a~1b", "m/a~0b", "m/"], {}),
        (["l/1"], [], {"l/1/0": 2, "l/1/1": 3}),
        (["l/0"], [], {"l/0": 1}),
        (["empty"], [], {}),
        ([], [], {}),
        ([""], ["m/a~1b", "m/a~0b", "m/"], {"lr": 0.1, "l/0": 1, "l/1/0": 2, "l/1/1": 3}),
    ],
)
def test_select(names: list[str], arrays: list[str], scalars: dict[str, Any]) -> None:
    flat = flatten(MODEL)
    found, values = select(flat.tree, flat.scalars, names)
    assert list(found) == arrays
    assert values == scalars
    assert all(flat.names[index] == name for name, index in found.items())


@given(STATES, st.randoms(use_true_random=False))
def test_leaves_in_order(state: Any, random: Any) -> None:
    flat = flatten(state)
    leaves = leaves_of(flat.tree, flat.scalars)
    assert {name: index for name, index, _ in leaves if index is not None} == array_names(flat.tree)
    assert [entry for _, index, entry in leaves if index is None] == list(flat.scalars)
    random.shuffle(leaves)
    if "" not in [name for name, _, _ in leaves]:  # which may stand for more
        assert leaves_of(flat.tree, flat.scalars, [name for name, _, _ in leaves] * 2) == leaves


def test_containers_stand_for_their_leaves_in_the_order_of_the_names() -> None:
    flat = flatten(MODEL)
    names = [name for name, _, _ in leaves_of(flat.tree, flat.scalars, ["l", "m/a~0b", "m"])]
    assert names == ["l/0", "l/1/0", "l/1/1", "m/a~0b", "m/a~1b", "m/"]


def test_the_empty_name() -> None:
    array = np.zeros(1)
    assert flatten(array).names == [""]
    assert select(0, [], [""]) == ({"": 0}, {})
    flat = flatten({"": array, "other": array})
    assert select(flat.tree, flat.scalars, [""]) == ({"": 0}, {})


def test_unknown_names_are_listed_with_the_closest() -> None:
    flat = flatten(MODEL)
    with pytest.raises(ArgumentError, match=r"has no 'm/a~1c' \(is it 'm/a~1b'\?\), 'zzzzzz'$"):
        select(flat.tree, flat.scalars, ["m/a~1c", "lr", "zzzzzz"])


@given(STATES)
def test_names_are_unique_and_select_each_leaf(state: Any) -> None:
    flat = flatten(state)
    names = array_names(flat.tree)
    assert [names[name] for name in flat.names] == list(range(len(flat.arrays)))
    for name, index in names.items():
        assert select(flat.tree, flat.scalars, [name])[0][name] == index
    assert select(flat.tree, flat.scalars, names)[0] == names


def test_patterns_stand_for_the_leaves_that_they_fit() -> None:
    tree, scalars = {"m": {"w": 0, "b": 1}, "*": 2, "lr": None}, [{"f": "0.1"}]
    assert select(tree, scalars, ["m/*"]) == ({"m/w": 0, "m/b": 1}, {})
    assert select(tree, scalars, ["*r", "m/[ab]"]) == ({"m/b": 1}, {"lr": 0.1})
    assert select(tree, scalars, ["*"]) == ({"*": 2}, {})  # a name goes before a pattern
    assert [name for name, *_ in leaves_of(tree, scalars, ["?r", "m/w", "m/*"])] == ["lr", "m/w", "m/b"]
    with pytest.raises(ArgumentError, match=r"has no 'x\*'"):
        select(tree, scalars, ["m/*", "x*"])
