"""A save of some arrays: which they are, and what it takes from its parent."""

import math
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import ArgumentError, Chain, ChainError, Keep, LccodecWarning, Policy, UniformDeadzone
from lccodec.chain.save import saver
from lccodec.chain.save.partial import DEFERRED, Overlay, check_only, inherit, overlay, select
from lccodec.chain.save.reference import read_latest, read_values
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.tree import flatten, unflatten

from ...support.damage import flip
from ...support.paths import checkpoint_path
from ...support.profiles import examples
from ...support.walks import assert_restores, assert_same

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


NAMES = ["base/weight", "base/bias", "lora/a.weight", "lora/b.weight", "count"]


def state_of(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "base": {
            "weight": rng.standard_normal((64, 32)).astype(np.float32),
            "bias": rng.standard_normal(32).astype(np.float16),
        },
        "lora": {n: rng.standard_normal((64, 4)).astype(np.float32) for n in ("a.weight", "b.weight")},
        "count": rng.integers(0, 99, 5),
        "epoch": seed,
    }


def merged(before: dict[str, Any], after: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The state before, with arrays of these names, and the scalars, of the state after."""
    return {
        **{
            entry: {
                name: (after if f"{entry}/{name}" in names else before)[entry][name] for name in before[entry]
            }
            for entry in ("base", "lora")
        },
        "count": (after if "count" in names else before)["count"],
        "epoch": after["epoch"],
    }


def part(state: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """A state that has only arrays of these names, and the scalar."""
    found: dict[str, Any] = {"epoch": state["epoch"]}
    for name in reversed(names):
        entry, _, below = name.partition("/")
        if below:
            found.setdefault(entry, {})[below] = state[entry][below]
        else:
            found[entry] = state[entry]
    return found


saves = st.lists(
    st.tuples(
        st.sampled_from(["all", "some", "part"]),
        st.sets(st.sampled_from(NAMES), min_size=1).map(sorted),
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.slow
@given(saves, st.sampled_from([1, 2, 32]))
def test_every_step_is_what_was_given_over_the_step_before(
    kinds: list[tuple[str, list[str], bool]], every: int
) -> None:
    with TemporaryDirectory() as folder:
        chain = Chain(folder, "lossless", keyframe_every=every)
        states = [state_of(0)]
        chain.save(0, states[0])
        for step, (kind, names, reopens) in enumerate(kinds, 1):
            after = state_of(step)
            if kind == "all":
                chain.save(step, after)
            elif kind == "some":
                chain.save(step, after, only=names)
            else:
                chain.save(step, part(after, names), only=["*"])
            states.append(after if kind == "all" else merged(states[-1], after, names))
            if reopens:
                chain.close()
                chain = Chain(folder, keyframe_every=every)
        assert_restores(chain, states, range(len(states)))
        assert lccodec.validate(folder, deep=True) == []
        chain.close()


@pytest.mark.slow
@examples(1 / 2)
@given(saves)
def test_a_lossy_history_keeps_its_bound_whatever_is_left_out(
    kinds: list[tuple[str, list[str], bool]],
) -> None:
    policy = Policy("bound", {"weight": UniformDeadzone(max_error=0.01)})
    with TemporaryDirectory() as folder, Chain(folder, policy, keyframe_every=2) as chain:
        state = state_of(0)
        chain.save(0, state)
        for step, (kind, names, _) in enumerate(kinds, 1):
            after = state_of(step)
            chain.save(step, after, only=None if kind == "all" else names)
            state = after if kind == "all" else merged(state, after, names)
            assert_same(chain.restore(), state)  # the exact file
            history = chain.restore(step, exact=False)
            for name in ("a.weight", "b.weight"):
                assert np.abs(history["lora"][name] - state["lora"][name]).max() <= 0.01
            assert np.abs(history["base"]["weight"] - state["base"]["weight"]).max() <= 0.01
            assert_same(history["base"]["bias"], state["base"]["bias"])


def test_the_rest_takes_no_bytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {f"layer{i}.weight": rng.standard_normal(1 << 14).astype(np.float32) for i in range(10)}
    with Chain(tmp_path, "lossless") as chain:
        chain.save(0, arrays)
        moved = {name: array + np.float32(1) for name, array in arrays.items()}
        everything = chain.save(1, moved)
        moved = {name: array + np.float32(1) for name, array in moved.items()}
        some = chain.save(2, moved, only=["layer3.weight"])
        assert some < everything / 9
        assert [a.name for a in chain.info(2).arrays if a.method != "unchanged"] == ["layer3.weight"]


@pytest.mark.slow
def test_a_hundred_saves_of_a_part_take_a_hundred_parts(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    base = {f"base{i}": rng.standard_normal(1 << 15).astype(np.float32) for i in range(8)}
    sizes = []
    with Chain(tmp_path, "lossless", keyframe_every=8) as chain:
        whole = chain.save(0, {**base, "lora": np.zeros(256, np.float32)})
        for step in range(1, 101):
            lora = rng.standard_normal(256).astype(np.float32)
            sizes.append(chain.save(step, {"lora": lora}, only=["lora"]))
        kinds = [chain.info(step).kind for step in chain.steps]
        assert_same(chain.restore(), {**base, "lora": lora})
    at = [step for step, kind in enumerate(kinds) if kind == "keyframe"]
    assert at == [0, 8 * DEFERRED + 1]
    deltas = [size for step, size in enumerate(sizes, 1) if step not in at]
    assert max(deltas) < 256 * 4 + 2048
    assert sum(sizes) < whole * 1.05 + 100 * 3072


def test_no_restore_replays_more_deltas_of_an_array(tmp_path: Path) -> None:
    """Where a keyframe is due, the arrays that are saved need no reference."""
    with Chain(tmp_path, "lossless", keyframe_every=3) as chain:
        chain.save(0, state_of(0))
        for step in range(1, 9):
            plan = {a.name: a.stored for a in chain.plan(state_of(step), only=["lora/*", "count"])}
            chain.save(step, state_of(step), only=["lora/*", "count"])
            stored = "whole" if step in (4, 7) else "delta"
            assert plan == {
                **dict.fromkeys(["base/weight", "base/bias"], "unchanged"),
                **dict.fromkeys(["lora/a.weight", "lora/b.weight", "count"], stored),
            }
        assert chain.info().deltas == 8
        chain.save(9, state_of(9))  # a keyframe is due
        assert chain.info().kind == "keyframe"


@pytest.mark.parametrize("policy", ["balanced", "lc-3"])
def test_a_keyframe_that_cannot_wait_loses_nothing_twice(tmp_path: Path, policy: str) -> None:
    with Chain(tmp_path, policy, keyframe_every=1, roles={"lora/*": "other"}) as chain:
        chain.save(0, state_of(0))
        first = chain.restore(0, exact=False)
        for step in range(1, DEFERRED + 2):
            chain.save(step, state_of(step), only=["lora/*"])
        assert [chain.info(step).kind for step in chain.steps[1:]] == ["delta"] * DEFERRED + ["keyframe"]
        last = chain.restore(exact=False)
        assert_same(last["base"], first["base"])
        assert_same(last["lora"], state_of(DEFERRED + 1)["lora"])
        assert_same(chain.restore(), merged(state_of(0), state_of(step), NAMES[2:4]))


def test_every_second_checkpoint_a_keyframe(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless", keyframe_every=0) as chain:
        chain.save(0, state_of(0))
        chain.save(1, state_of(1), only=["count"])
        assert chain.info().kind == "keyframe"
        assert_same(chain.restore(), merged(state_of(0), state_of(1), ["count"]))


def test_the_exact_file_has_the_rest_of_the_one_before(tmp_path: Path) -> None:
    with Chain(tmp_path, "lc-3") as chain:
        chain.save(0, state_of(0))
        chain.save(1, state_of(1), only=["lora/*"])
    after = merged(state_of(0), state_of(1), NAMES[2:4])
    with Chain(tmp_path) as chain:
        assert_same(chain.restore(), after)
        assert chain.info().exact
        chain.save(2, state_of(2), only=["count"])
        after = merged(after, state_of(2), ["count"])
        assert_same(chain.restore(), after)
        (tmp_path / "exact.lcc.h5").unlink()
        with pytest.warns(LccodecWarning, match=r"step 2, .* has no exact file"):
            chain.save(3, state_of(3), only=["lora/*"])
        with pytest.warns(LccodecWarning, match="the exact file is missing"):
            restored = chain.restore()
        assert_same(restored, chain.restore(3, exact=False))
        assert_same(restored["count"], after["count"])
        chain.save(4, state_of(4))
        assert_same(chain.restore(), state_of(4))


def test_a_damaged_exact_file_is_not_copied(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "lc-3")
    chain.save(0, state_of(0))
    exact = tmp_path / "exact.lcc.h5"
    data = bytearray(exact.read_bytes())
    data[len(data) // 2] ^= 1
    exact.write_bytes(data)
    with pytest.warns(LccodecWarning, match="step 1 is saved, but writing its exact file failed"):
        chain.save(1, state_of(1), only=["lora/*"])
    assert exact.read_bytes() == data
    with pytest.warns(LccodecWarning, match="the exact file is of step 0"):
        assert_same(chain.restore(), chain.restore(1, exact=False))


def test_an_exact_file_at_some_steps_waits_for_a_save_of_all(tmp_path: Path) -> None:
    with Chain(tmp_path, "lc-3", exact_every=2) as chain:
        chain.save(0, state_of(0))
        for step in (1, 2):
            chain.save(step, state_of(step), only=["lora/*"])
            assert not chain.info().exact
        chain.save(3, state_of(3))
        assert chain.info().exact


def test_refused(tmp_path: Path) -> None:
    chain = Chain(tmp_path / "run", "lossless")
    with pytest.raises(ArgumentError, match="has no step that only= could add to"):
        chain.save(0, state_of(0), only=["lora/*"])
    assert not (tmp_path / "run").exists()
    chain.save(0, state_of(0))
    for wrong, message in [
        ({"count": np.zeros(5, np.int32)}, r"'count' is int32 of shape \(5,\), and int64 of shape \(5,\)"),
        ({"count": np.zeros(6, np.int64)}, r"'count' is int64 of shape \(6,\)"),
        ({"count": np.zeros(5, "M8[s]").view("V8")}, "count"),
        ({"cuont": np.zeros(5, np.int64)}, "no array is named|'cuont' is not in step 0"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            chain.save(1, wrong, only=["c*"])
    with pytest.raises(ArgumentError, match="only: no array is named"):
        chain.save(1, state_of(1), only=["loar/*"])
    with pytest.raises(ArgumentError, match="only must be a list"):
        chain.plan(state_of(1), only="lora/*")
    assert chain.steps == [0]
    with pytest.raises(ArgumentError, match="cannot be used with hindsight="):
        Chain(tmp_path / "run", "balanced", hindsight=4).save(1, state_of(1), only=["count"])


def test_a_parent_that_cannot_be_read(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless") as chain:
        chain.save(0, state_of(0))
        chain.save(1, state_of(1))
    path = checkpoint_path(tmp_path, 1)
    flip(path, 0.5)
    chain = Chain(tmp_path)
    with pytest.raises(ChainError, match="only= adds to step 1, which cannot be restored: save all arrays"):
        chain.save(2, state_of(2), only=["count"])
    assert chain.steps == [0, 1]


def test_a_parent_is_mended_from_the_exact_file(tmp_path: Path) -> None:
    with Chain(tmp_path, "lc-3") as chain:
        for step in range(2):
            chain.save(step, state_of(step))
    path = checkpoint_path(tmp_path, 1)
    path.write_bytes(path.read_bytes()[:-40])
    with Chain(tmp_path, "lc-3") as chain, pytest.warns(LccodecWarning, match="written anew from the exact"):
        chain.save(2, state_of(2), only=["lora/*"])
    expected = merged(state_of(1), state_of(2), NAMES[2:4])
    assert_same(Chain(tmp_path).restore(), expected)
    assert_same(Chain(tmp_path).restore(2, exact=False)["base"], expected["base"])


def test_a_parent_that_is_gone_at_the_commit_leaves_the_state_in_the_exact_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = Chain(tmp_path, "lc-3")
    chain.save(0, state_of(0))
    chain.save(1, state_of(1))

    def gone(*_: object) -> Any:
        raise ChainError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(saver, "held_together", gone)
        with pytest.warns(LccodecWarning, match="step 2 is saved, but only in the exact file"):
            chain.save(2, state_of(2), only=["lora/*"])
    after = merged(state_of(1), state_of(2), NAMES[2:4])
    assert_same(chain.restore(), after)
    chain.save(3, state_of(3), only=["count"])
    assert_same(chain.restore(), merged(after, state_of(3), ["count"]))
    assert chain.steps == [0, 1, 2, 3]


def test_the_newest_step_counts_whoever_saved_it(tmp_path: Path) -> None:
    first = Chain(tmp_path, "lossless")
    first.save(0, state_of(0))
    first.release_lock()
    with Chain(tmp_path) as second:
        second.save(1, state_of(1))
    first.save(2, state_of(2), only=["count"])
    assert_same(first.restore(), merged(state_of(1), state_of(2), ["count"]))


def test_a_step_that_only_the_exact_file_has_is_added_first(tmp_path: Path) -> None:
    with Chain(tmp_path, "lc-3") as chain:
        for step in range(2):
            chain.save(step, state_of(step))
    checkpoint_path(tmp_path, 1).unlink()
    with Chain(tmp_path) as chain:
        chain.save(2, state_of(2), only=["lora/*"])
        assert chain.steps == [0, 1, 2]
        assert_same(chain.restore(), merged(state_of(1), state_of(2), NAMES[2:4]))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [None, 2])
def test_in_the_background(tmp_path: Path, workers: int | None) -> None:
    for folder, save in (("here", Chain.save), ("behind", Chain.save_async)):
        with Chain(tmp_path / folder, "lc-3", workers=None if folder == "here" else workers) as chain:
            chain.save(0, state_of(0))
            save(chain, 1, state_of(1), only=["lora/*"])
            save(chain, 2, part(state_of(2), ["count"]), only=["count"])
            chain.wait()
            plan = chain.plan(state_of(3), only=["base/*"])
            assert [a.stored for a in plan][2:] == ["unchanged"] * 3
            assert [e.stored_bytes for e in plan.estimates()][2:] == [0] * 3
            after = merged(merged(state_of(0), state_of(1), NAMES[2:4]), state_of(2), ["count"])
            assert_same(chain.restore(), after)
    for step in range(3):
        here, behind = (checkpoint_path(tmp_path / folder, step) for folder in ("here", "behind"))
        assert here.read_bytes() == behind.read_bytes()


def test_figures_of_the_rest_are_those_of_its_last_save(tmp_path: Path) -> None:
    with Chain(tmp_path, "lc-3") as chain:
        for step in range(2):
            chain.save(step, state_of(step))
        chain.save(2, state_of(2), only=["lora/*"])
    with Chain(tmp_path) as chain:  # the samples of the originals are read from the files
        chain.save(3, state_of(3), only=["lora/*"])
        chain.save(4, state_of(4))
        found = [{a.name: a.figures for a in chain.info(step).arrays} for step in range(5)]
    for step in (2, 3):
        rest, before = found[step]["base/weight"], found[1]["base/weight"]
        assert (rest.movement, rest.lag) == (0.0, None)
        assert before.error and rest.error == before.error
        assert (rest.spread, rest.quantiles) == (before.spread, before.quantiles)
        assert math.isclose(found[step]["lora/a.weight"].movement or 0, 2**0.5, rel_tol=0.2)
    moved = np.sqrt(np.mean((state_of(4)["base"]["weight"] - state_of(1)["base"]["weight"]) ** 2))
    assert math.isclose(found[4]["base/weight"].movement or 0, moved, rel_tol=0.05)


def test_roles_and_notes_of_the_rest_stay(tmp_path: Path) -> None:
    note = '{"float8_e4m3fn":["count"],"Counter":["base"]}'
    with Chain(tmp_path, "lc-3") as chain:
        chain.save(
            0, state_of(0), {"lccodec.types": note, "a": "b"}, roles={"count": "other", "base/*": "other"}
        )
        chain.save(1, part(state_of(1), ["count"]), {"c": "d"}, only=["count"])
        info = chain.info()
    assert {a.name: a.role for a in info.arrays if a.role != "other"} == dict.fromkeys(NAMES[2:4], "weight")
    assert info.metadata == {"lccodec.types": '{"Counter":["base"]}', "c": "d"}


@pytest.mark.parametrize("note", ["[1", "[]", '"count"', '{"float8_e4m3fn":"count"}'])
def test_a_malformed_note_is_not_inherited(tmp_path: Path, note: str) -> None:
    with Chain(tmp_path, "lossless") as chain:
        chain.save(0, state_of(0), {"lccodec.types": note})
        chain.save(1, state_of(1), only=["count"])
        assert chain.info().metadata == {}
        assert_same(chain.restore(), merged(state_of(0), state_of(1), ["count"]))


def test_roles_of_a_newer_version_are_not_inherited(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless") as chain:
        chain.save(0, state_of(0), roles={"count": "weight"})
    latest = read_latest(DirectoryStore(tmp_path), 0, partial(read_values, np.empty))
    selection = select(flatten(state_of(1)), ["lora/*"])
    assert [role.role for role in inherit(selection, {}, {}, latest).known.values()] == ["weight"]
    latest.manifest = replace(latest.manifest, policy="of a newer version")
    assert inherit(selection, {}, {}, latest).known == {}


def test_life_of_such_a_chain(tmp_path: Path) -> None:
    with Chain(tmp_path / "run", "lossless") as chain:
        states = [state_of(0)]
        chain.save(0, states[0])
        for step in range(1, 7):
            chain.save(step, state_of(step), only=["lora/*"])
            states.append(merged(states[-1], state_of(step), NAMES[2:4]))
        chain.fork(tmp_path / "fork", 4)
        chain.rollback(5)
        chain.prune(keep=Keep(latest=2), rewrite=True)
        assert_restores(chain, states)
        chain.save(6, state_of(6), only=["count"])
        assert_same(chain.restore(), merged(states[5], state_of(6), ["count"]))
    shutil.rmtree(tmp_path / "run")
    assert_same(Chain(tmp_path / "fork").restore(), states[4])


def test_a_follower_reads_what_was_saved(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless") as chain:
        chain.save(0, state_of(0))
        with lccodec.follow(tmp_path) as follower:
            first = follower.prepare(0)
            chain.save(1, state_of(1), only=["lora/*"])
            update = follower.prepare(0)
            assert first is not None
            assert update is not None
            assert update.step == 1
            assert set(update.names) == {"lora/a.weight", "lora/b.weight"}


@pytest.mark.parametrize("policy", ["lossless", "balanced"])
@pytest.mark.parametrize("name", ["grad_avg", "square_avg"])
def test_what_an_optimizer_keeps_belongs_to_one_step(tmp_path: Path, policy: str, name: str) -> None:
    """The mean of squares less the square of a mean of another step is negative."""

    def means(step: int) -> dict[str, np.ndarray]:
        mean = np.random.default_rng(step).normal(size=(50, 60)).astype(np.float32) * (1 + step)
        return {"grad_avg": mean, "square_avg": np.float32(1.1) * mean**2}

    weight = np.random.default_rng(9).normal(size=(50, 60)).astype(np.float32)
    chain = Chain(tmp_path, policy, newest="history")
    for step in range(4):
        state = {"model": {"weight": weight}, "rmsprop": {"state": {"0": means(step)}}}
        chain.save(step, state, only=[f"*/{name}"] if step else None)
        found = chain.restore()["rmsprop"]["state"]["0"]
        assert (found["square_avg"] >= found["grad_avg"].astype(float) ** 2).all()
    with pytest.raises(ArgumentError, match="belong together"):
        chain.save(4, {"rmsprop": {"state": {"0": {name: means(4)[name]}}}}, only=["*"])
    assert chain.latest == 3
