"""The newest state: what is saved and restored, whatever happens to the exact file on the way."""

import errno
import itertools
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import lccodec
from lccodec import ArgumentError, Chain, ChainError, DataError, LccodecWarning, StorageError, validate
from lccodec.chain.read.checkpoint import open_exact_of, open_newest, with_exact
from lccodec.chain.save import reference
from lccodec.chain.store.claim import HOLDS
from lccodec.chain.store.directory import DirectoryStore, describe_exact
from lccodec.constants import PAYLOAD_OFFSET
from lccodec.container.checkpoint import CheckpointWriter, open_checkpoint
from lccodec.container.folder import Folder
from lccodec.inspect.examination import examine
from lccodec.policy.record import check_newest
from lccodec.policy.roles import Assignment

from ...support.checkpoints import unmeasured
from ...support.damage import flip
from ...support.directories import entries
from ...support.systems import Faulty, everywhere, failing_at
from ...support.walks import assert_same, save_all, walk

STATES = walk(8)
EXACT = "exact.lcc.h5"


@pytest.fixture(name="chain")
def _chain(tmp_path: Path) -> Chain:
    """Three steps with the exact file of the last."""
    chain = Chain(tmp_path / "run", "lc-3", newest="exact")
    save_all(chain, STATES, range(3))
    chain.release_lock()
    return chain


def is_exact(state: Any, step: int) -> bool:
    try:
        assert_same(state, STATES[step])
    except AssertionError:
        return False
    return True


def from_history(chain: Chain, message: str) -> None:
    """The newest state comes from the history, with one warning that says why."""
    newest = chain.steps[-1]
    for options in ({}, {"step": newest}, {"keys": ["layer"]}):
        with pytest.warns(LccodecWarning, match=message) as caught:
            restored = chain.restore(**options)
        assert len(caught) == 1
        assert caught[0].filename == __file__
        assert_same(restored, chain.restore(**options, exact=False))
    assert not is_exact(chain.restore(exact=False), newest)


# --- sound ----------------------------------------------------------------------------------------


def test_the_newest_is_exact_and_the_others_are_not(chain: Chain) -> None:
    assert is_exact(chain.restore(), 2)
    assert is_exact(chain.restore(2), 2)
    assert not is_exact(chain.restore(exact=False), 2)
    assert not is_exact(chain.restore(1), 1)
    assert is_exact(chain.restore(0), 0)  # a lossless keyframe
    assert chain.steps == [0, 1, 2]
    assert [chain.info(step).exact for step in chain.steps] == [False, False, True]
    assert chain.info().lossy
    assert chain.newest == "exact"
    part = chain.restore(keys=["layer/weight", "epoch"])
    assert_same(part, {"layer/weight": STATES[2]["layer"]["weight"], "epoch": 2})
    assert sorted(path.name for path in entries(chain.directory))[-1] == EXACT


def test_deltas_go_on_from_the_history(chain: Chain) -> None:
    with Chain(chain.directory.parent / "without", "lc-3", newest="history") as other:
        save_all(other, STATES, range(6))
    for step in range(3, 6):
        Chain(chain.directory).save(step, Chain(chain.directory).restore() and STATES[step])
        assert is_exact(Chain(chain.directory).restore(), step)
    for step in other.steps:  # the frames are the same; the manifests name other exact files and settings
        ours, theirs = (open_checkpoint(each.directory / f"{step:012d}.lcc.h5") for each in (chain, other))
        with ours, theirs:
            assert ours.manifest.frames == theirs.manifest.frames
            assert (ours.manifest.exact is None, theirs.manifest.exact) == (False, None)


def test_a_chain_goes_on_as_it_was(chain: Chain) -> None:
    again = Chain(chain.directory)
    assert again.newest == "exact"
    again.save(3, STATES[3])
    assert is_exact(again.restore(), 3)
    again.close()
    without = Chain(chain.directory, newest="history")
    assert without.newest == "history"
    without.save(4, STATES[4])
    without.close()
    assert not (chain.directory / EXACT).exists()
    assert Chain(chain.directory).newest == "history"
    assert not is_exact(Chain(chain.directory).restore(), 4)  # and no warning
    Chain(chain.directory, newest="exact").save(5, STATES[5])
    assert is_exact(Chain(chain.directory).restore(), 5)
    assert Chain(chain.directory).newest == "exact"


@pytest.mark.parametrize("how", ["policy", "state"])
def test_what_loses_nothing_needs_no_exact_file(tmp_path: Path, how: str) -> None:
    policy = "lossless" if how == "policy" else "lc-3"
    states = STATES
    if how == "state":
        states = [{"fixed": state["fixed"] + step} for step, state in enumerate(STATES)]
    with Chain(tmp_path, policy) as chain:
        save_all(chain, states, range(2))
        assert (chain.newest, chain.exact_step) == ("exact", None)
        assert_same(chain.restore(), states[1])
    with Chain(tmp_path, newest="exact") as chain:  # asked for
        chain.save(2, states[2])
        assert chain.exact_step == 2
    with Chain(tmp_path) as chain:  # one that is there is kept up
        chain.save(3, states[3])
        assert chain.exact_step == 3


def test_every_third_save(tmp_path: Path) -> None:
    found = []
    for step in range(8):  # also in other processes: what counts are the steps that are there
        chain = Chain(tmp_path, "lc-3", exact_every=3)
        chain.save(step, STATES[step])
        found.append(chain.exact_step)
    assert found == [0, 0, 0, 3, 3, 3, 6, 6]
    assert chain.exact_every == 3
    from_history(chain, "exact file is of step 6, and the newest checkpoint of step 7")
    assert is_exact(chain.restore(6), 6)  # without a warning
    assert not is_exact(chain.restore(6, exact=False), 6)
    assert [info.exact for info in map(chain.info, range(8))] == [step == 6 for step in range(8)]
    assert validate(tmp_path, deep=True) == []
    for every in (0, -1, 1.5, "2", None, True):
        with pytest.raises(ArgumentError, match="exact_every must be a positive integer"):
            Chain(tmp_path, exact_every=every)


def test_a_framework_s_states(tmp_path: Path) -> None:
    class Adapter:
        def to_numpy(self, state: Any, metadata: Any = None, /) -> Any:
            return {"wrapped": state}, {**(metadata or {}), "kind": "adapter"}

        def from_numpy(self, state: Any, metadata: Any, name: str = "", /) -> Any:
            assert metadata["kind"] == "adapter"
            return state if name else state["wrapped"]

        def roles(self, _: Any, /) -> Any:
            return {}

    with Chain(tmp_path, "lc-3", adapter=Adapter(), newest="exact") as chain:
        save_all(chain, STATES, range(2))
        assert is_exact(chain.restore(), 1)
        assert chain.restore(keys=["wrapped/epoch"]) == {"wrapped/epoch": 1}


@pytest.mark.parametrize("value", ["Exact", "", 1, True, ["exact"], b"exact"])
def test_other_values_are_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ArgumentError, match="newest must be 'exact', 'history' or None; got"):
        Chain(tmp_path, newest=value)
    with pytest.raises(TypeError):
        Chain(tmp_path, "lc-3", "exact")
    assert check_newest(None) is None


def test_bad_arguments_of_a_restore_are_not_the_file_s_fault(chain: Chain) -> None:
    with pytest.raises(ArgumentError, match="layer/weight"):
        chain.restore(keys=["layer/wieght"])
    with pytest.raises(ArgumentError):
        chain.restore(dtype="float64")
    with pytest.raises(ArgumentError, match="integer"):
        chain.restore("2")
    with pytest.raises(ChainError, match="no step 7"):
        chain.restore(7)


# --- the file of another step, damaged, missing ---------------------------------------------------


def test_missing(chain: Chain) -> None:
    (chain.directory / EXACT).unlink()
    message = r"the exact file is missing \(a rollback sets it aside\); returned the newest lossy state of"
    from_history(chain, f"{message} the history")
    Chain(chain.directory).save(3, STATES[3])
    assert is_exact(chain.restore(), 3)


def test_older(chain: Chain) -> None:
    data = (chain.directory / EXACT).read_bytes()
    chain.save(3, STATES[3])
    (chain.directory / EXACT).write_bytes(data)
    from_history(chain, "exact file is of step 2, and the newest checkpoint of step 3")
    assert is_exact(chain.restore(2), 2)
    assert not chain.info().exact


def cut_short(chain: Chain, step: int = 3) -> None:
    """Save a step, and take away its checkpoint: the save was killed after the exact file."""
    chain.save(step, STATES[step])
    chain.close()
    (chain.directory / f"{step:012d}.lcc.h5").unlink()


def test_a_step_of_the_exact_file_alone(chain: Chain, tmp_path: Path) -> None:
    """It is a step as any other, for everything that reads."""
    cut_short(chain)
    chain = Chain(chain.directory)
    assert (chain.steps, chain.exact_step) == ([0, 1, 2, 3], 3)
    for restored in (chain.restore(), chain.restore(3), chain.restore(3, exact=False)):
        assert is_exact(restored, 3)
    assert_same(dict(chain.restore_iter(3, keys=["epoch"])), {"epoch": 3})
    info = chain.info()
    assert (info.step, info.parent, info.exact, info.lossy) == (3, None, True, False)
    assert {array.name: array.role for array in info.arrays} == {
        array.name: array.role for array in chain.info(2).arrays
    }
    assert chain.average([3])["epoch"] == 3
    assert describe_exact(DirectoryStore(chain.directory)) == {
        "step": 3,
        "bytes": (chain.directory / EXACT).stat().st_size,
        "problem": None,
    }
    assert validate(chain.directory, deep=True) == []
    assert chain.fork(tmp_path / "fork", 3) == [3]
    assert is_exact(Chain(tmp_path / "fork").restore(), 3)
    lccodec.bundle(chain.directory, tmp_path / "run.lcc")
    with lccodec.open(tmp_path / "run.lcc") as file:
        assert is_exact(file.state(), 3)
    assert examine(chain.directory).runs[0].steps == [0, 1, 2, 3]
    chain.pin(3)
    assert chain.rollback(2).exact
    assert chain.steps == [0, 1, 2]
    chain.undo_rollback()
    assert chain.steps == [0, 1, 2, 3]
    assert is_exact(chain.restore(), 3)


@pytest.mark.parametrize("how", ["", "async", "anew"])
def test_the_next_save_goes_on_from_there(chain: Chain, how: str) -> None:
    """The history gets the step that it lacks, as if nothing had happened."""
    whole = Chain(chain.directory.parent / "whole", "lc-3")
    save_all(whole, STATES, range(6))
    cut_short(chain)
    chain = Chain(chain.directory)
    if how == "anew":  # the same step again, as by a loop that saves where it stopped
        chain.save(3, STATES[3])
    with chain:
        for step in (4, 5):
            (chain.save_async if how == "async" else chain.save)(step, STATES[step])
    assert chain.steps == list(range(6))
    for step in range(6):
        mine, other = (unmeasured(each.directory / f"{step:012d}.lcc.h5") for each in (chain, whole))
        assert mine == other  # but for the movement of step 3: of the state before, nothing is left
    assert validate(chain.directory, deep=True) == []


@pytest.mark.slow
def test_the_first_save_was_cut_short(tmp_path: Path) -> None:
    """The exact file alone says which policy, and which roles, the chain has."""
    known = {"fixed": Assignment("weight", "as the test says")}
    with Chain(tmp_path, "lc-2", newest="exact", roles={"layer/bias": "other"}) as chain:
        chain.save(5, STATES[0], roles=known)
    expected = {array.name: array.role for array in chain.info().arrays}
    (tmp_path / "000000000005.lcc.h5").unlink()
    chain = Chain(tmp_path)
    assert chain.policy == lccodec.POLICIES["lc-2"]
    assert chain.roles == {"layer/bias": "other"}
    with pytest.raises(ArgumentError, match="a step must be above the latest"):
        chain.save(4, STATES[1])
    with pytest.raises(ArgumentError, match="a step must be above the latest"):
        chain.save_async(4, STATES[1])
    chain.save(6, STATES[1])
    assert chain.steps == [5, 6]
    assert {array.name: array.role for array in chain.info(5).arrays} == expected
    assert chain.info(6).parent == 5
    assert_same(chain.restore(5), STATES[0])
    chain.close()


def test_a_step_that_is_lost_with_the_next_save_is_told(chain: Chain) -> None:
    cut_short(chain)
    path = chain.directory / EXACT
    flip(path, 1500)
    chain = Chain(chain.directory)
    with pytest.raises(DataError, match="exact"):  # not another step in its place
        chain.restore()
    with pytest.warns(LccodecWarning, match="step 3, which only the exact file has, cannot be added"):
        chain.save(4, STATES[4])
    assert chain.steps == [0, 1, 2, 4]
    assert is_exact(chain.restore(), 4)
    chain.close()


@pytest.mark.parametrize("how", ["", "async"])
def test_a_history_that_cannot_be_written(chain: Chain, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is kept, in the exact file; the next save makes up for it."""
    real = reference.encode_plan

    def full(*_: Any) -> Any:
        raise StorageError(errno.ENOSPC, "no space", "somewhere")

    monkeypatch.setattr(reference, "encode_plan", full)
    monkeypatch.setattr("lccodec.chain.save.background.find_obstacle", lambda _: "a test")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if how:
            size = chain.save_async(3, STATES[3]).result()
            chain.wait()
        else:
            size = chain.save(3, STATES[3])
    assert size == (chain.directory / EXACT).stat().st_size
    assert "step 3 is saved, but only in the exact file" in str(caught[-1].message)
    assert chain.steps == [0, 1, 2, 3]
    assert is_exact(chain.restore(), 3)
    monkeypatch.setattr(reference, "encode_plan", real)
    chain.save(4, STATES[4])
    assert [chain.info(step).parent for step in (3, 4)] == [2, 3]
    assert validate(chain.directory, deep=True) == []
    chain.close()


def test_of_another_checkpoint(chain: Chain) -> None:
    with Chain(chain.directory.parent / "other", newest="exact") as other:
        other.save(2, STATES[5])
    shutil.copy(other.directory / EXACT, chain.directory)
    from_history(chain, "belongs to another checkpoint of step 2")
    assert not chain.info().exact


@pytest.mark.parametrize("place", [5, 1500, -40])
def test_damaged(chain: Chain, place: int) -> None:
    path = chain.directory / EXACT
    flip(path, place)
    from_history(chain, "the exact file (cannot be used|is damaged)")
    chain.save(3, STATES[3])
    assert is_exact(chain.restore(), 3)


@pytest.mark.parametrize("data", [b"", b"exact", bytes(3000)])
def test_no_checkpoint_at_all(chain: Chain, data: bytes) -> None:
    (chain.directory / EXACT).write_bytes(data)
    assert Chain(chain.directory).newest == "exact"
    from_history(chain, "cannot be used")
    Chain(chain.directory).save(3, STATES[3])
    assert is_exact(chain.restore(), 3)


def test_only_what_is_asked_for_is_verified(chain: Chain) -> None:
    path = chain.directory / EXACT
    with lccodec.open(path) as file:
        place = path.read_bytes().index(file.get("fixed").tobytes())
    flip(path, place)
    restored = chain.restore(keys=["layer/weight"])["layer/weight"]
    np.testing.assert_array_equal(restored, STATES[2]["layer"]["weight"])
    with pytest.warns(LccodecWarning, match="is damaged"):
        chain.restore()


def test_a_directory_in_its_place(chain: Chain) -> None:
    path = chain.directory / EXACT
    path.unlink()
    path.mkdir()
    from_history(chain, "not a regular file|cannot")
    with pytest.warns(LccodecWarning, match="step 3 is saved, but writing its exact file failed"):
        chain.save(3, STATES[3])


def test_a_file_of_the_user_stays(chain: Chain) -> None:
    path = chain.directory / EXACT
    path.unlink()
    lccodec.save_file({"best": 1}, chain.directory.parent / "best.lcc.h5")
    shutil.copy(chain.directory.parent / "best.lcc.h5", path)
    from_history(chain, "and is another file")
    for newest in (None, "history", "exact"):
        again = Chain(chain.directory, newest=newest)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step = again.steps[-1] + 1
            again.save(step, STATES[step])
            again.close()
        assert [("stays" in str(w.message)) for w in caught] == [True] * (newest != "history")
        assert lccodec.load_file(path) == {"best": 1}
    with pytest.raises(ArgumentError, match="is a checkpoint of a chain"):
        lccodec.save_file({"best": 1}, path)


def test_alone(chain: Chain) -> None:
    for step in range(3):
        (chain.directory / f"{step:012d}.lcc.h5").unlink()
    again = Chain(chain.directory)
    assert again.steps == [2]
    for step in (None, 2):
        assert is_exact(again.restore(step), 2)
    with pytest.raises(ChainError, match="no step 1; the nearest is 2"):
        again.restore(1)
    assert again.info().exact


def test_the_history_s_newest_is_damaged(chain: Chain) -> None:
    path = chain.directory / "000000000002.lcc.h5"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(LccodecWarning, match="step 2 is damaged, and its exact file is not"):
        assert is_exact(chain.restore(), 2)
    with pytest.raises(DataError):
        chain.restore(exact=False)
    (chain.directory / "000000000000.lcc.h5").unlink()


def test_parents_are_not_needed(chain: Chain) -> None:
    (chain.directory / "000000000001.lcc.h5").unlink()
    assert is_exact(chain.restore(), 2)
    with pytest.raises(ChainError):
        chain.restore(exact=False)


def test_both_are_damaged(chain: Chain) -> None:
    for name in (EXACT, "000000000002.lcc.h5"):
        path = chain.directory / name
        flip(path, PAYLOAD_OFFSET + 65)
    with pytest.warns(LccodecWarning, match="is damaged"), pytest.raises(DataError) as caught:
        chain.restore()
    assert "000000000002.lcc.h5" in caught.value.where


# --- what others see ------------------------------------------------------------------------------


def test_what_is_known_of_it(chain: Chain) -> None:
    path = chain.directory / EXACT
    assert describe_exact(DirectoryStore(chain.directory)) == {
        "step": 2,
        "bytes": path.stat().st_size,
        "problem": None,
    }
    with open_newest(DirectoryStore(chain.directory)) as file:
        assert file.info().step == 2
        assert file.info().exact
    chain = Chain(chain.directory, newest="history")
    data = path.read_bytes()
    chain.save(3, STATES[3])
    assert describe_exact(DirectoryStore(chain.directory)) is None
    path.write_bytes(data)
    found = describe_exact(DirectoryStore(chain.directory))
    assert found is not None
    assert "step 3" in found["problem"]
    path.write_bytes(data[:-1])
    found = describe_exact(DirectoryStore(chain.directory))
    assert found is not None
    assert found["step"] is None
    assert with_exact(chain.info(), DirectoryStore(chain.directory)) == chain.info()


def test_by_root(chain: Chain) -> None:
    path, root = chain.directory / "000000000002.lcc.h5", chain.info().root
    found = open_exact_of(path, root)
    assert found is not None
    with found:
        assert is_exact(found.state(), 2)
    assert open_exact_of(path, "0" * 64) is None
    flip(chain.directory / EXACT, 1500)
    found = open_exact_of(path, root)
    assert found is not None
    with found, pytest.warns(LccodecWarning, match="the exact file is damaged"):
        assert_same(found.state(), chain.restore(exact=False))
    (chain.directory / EXACT).unlink()
    assert open_exact_of(path, root) is None


# --- faults and kills -----------------------------------------------------------------------------


class Killed(BaseException):
    pass


def check_directory(directory: Path, before: int, after: int, *, saved: bool) -> None:
    """Whatever has happened: the newest is there, exact or with a warning; nothing is broken."""
    chain = Chain(directory)
    newest = chain.steps[-1]
    assert newest in (before, after)
    assert newest == after or not saved
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        restored = chain.restore()
    assert len(caught) == (not is_exact(restored, newest))
    assert lccodec.load_file(directory / EXACT)["epoch"] in (before, newest)
    assert validate(directory / EXACT, deep=True) == []
    assert {problem.rule for problem in validate(directory, deep=True)} <= {"chain"}
    chain.save(after + 1, STATES[after + 1])
    assert is_exact(chain.restore(), after + 1)
    assert not [path for path in entries(directory) if path.name.startswith(".tmp-")]
    assert validate(directory, deep=True) == []


def copies(chain: Chain) -> Iterator[tuple[int, Chain]]:
    for number in itertools.count():
        directory = chain.directory.parent / f"{number}"
        shutil.copytree(chain.directory, directory)
        yield number, Chain(directory)


@pytest.mark.slow
@pytest.mark.parametrize("sticky", [False, True])
def test_a_fault_at_every_operation_of_a_save(chain: Chain, sticky: bool) -> None:
    outcomes = set()
    for position, copy in copies(chain):
        # Temporaries can be removed whatever fails: from a full disk, too.
        system, saved = Faulty(errno.ENOSPC, failing_at(position, sticky=sticky, spared="unlink")), False
        with warnings.catch_warnings(record=True) as caught, everywhere(system):
            warnings.simplefilter("always")
            with suppress(StorageError):
                copy.save(3, STATES[3])
                saved = True
            copy.close()
        assert not system.descriptors
        outcomes.add((saved, bool(caught)))
        if caught:
            told = "step 3 is saved, but (writing its exact file failed|only in the exact file)"
            assert re.match(told, str(caught[0].message))
        check_directory(copy.directory, 2, 3, saved=saved)
        if position > len(system.log):
            break
    assert outcomes == {(False, False), (True, True), (True, False)}
    assert position > 25


@pytest.mark.slow
def test_a_kill_at_every_operation_of_a_save(chain: Chain) -> None:
    exact = set()
    for position, copy in copies(chain):
        system = Faulty(Killed, failing_at(position, sticky=True))
        with everywhere(system), suppress(Killed):
            copy.save(3, STATES[3])
        for descriptor in system.descriptors:
            os.close(descriptor)  # as the end of the process does
        for lock in [lock for lock in HOLDS.values() if lock.descriptor in system.descriptors]:
            del HOLDS[lock.key]
        exact.add((copy.steps[-1], lccodec.load_file(copy.directory / EXACT)["epoch"]))
        check_directory(copy.directory, 2, 3, saved=False)
        if position > len(system.log):
            break
    assert exact == {(2, 2), (3, 3)}  # the exact file first: the newest is always exact
    assert position > 25


@pytest.mark.parametrize("call", ["write_at", "link"])
def test_an_interrupt(chain: Chain, call: str) -> None:
    """While the exact file is written; and before the checkpoint is committed."""
    system = Faulty(KeyboardInterrupt, lambda name, _: name == call)
    with everywhere(system), pytest.raises(KeyboardInterrupt):
        chain.save(3, STATES[3])
    newest = 2 if call == "write_at" else 3
    assert chain.steps[-1] == newest
    assert is_exact(chain.restore(), newest)
    chain.save(4, STATES[4])
    assert chain.info(4).parent == newest
    assert is_exact(chain.restore(), 4)


def test_no_memory_for_the_exact_file(chain: Chain) -> None:
    with (
        mock.patch.object(CheckpointWriter, "write_frames", side_effect=MemoryError),
        pytest.warns(LccodecWarning, match="writing its exact file failed: no memory") as caught,
    ):
        chain.save(3, STATES[3])
    assert caught[0].filename == __file__
    from_history(chain, "exact file is of step 2")


def test_an_older_file_that_cannot_be_taken_away(chain: Chain) -> None:
    again = Chain(chain.directory, newest="history")
    denied = mock.patch.object(Folder, "remove", side_effect=PermissionError(errno.EACCES, "denied"))
    with denied, pytest.warns(LccodecWarning, match="removing an older exact file failed"):
        again.save(3, STATES[3])
    assert again.steps[-1] == 3


def test_a_save_of_another_process_meanwhile(chain: Chain) -> None:
    """Between the listing and the opening; the newest is returned, exact."""
    other, calls = Chain(chain.directory), itertools.count(3)

    class Meanwhile(DirectoryStore):
        def checkpoints(self) -> dict[int, str]:
            found = super().checkpoints()
            other.save(step := next(calls), STATES[step])
            return found

    with open_newest(Meanwhile(chain.directory)) as file:
        assert is_exact(file.state(), 3)
    with open_newest(Meanwhile(chain.directory), 3) as file:
        assert not is_exact(file.state(), 3)  # it is the newest no more
    assert is_exact(chain.restore(), 4)


def test_another_writer_keeps_it_or_takes_it_away(chain: Chain) -> None:
    going_on = Chain(chain.directory)
    Chain(chain.directory, newest="history").save(3, STATES[3])
    going_on.save(4, STATES[4])
    going_on.release_lock()
    assert not (chain.directory / EXACT).exists()
    Chain(chain.directory, newest="exact").save(5, STATES[5])
    with pytest.warns(LccodecWarning, match="saved by another writer"):
        going_on.save(6, STATES[6])
    assert is_exact(going_on.restore(), 6)
