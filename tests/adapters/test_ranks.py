"""Files of ranks are protected, checked and mended by records, without PyTorch.

Chains are thinned out by what names their steps: links, and records of DCP without PyTorch.
"""

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest

import lccodec
from lccodec import ArgumentError, Chain, ChainError, Keep, LccodecError, LccodecWarning, StorageError
from lccodec.adapters.chains import open_linked, save_linked
from lccodec.adapters.ranks import (
    chains_below,
    check_together,
    named_steps,
    protect_together,
    prune_named,
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
from ..support.walks import assert_same, save_all, walk

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


STATES = walk(6, shape=(6, 5))


@pytest.fixture
def linked(tmp_path):
    """Six states of two processes in chains, each with its link in the directory of its step."""
    for process in range(2):
        place = tmp_path / "chain" / f"process-{process}"
        with lccodec.Chain(place, "lossless", keyframe_every=2, newest="history") as chain:
            for step, state in enumerate(STATES):
                path = tmp_path / "run" / str(step) / f"process-{process}.lcc.h5"
                path.parent.mkdir(parents=True, exist_ok=True)
                save_linked(state, path, {}, chain)
    return tmp_path


def named_record(directory, step, files, base="."):
    """A record as DCP's writer makes it."""
    state = {"kind": "torch.distributed.checkpoint", "version": 1, "base": base}
    state["parts"] = [[file, "root"] for file in files]
    with lccodec.Chain(directory, "lossless", keyframe_every=0) as chain:
        chain.save(step, state, {"kind": state["kind"]})


def steps(path):
    return lccodec.Chain(path).steps


def test_what_no_link_names_goes_of_every_process(linked):
    for step in (0, 1, 3, 4):
        shutil.rmtree(linked / "run" / str(step))
    told = prune_named(linked / "chain", [linked / "run"], dry_run=True)
    assert steps(linked / "chain" / "process-0") == list(range(6))
    assert prune_named(linked / "chain", [linked / "run"]) == told
    for process in range(2):
        chain = linked / "chain" / f"process-{process}"
        assert told[chain].kept == {2: "asked for", 5: "asked for"}
        assert steps(chain) == list(range(6))  # 2 needs 0 and 1, 5 needs 3 and 4
    found = prune_named(linked / "chain", [linked / "run"], rewrite=True)
    for process in range(2):
        chain = linked / "chain" / f"process-{process}"
        assert steps(chain) == [2, 5]
        assert found[chain].removed == (0, 1, 3, 4)
        for step in (2, 5):
            with open_linked(linked / "run" / str(step) / f"process-{process}.lcc.h5") as file:
                assert_same(file.state(), STATES[step])


def test_a_step_that_only_the_exact_file_has_is_named(tmp_path):
    """Its checkpoint could not be written, and the link names the exact file."""
    with lccodec.Chain(tmp_path / "chain", "lossless", keyframe_every=0, newest="exact") as chain:
        for step, state in enumerate(STATES[:2]):
            save_linked(state, tmp_path / f"{step}.lcc.h5", {}, chain)
        full = lccodec.StorageError(errno.ENOSPC, "no space", "somewhere")
        with (
            mock.patch("lccodec.chain.save.reference.encode_plan", side_effect=full),
            pytest.warns(match="only in"),
        ):
            save_linked(STATES[2], tmp_path / "2.lcc.h5", {}, chain)
    (found,) = prune_named(tmp_path / "chain", [tmp_path / "2.lcc.h5"]).values()
    assert found.removed == (0,)
    assert steps(tmp_path / "chain") == [1, 2]
    with open_linked(tmp_path / "2.lcc.h5") as file:
        assert_same(file.state(), STATES[2])


def test_one_chain_and_several_places(linked):
    chain = linked / "chain" / "process-1"
    places = [linked / "run" / "0", linked / "run" / "4" / "process-1.lcc.h5"]
    for step in (1, 2, 3):
        shutil.rmtree(linked / "run" / str(step))
    (linked / "run" / "5" / "process-1.lcc.h5").rename(linked / "moved")
    (found,) = prune_named(chain, places, rewrite=True).values()
    assert found.kept == {0: "asked for", 4: "asked for", 5: "newest"}
    assert steps(linked / "chain" / "process-0") == list(range(6))


def test_what_is_refused_removes_nothing(linked):
    (linked / "notes.txt").write_text("not a link")
    for places in ([], [linked / "notes.txt"], [linked / "run" / "0" / "process-0.lcc.h5"]):
        with pytest.raises(ArgumentError, match="no file at the given places names a step of"):
            prune_named(linked / "chain", places)
    with pytest.raises(ArgumentError, match="must be a chain or a directory of chains"):
        prune_named(linked / "run" / "0", [linked / "run"])
    with pytest.raises(StorageError):
        prune_named(linked / "chain", [linked / "missing"])
    link = linked / "run" / "3" / "process-0.lcc.h5"
    flip(link, -120)
    with pytest.raises(LccodecError, match="process-0"):
        prune_named(linked / "chain", [linked / "run"])
    assert chains_below(linked / "chain") == [linked / "chain" / f"process-{p}" for p in range(2)]
    for process in range(2):
        assert steps(linked / "chain" / f"process-{process}") == list(range(6))


def test_a_chain_that_cannot_be_listed_is_an_error(linked, monkeypatch):
    listdir = os.listdir

    def refuse(path):
        if path.name == "process-0":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listdir(path)

    monkeypatch.setattr("os.listdir", refuse)
    with pytest.raises(StorageError, match="cannot list"):
        prune_named(linked / "chain", [linked / "run"])
    monkeypatch.undo()
    assert [steps(linked / "chain" / f"process-{p}") for p in range(2)] == [list(range(6))] * 2


def test_a_chain_that_a_link_leads_to_is_left_alone(linked, tmp_path):
    """Whoever made the directory may have linked it to any chain, and named one of its steps."""
    (linked / "chain" / "process-1").rename(linked / "elsewhere")
    (linked / "chain" / "process-1").symlink_to(linked / "elsewhere")
    with lccodec.Chain(linked / "elsewhere") as chain:
        save_linked(STATES[0], linked / "run" / "5" / "elsewhere.lcc.h5", {}, chain)
    for step in range(5):
        shutil.rmtree(linked / "run" / str(step))
    found = prune_named(linked / "chain", [linked / "run"], rewrite=True)
    assert list(found) == [linked / "chain" / "process-0"]
    assert steps(linked / "elsewhere") == list(range(7))
    named_record(tmp_path / "records", 0, ["rank-0/000000000000.lcc.h5"])
    named_record(tmp_path / "records", 1, ["rank-0/000000000001.lcc.h5"])
    (tmp_path / "records" / "rank-0").symlink_to(linked / "elsewhere")
    assert list(prune_together(tmp_path / "records", Keep(latest=1))) == [tmp_path / "records"]
    assert steps(linked / "elsewhere") == list(range(7))


def test_links_are_found_below_and_others_are_not(linked):
    named = named_steps([linked])
    assert named == {(linked / "chain" / f"process-{p}").resolve(): set(range(6)) for p in range(2)}


def ranks(directory, counts):
    for rank, count in enumerate(counts):
        with lccodec.Chain(directory / f"rank-{rank}", "lossless", keyframe_every=1) as chain:
            save_all(chain, STATES, range(count))


def test_the_ranks_of_records_are_pruned_with_them(tmp_path):
    """The second rank was killed once, and is one step behind."""
    ranks(tmp_path, [6, 5])
    for step in range(5):
        files = [f"rank-0/{step + 1:012d}.lcc.h5", f"rank-1/{step:012d}.lcc.h5"]
        named_record(tmp_path, step, files)
    found = prune_together(tmp_path, Keep(latest=1, steps=[0]))
    assert {path.name: each.removed for path, each in found.items()} == {
        tmp_path.name: (1, 2, 3),
        "rank-0": (2, 3),
        "rank-1": (1, 2, 3),
    }
    assert (steps(tmp_path), steps(tmp_path / "rank-0"), steps(tmp_path / "rank-1")) == (
        [0, 4],
        [0, 1, 4, 5],
        [0, 4],
    )
    assert prune_together(tmp_path / "rank-0", Keep(latest=1)).keys() == {tmp_path / "rank-0"}


def test_records_elsewhere_name_the_steps_of_ranks(tmp_path):
    ranks(tmp_path / "chain", [4, 4])
    for step in range(4):
        files = [f"rank-{rank}/{step:012d}.lcc.h5" for rank in range(2)]
        named_record(tmp_path / f"step-{step}", 0, files, "../chain")
    shutil.rmtree(tmp_path / "step-1")
    found = prune_named(tmp_path / "chain", [tmp_path])
    assert [each.removed for each in found.values()] == [(1,), (1,)]
    named_record(tmp_path / "step-9", 0, [["not a name"]], "../chain")
    with pytest.raises(LccodecError, match="not the record"):
        prune_named(tmp_path / "chain", [tmp_path])


def test_from_a_shell(linked):
    shutil.rmtree(linked / "run" / "5")
    text, _ = run("prune", linked / "chain", "--named-by", linked / "run", "--dry-run")
    assert text.count("would remove 0 of 6 checkpoints") == 2
    assert "process-1: " in text
    for step in (0, 1, 3, 4):
        shutil.rmtree(linked / "run" / str(step))
    document = run_json("prune", linked / "chain", "--named-by", linked / "run" / "2", "--rewrite")
    assert [chain["removed"] for chain in document["chains"]] == [[0, 1, 3, 4]] * 2
    run("prune", linked / "chain", "--named-by", linked / "run", "--latest", 2, code=2)
    assert "does not exist" in run("prune", linked / "chain", "--named-by", linked / "x", code=2)[1]
