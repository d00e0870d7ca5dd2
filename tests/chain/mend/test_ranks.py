"""Groups of the files of ranks: what is lost of a rank is mended, and nothing else is touched.

Pieces of a group: as large as memory allows, and each rank writes some parity files.

Ranks that make parity together: the bytes of one process, whatever happens to one rank.

How ranks talk, where there is only one, and what becomes of its errors.
"""

import errno
import random
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import Chain, ChainError, Keep, LccodecWarning, StorageError, validate
from lccodec.chain.mend import ranks as stripes
from lccodec.chain.mend.parity_folder import ParityFolder
from lccodec.chain.mend.protect import (
    Redundancy,
    parse_redundancy,
    protect,
    protected_names,
    recorded,
    unprotect,
)
from lccodec.chain.mend.ranks import (
    _PIECE_BYTES,
    Alone,
    Striped,
    Trouble,
    Written,
    _filled,
    _pieces,
    files_of,
    groups_of_ranks,
    protect_ranks,
    protect_together,
    rank_folders,
    renew_ranks,
)
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.parity import Layout, Member
from lccodec.container.system import System

from ...support.damage import damaged, files_in, flip, lasting, put, without_parity
from ...support.profiles import examples
from ...support.programs import run_program
from ...support.ranks import REPAIR, Threads, protect_in_threads, save_of_ranks
from ...support.systems import attempts
from ...support.tuning import tuned

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
        assert "is saving to this chain" in run_program(REPAIR, tmp_path, code=1).stderr


def layout_of(length: int, parity: int, block: int = 1 << 18) -> Layout:
    members = tuple(Member(f"rank-{i}/000000000000.lcc.h5", length, bytes([i] * 32)) for i in range(3))
    return Layout(block, -(-length // block), parity, parity, True, members)


@given(st.integers(1, 1 << 31), st.integers(1, 64), st.integers(1, 70))
def test_pieces_cover_all_rows_once_within_memory(length: int, parity: int, ranks: int) -> None:
    layout = layout_of(length, parity)
    pieces = list(_pieces(layout, ranks))
    assert [row for start, rows in pieces for row in range(start, start + rows)] == list(range(layout.rows))
    columns = -(-parity // ranks)
    most = max(rows for _, rows in pieces) * layout.block
    assert most * columns <= max(_PIECE_BYTES, layout.block * columns)


@pytest.mark.parametrize("parity", [1, 2, 5])
def test_parity_files_are_spread_over_the_ranks(tmp_path: Path, parity: int) -> None:
    store = DirectoryStore(tmp_path)
    written = dict[int, int]()
    for length in range(1, 200):
        for rank in range(3):
            peers: Threads = object.__new__(Threads)
            peers.rank, peers.size = rank, 3
            striped = Striped(store, ParityFolder(store), peers, layout_of(length, parity), [0, 1, 2])
            written[rank] = written.get(rank, 0) + len(striped._parity_hashes)
    assert sum(written.values()) == 199 * parity
    assert min(written.values()) > 0.7 * max(written.values())


def test_what_is_behind_a_short_column_is_zero() -> None:
    block = np.ones(512, np.uint8)
    assert _filled(block, 512) is block
    assert _filled(block, 1024).tolist() == [1] * 512 + [0] * 512


def parity(directory: Path) -> dict[str, bytes]:
    return files_in(directory / ".parity")


@pytest.mark.slow
@examples(1 / 2)
@given(
    counts=st.lists(st.sampled_from([0, 1, 127, 500, 3000]), min_size=1, max_size=5),
    files=st.integers(1, 6),
    piece=st.sampled_from([1, 1500, 1 << 20]),
)
def test_the_bytes_are_those_of_one_process(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], files: int, piece: int
) -> None:
    directory = tmp_path_factory.mktemp("ranks")
    save_of_ranks(directory, [*counts, 100], range(2), newest="exact")
    with tuned(rank_piece_bytes=piece):
        told, _ = protect_in_threads(directory, len(counts) + 1, files, step=1)
    assert told == [{}] * (len(counts) + 1)
    together = parity(directory)
    shutil.rmtree(directory / ".parity")
    protect_ranks(DirectoryStore(directory), Redundancy(files=files))
    assert together == parity(directory)
    assert len(together) == 3 * files


def test_no_rank_gathers_the_files_of_all(tmp_path: Path) -> None:
    """Each sends its own file and the parity once, whatever their number is."""
    counts = [50_000] * 6
    save_of_ranks(tmp_path, counts, range(1), newest="history")
    size = (tmp_path / "rank-0/000000000000.lcc.h5").stat().st_size
    _, peers = protect_in_threads(tmp_path, 6, 2)
    assert all(size / 2 < each.sent < 1.4 * size for each in peers)


def test_saves_one_after_the_other(tmp_path: Path) -> None:
    """What is protected stays, and of the exact file the newest parity."""
    for step in range(4):
        save_of_ranks(tmp_path, [900, 3000, 50], range(step, step + 1), newest="exact")
        before = parity(tmp_path)
        assert protect_in_threads(tmp_path, 3, 1, step=step)[0] == [{}] * 3
        assert len(parity(tmp_path)) == step + 2
        assert len(before.items() - parity(tmp_path).items()) == (1 if step else 0)
    together = parity(tmp_path)
    shutil.rmtree(tmp_path / ".parity")
    protect_ranks(DirectoryStore(tmp_path), Redundancy(files=1))
    assert together == parity(tmp_path)


def test_a_group_of_which_one_file_was_replaced_is_no_parity_of_the_others(tmp_path: Path) -> None:
    """Some ranks were ahead when the exact files were protected."""
    save_of_ranks(tmp_path, [900, 3000, 50], range(1), newest="exact")
    save_of_ranks(tmp_path, [900], range(1, 2), newest="exact")
    protect_in_threads(tmp_path, 3, 1)
    save_of_ranks(tmp_path, [0, 3000, 50], range(1, 2), newest="exact")
    protect_in_threads(tmp_path, 3, 1, step=1)
    before = files_in(tmp_path)
    (tmp_path / "rank-0/exact.lcc.h5").unlink()
    assert repair(DirectoryStore(tmp_path)).mended == ("rank-0/exact.lcc.h5",)
    assert lasting(tmp_path) == before


def test_ranks_that_are_gone_keep_their_parity(tmp_path: Path) -> None:
    save_of_ranks(tmp_path, [900, 3000, 50], range(2), newest="history")
    protect_in_threads(tmp_path, 3, 1, step=1)
    save_of_ranks(tmp_path, [900, 3000], range(2, 3), newest="history")
    protect_in_threads(tmp_path, 2, 1, step=2)
    before = files_in(tmp_path)
    for rank in range(3):
        shutil.rmtree(tmp_path / f"rank-{rank}")
        assert repair(DirectoryStore(tmp_path)).lost == {}
        assert lasting(tmp_path) == before


def test_a_file_that_is_saved_meanwhile_is_for_the_next_time(tmp_path: Path) -> None:
    save_of_ranks(tmp_path, [900], range(2), newest="history")
    first = "rank-0/000000000000.lcc.h5"
    told = protect_together(
        DirectoryStore(tmp_path), Alone(), Written("rank-0", first, (first,)), Redundancy(files=1)
    )
    groups, _ = ParityFolder(DirectoryStore(tmp_path)).groups()
    assert told == {}
    assert [[m.name for m in group.index.layout.members] for group in groups] == [[first]]


def test_what_was_saved_without_parity_is_protected_too(tmp_path: Path) -> None:
    save_of_ranks(tmp_path, [900, 0, 70], range(3), newest="history")
    protect_in_threads(tmp_path, 3, 1, step=2)
    assert len(parity(tmp_path)) == 3
    before = files_in(tmp_path)
    shutil.rmtree(tmp_path / "rank-0")
    repair(DirectoryStore(tmp_path))
    assert lasting(tmp_path) == before


def test_a_damaged_file_is_told_to_all_and_the_others_are_protected(tmp_path: Path) -> None:
    save_of_ranks(tmp_path, [900, 3000, 70], range(1), newest="history")
    path = tmp_path / "rank-1/000000000000.lcc.h5"
    flip(path, 700)
    (tmp_path / "rank-2/000000000001.lcc.h5").write_bytes(b"no checkpoint")
    told, _ = protect_in_threads(tmp_path, 3, 1)
    assert told[0] == told[1] == told[2]
    assert sorted(told[0]) == ["rank-1/000000000000.lcc.h5", "rank-2/000000000001.lcc.h5"]
    [group], _ = ParityFolder(DirectoryStore(tmp_path)).groups()
    assert [m.name[:6] for m in group.index.layout.members] == ["rank-0", "rank-2"]


@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_a_file_that_changes_meanwhile_is_not_protected_and_no_error(tmp_path: Path, change: str) -> None:
    save_of_ranks(tmp_path, [900, 3000], range(1), newest="history")
    path = tmp_path / "rank-1/000000000000.lcc.h5"
    index = stripes.Striped._index

    def late(striped: stripes.Striped) -> object:
        if striped._peers.rank == 1:
            path.unlink()
            if change == "replaced":
                with Chain(tmp_path / "rank-1") as chain:
                    chain.save(0, {"w": 1})
        return index(striped)

    with mock.patch.object(stripes.Striped, "_index", late):
        told, _ = protect_in_threads(tmp_path, 2, 1)
    assert told == [{}, {}]
    assert parity(tmp_path) == {}


def test_who_holds_a_chain_too_long_is_told(tmp_path: Path) -> None:
    save_of_ranks(tmp_path, [900, 3000], range(1), newest="history")
    with (
        DirectoryStore(tmp_path / "rank-1").locked(),
        tuned(rank_lock_seconds=0.1),
    ):
        told, _ = protect_in_threads(tmp_path, 2, 1)
    assert all("another process holds" in text for each in told for text in each.values())
    assert len(told[0]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("rank", [0, 1])
def test_faults_at_every_operation_of_a_rank(tmp_path: Path, code: int, rank: int) -> None:
    """No rank waits for ever, and nothing that was whole is worse."""
    save_of_ranks(tmp_path / "run", [900, 3000, 70], range(2), newest="history")
    before = files_in(tmp_path / "run")
    told = []

    def act(place: Path, system: System) -> None:
        told.append(protect_in_threads(place, 3, 2, stores={rank: DirectoryStore(place, system)})[0])

    tried = attempts(tmp_path / "run", act, code)
    whole = parity(next(tried)[0])
    for place, _ in tried:
        assert told[-1][0] == told[-1][1] == told[-1][2]
        assert without_parity(place) == before
        assert protect_in_threads(place, 3, 2)[0] == [{}] * 3
        assert parity(place) == whole
    assert len(told) > 10


def test_one_rank_talks_to_itself() -> None:
    peers = Alone()
    piece = np.arange(9, dtype=np.uint8)
    assert peers.gather("a") == ["a"]
    assert peers.exchange([piece], [9])[0] is piece


def test_the_first_error_is_kept_and_others_are_raised() -> None:
    trouble = Trouble()
    assert trouble.told(Alone()) == []
    for error in (ChainError("first"), MemoryError(), OSError(5, "second")):
        with trouble.noted():
            raise error
    assert trouble.told(Alone()) == ["first"]
    with pytest.raises(RuntimeError), trouble.noted():
        raise RuntimeError("of torch")
