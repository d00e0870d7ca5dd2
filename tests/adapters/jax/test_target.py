"""A state gets the structure and types of a target, or an error lists all that does not fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lccodec.adapters import jax as adapter
from lccodec.errors import ArgumentError


def test_all_mismatches_are_listed():
    tree = {"a": jnp.ones((2, 3)), "b": {"c": jnp.ones(4), "gone": 1}, "key": jax.random.key(0), "n": 3}
    target = {
        "a": jax.ShapeDtypeStruct((3, 2), jnp.float32),
        "b": {"c": jax.ShapeDtypeStruct((4,), jnp.bfloat16), "new": jax.ShapeDtypeStruct((), jnp.int32)},
        "key": jax.eval_shape(lambda: jax.random.key(0, impl="rbg")),
        "n": jnp.ones(()),
    }
    for load in (
        lambda: adapter.load_into(target, tree),
        lambda: adapter.load(adapter.save(tree), target=target),
    ):
        with pytest.raises(ArgumentError) as caught:
            load()
        assert str(caught.value).splitlines() == [
            "the state does not fit the target",
            "  missing: b/new (int32 ())",
            "  unexpected: b/gone (no array)",
            "  a: float32 (2, 3), where the target has float32 (3, 2)",
            "  b/c: float32 (4,), where the target has bfloat16 (4,)",
            "  key: key<fry> (), where the target has key<rbg> ()",
            "  n: no array, where the target has float32 ()",
        ]


def test_a_number_and_an_array_of_one_fit_if_no_bit_is_lost():
    target = {
        "i": 0,
        "f": 0.0,
        "b": False,
        "a": jnp.int32(0),
        "n": np.zeros((), np.int64),
        "s": np.float32(0),
    }
    state = {"i": jnp.int32(3), "f": jnp.float32(0.5), "b": jnp.array(True), "a": 4, "n": 5, "s": 0.5}
    back = adapter.load_into(target, state)
    assert {key: type(value) for key, value in back.items()} == {k: type(v) for k, v in target.items()}
    assert {key: float(value) for key, value in back.items()} == {k: float(v) for k, v in state.items()}
    for wanted, found in [
        (0, jnp.float32(1)),
        (0.0, jnp.int32(1)),
        (True, jnp.int32(1)),
        (0, jnp.ones(1, int)),
        (jnp.int8(0), 300),
        (jnp.float16(0), 0.1),
        (jnp.uint8(0), -1),
        (jnp.int32(0), True),
        (jnp.int32(0), "3"),
        ("3", jnp.int32(3)),
        (jnp.ones(1), 1.0),
    ]:
        with pytest.raises(ArgumentError, match="x: "):
            adapter.load_into({"x": wanted}, {"x": found})
