"""Nested containers become leaves by name, and come back."""

from collections import OrderedDict, namedtuple
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.constants import MAX_NESTING
from lccodec.errors import ArgumentError
from lccodec.exchange.mapping import children, leaves, nested, rebuilt, replaced

Moments = namedtuple("Moments", "mu nu")

keys = st.text(st.sampled_from("ab0"), min_size=1, max_size=2)
trees = st.dictionaries(
    keys, st.recursive(st.integers(), lambda inner: st.dictionaries(keys, inner, min_size=1, max_size=3))
)
forms = st.recursive(
    st.none() | st.integers(),
    lambda inner: (
        st.dictionaries(keys, inner, max_size=3)
        | st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.builds(Moments, inner, inner)
    ),
)


@given(trees, st.sampled_from(["/", "."]))
def test_leaves_by_name_are_nested_again(tree, separator):
    assert nested(leaves(tree, separator), separator) == tree


@given(forms)
def test_a_tree_whose_leaves_are_replaced_has_its_form(tree):
    found = leaves(tree, "/")
    other = {name: f"instead of {leaf}" for name, leaf in found.items()}
    assert leaves(replaced(tree, "/", other), "/") == other
    assert replaced(tree, "/", found) == tree


@pytest.mark.parametrize(
    ("node", "found"),
    [
        ({0: 1, "b": 2}, [("0", 1), ("b", 2)]),
        (MappingProxyType({"a": 1}), [("a", 1)]),
        ([3, None], [("0", 3), ("1", None)]),
        ((3,), [("0", 3)]),
        (Moments(1, 2), [("mu", 1), ("nu", 2)]),
        ({}, []),
        ("text", None),
        (None, None),
        ({1, 2}, None),
    ],
)
def test_what_a_container_holds(node, found):
    assert children(node) == found


@pytest.mark.parametrize("node", [{"a": 1, 0: 2}, [1, 2], (1, 2), Moments(1, 2)])
def test_a_container_is_rebuilt_as_its_kind(node):
    made = rebuilt(node, [3, 4])
    assert type(made) is type(node)
    assert [child for _, child in children(made)] == [3, 4]
    assert [name for name, _ in children(made)] == [name for name, _ in children(node)]


def test_a_mapping_is_rebuilt_as_a_dict():
    assert type(rebuilt(OrderedDict(a=1), [2])) is dict


@pytest.mark.parametrize("tree", [{"a": {"b": 1}, "a/b": 2}, {0: 1, "0": 2}])
def test_two_leaves_of_one_name_are_refused(tree):
    with pytest.raises(ArgumentError, match="two entries of the state have the name"):
        leaves(tree, "/")


@pytest.mark.parametrize("found", [{"a": 1, "a/b": 2}, {"a/b": 1, "a": 2}, {"a": 1, "a/b/c": 2}])
def test_a_name_that_is_a_leaf_and_a_path_is_refused(found):
    with pytest.raises(ArgumentError, match="the name of an array, and also the path of others"):
        nested(found, "/")


def test_the_nesting_has_an_end():
    def deep(depth):
        tree = 1
        for _ in range(depth):
            tree = [tree]
        return tree

    assert len(leaves(deep(MAX_NESTING), "/")) == 1
    with pytest.raises(ArgumentError, match=f"deeper than {MAX_NESTING}"):
        leaves(deep(MAX_NESTING + 1), "/")
