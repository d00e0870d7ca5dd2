"""What a worker does with each message; here it is a thread, so that the tests see inside."""

import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import ArgumentError, Chain, WorkerError
from lccodec.chain.save.background import (
    ERRORS,
    TYPES,
    GivesBackAnswer,
    GivesBackQuestion,
    Heartbeat,
    Leader,
    Opening,
    Report,
    Snapshot,
    Staging,
    make_crew,
    serve,
)
from lccodec.chain.save.encode import CloseFrame
from lccodec.chain.save.settings import Cadence
from lccodec.container.tree import flatten
from lccodec.policy.roles import Assignment
from lccodec.workers.crew import Done, Processes, Request, Threads
from lccodec.workers.process import Arena, Channel

from ...support.damage import files_in, flip
from ...support.walks import assert_same, walk

STATES = walk(4)


@pytest.fixture
def channel() -> Iterator[Channel]:
    ours, theirs = socket.socketpair()
    level = logging.getLogger("lccodec").level
    thread = threading.Thread(target=serve, args=(Channel(theirs, TYPES, ERRORS),))
    thread.start()
    channel = Channel(ours, TYPES, ERRORS)
    yield channel
    channel.close()
    thread.join(60)
    assert not thread.is_alive()
    log = logging.getLogger("lccodec")
    log.propagate = True
    log.setLevel(level)


def opening(directory: Path, members: int = 1, **options: Any) -> Opening:
    given = {"policy": "lossless", "roles": None, "newest": "history", "every": Cadence(keyframe=32)}
    return Opening(str(directory), members=members, worker_timeout=60.0, **{**given, **options})


def snapshot(step: int, state: Any, resumed: bool = False) -> Snapshot:
    known = {"layer/weight": Assignment("weight", "as the test says")}
    flat = flatten(state)
    return Staging(Arena()).snapshot(flat, step=step, metadata={"n": str(step)}, known=known, resumed=resumed)


def asked(channel: Channel, message: Snapshot, doubts: list[str] | None = None) -> Report:
    """What a leader reports; a checkpoint that it asks about comes back if `doubts` are given."""
    channel.send(message)
    while isinstance(report := channel.receive(), Heartbeat | GivesBackQuestion):
        if isinstance(report, GivesBackQuestion):
            channel.send(GivesBackAnswer(report.number, doubts is not None))
            if doubts is not None:
                doubts.append(report.name)
    found: Report = report
    return found


def test_a_leader_saves(channel: Channel, tmp_path: Path) -> None:
    channel.send(opening(tmp_path))
    for step in range(3):
        report = asked(channel, snapshot(step, STATES[step]))
        assert report.done.value() == (tmp_path / f"{step:012}.lcc.h5").stat().st_size
        ((level, text),) = report.records
        assert level == logging.INFO
        assert f"step {step}, " in text
    chain = Chain(tmp_path)
    assert_same(chain.restore(1), STATES[1])
    assert chain.info(2).metadata == {"n": "2"}


def test_errors_and_warnings_come_back(channel: Channel, tmp_path: Path) -> None:
    Chain(tmp_path).save(0, STATES[0])
    path = tmp_path / "000000000000.lcc.h5"
    path.write_bytes(path.read_bytes()[:-40])
    channel.send(opening(tmp_path))
    report = asked(channel, snapshot(0, STATES[0]))
    with pytest.raises(ArgumentError, match="exists already"):
        report.done.value()
    report = asked(channel, snapshot(1, STATES[1]))
    assert "step 0 was written anew from the exact file" in report.warnings[0]
    assert report.done.error is None


def test_what_gives_back_stays_as_it_is(channel: Channel, tmp_path: Path) -> None:
    Chain(tmp_path).save(0, STATES[0])
    path, doubts = tmp_path / "000000000000.lcc.h5", list[str]()
    flip(path)
    before = path.read_bytes()
    channel.send(opening(tmp_path))
    report = asked(channel, snapshot(1, STATES[1]), doubts)
    assert doubts == [path.name]
    assert "writes a keyframe instead" in report.warnings[0]
    assert path.read_bytes() == before


def test_a_client_that_is_gone_while_it_is_asked(tmp_path: Path) -> None:
    Chain(tmp_path).save(0, STATES[0])
    flip(tmp_path / "000000000000.lcc.h5")
    files = files_in(tmp_path)
    ours, theirs = socket.socketpair()
    client = Channel(ours, TYPES, ERRORS)
    thread = threading.Thread(target=serve, args=(Channel(theirs, TYPES, ERRORS),))
    thread.start()
    client.send(opening(tmp_path))
    client.send(snapshot(1, STATES[1]))
    while not isinstance(client.receive(), GivesBackQuestion):
        pass
    client.close()
    thread.join(60)
    assert not thread.is_alive()
    assert files_in(tmp_path) == files


def test_a_lossy_state_that_was_restored(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    leader = Leader(Channel(theirs, TYPES), opening(tmp_path, policy="balanced"))
    leader.answer(snapshot(0, STATES[0], resumed=True))
    assert leader._settings.for_workers()["resumed"]
    leader.close()
    ours.close()
    theirs.close()


def test_a_client_that_is_gone(tmp_path: Path) -> None:
    """What was begun is given up, and nothing is left of it."""
    ours, theirs = socket.socketpair()
    client = Channel(ours, TYPES, ERRORS)
    client.send(opening(tmp_path))
    client.send(snapshot(0, {"weight": np.zeros(3_000_000)}))
    client.close()
    serve(Channel(theirs, TYPES, ERRORS))
    assert [*tmp_path.iterdir()] == []


def test_tasks_are_done_and_their_errors_sent(channel: Channel) -> None:
    channel.send(Request(7, CloseFrame()))
    done = channel.receive()
    assert isinstance(done, Done)
    assert done.number == 7
    with pytest.raises(WorkerError, match="KeyError: 'frame'"):
        done.value()


def test_crews() -> None:
    alone = make_crew(1, lambda: None, 60)
    assert isinstance(alone, Threads)
    together = make_crew(2, lambda: None, 60)
    assert isinstance(together, Processes)
    assert together.members == 2
    assert together.empty(3, np.dtype(np.int8)).size == 3
    together.close()
