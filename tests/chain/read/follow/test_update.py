"""An update goes into the arrays of its user as a whole, or not at all."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import BFLOAT16_BITS, ArgumentError, Chain, Follower, Patch, Update, follow
from lccodec.workers.process import Arena

from ....support.walks import assert_same


@pytest.fixture
def first() -> dict[str, Any]:
    return {"model": {"w": np.zeros((40, 50), "f4"), "b/c": np.ones(3)}, "lr": 0.1}


@pytest.fixture
def pair(tmp_path: Path, first: dict[str, Any]) -> Any:
    """A follower at step 4, and the update that changed three values of one array."""
    with Chain(tmp_path, "lossless") as chain, follow(tmp_path) as follower:
        chain.save(3, first)
        assert follower.prepare(0) is not None
        weight = first["model"]["w"].copy()
        weight[1, 2] = weight[30, 49] = 7
        chain.save(4, {"model": {"w": weight, "b/c": np.full(3, 2.0)}, "lr": 0.1})
        update = follower.prepare(0)
        yield follower, update


def test_what_it_says(pair: tuple[Follower, Update]) -> None:
    _, update = pair
    assert repr(update) == "Update(step=4, base=3, 2 arrays)"
    assert update.names == ("model/w", "model/b~1c")
    assert update.nbytes == 8 + 24
    wide, small = update.patches()
    assert wide == Patch("model/w", "float32", (40, 50), wide.places, wide.values)
    assert wide.places is not None
    assert (wide.places.tolist(), wide.values.tolist()) == ([52, 1549], [7, 7])
    assert (small.name, small.places, small.values.tolist()) == ("model/b~1c", None, [2, 2, 2])


def test_a_nested_state_or_arrays_by_name(pair: tuple[Follower, Update], first: dict[str, Any]) -> None:
    follower, update = pair
    flat = {"model/w": first["model"]["w"].copy(), "model/b~1c": np.ones(3), "more": np.ones(1)}
    update.apply_to(flat)
    update.apply_to(first)
    update.apply_to(first)  # again is no harm
    assert_same(first, follower.state())
    assert_same(flat["model/w"], first["model"]["w"])
    assert_same(flat["model/b~1c"], first["model"]["b/c"])


def test_keys_with_a_slash_at_the_root(tmp_path: Path) -> None:
    state = {"a/b": np.zeros(5), "c": np.zeros(5)}
    with Chain(tmp_path, "lossless") as chain, follow(tmp_path, timeout=0) as follower:
        for step in range(2):
            chain.save(step, {name: array + step for name, array in state.items()})
            for update in follower:
                update.apply_to(state)
    assert state["a/b"].tolist() == state["c"].tolist() == [1] * 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model.pop("b/c"), "the arrays lack 'model/b~1c', which step 4 has anew"),
        (lambda model: model.clear(), "the arrays lack 'model/w' and 1 more"),
        (lambda model: model.update({"b/c": np.ones(4)}), r"must be float64 of shape \(3,\)"),
        (lambda model: model.update({"b/c": 1.0}), "the arrays lack 'model/b~1c'"),
    ],
)
def test_what_does_not_fit_changes_nothing(
    pair: tuple[Follower, Update], first: dict[str, Any], change: Any, message: str
) -> None:
    _, update = pair
    weight = first["model"]["w"]
    change(first["model"])
    with pytest.raises(ArgumentError, match=message):
        update.apply_to(first)
    assert not weight.any()


def test_an_array_in_two_places(tmp_path: Path) -> None:
    tied = np.zeros(30, "f4")
    served = {"tied": [tied, tied], "apart": np.zeros(2)}
    untied = {"tied": [tied.copy(), tied.copy()], "apart": np.zeros(2)}
    with Chain(tmp_path, "lossless") as chain, follow(tmp_path) as follower:
        for value in range(2):
            array = np.full(30, value, "f4")
            chain.save(value, {"tied": [array, array], "apart": np.zeros(2)})
            update = follower.prepare(0)
            assert update is not None
            assert update.names[:2] == ("tied/0", "tied/1")
            update.apply_to(served)
            update.apply_to(untied)
    assert tied.tolist() == untied["tied"][0].tolist() == untied["tied"][1].tolist() == [1] * 30


def test_bfloat16_as_asked(tmp_path: Path) -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16)
    with Chain(tmp_path, "lossless") as chain, follow(tmp_path) as follower:
        chain.save(0, {"w": bits.view(BFLOAT16_BITS)})
        update = follower.prepare(0)
        assert update is not None
        [patch] = update.patches("float32")
        assert (patch.dtype, patch.values.dtype, patch.values.tolist()) == ("bfloat16", np.float32, [1, 2])
        [patch] = update.patches("bits")
        assert patch.values.dtype == BFLOAT16_BITS
        with pytest.raises(ArgumentError, match="dtype must be"):
            next(update.patches("f4"))  # type: ignore[arg-type]


def test_an_update_in_the_memory_of_another_process_is_refused(
    pair: tuple[Follower, Update], first: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a fork: what a worker found may be overwritten there by now."""
    _, update = pair
    monkeypatch.setattr(os, "getpid", lambda: -1)
    update.apply_to(first)  # it is in private memory, which a fork has copied
    changes = dict(update._changes or {})
    name = "model/w"
    shared = Arena().empty(2, np.dtype(np.int64))
    shared[:] = changes[name].places
    update._changes = {**changes, name: replace(changes[name], places=shared)}
    with pytest.raises(ArgumentError, match=r"step 4 is in memory of the process .* forked from"):
        update.apply_to(first)
