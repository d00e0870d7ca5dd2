"""A state as arrays by name: names and numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.adapters.files.named_arrays import named_arrays, named_leaves, plain_names
from lccodec.container.tree import leaf_name
from lccodec.errors import ArgumentError


@given(st.lists(st.text(st.sampled_from("ab/~01"), max_size=3), min_size=1, max_size=4))
def test_the_name_of_a_leaf_is_its_keys_as_they_are(keys):
    assert plain_names({leaf_name(tuple(keys)): 1}) == {"/".join(keys): 1}


def test_two_leaves_of_one_name_are_refused():
    with pytest.raises(ArgumentError, match="both be named 'a/b'"):
        plain_names({"a/b": 1, "a~1b": 2})


def test_numbers_become_arrays_and_what_none_can_hold_stays():
    state = {"m": [np.ones(2), 1, -2.5, True, 2**63], "x": (None, "text", b"raw", 2**64), "": {"": 3}}
    arrays, others = named_leaves(state)
    assert {name: array.dtype.name for name, array in arrays.items()} == {
        "m/0": "float64",
        "m/1": "int64",
        "m/2": "float64",
        "m/3": "bool",
        "m/4": "uint64",
        "/": "int64",
    }
    assert [int(arrays[name]) for name in ("m/1", "m/4", "/")] == [1, 2**63, 3]
    assert others == {"x/0": None, "x/1": "text", "x/2": b"raw", "x/3": 2**64}


def test_an_array_in_two_places_has_both_names():
    array = np.ones(2)
    arrays, _ = named_leaves({"a": array, "b": [array]})
    assert arrays["a"] is arrays["b/0"] is array


@pytest.mark.parametrize(
    ("value", "kind"),
    [(None, "NoneType"), ("x", "str"), (b"x", "bytes"), (-(2**63) - 1, "int of more than 64 bits")],
)
def test_a_scalar_that_no_array_can_hold_is_refused(value, kind):
    with pytest.raises(ArgumentError, match=f"state entry 'a/0' is a {kind}: an .x file holds"):
        named_arrays({"a": [value]}, "an .x")


def test_an_array_that_cannot_be_stored_is_named():
    with pytest.raises(ArgumentError, match="array 'a': dtype"):
        named_leaves({"a": np.ones(2, np.dtype([("x", "f4")]))})
