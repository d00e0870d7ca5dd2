"""What was rolled back: listed, put back, deleted; and no moment at which it is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lccodec import ArgumentError, Chain, ChainError, DataError, validate
from lccodec.chain.life.rollback import delete_rolled_back, undo_rollback, verified_exact_step
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import EXACT_NAME, ROLLED_BACK_NAME
from lccodec.policy.record import NewestMode

from ...support.crashes import hold
from ...support.walks import assert_restores, assert_same, is_so, save_all, walk

STATES = walk(8, shape=(6, 5))


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


def restores(directory: Path) -> bool:
    return is_so(lambda: assert_restores(Chain(directory), STATES, exact=False))


def whole_asides(place: Path) -> list[Path]:
    base = place / ROLLED_BACK_NAME
    return [path for path in base.glob("*") if not path.name.startswith(".tmp-")]


@pytest.mark.slow
@pytest.mark.parametrize("ignore", ["", "sync directory"])
def test_no_crash_loses_what_comes_back(chain: Chain, ignore: str) -> None:
    def check(done: bool, place: Path) -> bool:
        steps, asides = Chain(place).steps, whole_asides(place)
        there = {*steps, *(step for aside in asides for step in Chain(aside).steps)}
        sound = restores(place) and all(map(restores, asides)) and there == set(range(7))
        return sound and (not done or steps == list(range(7)))

    work = lambda system: undo_rollback(DirectoryStore(chain.directory, system))  # noqa: E731
    hold(chain.directory, work, check, ignore, above=30)


@pytest.mark.slow
def test_a_purge_that_is_cut_short_leaves_a_whole_chain_or_none(chain: Chain) -> None:
    def check(done: bool, place: Path) -> bool:
        asides = whole_asides(place)
        whole = all(Chain(aside).steps == [3, 4, 5, 6] and restores(aside) for aside in asides)
        return whole and restores(place) and Chain(place).steps == [0, 1, 2, 3, 4] and not (done and asides)

    work = lambda system: delete_rolled_back(DirectoryStore(chain.directory, system), pinned=True)  # noqa: E731
    hold(chain.directory, work, check, above=10)
