"""Chains are thinned out by what names their steps: links, and records of DCP without PyTorch."""

import errno
import os
import shutil
from unittest import mock

import pytest

import lccodec
from lccodec import ArgumentError, Keep, LccodecError, StorageError
from lccodec.adapters.chains import open_linked, save_linked
from lccodec.adapters.ranks import chains_below, named_steps, prune_named, prune_together

from ..support.commands import run, run_json
from ..support.damage import flip
from ..support.walks import assert_same, save_all, walk

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


def record(directory, step, files, base="."):
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
    record(tmp_path / "records", 0, ["rank-0/000000000000.lcc.h5"])
    record(tmp_path / "records", 1, ["rank-0/000000000001.lcc.h5"])
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
        record(tmp_path, step, files)
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
        record(tmp_path / f"step-{step}", 0, files, "../chain")
    shutil.rmtree(tmp_path / "step-1")
    found = prune_named(tmp_path / "chain", [tmp_path])
    assert [each.removed for each in found.values()] == [(1,), (1,)]
    record(tmp_path / "step-9", 0, [["not a name"]], "../chain")
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
