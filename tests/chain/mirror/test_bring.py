"""A mirror is brought up to date: bit for bit, verified there, a chain of its own at any moment."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from lccodec import ArgumentError, Chain, ChainError, Keep, LccodecWarning, StorageError, validate
from lccodec.chain.life.prune import prune
from lccodec.chain.mend.mirror import bring_newest
from lccodec.chain.store.claim import Use
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import PAYLOAD_OFFSET
from lccodec.container.disk.system import System

from ...support.crashes import hold
from ...support.damage import files_in, flip, refuse_to_read
from ...support.mirrors import chain_files, mirror_of
from ...support.segments import STATES, all_restore, run_of
from ...support.systems import attempts


def test_a_mirror_has_the_same_bytes(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 6, newest="exact").close()
    mirror = mirror_of(tmp_path / "run", tmp_path / "m")
    mirror.look()
    lag = mirror.state()
    assert (lag.files, lag.bytes) == (7, sum(map(len, files_in(tmp_path / "run").values())))
    assert str(lag) == f"{tmp_path / 'm'}: 7 files, {lag.bytes:,} bytes behind"
    assert str(mirror.bring()) == f"{tmp_path / 'm'}: up to date"
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")
    assert mirror_of(tmp_path / "run", tmp_path / "m").look()[2].names == ()


def test_what_arrives_is_verified_there(tmp_path: Path) -> None:
    """A disk that stores other bytes than it was given."""

    class Wrong(System):
        @staticmethod
        def write(fd: int, data: Any) -> int:
            wrong = bytearray(data)
            wrong[len(wrong) // 2] ^= 1
            return System.write(fd, memoryview(wrong))

    run_of(tmp_path / "run", 2).close()
    mirror = mirror_of(tmp_path / "run", tmp_path / "m", Wrong())
    with pytest.raises(StorageError, match="what arrived is not what was sent"):
        mirror.bring()
    assert chain_files(tmp_path / "m") == {}
    assert mirror.state().files == 2
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")


@pytest.mark.parametrize("place", [PAYLOAD_OFFSET, -1])
def test_a_file_that_the_disk_refuses_to_read_waits_and_others_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    run_of(tmp_path / "run", 6).close()
    path, mirror = tmp_path / "run/000000000004.lcc.h5", mirror_of(tmp_path / "run", tmp_path / "m")
    with monkeypatch.context() as patch:
        refuse_to_read(patch, path, place % path.stat().st_size)
        state = mirror.bring()
        assert "cannot read" in state.skipped[path.name]
    assert sorted(chain_files(tmp_path / "m")) == [f"{step:012d}.lcc.h5" for step in range(4)]
    assert str(mirror.bring()) == f"{tmp_path / 'm'}: up to date"  # the error has passed
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")


def test_what_is_damaged_here_is_not_copied_and_neither_is_what_needs_it(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 6).close()
    path = tmp_path / "run/000000000001.lcc.h5"
    flip(path)
    state = mirror_of(tmp_path / "run", tmp_path / "m").bring()
    assert "do not match their digest" in state.skipped["000000000001.lcc.h5"]
    assert state.skipped["000000000002.lcc.h5"] == "step 1, which it needs, is not in the mirror"
    assert sorted(chain_files(tmp_path / "m")) == [f"00000000000{i}.lcc.h5" for i in (0, 3, 4, 5)]
    assert validate(tmp_path / "m", deep=True) == []
    path.write_bytes(b"")
    state = mirror_of(tmp_path / "run", tmp_path / "m").bring()
    assert "not an lccodec checkpoint" in state.skipped["000000000001.lcc.h5"]


def test_a_damaged_file_of_the_mirror_is_replaced(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 4).close()
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    for name, data in (("000000000001.lcc.h5", b""), ("000000000002.lcc.h5", b"\0" * 999)):
        (tmp_path / "m" / name).write_bytes(data)
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")


def test_nothing_is_removed_from_the_mirror(tmp_path: Path) -> None:
    chain = run_of(tmp_path / "run", 9)
    mirror = mirror_of(tmp_path / "run", tmp_path / "m")
    mirror.bring()
    before = chain_files(tmp_path / "m")
    chain.prune(Keep(latest=2))
    chain.close()
    mirror.bring()
    assert chain_files(tmp_path / "m") == before
    assert all_restore(tmp_path / "m")


def test_what_the_mirror_is_not_to_keep_does_not_come_back(tmp_path: Path) -> None:
    with run_of(tmp_path / "run", 9) as chain:
        thin: Any = {"thin_out": lambda store: prune(store, Keep(latest=1), wait=False)}
        mirror_of(tmp_path / "run", tmp_path / "m", **thin).bring()
        assert Chain(tmp_path / "m").steps == [6, 7, 8]
        mirror = mirror_of(tmp_path / "run", tmp_path / "m", **thin)
        assert mirror.look()[2].names == ()
        assert mirror.state().files == 0
        chain.save(9, STATES[9])
        mirror.bring()
    assert Chain(tmp_path / "m").steps == [9]
    assert Chain(tmp_path / "run").steps == list(range(10))


# --- what changes here ----------------------------------------------------------------------------


def test_a_rollback_is_followed(tmp_path: Path) -> None:
    """What was set aside here is set aside there; nothing is lost."""
    with run_of(tmp_path / "run", 6, newest="exact") as chain:
        mirror_of(tmp_path / "run", tmp_path / "m").bring()
        chain.rollback(3)
        chain.save(5, STATES[7])
    mirror_of(tmp_path / "run", tmp_path / "m").bring()  # as a new process would
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")
    [aside] = Chain(tmp_path / "m").rolled_back
    assert (aside.steps, aside.exact) == ((4, 5), True)


def test_a_rollback_that_left_no_trace_is_followed_if_it_is_known(tmp_path: Path) -> None:
    with run_of(tmp_path / "run", 6) as chain:
        mirror = mirror_of(tmp_path / "run", tmp_path / "m")
        mirror.bring()
        before = chain_files(tmp_path / "m")
        chain.rollback(3, delete=True)
        with pytest.raises(ChainError, match=r"and newer: it has step 5, and the chain ends at 3"):
            mirror.bring()
        chain.save(5, STATES[7])
        with pytest.raises(ChainError, match=r"another chain.*: step 5 is another one there"):
            mirror.bring()
        assert chain_files(tmp_path / "m") == before
        mirror.rolled_back(3)
        mirror.bring()
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")
    assert Chain(tmp_path / "m").rolled_back[0].steps == (4, 5)


def test_an_undone_rollback_is_followed(tmp_path: Path) -> None:
    with run_of(tmp_path / "run", 6) as chain:
        mirror = mirror_of(tmp_path / "run", tmp_path / "m")
        mirror.bring()
        chain.rollback(3)
        mirror.bring()
        assert Chain(tmp_path / "m").steps == [0, 1, 2, 3]
        chain.undo_rollback()
    mirror.bring()
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")


def test_files_that_compact_replaces_are_replaced(tmp_path: Path) -> None:
    with run_of(tmp_path / "run", 9) as chain:
        mirror = mirror_of(tmp_path / "run", tmp_path / "m")
        mirror.bring()
        before = chain_files(tmp_path / "m")
        chain.compact(keyframe_every=8)
    assert chain_files(tmp_path / "run") != before
    mirror.bring()
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")
    assert all_restore(tmp_path / "m")


def test_a_mirror_that_was_compacted_stays(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 9).close()
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    Chain(tmp_path / "m").compact(keyframe_every=8)
    before = chain_files(tmp_path / "m")
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    assert chain_files(tmp_path / "m") == before != chain_files(tmp_path / "run")


# --- mirrors that are none ------------------------------------------------------------------------


def test_a_mirror_of_another_chain_is_left_alone(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 3).close()
    with Chain(tmp_path / "m", "lossless", newest="exact") as other:
        other.save(7, STATES[7])
    before = files_in(tmp_path / "m")
    with pytest.raises(ChainError, match="is a mirror of another chain: it shares no file with"):
        mirror_of(tmp_path / "run", tmp_path / "m").bring()
    with Chain(tmp_path / "m") as other:
        other.rollback(7)
    run_of(tmp_path / "other", 2, newest="exact").close()
    with Chain(tmp_path / "second", "lossless") as second:
        second.save(0, STATES[5])
    with pytest.raises(ChainError, match=r"is a mirror of another chain than .*: step 0 is another one"):
        mirror_of(tmp_path / "second", tmp_path / "other").bring()
    assert chain_files(tmp_path / "m") == {k: v for k, v in before.items() if k[0] != "."}


def test_a_newer_mirror_is_left_alone(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 5, newest="exact").close()
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    for name in ("000000000004.lcc.h5", "exact.lcc.h5"):
        (tmp_path / "run" / name).unlink()
    before = chain_files(tmp_path / "m")
    with pytest.raises(ChainError, match=r"newer: it has step 4, and the chain ends at 3.*repair --mirror"):
        mirror_of(tmp_path / "run", tmp_path / "m").bring()
    (tmp_path / "m/000000000004.lcc.h5").unlink()  # the exact file alone is newer, too
    with pytest.raises(ChainError, match="newer: it has step 4"):
        mirror_of(tmp_path / "run", tmp_path / "m").bring()
    del before["000000000004.lcc.h5"]
    assert chain_files(tmp_path / "m") == before


def test_a_mirror_is_another_place(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="a mirror must be another place"):
        mirror_of(tmp_path, tmp_path)


def test_a_mirror_has_one_writer(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 2).close()
    first, second = (mirror_of(tmp_path / "run", tmp_path / "m") for _ in range(2))
    first.bring()
    use = Use()
    first._claim.take(use)  # it copies
    with pytest.raises(ChainError, match="is saving to"):
        second.bring()
    use.end()
    first.release()
    second.bring()


# --- the way back ---------------------------------------------------------------------------------


def test_the_newest_step_comes_back_with_what_it_needs(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 8, newest="exact").close()
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    assert bring_newest(DirectoryStore(tmp_path / "m"), DirectoryStore(tmp_path / "new")) == [6, 7]
    assert all_restore(tmp_path / "new")
    mirror_of(tmp_path / "new", tmp_path / "m").bring()
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")


def test_an_exact_file_alone_comes_back(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 4, newest="exact").close()
    (tmp_path / "run/000000000003.lcc.h5").unlink()  # as if the save had been cut short
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    assert bring_newest(DirectoryStore(tmp_path / "m"), DirectoryStore(tmp_path / "new")) == [3]


# --- crashes and faults ---------------------------------------------------------------------------


def two_states(directory: Path) -> tuple[Path, Path]:
    """A chain, and a mirror of an earlier moment: since then it was rolled back, and more."""
    run, mirror = directory / "run", directory / "m"
    with run_of(run, 5, newest="exact") as chain:
        mirror_of(run, mirror).bring()
        chain.rollback(3)
        chain.compact(keyframe_every=8)
        for step in (4, 5):
            chain.save(step, STATES[step])
    return run, mirror


def test_a_rollback_while_a_mirror_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was deleted has left no trace: that it was is noted until the mirror has followed."""
    with run_of(tmp_path / "run", 6, newest="exact") as chain:
        mirror = mirror_of(tmp_path / "run", tmp_path / "m")
        mirror.bring()
        look = mirror.look

        def meanwhile() -> Any:
            found = look()
            chain.rollback(3, delete=True)
            mirror.rolled_back(3)
            return found

        monkeypatch.setattr(mirror, "look", meanwhile)
        mirror.bring()
        monkeypatch.undo()
        mirror.bring()
        assert Chain(tmp_path / "m").steps == [0, 1, 2, 3]
        chain.save(4, STATES[5])
        mirror.bring()
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("ignore", ["", "sync"])
def test_no_crash_harms_a_mirror(tmp_path: Path, ignore: str) -> None:
    run, mirror = two_states(tmp_path)
    wanted = chain_files(run)

    def check(done: bool, place: Path) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LccodecWarning)  # of an exact file that is damaged
            if not all_restore(place):
                return False
        if validate(place, deep=True) or (done and chain_files(place) != wanted):
            return False
        mirror_of(run, place).bring()
        return chain_files(place) == wanted

    hold(mirror, lambda system: mirror_of(run, mirror, system).bring(), check, ignore, above=9)


@pytest.mark.slow
@pytest.mark.parametrize("sticky", [False, True])
def test_faults_at_every_operation(tmp_path: Path, sticky: bool) -> None:
    run, mirror = two_states(tmp_path)
    wanted = chain_files(run)

    def act(place: Path, system: System) -> None:
        behind = mirror_of(run, place, system)
        try:
            behind.bring()
        finally:
            behind.release()

    tried = attempts(mirror, act, sticky=sticky)
    assert chain_files(next(tried)[0]) == wanted
    for place, _ in tried:
        assert all_restore(place)
        mirror_of(run, place).bring()
        assert chain_files(place) == wanted
