"""Trees of states, there and back, the leaves that names stand for, and their values as JSON.

Scalars, JSON and base64 have one way to be written; all others are refused (LCC-STA-04 to -06,
LCC-MAN-01, LCC-MAN-08).
"""

import itertools
import json
import math
import os
import tracemalloc
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
from lccodec.container.tree import (
    advice,
    array_names,
    dump_json,
    first_difference,
    flatten,
    is_unicode,
    leaves_of,
    metadata_strings,
    parse_base64,
    parse_json,
    parse_scalars,
    parse_tree,
    scalar_json,
    scalar_value,
    select,
    unflatten,
    write_base64,
)
from lccodec.errors import ArgumentError, DataError, FormatError, LimitError

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


@pytest.mark.parametrize(
    ("scalars", "rule"),
    [
        ({}, "LCC-STA-04"),
        (None, "LCC-STA-04"),
        ([1.5], "LCC-STA-04"),
        ([[]], "LCC-STA-04"),
        ([{}], "LCC-STA-04"),
        ([{"f": 1}], "LCC-STA-04"),
        ([{"x": "1.0"}], "LCC-STA-04"),
        ([{"f": "1.0", "b": ""}], "LCC-STA-04"),
        ([{"f": "1"}], "LCC-STA-05"),
        ([{"f": "1.00"}], "LCC-STA-05"),
        ([{"f": " 1.0"}], "LCC-STA-05"),
        ([{"f": "1_0.0"}], "LCC-STA-05"),
        ([{"f": "NaN"}], "LCC-STA-05"),
        ([{"f": "-nan"}], "LCC-STA-05"),
        ([{"f": "infinity"}], "LCC-STA-05"),
        ([{"f": "1e400"}], "LCC-STA-05"),
        ([{"f": "٣.0"}], "LCC-STA-05"),
        ([{"f": ""}], "LCC-STA-05"),
        ([{"f": "9" * 10**7}], "LCC-STA-05"),
        ([{"b": "QQ"}], "LCC-STA-05"),
        ([{"b": "QR=="}], "LCC-STA-05"),
        ([{"b": "Q Q=="}], "LCC-STA-05"),
        ([{"b": "QQ==\n"}], "LCC-STA-05"),
        ([{"b": "é==="}], "LCC-STA-05"),
        (["\udfff"], "LCC-STA-06"),
        ([10**MAX_INTEGER_DIGITS], "LCC-LIM-07"),
    ],
)
def test_hostile_scalars(scalars: Any, rule: str) -> None:
    with pytest.raises((FormatError, LimitError)) as caught:
        parse_scalars(scalars, "here")
    assert caught.value.rule == rule
    assert caught.value.where.startswith("here")


@given(st.floats() | st.binary())
def test_what_json_has_no_place_for_comes_back(value: float | bytes) -> None:
    entry = json.loads(json.dumps(scalar_json(value)))
    assert parse_scalars([entry], "here") == [entry]
    back = scalar_value(entry)
    assert type(back) is type(value)
    assert repr(back) == repr(value)  # NaN and the sign of a zero count


@given(st.none() | st.booleans() | st.integers() | st.text())
def test_what_json_has_stands_for_itself(value: object) -> None:
    assert parse_scalars([value], "here") == [value]
    assert scalar_value(value) is value


def test_an_error_names_the_place_in_the_list() -> None:
    with pytest.raises(FormatError) as caught:
        parse_scalars([1, None, {"f": "1"}], "file: scalars")
    assert caught.value.where == "file: scalars[2]"


@given(st.text(st.characters(), max_size=5))
def test_lone_surrogates_are_what_utf_8_has_no_bytes_for(text: str) -> None:
    try:
        text.encode()
        encodable = True
    except UnicodeEncodeError:
        encodable = False
    assert is_unicode(text) == encodable


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", ""),
        (7, "7"),
        (True, "true"),
        (np.bool_(False), "false"),
        (np.int8(-3), "-3"),
        (np.float32(0.5), "0.5"),
        (float("nan"), "NaN"),
        (-math.inf, "-Infinity"),
        (np.str_("text"), "text"),
    ],
)
def test_metadata_become_strings(value: object, text: str) -> None:
    found = metadata_strings({"key": value})
    assert found == {"key": text}
    assert type(found["key"]) is str


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ([("key", "value")], "a mapping from strings to strings; got list"),
        ("key", "a mapping from strings to strings; got str"),
        ({"key": None}, "metadata 'key' must be a string or a number; got None"),
        ({"key": [1]}, r"metadata 'key' must be a string or a number; got \[1\]"),
        ({"key": 1j}, "metadata 'key'"),
        ({3: "value"}, "a key of metadata must be a string; got 3"),
        ({"key": "\ud800"}, "metadata 'key': .* lone surrogate"),
        ({"\ud800": "value"}, "lone surrogate"),
    ],
)
def test_metadata_that_are_refused(metadata: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        metadata_strings(metadata)


def test_no_metadata() -> None:
    assert metadata_strings(None) == metadata_strings({}) == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("torch._C.Generator", "; save its get_state(), and give that to set_state()"),
        ("torch.Tensor", "; give its adapter: Chain(..., adapter=lccodec.adapters.torch)"),
        ("torch.storage.UntypedStorage", ""),
        ("jaxlib._jax.ArrayImpl", "; give its adapter: Chain(..., adapter=lccodec.adapters.jax)"),
        ("jax._src.random.prng.PRNGKeyArray", "; give its adapter: Chain(..., adapter=lccodec.adapters.jax)"),
        ("jaxlib._jax.PjitFunction", "; leave functions out"),
        ("equinox._module.Module", "; give its adapter: Chain(..., adapter=lccodec.adapters.jax)"),
        ("flax.linen.linear.Dense", "; save the variables that its init returns"),
        ("program.Thing", ""),
    ],
)
@pytest.mark.parametrize("derived", [False, True])
def test_what_to_write_instead_of_a_value(name: str, text: str, derived: bool) -> None:
    module, _, last = name.rpartition(".")
    kind = type(last, (), {"__module__": module, "__qualname__": last})
    value = (type("Own", (kind,), {}) if derived else kind)()
    found = advice(value)
    assert found.startswith(text)
    assert bool(found) == bool(text)


def test_functions_come_from_the_target() -> None:
    assert advice(print) == advice(lambda: 0)
    assert "leave functions out" in advice(print)
    assert not advice(int)


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
HOSTILE: list[tuple[bytes, str]] = [
    (b"", "LCC-MAN-01"),
    (b"\xff", "LCC-MAN-01"),
    (b"\xef\xbb\xbf{}", "LCC-MAN-01"),
    (b"nul", "LCC-MAN-01"),
    (b'{"a', "LCC-MAN-01"),
    (b"[1,", "LCC-MAN-01"),
    (b"[1}", "LCC-MAN-01"),
    (b"[1, 2]", "LCC-MAN-01"),
    (b'{"a":1,"a":1}', "LCC-MAN-01"),
    (b"[" * 10**6, "LCC-LIM-05"),
    (b'"' + b"\\" * 10**6, "LCC-MAN-01"),
    (b'"' + b'\\"' * 10**6, "LCC-MAN-01"),
    (b"-" + b"7" * (MAX_INTEGER_DIGITS + 1), "LCC-LIM-07"),
]


@pytest.mark.parametrize(("data", "rule"), HOSTILE, ids=itertools.count())
def test_hostile_json(data: bytes, rule: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_json(data, "here")
    assert caught.value.rule == rule
    assert caught.value.where.startswith("here")


@given(DOCUMENTS)
def test_json_is_read_as_it_was_written(document: Any) -> None:
    assert parse_json(dump_json(document), "here") == document


def test_brackets_in_strings_do_not_nest() -> None:
    deep: Any = "[{" * 1000 + '"\\'
    for _ in range(MAX_NESTING + 1):
        deep = [deep]
    assert parse_json(dump_json(deep), "here") == deep
    with pytest.raises(DataError, match="LCC-LIM-05"):
        parse_json(dump_json([deep]), "here")


@pytest.mark.parametrize("size", [0, 1, 2, 3, 16, 32])
def test_base64_is_read_as_it_was_written(size: int) -> None:
    data = os.urandom(size)
    text = write_base64(data)
    assert parse_base64(text, size) == data
    for other in (text + "=", text + "\n", text + "A", text.encode(), None):
        assert parse_base64(other, size) is None


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_base64_has_one_text_for_each_bytes(size: int) -> None:
    """Each last letter, and each other letter in the middle."""
    start = "Qr-_9z"[: (4 * size + 2) // 3 - 1]
    texts = [start + chr(code) for code in range(256)] + [chr(code) + start for code in range(256)]
    for text in texts:
        data = parse_base64(text, size)
        assert data is None or write_base64(data) == text
    bits = 8 * size - 6 * len(start)  # in the last letter
    assert sum(parse_base64(text, size) is not None for text in texts[:256]) == 2**bits


@pytest.mark.parametrize("text", ["A" * 21 + "B", "+" * 22, "é" * 22, "A" * 21, "A" * 21 + "="])
def test_other_texts_of_the_same_bytes_are_refused(text: str) -> None:
    assert parse_base64("A" * 22, 16) == bytes(16)
    assert parse_base64(text, 16) is None


@pytest.mark.parametrize(
    ("left", "right", "place"),
    [
        *((b"abc", b"abd", 2), (b"abc", b"ab", 2), (b"", b"a", 0), (b"ab", b"ab", 2), (b"xb", b"ab", 0)),
        (bytes(1000) + b"a" + bytes(7), bytes(1000) + b"b" + bytes(7), 1000),
    ],
)
def test_the_first_difference(left: bytes, right: bytes, place: int) -> None:
    assert first_difference(left, right) == place


def test_brackets_that_stay_open_count_as_depth() -> None:
    for count, rule in ((65, "LCC-MAN-01"), (66, "LCC-LIM-05")):
        with pytest.raises(DataError) as caught:
            parse_json(b"[" * count, "here")
        assert caught.value.rule == rule


def test_a_tree_that_is_wide_and_deep_takes_no_memory() -> None:
    tree: Any = {str(index): index for index in range(10_000)}
    for _ in range(MAX_NESTING - 1):
        tree = {"k": tree}
    tracemalloc.start()
    try:
        assert parse_tree(tree, 10_000, 0, "tree") is tree
        assert tracemalloc.get_traced_memory()[1] < 1 << 18
    finally:
        tracemalloc.stop()
