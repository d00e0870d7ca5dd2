"""A state gets the structure and types of a target, or an error lists all that does not fit."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lccodec import Chain, ChecksumError
from lccodec.adapters import jax as adapter
from lccodec.chain.read import replay
from lccodec.errors import ArgumentError, LccodecWarning


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
            "the state does not fit the target: strict=False skips what only one of the two has",
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


def test_leaves_of_a_chain_go_to_the_target_as_they_arrive(tmp_path, monkeypatch):
    key = jax.random.key(3)
    tied = np.ones(4, np.float32)
    tree = {
        "large": {"a": jnp.arange(40000.0), "b": -jnp.arange(40000.0, dtype=jnp.bfloat16)},
        "few": (jnp.int8([1, 2]), [jnp.zeros((0, 3))], 4, None),
        "key": key,
        "host": np.float32([2.5]),
        "scalar": np.float32(0.5),
        "tied": [tied, tied],
        "queue": deque([np.ones(2), 3]),
        "step": 7,
    }
    with Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, {**tree, "large": {"a": jnp.zeros(40000), "b": jnp.zeros(40000, jnp.bfloat16)}})
        chain.save(1, tree)
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    target = {
        **tree,
        "large": jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree["large"]
        ),
        "step": jnp.int32(0),
    }
    placed, decode = [], replay.decode_components
    monkeypatch.setattr("lccodec.adapters.jax.placed", lambda value, *_: placed.append(value) or value)
    seen = []
    monkeypatch.setattr(
        replay, "decode_components", lambda *a, **o: seen.append(len(placed)) or decode(*a, **o)
    )
    adapter.load_into(target, chain.restore_iter())
    assert seen[:4] == [0, 0, 1, 1]
    monkeypatch.undo()
    whole = adapter.load_into(target, chain.restore())
    back = adapter.load_into(target, chain.restore_iter())
    assert jax.tree.structure(back) == jax.tree.structure(whole)
    queue, other = back.pop("queue"), whole.pop("queue")
    assert (queue[0].tolist(), queue[1]) == (other[0].tolist(), other[1])
    for found, wanted in zip(jax.tree.leaves(back), jax.tree.leaves(whole), strict=True):
        assert type(found) is type(wanted)
        assert getattr(found, "dtype", None) == getattr(wanted, "dtype", None)
        assert (found == wanted).all() if hasattr(found, "all") else found == wanted
    part = adapter.load_into({"large": target["large"]}, chain.restore_iter(keys="large"))
    assert (part["large"]["a"] == tree["large"]["a"]).all()


def test_leaves_that_do_not_fit_are_refused_before_anything_is_decoded(tmp_path):
    with Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, {"a": jnp.float32([1, 2, 3]), "n": 1})
    path = next(tmp_path.iterdir())
    data = bytearray(path.read_bytes())
    data[data.index(np.float32([1, 2, 3]).tobytes())] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArgumentError) as caught:
        adapter.load_into({"a": jnp.ones(4)}, chain.restore_iter())
    assert str(caught.value).splitlines()[1:] == [
        "  unexpected: n (no array)",
        "  a: float32 (3,), where the target has float32 (4,)",
    ]
    with pytest.raises(ChecksumError):
        adapter.load_into({"a": jnp.ones(3), "n": 1}, chain.restore_iter())


def layered(value=1.0):
    return {
        "enc": {"w": jnp.full((2, 3), value), "b": jnp.full(3, value)},
        "head": jnp.full(4, value),
        "step": 3,
    }


@pytest.mark.parametrize("arriving", [False, True])
def test_not_strict_keeps_the_values_of_the_target(tmp_path, arriving):
    with Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, {**layered(), "old": jnp.ones(2)})
        state = chain.restore_iter() if arriving else chain.restore()
        reports = []
        target = {**layered(0.0), "new": jnp.full(5, 7.0), "also": 9}
        with pytest.warns(
            LccodecWarning, match=r"2 that the state lacks \((new, also|also, new)\), 1 that .*old"
        ):
            back = adapter.load_into(target, state, strict=False, report=reports.append)
        assert back["new"].tolist() == [7.0] * 5
        assert back["also"] == 9
        assert back["head"].tolist() == [1.0] * 4
        assert (reports[0].left_over, sorted(reports[0].missing)) == (["old"], ["also", "new"])
        assert sorted(reports[0].loaded) == ["enc/b", "enc/w", "head", "step"]
        abstract = {**target, "new": jax.ShapeDtypeStruct((5,), jnp.float32)}
        with pytest.raises(ArgumentError, match="new: is not in the state, and has no value"):
            adapter.load_into(abstract, chain.restore(), strict=False)
        with pytest.raises(ArgumentError, match=r"head: .*where the target has"):
            adapter.load_into({**target, "head": jnp.ones(5)}, chain.restore(), strict=False)
        with pytest.raises(ArgumentError, match="not one array of the state fits"):
            adapter.load_into({"other": jnp.ones(3), "step": 0}, chain.restore(), strict=False)


@pytest.mark.parametrize("arriving", [False, True])
def test_renamed_leaves_and_a_part_of_the_state(tmp_path, arriving):
    with Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, {"run": {"params": layered(), "opt": jnp.ones(2)}})

        def state():
            return chain.restore_iter() if arriving else chain.restore()

        reports = []
        target = {"encoder": {"w": jnp.zeros((2, 3)), "b": jnp.zeros(3)}, "head": jnp.zeros(4), "step": 0}
        rename = {"enc/*": "encoder/*"}
        back = adapter.load_into(target, state(), prefix="run/params", rename=rename, report=reports.append)
        assert back["encoder"]["w"].tolist() == [[1.0] * 3] * 2
        assert reports[0].renamed == {
            "run/params/enc/w": "encoder/w", "run/params/enc/b": "encoder/b"
        }  # fmt: skip
        for options, match in (
            ({"prefix": "run/param"}, "nothing under the prefix"),
            ({"prefix": 3}, "prefix must be a string"),
            ({"prefix": "run/params", "rename": {"x*": "y*"}}, "no name of the state fits 'x"),
            ({"prefix": "run/params", "rename": {"enc/w": "enc/b"}}, "would both be 'enc/b'"),
            ({"report": 1}, "report must be a function"),
        ):
            with pytest.raises(ArgumentError, match=match):
                adapter.load_into(target, state(), **options)
        assert chain.restore(keys=["run/params/enc/*"]).keys() == {"run/params/enc/w", "run/params/enc/b"}


def test_functions_stay_where_a_filter_left_none():
    target = {"activation": jnp.tanh, "w": jnp.zeros(2), "nothing": None}
    reports = []
    made = adapter.load_into(
        target, {"activation": None, "w": jnp.ones(2), "nothing": None}, report=reports.append
    )
    assert made["activation"] is jnp.tanh
    assert (made["w"].tolist(), made["nothing"]) == ([1, 1], None)
    assert (reports[0].loaded, reports[0].missing) == (["w", "nothing"], [])
