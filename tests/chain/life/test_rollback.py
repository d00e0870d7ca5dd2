"""Rolling back: what goes, what stays, what is refused, and what a crash leaves.

What was rolled back: listed, put back, deleted; and no moment at which it is lost.
"""

import errno
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

from lccodec import (
    ArgumentError,
    Chain,
    ChainError,
    DataError,
    LccodecWarning,
    StorageError,
    validate,
)
from lccodec.chain.life.rollback import rollback, verified_exact_step
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import EXACT_NAME, ROLLED_BACK_NAME
from lccodec.policy.record import NewestMode

from ...support.crashes import Replay, broken, put
from ...support.mirrors import chain_files
from ...support.profiles import LONG
from ...support.segments import Parentless
from ...support.systems import Faulty
from ...support.walks import assert_restores, assert_same, is_so, save_all, walk

STATES = walk(8, shape=(6, 5))


def run_of(directory: Path, steps: int = 7, **options: Any) -> Chain:
    """A chain of three segments: 0 1 2, 3 4 5, 6."""
    chain = Chain(directory, "lossless", keyframe_every=2, **options)
    save_all(chain, STATES, range(steps))
    return chain


def names(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize("step", [0, 3, 4])
def test_the_chain_goes_on_from_there(tmp_path: Path, step: int, delete: bool) -> None:
    chain = run_of(tmp_path / "run")
    before = chain_files(chain.directory)
    gone = chain.rollback(step, delete=delete)
    assert gone.steps == tuple(range(step + 1, 7))
    assert gone.bytes == sum(len(before[f"{later:012d}.lcc.h5"]) for later in gone.steps)
    assert (gone.step, gone.name) == (step, "" if delete else f"0001-to-{step}")
    assert chain.steps == list(range(step + 1))
    assert_same(chain.restore(), STATES[step])
    chain.save(step + 1, STATES[7])
    assert_same(chain.restore(), STATES[7])
    assert validate(chain.directory, deep=True) == []
    names = [f"{kept:012d}.lcc.h5" for kept in range(step + 1)]
    assert chain_files(chain.directory).items() >= {name: before[name] for name in names}.items()
    assert (chain.directory / ROLLED_BACK_NAME).exists() != delete


def test_what_is_set_aside_is_a_whole_chain(tmp_path: Path) -> None:
    chain = run_of(tmp_path / "run")
    gone = chain.rollback(4)
    aside = Chain(chain.directory / ROLLED_BACK_NAME / gone.name)
    assert aside.steps == [3, 4, 5, 6]  # 5 needs 4 and 3
    assert_restores(aside, STATES)
    assert validate(aside.directory, deep=True) == []
    # One copy on the disk, whatever happens to the chain.
    assert (aside.directory / "000000000003.lcc.h5").samefile(chain.directory / "000000000003.lcc.h5")


def test_back_to_the_newest_step_does_nothing(tmp_path: Path) -> None:
    chain = run_of(tmp_path / "run", newest="exact")
    before = names(chain.directory)
    gone = chain.rollback(6)
    assert (gone.steps, gone.name, gone.exact, gone.bytes) == ((), "", False, 0)
    assert names(chain.directory) == before
    assert_same(chain.restore(), STATES[6])


@pytest.mark.parametrize("delete", [False, True])
def test_the_exact_file_goes_with_the_steps(tmp_path: Path, delete: bool) -> None:
    chain = Chain(tmp_path / "run", "lc-2", newest="exact")
    save_all(chain, STATES, range(5))
    gone = chain.rollback(2, delete=delete)
    assert gone.exact
    assert not (chain.directory / EXACT_NAME).exists()
    with pytest.warns(match="the exact file is missing"):
        chain.restore()
    chain.save(3, STATES[7])
    assert_same(chain.restore(), STATES[7])
    if not delete:
        assert_same(Chain(chain.directory / ROLLED_BACK_NAME / gone.name).restore(), STATES[4])


def test_a_chain_that_was_exact_goes_on_exact(tmp_path: Path) -> None:
    run_of(tmp_path / "run", newest="exact")
    chain = Chain(tmp_path / "run", "lc-3")
    chain.rollback(2)
    assert chain.newest == "exact"
    with pytest.warns(LccodecWarning, match="continues with 'lc-3'"):
        chain.save(3, STATES[7])
    assert (chain.directory / EXACT_NAME).exists()


@pytest.mark.parametrize("step", [7, -1, 1 << 60])
def test_a_step_that_is_not_there(tmp_path: Path, step: int) -> None:
    chain = run_of(tmp_path / "run")
    with pytest.raises(ChainError, match=f"no step {step}"):
        chain.rollback(step)
    assert chain.steps == list(range(7))


def test_a_step_that_cannot_be_restored(tmp_path: Path) -> None:
    chain = run_of(tmp_path / "run")
    path = chain.directory / "000000000004.lcc.h5"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError):
        chain.rollback(4)
    path.unlink()
    with pytest.raises(ChainError, match="its parent, step 4"):
        chain.rollback(5)
    assert chain.steps == [0, 1, 2, 3, 5, 6]
    chain.rollback(3)  # what is broken can be left behind
    assert chain.steps == [0, 1, 2, 3]
    with pytest.raises(ChainError, match="has no step 0"):
        Chain(tmp_path / "nothing").rollback(0)


def test_pinned_steps_are_set_aside_and_not_purged(tmp_path: Path) -> None:
    chain = run_of(tmp_path / "run")
    chain.pin(1)
    chain.pin(5)
    with pytest.raises(ArgumentError, match=r"step 5 of .* is pinned"):
        chain.rollback(3, delete=True)
    assert chain.steps == list(range(7))
    gone = chain.rollback(3)
    assert chain.pins == [1]
    assert Chain(chain.directory / ROLLED_BACK_NAME / gone.name).pins == [5]


# --- crashes and faults ---------------------------------------------------------------------------


@pytest.fixture(name="exact_run", scope="module")
def _exact_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run") / "run"
    run_of(directory, newest="exact").pin(5)
    return directory


def all_restore(directory: Path) -> bool:
    """Whether every step that is there restores to what was saved, and the newest without one."""
    chain = Chain(directory)
    with warnings.catch_warnings(action="ignore"):  # the exact file may be of a step that is gone
        whole = is_so(lambda: assert_same(chain.restore(), STATES[chain.steps[-1]]))
    return whole and is_so(lambda: assert_restores(chain, STATES, exact=False))


@pytest.mark.slow
def test_parents_that_go_with_their_children_are_found(tmp_path: Path, exact_run: Path) -> None:
    root = Path(shutil.copytree(exact_run, tmp_path / "run"))
    work = lambda system: rollback(Parentless(root, system), 3)  # noqa: E731
    assert broken(root, work, lambda _, place: all_restore(place))[1] > 0


@pytest.mark.parametrize("power", [False, True] if LONG else [False])
@pytest.mark.parametrize("links", [True, False])
def test_every_crash_can_be_finished(tmp_path: Path, exact_run: Path, power: bool, links: bool) -> None:
    """Rolling back again completes it. What comes back is all that was taken out, at once."""
    root = Path(shutil.copytree(exact_run, tmp_path / "run"))
    with Replay(root) as replay:
        rollback(DirectoryStore(root), 4)
    tried = 0
    for number, (_, found) in enumerate(replay.states(power=power)):
        place = put(found, tmp_path / f"again-{number}", links=links)
        tried += 1
        chain = Chain(place)
        chain.rollback(4)
        assert chain.steps == [0, 1, 2, 3, 4]
        assert chain.pins == []
        assert not [name for name in names(place) if ".tmp-" in name]
        assert not (place / EXACT_NAME).exists()
        (aside,) = chain.rolled_back
        assert (aside.steps, aside.exact, aside.pins) == ((5, 6), True, (5,))
        assert chain.undo_rollback() == aside
        assert chain.steps == list(range(7))
        assert chain.pins == [5]
        assert chain.rolled_back == []
        assert_same(chain.restore(), STATES[6])
        assert all_restore(place)
    assert tried > 10


def test_only_what_was_cut_short_is_gone_on_with(tmp_path: Path) -> None:
    """What was saved meanwhile, or goes back to another step, is set aside on its own."""
    chain = run_of(tmp_path / "run", newest="exact")
    assert chain.rollback(4).name == "0001-to-4"
    chain.save(5, STATES[7])
    assert chain.rollback(4).name == "0002-to-4"
    chain.save(5, STATES[7])  # the same again: it is there already
    chain.pin(5)
    assert chain.rollback(4).name == "0002-to-4"
    assert chain.rollback(3).name == "0003-to-3"
    assert [each.steps for each in chain.rolled_back] == [(5, 6), (5,), (4,)]
    assert [each.pins for each in chain.rolled_back] == [(), (5,), ()]
    chain.undo_rollback()
    chain.undo_rollback()
    assert_same(chain.restore(5), STATES[7])
    assert chain.pins == [5]


def test_what_is_damaged_is_set_aside_as_it_is(tmp_path: Path) -> None:
    chain = run_of(tmp_path / "run")
    (chain.directory / "000000000006.lcc.h5").write_bytes(b"damaged")
    chain.rollback(4)
    aside = chain.directory / ROLLED_BACK_NAME / "0001-to-4" / "000000000006.lcc.h5"
    shutil.copy(aside, chain.directory)  # as after a kill, without hard links
    assert chain.rollback(4).name == "0002-to-4"
    (chain.directory / aside.name).hardlink_to(chain.directory / ROLLED_BACK_NAME / "0002-to-4" / aside.name)
    assert chain.rollback(4).name == "0002-to-4"


def test_a_full_disk_without_hard_links(tmp_path: Path, exact_run: Path) -> None:
    place = Path(shutil.copytree(exact_run, tmp_path / "run"))
    before = names(place)
    system = Faulty(errno.ENOSPC, lambda name, _: name == "write")
    system.link = Faulty(errno.EPERM, lambda *_: True).link
    with pytest.raises(StorageError, match="No space"):
        rollback(DirectoryStore(place, system), 4)
    assert names(place) == before
    assert not (place / ROLLED_BACK_NAME).exists()
    healthy = Faulty(errno.EPERM, lambda name, _: name == "link")
    rollback(DirectoryStore(place, healthy), 4)
    assert Chain(place).steps == [0, 1, 2, 3, 4]
    assert all_restore(place / ROLLED_BACK_NAME / "0001-to-4")
    assert not healthy.descriptors


@pytest.fixture(name="chain")
def _chain(tmp_path: Path) -> Chain:
    """Seven steps with the exact file of the last, rolled back to step 4."""
    chain = Chain(tmp_path / "run", "lossless", keyframe_every=2, newest="exact")
    save_all(chain, STATES, range(7))
    chain.pin(6)
    chain.rollback(4)
    return chain


def test_it_is_listed(chain: Chain) -> None:
    (first,) = chain.rolled_back
    aside = chain.directory / ROLLED_BACK_NAME / first.name
    assert (first.name, first.step, first.steps, first.exact) == ("0001-to-4", 4, (5, 6), True)
    files = [aside / "000000000005.lcc.h5", aside / "000000000006.lcc.h5", aside / EXACT_NAME]
    assert first.bytes == sum(path.stat().st_size for path in files)
    chain.save(5, STATES[7])
    chain.rollback(1)
    assert [each.name for each in chain.rolled_back] == ["0001-to-4", "0002-to-1"]
    assert chain.rolled_back[1].steps == (2, 3, 4, 5)
    (chain.directory / ROLLED_BACK_NAME / "of the user").mkdir()
    assert len(chain.rolled_back) == 2
    assert Chain(chain.directory.parent / "nothing").rolled_back == []


def test_it_comes_back(chain: Chain) -> None:
    back = chain.undo_rollback()
    assert back.steps == (5, 6)
    assert chain.steps == list(range(7))
    assert chain.pins == [6]
    assert chain.rolled_back == []
    assert not (chain.directory / ROLLED_BACK_NAME).exists()
    assert_restores(chain, STATES)
    assert chain.info(6).exact
    assert validate(chain.directory, deep=True) == []
    chain.save(7, STATES[7])
    assert_same(chain.restore(), STATES[7])


def test_with_the_parents_that_are_gone_meanwhile(chain: Chain) -> None:
    for step in (3, 4):
        (chain.directory / f"{step:012d}.lcc.h5").unlink()
    chain.undo_rollback()
    assert chain.steps == list(range(7))
    assert validate(chain.directory, deep=True) == []


def test_not_into_a_chain_that_has_gone_on(chain: Chain) -> None:
    chain.save(5, STATES[7])
    with pytest.raises(ArgumentError, match=r"its step 5 is not the one .*; roll back to step 4 first"):
        chain.undo_rollback()
    assert_same(chain.restore(), STATES[7])
    chain.rollback(4)
    chain.undo_rollback("0001-to-4")
    assert_same(chain.restore(5), STATES[5])
    assert [each.name for each in chain.rolled_back] == ["0002-to-4"]


@pytest.mark.parametrize("newest", ["exact", "history"])
def test_a_newer_step_that_only_the_exact_file_has_is_not_lost(tmp_path: Path, newest: NewestMode) -> None:
    with Chain(tmp_path, "balanced", newest=newest) as chain:
        save_all(chain, STATES, range(4))
        chain.rollback(1)
    with Chain(tmp_path, newest="exact") as chain:
        chain.save(2, STATES[7])
        (tmp_path / "000000000002.lcc.h5").unlink()  # as if the disk had been full
        with pytest.raises(ArgumentError, match=r"the exact file alone has step 2, .*; roll back to step 1"):
            chain.undo_rollback()
        assert_same(chain.restore(2), STATES[7])
        chain.rollback(1)
        assert chain.undo_rollback("0001-to-1").steps == (2, 3)
        assert_same(chain.restore(2, exact=False)["fixed"], STATES[2]["fixed"])
        assert [each.steps for each in chain.rolled_back] == [(2,)]
    assert validate(tmp_path, deep=True) == []


@pytest.mark.parametrize("name", ["0002-to-4", "", "..", "0001", "."])
def test_what_is_not_there(chain: Chain, name: str) -> None:
    for verb in (chain.undo_rollback, chain.delete_rolled_back):
        with pytest.raises(ChainError, match=r"has nothing rolled back as .*; 0001-to-4"):
            verb(name)
    assert len(chain.rolled_back) == 1
    other = Chain(chain.directory.parent / "other")
    with pytest.raises(ChainError, match="has nothing rolled back; nothing"):
        other.undo_rollback()
    assert other.delete_rolled_back() == []


def test_it_is_purged(chain: Chain) -> None:
    chain.rollback(2)
    chain.rollback(1)
    assert [each.name for each in chain.delete_rolled_back("0002-to-2")] == ["0002-to-2"]
    assert [each.name for each in chain.delete_rolled_back(pinned=True)] == ["0001-to-4", "0003-to-1"]
    assert chain.rolled_back == []
    assert not (chain.directory / ROLLED_BACK_NAME).exists()
    assert chain.steps == [0, 1]


def test_pinned_steps_are_not_deleted_unless_told(chain: Chain) -> None:
    chain.rollback(2)
    assert [each.pins for each in chain.rolled_back] == [(6,), ()]
    for delete in (chain.delete_rolled_back, lambda: chain.delete_rolled_back("0001-to-4")):
        with pytest.raises(ArgumentError, match=r"step 6 of .*, rolled back as 0001-to-4, is pinned: undo"):
            delete()
        assert len(chain.rolled_back) == 2
    chain.delete_rolled_back("0002-to-2")
    (gone,) = chain.delete_rolled_back("0001-to-4", pinned=True)
    assert (gone.pins, chain.rolled_back) == ((6,), [])


def test_what_a_killed_process_left_goes_with_the_next_rollback(chain: Chain) -> None:
    left = chain.directory / ROLLED_BACK_NAME / ".tmp-0123456789abcdef"
    left.mkdir()
    (left / "000000000001.lcc.h5").write_bytes(b"a part")
    assert len(chain.rolled_back) == 1
    chain.rollback(3)
    assert not left.exists()


def test_the_step_of_an_exact_file(tmp_path: Path) -> None:
    assert verified_exact_step(DirectoryStore(tmp_path)) is None
    with Chain(tmp_path, newest="exact") as chain:
        chain.save(3, STATES[0])
    assert verified_exact_step(DirectoryStore(tmp_path)) == 3
    shutil.copy(tmp_path / "000000000003.lcc.h5", tmp_path / EXACT_NAME)
    assert verified_exact_step(DirectoryStore(tmp_path)) is None
    (tmp_path / EXACT_NAME).write_bytes(b"")
    with pytest.raises(DataError):
        verified_exact_step(DirectoryStore(tmp_path))


# --- crashes --------------------------------------------------------------------------------------
