"""Groups of the files of ranks: what is lost of a rank is mended, and nothing else is touched."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from lccodec import Chain, ChainError, Keep, LccodecWarning, StorageError, validate
from lccodec.chain.mend.parity_folder import ParityFolder
from lccodec.chain.mend.protect import (
    Redundancy,
    parse_redundancy,
    protect,
    protected_names,
    recorded,
    unprotect,
)
from lccodec.chain.mend.ranks import files_of, groups_of_ranks, protect_ranks, rank_folders, renew_ranks
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore

from ....support.damage import REPAIRING, damaged, files_in, flip, lasting, put
from ....support.programs import run_program
from ....support.ranks import save_of_ranks

COUNTS = [3000, 0, 9000, 7, 500]


def protected(directory: Path, redundancy: object = 1, steps: int = 3, **options: object) -> DirectoryStore:
    save_of_ranks(directory, COUNTS, range(steps), **options)
    store = DirectoryStore(directory)
    protect_ranks(store, parse_redundancy(redundancy))
    return store


def members(store: DirectoryStore) -> list[list[str]]:
    groups = groups_of_ranks(ParityFolder(store))
    return sorted([member.name for member in group.index.layout.members] for group in groups)


@pytest.mark.parametrize("newest", ["exact", "history"])
@pytest.mark.parametrize(
    ("redundancy", "lost"), [(1, [[0], [2], [3]]), (2, [[0, 2], [2, 4]]), ("100%", [[2]])]
)
def test_all_files_of_ranks_are_lost(
    tmp_path: Path, newest: str, redundancy: object, lost: list[list[int]]
) -> None:
    store = protected(tmp_path, redundancy, newest=newest)
    before = lasting(tmp_path)
    for ranks in lost:
        names = sorted(name for name in before if name.startswith(tuple(f"rank-{rank}/" for rank in ranks)))
        for rank in ranks:
            shutil.rmtree(tmp_path / f"rank-{rank}")
        assert sorted(repair(store, dry_run=True).mended) == names
        assert sorted(repair(store).mended) == names
        assert lasting(tmp_path) == before


@pytest.mark.slow
def test_damage_of_any_kind(tmp_path: Path) -> None:
    """A file is as it was, or mended bit for bit; what is lost is told."""
    store = protected(tmp_path / "run", 2, 2)
    files = lasting(tmp_path / "run")
    generator, mended = random.Random(0), 0
    for _ in range(30):
        broken = damaged(files, generator, generator.choice([1, 2, 3]))
        put(tmp_path / "run", broken)
        (tmp_path / "run").mkdir(exist_ok=True)
        found = repair(store)
        now = lasting(tmp_path / "run")
        for name in found.mended:
            assert now[name] == files[name]
        for name, data in files.items():
            if not name.startswith(".parity"):
                assert now.get(name) in (data, broken.get(name))
                assert now.get(name) == data or name in found.lost
        mended += now == files
    assert mended > 20


def test_a_rank_more_than_can_be_lost(tmp_path: Path) -> None:
    store = protected(tmp_path)
    for rank in (0, 2):
        shutil.rmtree(tmp_path / f"rank-{rank}")
    found = repair(store)
    assert found.mended == ()
    assert len(found.lost) == 6
    assert "2 blocks are lost where 1 parity blocks are left" in found.lost["rank-0/000000000001.lcc.h5"]
    protect_ranks(store, Redundancy(files=1))  # what could mend them, with files from elsewhere, stays
    save_of_ranks(tmp_path, [3000], range(3))
    assert repair(store).lost == {}


def test_groups_are_of_saves_and_of_steps(tmp_path: Path) -> None:
    save_of_ranks(tmp_path, [10, 10, 10], range(2), newest="exact")
    save_of_ranks(tmp_path, [10], range(2, 4), newest="exact")  # a rank was ahead, and the others have died
    save_of_ranks(tmp_path, [0, 10, 10], range(2, 3), newest="exact")
    save = ["rank-0/000000000003.lcc.h5", "rank-2/000000000002.lcc.h5", "rank-1/000000000002.lcc.h5"]
    store = DirectoryStore(tmp_path)
    protect_ranks(store, Redundancy(files=1), [save])
    together = [[f"rank-{rank}/{step:012d}.lcc.h5" for rank in range(3)] for step in range(2)]
    assert members(store) == sorted([
        *together,
        [save[0], save[2], save[1]],
        ["rank-0/000000000002.lcc.h5"],
        [f"rank-{rank}/exact.lcc.h5" for rank in range(3)],
    ])  # fmt: skip


@pytest.mark.slow
def test_many_ranks_form_groups_of_nearly_equal_size(tmp_path: Path) -> None:
    save_of_ranks(tmp_path, [1] * 70, range(1), newest="history")
    store = DirectoryStore(tmp_path)
    found = protect_ranks(store, Redundancy(files=1))
    assert (found.groups, len(found.files)) == (2, 70)
    assert sorted(map(len, members(store))) == [35, 35]
    assert rank_folders(store) == [f"rank-{rank}" for rank in range(70)]
    assert members(store)[0][-1] == "rank-34/000000000000.lcc.h5"


def test_links_and_other_folders_are_no_ranks(tmp_path: Path) -> None:
    save_of_ranks(tmp_path, [10, 10], range(1))
    shutil.copytree(tmp_path / "rank-0", tmp_path / "rank-07")
    (tmp_path / "rank-2").symlink_to(tmp_path / "rank-0")
    (tmp_path / "rank-3").mkdir()
    store = DirectoryStore(tmp_path)
    assert rank_folders(store) == ["rank-0", "rank-1"]
    assert files_of(store, "rank-9") == []
    protect_ranks(store, Redundancy(files=1))
    shutil.move(tmp_path / "rank-0", tmp_path / "moved")
    (tmp_path / "rank-0").symlink_to(tmp_path / "moved")
    with pytest.raises(StorageError, match="it is a link"):
        repair(store)
    for place in (tmp_path / "rank-1", tmp_path / "nothing"):
        with pytest.raises(ChainError, match="holds no chains of ranks"):
            protect_ranks(DirectoryStore(place), Redundancy(files=1))


def test_parity_of_a_chain_and_of_ranks_lie_side_by_side(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless") as records:
        records.save(0, {"record": 1})
    store = protected(tmp_path)
    ranks = files_in(tmp_path / ".parity")
    protect(store, Redundancy(files=2))
    assert files_in(tmp_path / ".parity").items() > ranks.items()
    assert (recorded(store), recorded(store, of_ranks=True)) == (Redundancy(files=2), Redundancy(files=1))
    with Chain(tmp_path, parity=1) as records:
        records.save(1, {"record": 2})
    both = files_in(tmp_path / ".parity")
    assert both.items() > ranks.items()
    assert len(both) == len(ranks) + 1
    protect_ranks(store, Redundancy(files=1))
    assert files_in(tmp_path / ".parity") == both
    before = lasting(tmp_path)
    (tmp_path / "000000000001.lcc.h5").unlink()
    shutil.rmtree(tmp_path / "rank-2")
    assert len(repair(store).mended) == 4
    assert lasting(tmp_path) == before
    assert unprotect(store) == sum(map(len, both.values()))
    assert not (tmp_path / ".parity").exists()


@pytest.mark.parametrize("place", [0, 70, -70])
def test_damaged_parity_is_made_anew(tmp_path: Path, place: int) -> None:
    """Also if neither copy of its index is whole: the description says what it was."""
    store = protected(tmp_path)
    before = lasting(tmp_path)
    for path in (tmp_path / ".parity").iterdir():
        flip(path, place, -1 - place, 0.5)
    found = repair(store)
    assert (found.mended, found.lost, len(found.parity)) == ((), {}, 3)
    assert lasting(tmp_path) == before


def test_one_damaged_parity_file_is_made_anew(tmp_path: Path) -> None:
    store = protected(tmp_path, 2)
    before = lasting(tmp_path)
    path = min((tmp_path / ".parity").iterdir())
    path.write_bytes(path.read_bytes()[:-700])
    assert repair(store).parity == (path.name,)
    assert lasting(tmp_path) == before
    path.unlink()
    renew_ranks(store)
    assert lasting(tmp_path) == before


def test_what_was_removed_does_not_come_back(tmp_path: Path) -> None:
    store = protected(tmp_path, 2, 5, keyframe_every=0)
    chain = Chain(tmp_path / "rank-2")
    chain.prune(Keep(latest=2))
    assert chain.steps == [3, 4]
    assert repair(store).mended == ()
    assert chain.steps == [3, 4]
    chain.rollback(3)
    assert repair(store).mended == ()
    assert chain.steps == [3]
    chain.undo_rollback()
    found = protect_ranks(store, Redundancy(files=2))
    assert len(found.files) == 5 * 3 + 2
    before = lasting(tmp_path)
    shutil.rmtree(tmp_path / "rank-2")
    repair(store)
    found_files = lasting(tmp_path)
    assert {name for name in before if "rolled" not in name} == set(found_files)
    assert all(before[name] == data for name, data in found_files.items())


def test_replaced_files_are_protected_again(tmp_path: Path) -> None:
    store = protected(tmp_path)
    Chain(tmp_path / "rank-0").compact(keyframe_every=0)
    assert len(repair(store, dry_run=True).stale) > 0
    (tmp_path / "rank-2/000000000002.lcc.h5").unlink()
    assert repair(store, dry_run=True).mended == ()  # parity is older than rank 0
    before = len(ParityFolder(store).names())
    protect_ranks(store, Redundancy(files=1))
    assert len(ParityFolder(store).names()) == before + 1  # what may mend rank 2 stays
    assert protected_names(DirectoryStore(tmp_path / "rank-0")) == {f"{i:012d}.lcc.h5" for i in range(3)}
    assert protected_names(DirectoryStore(tmp_path / "rank-2")) == {f"{i:012d}.lcc.h5" for i in range(2)}


def test_another_redundancy_takes_the_place_of_one(tmp_path: Path) -> None:
    store = protected(tmp_path, 1)
    protect_ranks(store, Redundancy(files=2))
    assert recorded(store, of_ranks=True) == Redundancy(files=2)
    assert len(ParityFolder(store).names()) == 6


def test_damaged_files_are_not_protected(tmp_path: Path) -> None:
    store = protected(tmp_path)
    path = tmp_path / "rank-2/000000000001.lcc.h5"
    flip(path, 400)
    (tmp_path / "rank-0/000000000000.lcc.h5").write_bytes(b"")
    found = protect_ranks(store, Redundancy(files=2))
    assert sorted(found.unprotected) == ["rank-0/000000000000.lcc.h5", "rank-2/000000000001.lcc.h5"]
    assert repair(store).lost == {}  # from the parity that was there before
    assert validate(tmp_path / "rank-2", deep=True) == []


def test_renewing_warns_and_goes_on(tmp_path: Path) -> None:
    store = protected(tmp_path)
    shutil.rmtree(tmp_path / ".parity")
    renew_ranks(store)
    assert not (tmp_path / ".parity").exists()
    (tmp_path / ".parity").symlink_to(tmp_path / "rank-0")
    with pytest.warns(LccodecWarning, match="could not be renewed"):
        renew_ranks(store, Redundancy(files=1))


@pytest.mark.slow
def test_nobody_repairs_while_a_rank_saves(tmp_path: Path) -> None:
    protected(tmp_path)
    with Chain(tmp_path / "rank-2") as chain:
        chain.save(3, {"w": 1})
        assert "is saving to this chain" in run_program(REPAIRING, tmp_path, code=1).stderr
