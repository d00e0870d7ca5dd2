"""Names choose leaves: each by its own, many by that of what holds them, none by a wrong one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.container.leaves import leaves_of, select
from lccodec.container.tree import array_names, flatten
from lccodec.errors import ArgumentError

from ..support.strategies import STATES

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
