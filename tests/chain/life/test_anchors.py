"""Interpolated checkpoints: what is saved, what readers make of it, and what their lives do."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import Chain, ChainError, Keep, LccodecWarning
from lccodec.chain.read.survey import survey
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import ELEMENT_TYPES, PAYLOAD_OFFSET
from lccodec.container.tree import flatten
from lccodec.element_types import components, interpolate, unwork, work
from lccodec.policy.presets import POLICIES
from lccodec.policy.record import Record

from ...support.damage import flip
from ...support.groups import KNOWN, STATES, anchors, grouped, partly_grouped
from ...support.paths import checkpoints
from ...support.vectors import SPEC, beside
from ...support.walks import assert_restores, assert_same


@pytest.fixture(name="decoder", scope="module")
def _decoder() -> Iterator[Any]:
    with beside("decoder", SPEC) as decoder:
        yield decoder


def plain(state: Any) -> list[bytes]:
    """The arrays of a state, as the second decoder returns it."""
    if hasattr(state, "data"):
        return [state.data]
    children = state.values() if isinstance(state, dict) else state if isinstance(state, list) else ()
    return [data for child in children for data in plain(child)]


# --- the arithmetic -------------------------------------------------------------------------------


@given(st.sampled_from([k for k in ELEMENT_TYPES if k.is_float]), st.integers(0, 255), st.data())
def test_the_second_decoder_interpolates_to_the_same_bits(
    decoder: Any, kind: Any, weight: int, data: Any
) -> None:
    plainly = decoder.frames.interpolate
    element = next(each for each in decoder.frames.ELEMENTS if each.name == kind.name)
    patterns = st.integers(0, 2 ** (8 * kind.size) - 1)
    near = data.draw(st.integers(-300, 300))
    low = data.draw(patterns)
    high = data.draw(st.one_of(patterns, st.just((low + near) % 2 ** (8 * kind.size))))
    out = np.empty(1, kind.bits)
    interpolate(np.array([low], kind.bits), np.array([high], kind.bits), weight / 256, kind, out)
    assert int(out[0]) == plainly(low, high, weight, element)


@pytest.mark.parametrize("kind", [k for k in ELEMENT_TYPES if k.is_float], ids=lambda kind: kind.name)
def test_what_is_equal_stays_and_what_is_not_finite_is_the_earlier(kind: Any) -> None:
    numbers = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 3.0, 1e-7])
    low = unwork(numbers.astype(kind.work), kind)
    out = low.copy()
    interpolate(low, low, 77 / 256, kind, out)
    assert np.array_equal(out, low)
    high = unwork(np.array([np.nan, np.inf, -np.inf, 2.5, 1, 2, 3, 4, 0]).astype(kind.work), kind)
    interpolate(low, high, 0.5, kind, out)
    assert np.array_equal(out[[0, 1, 2, 4, 5, 6]], low[[0, 1, 2, 4, 5, 6]])
    assert work(out, kind)[[3, 7]].tolist() == [0.0, 3.5]
    assert work(out, kind)[8] > 0  # positive numbers stay positive


# --- what is saved --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["lossless", "balanced", "lc-3"])
def test_every_reader_returns_what_the_writer_has(tmp_path: Path, decoder: Any, policy: str) -> None:
    with grouped(tmp_path, policy) as chain:
        store = DirectoryStore(tmp_path)
        known = {step: anchors.decoded(store, step)[0] for step in chain.steps}
        for step in chain.steps:
            state = chain.restore(step)
            if policy == "lossless":
                assert_same(state, STATES[step])
            flat = flatten(state)
            second = plain(decoder.read_checkpoint(store.path / f"{step:012d}.lcc.h5"))
            for name, array, other in zip(flat.names, flat.arrays, second, strict=True):
                assert array.tobytes() == other
                assert np.array_equal(known[step][name].bits, components(array)[1])
                assert np.array_equal(chain.restore(step, keys=[name])[name], array, equal_nan=True)
            assert chain.restore(step)["epoch"] == step
        assert lccodec.validate(tmp_path, deep=True) == []


def test_what_is_known_of_them(tmp_path: Path) -> None:
    with grouped(tmp_path) as chain:
        infos = {step: chain.info(step) for step in chain.steps}
    assert {step: (info.kind, info.parents) for step, info in infos.items()} == {
        0: ("keyframe", ()),
        8: ("delta", (0,)),
        12: ("delta", (8,)),
        **{step: ("interpolated", parents) for step, parents in {
            4: (0, 8), 2: (0, 4), 6: (4, 8), 1: (0, 2), 3: (2, 4), 5: (4, 6), 7: (6, 8),
            10: (8, 12), 9: (8, 10), 11: (10, 12),
        }.items()},
    }  # fmt: skip
    assert [infos[step].deltas for step in (0, 8, 4, 2, 1, 9)] == [0, 1, 2, 3, 4, 4]
    methods = {array.name: array.method for array in infos[4].arrays}
    assert (methods["still"], methods["w"]) == ("unchanged", "planes")
    assert not any(info.lossy for info in infos.values())


def test_an_array_that_lies_between_takes_no_bytes(tmp_path: Path) -> None:
    drift = [{"w": np.full((40, 40), 2.0 + step, np.float32)} for step in range(5)]
    store, record = DirectoryStore(tmp_path), Record(POLICIES["balanced"], newest="history")
    with Chain(tmp_path, lccodec.Policy("exact"), newest="history") as chain:
        chain.save(0, drift[0])
        chain.save(4, drift[4])
        for step in (1, 2, 3):
            size = anchors.save_anchored(store, step, drift[step], (0, 4), record, 64 * step, KNOWN)
            assert size < 1000
            assert_same(chain.restore(step), drift[step])
        assert [array.method for array in chain.info(2).arrays] == ["interpolated"]
        assert chain.info(2).lossy  # nobody knows what it was


# --- the order of all -----------------------------------------------------------------------------


@pytest.mark.parametrize("rising", [False, True])
def test_a_survey_decodes_each_once_and_as_a_restore_does(tmp_path: Path, rising: bool) -> None:
    with grouped(tmp_path, "balanced") as chain:
        store, found = DirectoryStore(tmp_path), {}
        for visit in survey(store, store.steps(), decode=True, rising=rising):
            assert visit.error is None
            found[visit.step] = {name: array.array().copy() for name, array in visit.arrays().items()}
            assert visit.info() == chain.info(visit.step)
        assert list(found) == sorted(found) if rising else set(found) == set(chain.steps)
        for step, arrays in found.items():
            flat = flatten(chain.restore(step))
            for name, array in zip(flat.names, flat.arrays, strict=True):
                assert np.array_equal(arrays[name], array, equal_nan=True)


def test_a_damaged_end_is_named_by_what_needs_it(tmp_path: Path) -> None:
    grouped(tmp_path).close()
    path = checkpoints(tmp_path)[8]
    flip(path, PAYLOAD_OFFSET + 65)
    problems = lccodec.validate(tmp_path)
    lost = {p.where for p in problems if p.message == "cannot be restored as it needs step 8"}
    assert lost == {f"{step:012d}.lcc.h5" for step in range(1, 13) if step != 8}
    assert len(problems) == 12
    with Chain(tmp_path) as chain, pytest.warns(LccodecWarning, match="restored step 0"):
        assert chain.restore(fallback=True)["epoch"] == 0


@pytest.mark.parametrize("missing", [0, 8, 4])
def test_a_missing_parent_is_named(tmp_path: Path, missing: int) -> None:
    grouped(tmp_path).close()
    checkpoints(tmp_path)[missing].unlink()
    with Chain(tmp_path) as chain, pytest.raises(ChainError, match=f"its parent, step {missing}, is missing"):
        chain.restore(3)


# --- the life of a chain --------------------------------------------------------------------------


def test_leaves_of_a_group_can_be_pruned_and_what_is_needed_stays(tmp_path: Path) -> None:
    with grouped(tmp_path) as chain:
        found = chain.prune(Keep(steps=[2, 8, 12]))
        assert found.needed == {0: 2, 4: 2}
        assert chain.steps == [0, 2, 4, 8, 12]
        assert_same(chain.restore(2), STATES[2])
        found = chain.prune(Keep(steps=[2, 8]), rewrite=True)
        assert chain.steps == [2, 8, 12]
        assert {each.step: each.parent for each in found.rewritten} == {2: None, 8: None}
        assert_restores(chain, STATES)
        assert lccodec.validate(tmp_path, deep=True) == []


def test_a_kept_parent_that_is_interpolated_is_no_parent_of_a_delta(tmp_path: Path) -> None:
    with grouped(tmp_path) as chain:
        chain.prune(Keep(steps=[0, 4, 6, 8]))
        found = chain.prune(Keep(steps=[0, 4, 6]), rewrite=True)
        assert chain.steps == [0, 4, 6, 12]
        assert {each.step: each.parent for each in found.rewritten} == {4: 0, 6: 4, 12: 0}
        assert_restores(chain, STATES)


@pytest.mark.slow
@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize("step", [3, 4, 8, 9])
def test_a_rollback_into_a_group_keeps_what_it_needs(tmp_path: Path, step: int, delete: bool) -> None:
    with grouped(tmp_path, "balanced") as chain:
        before = {each: chain.restore(each) for each in chain.steps}
        chain.rollback(step, delete=delete)
        assert chain.steps == list(range(step + 1))
        assert_restores(chain, before)
        assert lccodec.validate(tmp_path, deep=True) == []
        chain.save(step + 1, STATES[step + 1])
        assert chain.info(step + 1).parent == step
        if not delete:
            chain.rollback(step)
            chain.delete_rolled_back(chain.rolled_back[-1].name)
            chain.undo_rollback()
            assert_restores(chain, before, before)


@pytest.mark.parametrize("step", [3, 5])
def test_a_rollback_to_a_delta_within_a_group(tmp_path: Path, step: int) -> None:
    """It is no end, so what comes before it needs what comes after it."""
    with partly_grouped(tmp_path) as chain:
        before = {each: chain.restore(each) for each in chain.steps}
        chain.rollback(step)
        assert chain.steps == [each for each in before if each <= step]
        assert_restores(chain, before)
        assert chain.info(2).kind == "delta"
        assert lccodec.validate(tmp_path, deep=True) == []


def test_no_keyframe_within_a_group(tmp_path: Path) -> None:
    """Or a rollback would not look past it (LCC-INT-05)."""
    with partly_grouped(tmp_path) as chain:
        chain.compact(keyframe_every=0)
        kinds = {step: chain.info(step).kind for step in chain.steps}
        assert kinds == {0: "keyframe", 2: "interpolated", 3: "delta", 5: "delta", 8: "keyframe"}
        chain.rollback(3)
        assert lccodec.validate(tmp_path, deep=True) == []


def test_a_fork_at_a_step_that_is_interpolated(tmp_path: Path) -> None:
    with grouped(tmp_path / "run", "balanced") as chain:
        before = chain.restore(3)
        assert chain.fork(tmp_path / "fork", 3) == [0, 2, 3]
        assert chain.fork(tmp_path / "fork", 3) == [0, 2, 3]  # again
    with Chain(tmp_path / "fork") as fork:
        assert fork.steps == [0, 2, 3]
        assert_same(fork.restore(), before)
        fork.save(4, STATES[4])
    assert lccodec.validate(tmp_path / "fork", deep=True) == []


def test_a_bundle_has_both_parents(tmp_path: Path) -> None:
    with grouped(tmp_path / "run") as chain:
        lccodec.bundle(chain.directory, tmp_path / "part.lcc", steps=[3])
        lccodec.bundle(chain.directory, tmp_path / "all.lcc")
    with lccodec.open(tmp_path / "part.lcc", step=3) as file:
        assert_same(file.state(), STATES[3])
    assert lccodec.validate(tmp_path / "part.lcc", deep=True) == []
    assert lccodec.unbundle(tmp_path / "all.lcc", tmp_path / "back") == list(range(13))
    assert lccodec.validate(tmp_path / "back", deep=True) == []


@pytest.mark.slow
def test_a_chain_with_groups_is_compacted_and_averaged(tmp_path: Path) -> None:
    with grouped(tmp_path, "balanced") as chain:
        before = {step: chain.restore(step) for step in chain.steps}
        chain.compact(keyframe_every=0)
        assert chain.info(8).parent is None
        assert_restores(chain, before, before)
        mean = chain.average([1, 3, 8])["w"]
        wanted = np.mean([before[step]["w"] for step in (1, 3, 8)], axis=0, dtype=np.float64)
        assert np.allclose(mean, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_random_groups(tmp_path: Path, decoder: Any) -> None:
    """Parents of all kinds, missing steps, and files that took the place of others."""
    rng = random.Random(5)
    for case in range(6):
        directory = tmp_path / str(case)
        with grouped(directory, rng.choice(["lossless", "lc-3"]), rng.choice([(0, 13), (0, 5, 13)])) as chain:
            before = {step: chain.restore(step) for step in chain.steps}
            kept = sorted(rng.sample(chain.steps, 6))
            chain.prune(Keep(steps=kept), rewrite=rng.random() < 0.5)
            assert lccodec.validate(directory, deep=True) == []
            for step in chain.steps:
                assert_same(chain.restore(step), before[step])
                flat = flatten(before[step]).arrays
                second = plain(decoder.read_checkpoint(directory / f"{step:012d}.lcc.h5"))
                assert [array.tobytes() for array in flat] == second
