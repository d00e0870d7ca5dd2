"""Which arrays of a state are saved, and where they lie in the parent's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ArgumentError
from lccodec.chain.save.partial.selection import Overlay, check_only, overlay, select
from lccodec.container.tree import flatten, unflatten

A, B, C = np.zeros(2), np.ones(3), np.ones(4)
PARENT = {"base": A, "lora": {"a": B, "b": C}, "sizes": (1, 2.5), "names": ["x"], "epoch": 1}


def laid(state: Any, only: list[str] | None = None) -> Overlay:
    parent = flatten(PARENT)
    return overlay(select(flatten(state), only or ["*"]), parent.tree, parent.scalars, 7)


def test_parts_of_a_state() -> None:
    found = laid({"epoch": 2, "lora": {"b": C}})
    assert found.arrays == {2: 0}
    assert found.scalars == [1, {"f": "2.5"}, "x", 2]
    assert found.leaves == {"epoch", "lora/b"}
    everything = laid(PARENT, ["lora/*"])
    assert everything.arrays == {1: 0, 2: 1}
    assert everything.leaves == {"lora/a", "lora/b", "sizes/0", "sizes/1", "names/0", "epoch"}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"base": A, "more": 1}, "'more' is not in step 7"),
        ({"lora": {"a": B, "c": B}}, "'lora/c' is not in step 7"),
        ({"base": 1, "lora": {"a": B}}, "'base' is a scalar, and an array in step 7"),
        ({"base": A, "epoch": B}, "'epoch' is an array, and a scalar in step 7"),
        ({"lora": B}, "'lora' is an array, and a dict in step 7"),
        ({"base": {"w": A}}, "'base' is a dict, and an array in step 7"),
        ({"base": [A]}, "'base' is a list of 1, and an array in step 7"),
        ({"base": A, "sizes": (1,)}, "'sizes' is a tuple of 1, and a tuple of 2 in step 7"),
        ({"base": A, "names": ("x",)}, "'names' is a tuple of 1, and a list of 1 in step 7"),
        ({"base": A, "names": {"0": "x"}}, "'names' is a dict, and a list of 1 in step 7"),
        (A, "the state is an array, and a dict in step 7"),
    ],
)
def test_what_does_not_fit_the_parent_is_refused(state: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        laid(state)


def test_an_array_that_is_left_out_must_be_there_too() -> None:
    with pytest.raises(ArgumentError, match="'new' is not in step 7"):
        laid({"base": A, "new": B}, ["base"])
    with pytest.raises(ArgumentError, match="'epoch' is an array, and a scalar"):
        laid({"base": A, "epoch": B}, ["base"])


def test_one_array_in_two_places() -> None:
    tied = flatten({"wte": A, "head": A, "b": B})
    assert overlay(select(flatten({"head": C}), ["head"]), tied.tree, [], 7).arrays == {0: 0}
    with pytest.raises(ArgumentError, match="'head' is the same array as another one in step 7"):
        overlay(select(flatten({"wte": A, "head": B}), ["*"]), tied.tree, [], 7)
    apart = flatten({"wte": A, "head": B})
    assert overlay(select(flatten({"wte": C, "head": C}), ["wte"]), apart.tree, [], 7).arrays == {0: 0, 1: 0}


@pytest.mark.parametrize("only", ["lora", b"lora", [], [1], {"lora": 1}, 3, [b"lora"]])
def test_only_is_a_list_of_names(only: Any) -> None:
    with pytest.raises(ArgumentError, match="only must be a list of names or patterns"):
        check_only(only)


def test_names_that_fit_no_array_are_refused() -> None:
    assert check_only(None) is None
    assert check_only(name for name in ("a", "b*")) == ("a", "b*")
    with pytest.raises(ArgumentError, match=r"only: no array is named\n  'laro/\*'"):
        select(flatten(PARENT), ["lora/*", "laro/*"])


trees = st.recursive(
    st.integers(0, 5) | st.builds(lambda n: np.full(n, n), st.integers(0, 3)),
    lambda below: st.dictionaries(st.sampled_from("abcd/"), below) | st.lists(below, max_size=3),
    max_leaves=12,
)


@given(trees)
def test_a_whole_state_lies_over_itself(state: Any) -> None:
    flat = flatten(state)
    if flat.arrays:
        found = overlay(select(flat, ["*"]), flat.tree, flat.scalars, 0)
        assert found.arrays == {index: index for index in range(len(flat.arrays))}
        assert found.scalars == flat.scalars
        again = unflatten(flat.tree, [flat.arrays[found.arrays[i]] for i in found.arrays], found.scalars)
        assert flatten(again).tree == flat.tree
