"""Equal arrays that are objects of their own take the bytes of one, and are restored as two."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import Chain
from lccodec.chain.save.exact import exact_from_checkpoint
from lccodec.chain.store.directory import DirectoryStore

from ..support.walks import assert_restores, assert_same

SHAPES = {"w": (200, 100), "b": (300,), "count": (40,)}


def networks(steps: int) -> list[dict[str, Any]]:
    """A run with a target network: equal at the start, then every third step."""
    rng = np.random.default_rng(0)
    online = {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    online["count"] = np.arange(40, dtype=np.int64)
    target: dict[str, Any] = {}
    states = []
    for step in range(steps):
        if step % 3 == 0:
            target = {name: array.copy() for name, array in online.items()}
        states.append({"online": dict(online), "target": dict(target), "step": step})
        count = online.pop("count") + 1
        online = {
            name: array + rng.normal(0, 1e-3, array.shape).astype("f4") for name, array in online.items()
        }
        online["count"] = count
    return states


def methods(chain: Chain, step: int) -> dict[str, str]:
    return {array.name: array.method for array in chain.info(step).arrays}


@pytest.mark.parametrize("reference", ["values", "hashes"])
def test_a_chain(tmp_path: Path, reference: Any) -> None:
    states, alone = networks(5), tmp_path / "alone"
    with Chain(tmp_path / "run", "lossless", reference=reference) as chain, Chain(alone, "lossless") as other:
        for step, state in enumerate(states):
            chain.save(step, state)
            other.save(step, {"online": state["online"], "step": step})
        sizes = [chain.info(step).file_bytes - other.info(step).file_bytes for step in range(5)]
        expected = {0: "copy", 1: "unchanged", 2: "unchanged", 3: "copy", 4: "unchanged"}
        for step, state in enumerate(states):
            found = methods(chain, step)
            assert {found[f"target/{name}"] for name in SHAPES} == {expected[step]}
            assert sizes[step] < 250
            assert_same(chain.restore(step), state)
            assert_same(chain.restore(step, keys=["target/w"]), {"target/w": state["target"]["w"]})
            part = chain.restore(step, keys={"target/w": slice(7, 9)})
            assert_same(part, {"target/w": state["target"]["w"][7:9]})
    assert lccodec.validate(tmp_path / "run", deep=True) == []


def test_a_writer_with_hashes_goes_on_from_copies(tmp_path: Path) -> None:
    """What is kept of a copy is right: another process finds what changed of it."""
    states = networks(8)
    for step, state in enumerate(states):
        with Chain(tmp_path, "lossless", reference="hashes") as chain:
            chain.save(step, state)
    assert_restores(Chain(tmp_path), states, range(len(states)))
    assert lccodec.validate(tmp_path, deep=True) == []


def test_restored_copies_are_two_objects(tmp_path: Path) -> None:
    state = networks(1)[0]
    lccodec.save_file(state, tmp_path / "a.lcc.h5")
    found = lccodec.load_file(tmp_path / "a.lcc.h5")
    assert_same(found, state)
    found["target"]["w"][:] = 0
    assert_same(found["online"], state["online"])


def test_one_object_in_two_places_stays_one() -> None:
    array = networks(1)[0]["online"]["w"]
    found = lccodec.load(lccodec.save({"a": array, "b": array, "c": array.copy()}))
    assert found["a"] is found["b"]
    assert found["a"] is not found["c"]
    assert_same(found["c"], array)


def test_an_exact_file_has_equal_arrays_once(tmp_path: Path) -> None:
    with Chain(tmp_path, "balanced", newest="exact", roles={"*": "weight"}) as chain:
        state = networks(1)[0]
        chain.save(0, state)
        assert_same(chain.restore(), state)
    nbytes = sum(array.nbytes for array in state["online"].values())
    assert (tmp_path / "exact.lcc.h5").stat().st_size < nbytes + 2500


@pytest.mark.parametrize("how", ["as it is", "with hashes", "as in version 1.0", "a part"])
def test_an_exact_file_with_equal_arrays_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Its layout follows from the state, and not from what changed last; or others are tried."""
    first, second = (np.random.default_rng(i).normal(size=(200, 50)).astype("f4") for i in range(2))
    if how == "as in version 1.0":
        monkeypatch.setattr("lccodec.chain.save.exact.mark_equal", lambda *_: None)
    reference: Any = "hashes" if how == "with hashes" else "values"
    with Chain(tmp_path, "lossless", newest="exact", reference=reference) as chain:
        chain.save(0, {"a": first, "b": second, "c": first.copy(), "half": first.astype("f2")})
        # The one that changed least is not the first.
        near = second + np.float32(1e-6)
        state = {"a": near, "b": near.copy(), "c": first.copy(), "half": first.astype("f2")}
        chain.save(1, state, only=["a", "b"] if how == "a part" else None)
        expected = (tmp_path / "exact.lcc.h5").read_bytes()
        assert (expected.count(near.tobytes()) == 1) == (how in ("as it is", "with hashes"))
        assert_same(chain.restore(), state)
    monkeypatch.undo()
    (tmp_path / "exact.lcc.h5").unlink()
    exact_from_checkpoint(DirectoryStore(tmp_path))
    assert (tmp_path / "exact.lcc.h5").read_bytes() == expected


@pytest.mark.parametrize("policy", ["lc-3", "balanced"])
def test_equal_weights_stay_equal_in_a_lossy_chain(tmp_path: Path, policy: str) -> None:
    with Chain(tmp_path, policy, roles={"*": "weight"}, newest="history") as chain:
        for step, state in enumerate(networks(5)):
            chain.save(step, state)
            found = chain.restore(step)
            if step % 3 == 0:
                assert_same(found["online"], found["target"])
                found = methods(chain, step)
                assert "copy" in (found["online/w"], found["target/w"])
    assert lccodec.validate(tmp_path, deep=True) == []


def test_an_exact_array_is_no_copy_of_a_lossy_one(tmp_path: Path) -> None:
    roles: Any = {"online/*": "weight", "target/*": "other"}
    with Chain(tmp_path, "lc-3", roles=roles, newest="history") as chain:
        for step, state in enumerate(networks(7)):
            chain.save(step, state)
            assert_same(chain.restore(step)["target"], state["target"])


def test_small_arrays_that_hardly_change_are_no_copies(tmp_path: Path) -> None:
    """Of a shared frame, what changed of them takes less than to say what they are copies of."""
    rng = np.random.default_rng(0)
    small = [rng.normal(size=300).astype(np.float32) for _ in range(40)]
    state = {side: {f"{i}": array.copy() for i, array in enumerate(small)} for side in ("a", "b")}
    with Chain(tmp_path, "lossless") as chain:
        chain.save(0, state)
        assert list(methods(chain, 0).values()).count("copy") == 40
        for side in state.values():
            for array in side.values():
                array[7] += 1
        chain.save(1, state)
        assert "copy" not in methods(chain, 1).values()
        assert_same(chain.restore(1), state)


def test_a_check_keeps_what_a_source_was(tmp_path: Path) -> None:
    """A source that changes next is not written where its copy lies, which changes after that."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=(300, 100)).astype(np.float32)
    second, third = first + np.float32(1e-3), first + np.float32(2e-3)
    with Chain(tmp_path, "lossless") as chain:
        for step, (a, b) in enumerate([(first, first), (second, first), (second, third)]):
            chain.save(step, {"a": a, "b": b.copy()})
        assert [methods(chain, step)["b"] for step in range(3)] == ["copy", "unchanged", "planes"]
    assert lccodec.validate(tmp_path, deep=True) == []


def test_the_plan_says_why(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless") as chain:
        plan = {array.name: array for array in chain.plan(networks(1)[0])}
        assert plan["target/w"].stored == "copy"
        assert plan["target/w"].why.endswith("; equal to 'online/w'")


def test_a_follower_holds_copies(tmp_path: Path) -> None:
    states = networks(7)
    with Chain(tmp_path, "lossless") as chain:
        chain.save(0, states[0])
        with lccodec.follow(tmp_path) as follower:
            next(follower)
            assert_same(follower.state(), states[0])
            held = follower.state()
            for step, state in enumerate(states[1:], 1):
                chain.save(step, state)
                if step != 2:
                    next(follower).apply_to(held)
                    assert_same(follower.state(), state)
                    assert_same(held, {**state, "step": 0})  # scalars stay
