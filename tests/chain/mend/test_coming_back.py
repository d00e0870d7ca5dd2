"""What a repair would give back is told before, and nothing is written for that."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lccodec import LccodecError
from lccodec.chain.behind import AllBehind
from lccodec.chain.mend.mirror import Mirrors
from lccodec.chain.mend.protect import ParityBehind, Redundancy, protect
from lccodec.chain.mend.ranks import protect_ranks
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.store import Store

from ...support.chains import HistoryChain
from ...support.damage import files_in, flip
from ...support.mirrors import mirror_of
from ...support.ranks import save_of_ranks
from ...support.walks import walk

NAMES = [f"{step:012d}.lcc.h5" for step in range(4)]


def deltas(directory: Path, seed: int = 0) -> Path:
    """A chain of four steps, each a delta to the one before."""
    with HistoryChain(directory, policy="lossless") as chain:
        for step, state in enumerate(walk(4, seed)):
            chain.save(step, state)
    assert chain.info(3).deltas == 3
    return directory


def is_told(run: Path, *mirrors: Path) -> bool:
    before = files_in(run)
    store = DirectoryStore(run)
    behind = AllBehind([ParityBehind(store, None), Mirrors(store, mirrors)])
    told = behind.gives_back(NAMES[3])
    assert files_in(run) == before
    return told


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A chain with parity for one file. What is told of it is held to what a repair does."""
    protect(DirectoryStore(deltas(tmp_path / "run")), Redundancy(files=1))
    files = files_in(tmp_path / "run")
    yield tmp_path / "run"
    if is_told(tmp_path / "run"):
        repair(DirectoryStore(tmp_path / "run"))
        assert files_in(tmp_path / "run") == files


@pytest.mark.parametrize("place", [None, 3, -400, -20])
@pytest.mark.parametrize("name", [NAMES[3], NAMES[1]])
def test_one_file_comes_back_from_parity(run: Path, name: str, place: int | None) -> None:
    flip(run / name, *([] if place is None else [place]))
    assert is_told(run)


def test_a_file_that_is_gone_comes_back(run: Path) -> None:
    (run / NAMES[2]).unlink()
    assert is_told(run)


def test_two_files_do_not(run: Path) -> None:
    flip(run / NAMES[3])
    flip(run / NAMES[0])
    assert not is_told(run)


def test_damaged_parity_gives_nothing(run: Path) -> None:
    flip(run / NAMES[3])
    [path] = (run / ".parity").iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert not is_told(run)


def test_parity_of_an_older_chain_gives_nothing(run: Path) -> None:
    """Another file has the name of one of the group, so what is missing may be gone on purpose."""
    shutil.copy(deltas(run.parent / "other", 1) / NAMES[0], run / NAMES[0])
    (run / NAMES[2]).unlink()
    assert not is_told(run)


def test_a_mirror_gives_all_back(tmp_path: Path) -> None:
    run, mirror = deltas(tmp_path / "run"), tmp_path / "m"
    mirror_of(run, mirror).bring()
    flip(run / NAMES[3])
    flip(run / NAMES[1])
    assert not is_told(run)
    assert is_told(run, mirror)
    flip(mirror / NAMES[1])
    assert not is_told(run, mirror)


def test_a_mirror_of_another_chain_gives_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, other = deltas(tmp_path / "run"), deltas(tmp_path / "other", 1)
    flip(run / NAMES[3])
    mirrors = Mirrors(DirectoryStore(run), [])

    def refused() -> list[Store]:
        raise LccodecError("no network")

    for opened in (lambda: [DirectoryStore(other), DirectoryStore(tmp_path / "nothing")], refused):
        monkeypatch.setattr(mirrors, "opened", opened)
        assert not mirrors.gives_back(NAMES[3])


def test_the_chain_of_a_rank_has_parity_with_others(tmp_path: Path) -> None:
    save_of_ranks(tmp_path, [200, 300, 100], range(4), newest="history")
    protect_ranks(DirectoryStore(tmp_path), Redundancy(files=1))
    flip(tmp_path / "rank-1" / NAMES[3])
    assert is_told(tmp_path / "rank-1")
    protect(DirectoryStore(tmp_path / "rank-1"), Redundancy(files=1))  # which has none of that file
    assert is_told(tmp_path / "rank-1")
    flip(tmp_path / "rank-0" / NAMES[3])
    assert not is_told(tmp_path / "rank-1")
