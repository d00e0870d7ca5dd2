"""Shards that make up an array, and leaves that are nested by their paths."""

import pytest

from lccodec.adapters.tree import listed, make_up, nested
from lccodec.errors import FormatError


@pytest.mark.parametrize(
    ("shape", "shards", "whole"),
    [
        ([5, 2], [([0, 0], [3, 2]), ([3, 0], [2, 2])], True),
        ([], [([], [])], True),
        ([0, 3], [([0, 0], [0, 3])], True),
        ([0, 3], [], True),
        ([5, 2], [([0, 0], [3, 2])], False),
        ([4], [([0], [2]), ([0], [2])], False),
        ([4], [([0], [2]), ([3], [2])], False),
        ([4], [([-1], [4])], False),
        ([4], [([0], [4]), ([4], [-1])], False),
        ([4], [([0, 0], [4, 1])], False),
        ([1 << 40], [([0], [1])], False),
    ],
)
def test_what_makes_up_an_array(shape, shards, whole):
    assert make_up(shape, shards) is whole


def test_leaves_by_their_paths():
    leaves = [(("a", 0), 1), (("a", 1), {}), (("b", "x", 1), 2), ((0,), 3)]
    assert nested(leaves, "rule", "here") == {"a": [1, {}], "b": {"x": {1: 2}}, 0: 3}
    assert nested([], "rule", "here") == {}
    assert (listed({0: 1, 1: 2}), listed({1: 2}), listed({})) == ([1, 2], {1: 2}, {})


@pytest.mark.parametrize(
    ("leaves", "words"),
    [
        ([((), 1)], "is not one"),
        ([(("a", 1.5), 1)], "is not one"),
        ([(("a",) * 1000, 1)], "is not one"),
        ([(("a",), {}), (("a", "b"), 1)], "'a/b' lies below another value"),
        ([(("a", "b"), 1), (("a",), 1)], "two values lie at 'a'"),
    ],
)
def test_paths_that_contradict_each_other(leaves, words):
    with pytest.raises(FormatError, match=words):
        nested(leaves, "rule", "here")
