"""Followers beside everything that may happen to a chain: the held state is that of one step."""

import errno
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import (
    Chain,
    ChainError,
    ChecksumError,
    DataError,
    Keep,
    LccodecWarning,
    StorageError,
    decode,
    follow,
)
from lccodec.chain.life.compact import rewrite
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.checkpoint import open_checkpoint
from lccodec.container.source import FileSource

from ...support.damage import flip
from ...support.following import Run, Served, open_root, taken
from ...support.walks import NAMES, assert_same, save_all, walk


def test_step_by_step(tmp_path: Path) -> None:
    run, served = Run(tmp_path, keyframe_every=3), Served()
    with follow(tmp_path) as follower:
        for step in range(8):
            run.save(step)
            [update] = taken(follower, served)
            served.check(run.states[step])
            assert_same(follower.state(), run.states[step])
            assert (update.step, update.metadata["tag"], follower.step) == (step, str(step), step)
            assert (update.base, update.steps) == (step - 1 if step else None, 1)
            if step:
                assert "model/ids" not in update.names
                assert update.nbytes < 0.05 * sum(a.nbytes for a in served.arrays.values())
            assert follower.lag == (0, 0)


def test_a_late_joiner_folds_steps_and_reads_only_what_it_lacks(tmp_path: Path) -> None:
    run, served = Run(tmp_path), Served()
    run.save(0, 1)
    with follow(tmp_path) as follower:
        taken(follower, served)
        run.save(2, 3, 4, 5)
        sizes = [(tmp_path / NAMES[step]).stat().st_size for step in (2, 3, 4, 5)]
        assert follower.lag == (4, sum(sizes))
        [update] = taken(follower, served)
        assert (update.base, update.step, update.steps, update.bytes_read) == (1, 5, 4, sum(sizes))
        served.check(run.states[5])


@pytest.mark.slow
def test_bytes_read_of_a_step_are_those_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain before it is not read, however long it is."""
    run, served = Run(tmp_path), Served()
    run.save(*range(20))
    with follow(tmp_path) as follower:
        taken(follower, served)
        run.save(20)
        read = 0
        whole = FileSource.read

        def counted(source: FileSource, offset: int, size: int) -> bytes:
            nonlocal read
            read += size
            return whole(source, offset, size)

        monkeypatch.setattr(FileSource, "read", counted)
        [update] = taken(follower, served)
    assert update.step == 20
    assert read <= update.bytes_read + 2048


def test_a_pruned_step_is_no_loss(tmp_path: Path) -> None:
    run, served = Run(tmp_path, keyframe_every=2), Served()
    run.save(*range(3))
    with follow(tmp_path) as follower:
        taken(follower, served)
        run.save(*range(3, 7))
        run.chain.prune(Keep(latest=1))
        assert run.chain.steps == [6]
        [update] = taken(follower, served)
        served.check(run.states[6])
        # It has the values that differ, not the whole state of the keyframe.
        assert (update.base, update.step) == (2, 6)
        assert update.nbytes < 0.1 * sum(array.nbytes for array in served.arrays.values())


def test_a_rewritten_step_makes_no_update(tmp_path: Path) -> None:
    run, served = Run(tmp_path), Served()
    run.save(*range(4))
    with follow(tmp_path) as follower:
        taken(follower, served)
        before = open_root(tmp_path, 3)
        rewrite(DirectoryStore(tmp_path), 3, None)
        assert open_root(tmp_path, 3) != before
        assert taken(follower, served) == []
        run.save(4)  # its parent is the old file or the new one
        [update] = taken(follower, served)
        assert (update.base, update.steps) == (3, 1)
        served.check(run.states[4])
        # Rewritten behind the follower's back: the next delta names a root that it does not know.
        rewrite(DirectoryStore(tmp_path), 4, None)
        run.chain.close()
        run.chain = Chain(tmp_path)
        run.save(5)
        [update] = taken(follower, served)
        assert (update.base, update.steps) == (4, 1)
        served.check(run.states[5])


@pytest.mark.slow
def test_a_rollback_is_followed_back_and_on(tmp_path: Path) -> None:
    run, served = Run(tmp_path), Served()
    run.save(*range(5))
    with follow(tmp_path) as follower:
        taken(follower, served)
        run.chain.rollback(2)
        [update] = taken(follower, served)
        assert (update.base, update.step) == (4, 2)
        served.check(run.states[2])
        run.save(3, 4)
        taken(follower, served)
        # Another step of the same number, saved between two looks.
        run.chain.rollback(3)
        run.save(4)
        [update] = taken(follower, served)
        assert (update.base, update.step) == (4, 4)
        served.check(run.states[4])
        run.chain.rollback(3)
        run.save(4, 5)
        [update] = taken(follower, served)
        assert (update.base, update.step) == (4, 5)
        served.check(run.states[5])


def test_a_step_that_is_settled_with_other_values_is_an_update_of_the_same_step(tmp_path: Path) -> None:
    """Hindsight codes steps of a group again; a follower of such a step takes the values over."""
    states = walk(9, shape=(80, 60))
    with Chain(tmp_path, "balanced", hindsight=4) as chain:
        served = Served()
        with follow(tmp_path, 2, exact=False) as follower:
            save_all(chain, states, range(3))
            [update] = taken(follower, served)
            served.check(chain.restore(2, exact=False))
            save_all(chain, states, range(3, 9))
            chain.close()
            found = chain.restore(2)
            assert chain.info(2).kind == "interpolated"
            [update] = taken(follower, served)
            assert (update.base, update.step) == (2, 2)
            served.check(found)
            rewrite(DirectoryStore(tmp_path), 2, None)  # with the values of the settled one
            assert taken(follower, served) == []
            assert_same(follower.state(), found)


@pytest.mark.slow
def test_the_newest_of_a_history_with_groups(tmp_path: Path) -> None:
    states, served = walk(20, shape=(80, 60)), Served()
    with Chain(tmp_path, "balanced", hindsight=4) as chain, follow(tmp_path, exact=False) as follower:
        for step, state in enumerate(states):
            chain.save(step, state)
            if step % 3 == 0:
                taken(follower, served)
                served.check(chain.restore(exact=False))


def test_the_exact_file(tmp_path: Path) -> None:
    states, exact, lossy = walk(6), Served(), Served()
    with Chain(tmp_path, "balanced") as chain, follow(tmp_path) as one, follow(tmp_path, exact=False) as two:
        for step, state in enumerate(states):
            chain.save(step, state)
            assert len(taken(one, exact)) == 1
            taken(two, lossy)
            exact.check(state)
            lossy.check(chain.restore(exact=False))
        with pytest.raises(AssertionError):
            lossy.check(state)
        assert one.state()["epoch"] == two.state()["epoch"] == 5


def test_a_step_that_only_the_exact_file_has(tmp_path: Path) -> None:
    states, served = walk(4), Served()
    with Chain(tmp_path, "balanced") as chain, follow(tmp_path) as follower:
        save_all(chain, states, range(3))
        taken(follower, served)
        chain.save(3, states[3])
        shutil.move(tmp_path / NAMES[3], tmp_path / "aside")  # between the two commits
        [update] = taken(follower, served)
        assert update.step == 3
        served.check(states[3])
        shutil.move(tmp_path / "aside", tmp_path / NAMES[3])
        assert taken(follower, served) == []  # the same state


def test_a_damaged_exact_file_leaves_the_history(tmp_path: Path) -> None:
    served = Served()
    with Chain(tmp_path, "balanced") as chain, follow(tmp_path) as follower:
        save_all(chain, walk(3))
        flip(tmp_path / "exact.lcc.h5", 5000)
        with pytest.warns(LccodecWarning, match="the exact file is damaged.*step 2 is followed as"):
            [update] = taken(follower, served)
        served.check(chain.restore(exact=False))
        assert update.step == 2


@pytest.mark.parametrize("place", [-20, 1000, 3000])
def test_a_damaged_newest_file(tmp_path: Path, place: int) -> None:
    """The state stays, and goes on with the next step that can be read."""
    run, served = Run(tmp_path, keyframe_every=4), Served()
    run.save(*range(7))
    with follow(tmp_path) as follower:
        taken(follower, served)
        run.save(7)
        flip(tmp_path / NAMES[7], place)
        with pytest.warns(LccodecWarning, match="step 7 cannot be read, and the state stays at step 6"):
            assert taken(follower, served) == []
        assert list(follower.refused) == [7]
        assert taken(follower, served) == []  # said once
        served.check(run.states[6])
        assert_same(follower.state(), run.states[6])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LccodecWarning)  # of the writer, too, if it sees it
            found = []
            for step in range(8, 11):  # deltas to it, until there is a keyframe
                run.save(step)
                found += taken(follower, served)
        assert (found[0].base, found[-1].step, follower.refused) == (6, 10, {})
        served.check(run.states[10])


def test_deltas_to_a_damaged_step_wait_for_the_next_keyframe(tmp_path: Path) -> None:
    run, served = Run(tmp_path / "run", keyframe_every=4), Served()
    run.save(*range(9))
    copy = tmp_path / "copy"  # which the writer does not see
    copy.mkdir()
    with follow(copy) as follower:
        found, warned = [], []
        for step in range(9):
            shutil.copy(tmp_path / "run" / NAMES[step], copy)
            if step == 7:
                flip(copy / NAMES[7], 1000)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found += [update.step for update in taken(follower, served)]
            warned += [str(each.message) for each in caught]
        assert found == [0, 1, 2, 3, 4, 5, 6]
        assert [text.split(" cannot")[0][-6:] for text in warned] == ["step 7", "step 8"]
        assert list(follower.refused) == [7, 8]
        shutil.copy(tmp_path / "run" / NAMES[7], copy)  # it is mended
        assert [update.step for update in taken(follower, served)] == [7, 8]
        served.check(run.states[8])
        assert not follower.refused


def test_a_damaged_file_that_is_not_the_newest_is_passed_over(tmp_path: Path) -> None:
    run, served = Run(tmp_path, keyframe_every=1), Served()
    run.save(0)
    with follow(tmp_path) as follower:
        taken(follower, served)
        run.save(1, 2, 3)
        flip(tmp_path / NAMES[3], 2000)
        with pytest.warns(LccodecWarning, match="step 3 cannot be read"):
            [update] = taken(follower, served)
        assert update.step == 2  # the newest that can be read
        served.check(run.states[2])


def test_a_file_that_the_system_cannot_read_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, served = Run(tmp_path), Served()
    run.save(0)
    with follow(tmp_path) as follower:
        taken(follower, served)
        run.save(1)

        def fails(*_: Any) -> bytes:
            raise StorageError(errno.EIO, "cannot read", NAMES[1])

        with monkeypatch.context() as patched:
            patched.setattr(FileSource, "read", fails)
            with pytest.warns(LccodecWarning, match="step 1 cannot be read, and the state stays at step 0"):
                assert taken(follower, served) == []
            assert taken(follower, served) == []  # said once
            assert list(follower.refused) == [1]
        [update] = taken(follower, served)
        assert (update.step, follower.refused) == (1, {})
        served.check(run.states[1])


def test_a_parent_that_is_missing(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.save(0, 1, 2)
    (tmp_path / NAMES[1]).unlink()
    with (
        follow(tmp_path) as follower,
        pytest.warns(LccodecWarning, match="there is no state yet.*its parent, step 1, is missing"),
    ):
        update = follower.prepare(0)
    assert update is not None
    assert update.step == 0


def test_a_damaged_step_that_is_asked_for_is_an_error(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.save(0, 1)
    flip(tmp_path / NAMES[1], 1000)
    with follow(tmp_path, 1) as follower, pytest.raises(DataError):
        follower.prepare(0)
    (tmp_path / NAMES[0]).unlink()
    with follow(tmp_path, 1) as follower, pytest.raises(ChainError, match="missing"):
        follower.prepare(0)


def test_runs_that_change_their_members(tmp_path: Path) -> None:
    """Arrays that share a frame with a followed one at one step may not do so at the next."""
    rng, served = np.random.default_rng(1), Served()
    state: dict[str, Any] = {f"small{n}": rng.standard_normal(50).astype("f4") for n in range(6)}
    with Chain(tmp_path, "lossless") as chain, follow(tmp_path, keys=["small0", "small5"]) as follower:
        for step in range(8):
            moving = {"small0", *rng.choice(sorted(state), 3)}
            state = {n: a + 1 if n in moving else a for n, a in state.items()}
            chain.save(step, state)
            taken(follower, served)
            served.check({"small0": state["small0"], "small5": state["small5"]})


def test_arrays_come_go_and_change_their_shape(tmp_path: Path) -> None:
    served, one = Served(), np.arange(1000.0)
    states: list[dict[str, Any]] = [
        {"a": one, "b": one + 1},
        {"a": one, "c": one + 2},
        {"a": one[:500], "c": one.astype("f4")},
        {"c": one.astype("f4") + 1, "tied": (one, one)},
        {"c": one.astype("f4") + 1, "tied": (one, one)},
    ]
    with Chain(tmp_path, "lossless") as chain, follow(tmp_path) as follower:
        gone = []
        for step, state in enumerate(states):
            chain.save(step, state)
            [update] = taken(follower, served)
            served.check(state)
            gone.append(update.removed)
        assert gone == [(), ("b",), (), ("a",), ()]
        assert update.names == ()  # a new step without a new value


@pytest.mark.parametrize("place", [50, 100])  # one that stays, and one that changes
def test_a_flipped_bit_of_the_held_state_is_found_where_all_is_decoded(tmp_path: Path, place: int) -> None:
    """The sum of an update of few places goes on from the one before, and does not notice it."""
    array = np.arange(10_000, dtype=np.uint32)
    with Chain(tmp_path, "lossless") as chain, follow(tmp_path, timeout=0) as follower:
        for step in range(6):
            array[100] += 1
            chain.save(step, {"a": array})
            if step == 2:  # the sum is known since step 1
                held = follower._watch.array("a")
                held.bits[place] ^= 8
            if step == 4:
                continue
            update = follower.prepare(0)
            assert update is not None
            wrong = [] if step in (0, 1, 5) else [place]
            assert np.flatnonzero(follower.get("a") != array).tolist() == wrong
            steps = update.steps
    assert steps == 6  # from the keyframe


def test_a_split_stream_finds_that_the_held_state_is_another(tmp_path: Path) -> None:
    """By the sizes of its parts, before any sum (LCC-STR-09)."""
    rng = np.random.default_rng(0)
    wide = rng.standard_normal(200_000)
    both = (wide, wide + 2.0**-15 * rng.standard_normal(wide.size))
    before, after = ((x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for x in both)
    with Chain(tmp_path, "lossless") as chain, follow(tmp_path, timeout=0) as follower:
        chain.save(0, {"a": before})
        assert follower.prepare(0) is not None
        follower._watch.array("a").bits[:1000] = 0
        chain.save(1, {"a": after})
        with (
            open_checkpoint(tmp_path / NAMES[1]) as reader,
            pytest.raises(ChecksumError, match="LCC-STR-09"),
        ):
            decode(bytes(reader.frame(0)), reference=0 * before)
        update = follower.prepare(0)
        assert update is not None
        assert update.steps == 2  # from the keyframe
        np.testing.assert_array_equal(follower.get("a"), after)
