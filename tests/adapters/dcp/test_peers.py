"""The ranks of a process group, of which there is one here: what is sent is what comes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist

from lccodec.adapters.dcp.behind import ParityOfRanks
from lccodec.adapters.dcp.peers import TorchPeers, checked_group, group_of_all
from lccodec.chain.mend.protect import Redundancy
from lccodec.errors import ArgumentError


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
        checked_group(group)  # type: ignore[arg-type]
