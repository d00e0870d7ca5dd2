"""Parity of the ranks behind `dcp.save`: made by all, never in the way of a save."""

import copy
import itertools
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import lccodec
from lccodec import ArgumentError, LccodecWarning
from lccodec.adapters import rank_parity as module
from lccodec.adapters.dcp import LCStorageReader, LCStorageWriter
from lccodec.adapters.rank_parity import (
    ParityOfRanks,
    Save,
    TorchPeers,
    checked_group,
    group_of_all,
    written_by,
)
from lccodec.adapters.ranks import check_together, protect_together, repair_together
from lccodec.chain.mend.protect import Redundancy
from lccodec.chain.mend.ranks import Written

from ..support.damage import files_in
from ..support.tuning import tuned

PROGRAM = Path(__file__).parents[1] / "support" / "parity_ranks.py"


Ranks: TypeAlias = dict[tuple[str, int], tuple[Path, str]]
#: What ranks do here: how many they are, and how many of their files may be lost.
PARTS = [("save", 3, 1), ("save", 4, 2), ("fail", 3, 1), ("kill", 3, 1)]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    """For each part and number of ranks the directory, which is its own, and what they print.

    One process starts all of them: it imports torch once.
    """
    from ..support.parity_ranks import END

    directories = [tmp_path_factory.mktemp(part) for part, *_ in PARTS]
    asked = [
        (part, str(directory), str(count), str(files))
        for directory, (part, count, files) in zip(directories, PARTS, strict=True)
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM), *itertools.chain(*asked)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    *outputs, _ = done.stdout.split(END)
    keys = [(part, count) for part, count, _ in PARTS]
    return dict(zip(keys, zip(directories, outputs, strict=True), strict=True))


def whole(directory: Path) -> dict[str, bytes]:
    return {n: d for n, d in files_in(directory).items() if ".tmp" not in n and n != "rendezvous"}


def without_parity(directory: Path) -> dict[str, bytes]:
    return {name: data for name, data in whole(directory).items() if ".parity/" not in name}


@pytest.mark.slow
@pytest.mark.parametrize(("count", "files"), [(3, 1), (4, 2)])
def test_ranks_make_what_one_process_makes_and_any_rank_is_mended(
    ranks: Ranks, count: int, files: int
) -> None:
    from ..support.parity_ranks import state_of

    directory, output = ranks["save", count]
    assert str([0] * count) in output, output
    assert "Warning" not in output, output
    before = whole(directory)
    places = [directory / "2", directory / "one"]
    for place in places:
        assert check_together(place) == []
        for rank in (0, 2, 3)[: count - 1]:
            for base in (directory / "chain", directory / "one"):
                shutil.rmtree(base / f"rank-{rank}")
            assert check_together(place) != []
            for each in places:
                found = repair_together(each)
                assert (len(found.mended), found.lost) == (4 if each == places[0] else 3, {})
            assert whole(directory) == before
        expected = {n: value for rank in range(count) for n, value in state_of(rank, 2).items()}
        state = {name: torch.zeros_like(value) for name, value in expected.items()}
        dcp.load(state, storage_reader=LCStorageReader(place), no_dist=True)
        assert all(torch.equal(value, expected[name]) for name, value in state.items())
    for base in directory.glob("*"):
        shutil.rmtree(base / ".parity", ignore_errors=True)
    for place in (directory / "0", directory / "1", *places):
        protect_together(place, Redundancy(files=files))
    assert whole(directory) == before


@pytest.mark.slow
def test_a_save_that_fails_gets_no_parity_and_the_next_one_does(ranks: Ranks) -> None:
    directory, output = ranks["fail", 3]
    assert output.count("failed") == 3, output
    assert output.count("parity []") == 3, output
    assert "[0, 0, 0]" in output, output
    before = whole(directory)
    # What rank 0 wrote of the save that failed is protected, too: its next delta needs it.
    shutil.rmtree(directory / "one/rank-0")
    assert len(repair_together(directory / "one").mended) == 2
    assert whole(directory) == before


@pytest.mark.slow
def test_a_rank_is_killed_in_the_middle_and_the_save_is_whole(ranks: Ranks) -> None:
    from ..support.parity_ranks import state_of

    directory, output = ranks["kill", 3]
    assert "[0, 0, -9]" in output, output
    assert output.count("the ranks' files are not protected") == 2, output
    assert check_together(directory / "one", deep=True) == []
    state = {name: torch.zeros_like(value) for name, value in state_of(2, 1).items()}
    dcp.load(state, storage_reader=LCStorageReader(directory / "one"), no_dist=True)
    assert all(torch.equal(value, state_of(2, 1)[name]) for name, value in state.items())
    found = protect_together(directory / "one", Redundancy(files=1))
    assert (len(found.files), found.unprotected) == (6, {})
    assert not [name for name in files_in(directory / "one/.parity") if "tmp" in name]
    before = without_parity(directory)
    shutil.rmtree(directory / "one/rank-2")
    repair_together(directory / "one")
    assert without_parity(directory) == before


# --- one rank -------------------------------------------------------------------------------------


def save(writer: LCStorageWriter, value: int) -> None:
    dcp.save({"x": torch.full((300,), value)}, storage_writer=writer, no_dist=True)


def test_one_rank_is_protected_too(tmp_path: Path) -> None:
    writer = LCStorageWriter(tmp_path, parity=1)
    for value in range(3):
        save(writer, value)
    writer.wait()
    before = whole(tmp_path)
    shutil.rmtree(tmp_path / "rank-0")
    (tmp_path / "000000000001.lcc.h5").unlink()
    assert len(repair_together(tmp_path).mended) == 4
    assert whole(tmp_path) == before


def test_old_saves_go_with_their_parity(tmp_path: Path) -> None:
    writer = LCStorageWriter(tmp_path, keyframe_every=0, keep=lccodec.Keep(latest=2), parity=1)
    for value in range(5):
        save(writer, value)
        writer.wait()
    assert len(list((tmp_path / ".parity").iterdir())) == 3  # of two saves, and of their records
    found = repair_together(tmp_path)
    assert (found.mended, found.lost, found.stale) == ((), {}, ())
    assert lccodec.Chain(tmp_path / "rank-0").steps == [3, 4]


def test_no_save_fails_because_of_parity(tmp_path: Path) -> None:
    writer = LCStorageWriter(tmp_path, parity=1)
    tmp_path.joinpath(".parity").write_text("not a directory")
    save(writer, 1)
    with pytest.warns(LccodecWarning, match="not protected"):
        writer.wait()
    assert check_together(tmp_path) == []
    with (
        mock.patch.object(module, "Alone", side_effect=RuntimeError("no connection")),
        pytest.warns(LccodecWarning, match="not protected: no connection"),
    ):
        save(writer, 2)
    with (
        mock.patch.object(module, "files_of", side_effect=lccodec.StorageError(5, "no disk", "x")),
        mock.patch.object(module, "protect_together", side_effect=RuntimeError("connection closed")),
    ):
        save(writer, 3)
        with pytest.warns(LccodecWarning, match="not protected: connection closed"):
            writer.wait()
    assert lccodec.Chain(tmp_path).steps == [0, 1, 2]


def test_a_save_is_not_protected_before_it_is_committed(tmp_path: Path) -> None:
    with lccodec.Chain(tmp_path / "rank-0") as chain:
        chain.save(0, {"w": 1})
    for is_committed in (False, True):
        parity = ParityOfRanks(Redundancy(files=1), None)
        parity.begin(Save(1, tmp_path, tmp_path / "records", written_by(tmp_path, 0, None)))
        assert not (tmp_path / ".parity").exists()
        parity.end(is_committed=is_committed)
        parity.end(is_committed=not is_committed)  # only the first counts
        if is_committed:
            with pytest.warns(LccodecWarning, match="records holds no checkpoint"):
                parity.wait()
        else:
            parity.wait()
        assert (tmp_path / ".parity").exists() == is_committed


def test_who_waits_gives_up_what_has_not_ended(tmp_path: Path) -> None:
    parity = ParityOfRanks(Redundancy(files=1), None)
    parity.begin(Save(None, tmp_path, tmp_path, Written("rank-0")))
    parity.wait()
    assert list(tmp_path.iterdir()) == []


def test_at_the_end_of_the_program_nobody_is_waited_for(tmp_path: Path) -> None:
    ended = threading.Thread()  # as the main thread is then
    with (
        tuned(link_look_seconds=0.01),
        mock.patch.object(threading, "main_thread", lambda: ended),
    ):
        assert not Save(1, tmp_path, tmp_path, Written("rank-0")).is_committed()


def test_a_save_that_fails_gets_no_parity(tmp_path: Path) -> None:
    writer = LCStorageWriter(tmp_path, parity=1)
    with pytest.raises(dcp.CheckpointException):
        dcp.save({"bad": object()}, storage_writer=writer, no_dist=True)
    writer.wait()
    assert not (tmp_path / ".parity").exists()


def test_a_writer_with_parity_can_be_sent_to_a_process(tmp_path: Path) -> None:
    writer = copy.deepcopy(LCStorageWriter(tmp_path, parity=2))
    save(writer, 1)
    writer.wait()
    assert len(list((tmp_path / ".parity").iterdir())) == 4


@pytest.mark.parametrize("parity", [0, 65, "5%", 1.5])
def test_what_is_no_number_of_ranks(tmp_path: Path, parity: object) -> None:
    with pytest.raises(ArgumentError, match=r"number of ranks|redundancy is"):
        LCStorageWriter(tmp_path, parity=parity)


def test_a_writer_without_parity_has_nothing_to_wait_for(tmp_path: Path) -> None:
    writer = LCStorageWriter(tmp_path)
    save(writer, 1)
    writer.wait()
    assert not (tmp_path / ".parity").exists()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()


def test_a_group_for_parity_alone(world: dist.ProcessGroup) -> None:
    group = group_of_all()
    assert group is group_of_all()
    assert group is not world
    peers = TorchPeers(group)
    assert (peers.rank, peers.size) == (0, 1)
    assert peers.gather({"a": [1]}) == [{"a": [1]}]
    for size in (0, 5000):
        piece = np.arange(size).astype(np.uint8)
        [found] = peers.exchange([piece], [size])
        assert found.tolist() == piece.tolist()


def test_a_group_that_is_not_of_all_who_save(world: dist.ProcessGroup) -> None:
    parity = ParityOfRanks(Redundancy(files=1), checked_group(world))
    with pytest.raises(ArgumentError, match="2 ranks save, and the process group has 1"):
        parity._peers(2)


def test_without_ranks_there_is_no_group() -> None:
    with pytest.raises(ArgumentError, match="not initialized"):
        group_of_all()


def test_a_group_must_talk_over_the_cpu() -> None:
    group = SimpleNamespace(_device_types=[torch.device("cuda")])
    with pytest.raises(ArgumentError, match="a backend for the CPU"):
        checked_group(group)
