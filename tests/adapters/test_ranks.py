"""Files of ranks are protected, checked and mended by records, without PyTorch."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from lccodec import Chain, ChainError, Keep, LccodecWarning
from lccodec.adapters.ranks import (
    check_together,
    protect_together,
    prune_together,
    repair_together,
    repairable,
)
from lccodec.chain.mend.protect import Redundancy
from lccodec.chain.store.directory import DirectoryStore

from ..support.commands import run, run_json
from ..support.damage import flip, lasting
from ..support.outside import picture
from ..support.ranks import save_of_ranks

KIND = "torch.distributed.checkpoint"
COUNTS = [300, 2000, 40]
ONE = Redundancy(files=1)


def record(directory: Path, base: Path, step: int, ranks: Sequence[int] = range(3)) -> None:
    """The record of a save, as DCP's writer makes it, of the same step of all ranks."""
    parts = []
    for rank in ranks:
        name = f"{step:012d}.lcc.h5"
        root, _ = DirectoryStore(base / f"rank-{rank}").root(name)
        parts.append([f"rank-{rank}/{name}", root.hex()])
    place = os.path.relpath(base, directory)
    state = {"kind": KIND, "version": 1, "base": Path(place).as_posix(), "parts": parts}
    with Chain(directory, "lossless", keyframe_every=0) as chain:
        chain.save(step, state, {"kind": KIND})


@pytest.fixture(params=["beside", "elsewhere"])
def saved(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """Three saves of three ranks: where the records are, and where the ranks."""
    directory = tmp_path / "run"
    base = directory if request.param == "beside" else tmp_path / "chain"
    save_of_ranks(base, COUNTS, range(3), newest="history")
    for step in range(3):
        record(directory, base, step)
    return directory, base


def test_a_rank_is_lost_and_mended(saved: tuple[Path, Path]) -> None:
    directory, base = saved
    assert (check_together(directory), repairable(directory)) == ([], None)
    found = protect_together(directory, ONE)
    assert (len(found.files), found.groups, found.made, found.unprotected) == (12, 4, 4, {})
    assert found.bytes == sum(len(d) for n, d in lasting(directory.parent).items() if "parity" not in n)
    parity = [len(data) for name, data in lasting(directory.parent).items() if "parity" in name]
    assert (found.parity_bytes, len(parity)) == (sum(parity), 4)
    assert protect_together(directory, ONE).made == 0
    before = lasting(directory.parent)
    shutil.rmtree(base / "rank-1")
    (directory / "000000000001.lcc.h5").unlink()
    problems = check_together(directory)
    ranks = "" if base == directory else "../chain/"
    assert {problem.where for problem in problems} == {f"{ranks}rank-1/{s:012d}.lcc.h5" for s in (0, 2)}
    assert repairable(directory) == "yes"
    names = sorted(["000000000001.lcc.h5", *(f"{ranks}rank-1/{s:012d}.lcc.h5" for s in range(3))])
    assert sorted(repair_together(directory, dry_run=True).mended) == names
    assert sorted(repair_together(directory).mended) == names
    assert lasting(directory.parent) == before
    assert check_together(directory, deep=True) == []


def test_damage_of_a_rank_and_a_file_of_another_run(saved: tuple[Path, Path]) -> None:
    directory, base = saved
    protect_together(directory, ONE)
    path = base / "rank-1/000000000001.lcc.h5"
    flip(path, 500)
    [problem, *_] = check_together(directory)
    assert "rank-1: " in problem.where
    assert "000000000001.lcc.h5: frame 0" in problem.where
    assert repairable(directory) == "yes"
    shutil.rmtree(base / "rank-2")
    assert repairable(directory) == "in part"
    found = repair_together(directory, dry_run=True)
    assert len(found.lost) == 2
    save_of_ranks(base.parent / "other", [0, 0, 50], range(3), newest="history")
    shutil.copytree(base.parent / "other/rank-2", base / "rank-2")
    assert any("a file of another run" in problem.message for problem in check_together(directory))


def test_a_damaged_record_and_its_ranks(saved: tuple[Path, Path]) -> None:
    directory, base = saved
    (directory / "000000000002.lcc.h5").write_bytes(b"")
    found = protect_together(directory, ONE)
    assert len(found.files) == 11
    assert list(found.unprotected) == ["000000000002.lcc.h5"]
    before = lasting(base)
    shutil.rmtree(base / "rank-1")
    assert len(repair_together(directory).mended) == 3
    assert {n: d for n, d in lasting(base).items() if n.startswith("rank")} == {
        n: d for n, d in before.items() if n.startswith("rank")
    }


def test_chains_of_ranks_without_records(tmp_path: Path) -> None:
    save_of_ranks(tmp_path, COUNTS, range(2), newest="exact")
    found = protect_together(tmp_path, ONE)
    assert (found.groups, len(found.files)) == (3, 9)
    before = lasting(tmp_path)
    shutil.rmtree(tmp_path / "rank-1")
    assert len(repair_together(tmp_path).mended) == 3
    assert lasting(tmp_path) == before
    with pytest.raises(ChainError, match="holds no checkpoint"):
        protect_together(tmp_path / "nothing", ONE)


def test_a_chain_that_has_no_records(tmp_path: Path) -> None:
    with Chain(tmp_path / "run") as chain:
        chain.save(0, {"w": 1})
    found = protect_together(tmp_path / "run", ONE)
    assert found.files == ("000000000000.lcc.h5",)
    assert check_together(tmp_path / "run/000000000000.lcc.h5") == []
    assert repairable(tmp_path / "run/000000000000.lcc.h5") is None


def test_pruning_keeps_the_parity_of_ranks_true(saved: tuple[Path, Path]) -> None:
    """Ranks elsewhere are not pruned: they may have other records."""
    directory, base = saved
    ranks = [2] if base == directory else [0, 1, 2]
    protect_together(directory, ONE)
    prune_together(directory, Keep(latest=1), rewrite=True)
    found = repair_together(directory)
    assert (found.mended, found.lost, found.stale) == ((), {}, ())
    assert [Chain(path).steps for path in (directory, base / "rank-1")] == [[2], ranks]
    before = lasting(directory.parent)
    assert len([name for name in before if ".parity/" in name]) == 1 + len(ranks)
    shutil.rmtree(base / "rank-1")
    assert len(repair_together(directory).mended) == len(ranks)
    assert lasting(directory.parent) == before


def test_in_the_shell(saved: tuple[Path, Path]) -> None:
    directory, base = saved
    assert "in 4 groups" in run("protect", directory, "--files", "1")[0]
    before = lasting(directory.parent)
    shutil.rmtree(base / "rank-0")
    assert "repairable: yes" in run("check", directory, code=1)[0]
    assert len(run_json("repair", directory, "--dry-run")["mended"]) == 3
    assert run("repair", directory)[0].count("mended") == 3
    run("check", directory)
    assert lasting(directory.parent) == before


def test_a_record_leads_only_to_the_chains_that_it_was_made_of(tmp_path: Path) -> None:
    """It may be a stranger's, and name any directory."""
    directory, victim = tmp_path / "run", tmp_path / "victim"
    save_of_ranks(victim, COUNTS, range(3), newest="history")
    (victim / ".tmp-0123456789abcdef").write_bytes(b"mine")
    parts = [[f"rank-{rank}/000000000001.lcc.h5", "0" * 64] for rank in range(3)]
    state = {"kind": KIND, "version": 1, "base": "../victim", "parts": parts}
    with Chain(directory, "lossless") as chain:
        chain.save(0, state, {"kind": KIND})
    before = picture(victim)
    for verb in (repair_together, lambda place: protect_together(place, ONE)):
        with pytest.warns(LccodecWarning, match="victim is left alone: records of"):
            verb(directory)
        assert picture(victim) == before
    problems = check_together(directory)
    assert [problem.where for problem in problems] == [f"../victim/{name}" for name, _ in parts]
    assert picture(victim) == before
