"""Parity behind the saves: all of them are protected in the end, and none waits or fails."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from lccodec import ArgumentError, Chain, LccodecWarning
from lccodec.chain.behind import Change
from lccodec.chain.mend import protect as behind
from lccodec.chain.mend.protect import ParityBehind, Redundancy
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore

from ...support.damage import files_in
from ...support.segments import STATES


@pytest.mark.parametrize("parity", [1, "50%"])
def test_saves_are_protected_when_the_chain_is_closed(tmp_path: Path, parity: Any) -> None:
    with Chain(tmp_path, "lossless", newest="exact", parity=parity) as chain:
        for step, state in enumerate(STATES):
            chain.save(step, state)
    files = files_in(tmp_path)
    (tmp_path / "000000000003.lcc.h5").unlink()
    found = repair(DirectoryStore(tmp_path))
    assert (found.mended, found.protected) == (("000000000003.lcc.h5",), 11)
    assert files_in(tmp_path) == files


@pytest.mark.slow
def test_saves_in_the_background(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless", newest="history", parity=1) as chain:
        chain.save_async(0, STATES[0]).result()
        chain.save_async(1, STATES[1]).result()
    assert repair(DirectoryStore(tmp_path), dry_run=True).protected == 2


def test_no_save_waits_and_calls_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, begun, go_on = [], threading.Event(), threading.Event()

    def slow(*arguments: Any) -> None:
        calls.append(arguments)
        begun.set()
        go_on.wait(60)

    monkeypatch.setattr(behind, "protect", slow)
    protect = ParityBehind(DirectoryStore(tmp_path), Redundancy(files=1))
    protect.after(Change())
    assert begun.wait(60)
    for _ in range(9):
        protect.after(Change())
    go_on.set()
    protect.close()
    assert len(calls) == 2


FORK = """
import os, sys, threading
import numpy as np
from lccodec import Chain

chain = Chain(sys.argv[1], "lossless", newest="history", parity=1)
chain.save(0, {"w": np.zeros(9)})
is_held, may_end, is_closed = threading.Event(), threading.Event(), os.pipe()

def hold():
    is_held.set()
    may_end.wait()

chain._parity._rounds.line.add(hold)
is_held.wait()
process = os.fork()
if process == 0:
    os.close(is_closed[1])
    os.read(is_closed[0], 1)
    chain.save(1, {"w": np.ones(9)})
    chain.close()
    os._exit(7)
may_end.set()
chain.close()
os.close(is_closed[1])
assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="forks of POSIX")
def test_a_fork_has_not_the_thread(tmp_path: Path) -> None:
    """It protects what it saves itself, whatever a thread of its parent does at that moment."""
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path)]
    subprocess.run(command, timeout=120, check=True)
    assert repair(DirectoryStore(tmp_path), dry_run=True).protected == 2


def test_an_error_is_a_warning_of_the_next_call(tmp_path: Path) -> None:
    protect = ParityBehind(DirectoryStore(tmp_path / "none"), Redundancy(files=1))
    protect.after(Change())
    with pytest.warns(LccodecWarning, match="saves are not protected: .* holds no checkpoint"):
        protect.close()


def test_without_parity_nothing_is_done(tmp_path: Path) -> None:
    protect = ParityBehind(DirectoryStore(tmp_path), None)
    protect.after(Change())
    protect.close()
    with pytest.raises(ArgumentError, match="a redundancy is"):
        Chain(tmp_path, parity=0)


def test_parity_that_went_is_made_again_whatever_goes_after_it(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    with Chain(tmp_path, "lossless", newest="history") as chain:
        chain.save(0, STATES[0])
    protect = ParityBehind(store, None)
    held, go_on = threading.Event(), threading.Event()
    protect._rounds.line.add(lambda: (held.set(), go_on.wait(60)))
    assert held.wait(60)
    for redundancy in (Redundancy(files=1), None):
        protect.went(redundancy)
        protect.after(Change())
    go_on.set()
    protect.close()
    assert repair(store, dry_run=True).protected == 1
