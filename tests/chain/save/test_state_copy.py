"""Copies of a state: each array once, what is staged not at all, and what they say of the state."""

import numpy as np
import pytest

from lccodec import ArgumentError
from lccodec.chain.save.background import Snapshot, Staging
from lccodec.container.tree import flatten
from lccodec.element_types import components
from lccodec.policy.roles import Assignment
from lccodec.workers.process import Arena, PrivateArena

from ...support.strategies import ALL_DTYPES, installed, random_array


def taken(staging: Staging, state: object) -> Snapshot:
    known = {"a": Assignment("weight", "said so")}
    return staging.snapshot(flatten(state), step=1, metadata={"n": "2"}, known=known, resumed=False)


@pytest.mark.parametrize("arena", [Arena, PrivateArena])
def test_a_snapshot_does_not_change_with_the_state(arena: type[Arena]) -> None:
    state = {"a": np.arange(3), "b": 1, "c": np.ones((2, 3), np.float16)[:, ::2], "d": np.zeros((0, 4))}
    snapshot = taken(Staging(arena()), state)
    state["a"] += 1
    state["c"][:] = 7
    flat = snapshot.flat()
    assert flat.names == ["a", "c", "d"]
    assert [array.shape for array in flat.arrays] == [(3,), (2, 2), (0, 4)]
    assert [array.dtype for array in flat.arrays] == [np.int64, np.float16, np.float64]
    assert flat.arrays[0].tolist() == [0, 1, 2]
    assert flat.arrays[1].tolist() == [[1, 1], [1, 1]]
    assert flat.scalars == flatten(state).scalars
    assert (snapshot.step, snapshot.metadata, snapshot.watched) == (1, {"n": "2"}, False)
    assert snapshot.state().known == {"a": Assignment("weight", "said so")}


def test_what_is_staged_is_not_copied_again() -> None:
    arena = Arena()
    staging = Staging(arena)
    whole = staging.empty(1000, np.dtype(np.float32))
    whole[:] = 1
    other = np.full(1000, 2, np.float32)
    snapshot = taken(staging, {"a": whole, "b": other, "c": whole[:10]})
    whole[:] = 3  # in the arena itself
    other[:] = 3
    a, b, c = snapshot.flat().arrays
    assert (a == 3).all()
    assert (b == 2).all()
    assert (c == 1).all()  # a part is another array, and was copied
    assert np.shares_memory(a, whole)


def test_many_bytes_are_copied_by_two_threads() -> None:
    state = {f"w{i}": np.full(1 << 20, i, np.float64) for i in range(3)}
    arrays = taken(Staging(PrivateArena()), state).flat().arrays
    assert [float(array[0]) for array in arrays] == [0, 1, 2]
    assert all((array == array[0]).all() for array in arrays)


def test_an_array_that_cannot_be_shared_is_named() -> None:
    with pytest.raises(ArgumentError, match="'layer/names'"):
        taken(Staging(PrivateArena()), {"layer": {"names": np.array(["a", object()], object)}})


@pytest.mark.parametrize("arena", [Arena, PrivateArena])
def test_small_arrays_of_every_kind_are_copied_together(arena: type[Arena]) -> None:
    """They come out as large ones do, of any type, order, shape and byte order."""
    state: dict[str, np.ndarray] = {}
    for name in installed(ALL_DTYPES):
        for shape in ((), (0,), (3,), (2, 3), (30, 40)):
            array = np.array(random_array(name, shape, seed=1))
            state |= {f"{name}{shape}": array, f"{name}{shape}F": array.copy(order="F")}
            if shape:
                state |= {f"{name}{shape}T": array.T, f"{name}{shape}strided": array[..., ::2]}
            if name != "bfloat16":
                state[f"{name}{shape}swapped"] = array.astype(array.dtype.newbyteorder())
    state["true in another way"] = np.array([0, 1, 2, 255], np.uint8).view(bool)
    state["large"] = np.arange(5000.0)
    expected = {name: components(array.copy()) for name, array in state.items()}
    snapshot = taken(Staging(arena()), state)
    for array in state.values():
        array[...] = 0  # the snapshot is a copy
    flat = snapshot.flat()
    assert flat.names == list(state)
    for name, array in zip(flat.names, flat.arrays, strict=True):
        kind, bits = components(array)
        assert (kind, array.shape) == (expected[name][0], state[name].shape)
        np.testing.assert_array_equal(bits, expected[name][1])


def test_a_small_array_that_cannot_be_stored_is_named() -> None:
    state = {"a": np.zeros(3), "b": np.array(["x"]), "c": np.array(["y"])}
    with pytest.raises(ArgumentError, match=r"array 'b': dtype [<>]U1 cannot be stored"):
        taken(Staging(PrivateArena()), state)
