"""Ranks that make parity together: the bytes of one process, whatever happens to one rank."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import Chain
from lccodec.chain.mend import ranks as stripes
from lccodec.chain.mend.parity_folder import ParityFolder
from lccodec.chain.mend.protect import Redundancy
from lccodec.chain.mend.ranks import Alone, Written, protect_ranks, protect_together
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.disk.system import System

from ....support.damage import files_in, flip, lasting, without_parity
from ....support.profiles import examples
from ....support.ranks import protect_in_threads, save_of_ranks
from ....support.systems import attempts
from ....support.tuning import tuned


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
    with DirectoryStore(tmp_path / "rank-1").locked(), tuned(rank_lock_seconds=0.1):
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
