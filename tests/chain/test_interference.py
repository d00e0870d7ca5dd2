"""Rollbacks beside saves of the same process, of its fork, and where the lock was removed by hand.

What was reported as saved can be restored, or was rolled back after it was there.
"""

import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lccodec import Chain, ChainError, Keep, LccodecWarning, validate
from lccodec.chain.life.prune import prune
from lccodec.chain.life.rollback import rollback
from lccodec.chain.save import background
from lccodec.chain.store.claim import Claim
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import WRITER_NAME
from lccodec.container.folder import Folder, WholeFile
from lccodec.container.system import StrPath, System

from ..support.profiles import LONG
from ..support.tuning import tune
from ..support.walks import assert_restores, assert_same, save_all, walk

STATES = walk(9)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, claim_seconds_to_wait=0.05)


@pytest.fixture(name="chain", params=["save", "save_async"])
def _chain(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Chain, Callable[[int], Any]]]:
    """A chain of five steps, and what saves the next, here or in a thread."""
    monkeypatch.setattr(background, "find_obstacle", lambda _: "a thread is here, where tests interfere")
    monkeypatch.setattr(background, "has_lock", lambda: False)  # which would warn of that
    with Chain(tmp_path / "run", "lossless") as chain:
        for step in range(5):
            chain.save(step, STATES[step])

        def save(step: int) -> Any:
            if request.param == "save":
                return chain.save(step, STATES[step])
            size = chain.save_async(step, STATES[step]).result()
            chain.wait()
            return size

        yield chain, save


def between_encoding_and_commit(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], object]) -> list[int]:
    """Do something when a checkpoint is written and not committed: another thing each time."""
    real, left, done = WholeFile.commit, list(acts), list[int]()

    def commit(file: WholeFile, check: Any = None) -> None:
        if left and file.path.name.startswith("000"):
            left.pop(0)()
            done.append(1)
        real(file, check)

    monkeypatch.setattr(WholeFile, "commit", commit)
    return done


def taken_away(directory: Path, step: int) -> None:
    """Roll back as a process does that finds no lock: somebody has removed the file."""
    (directory / WRITER_NAME).unlink(missing_ok=True)
    rollback(DirectoryStore(directory), step)


@pytest.mark.parametrize("step", [0, 3])
def test_a_delta_whose_parent_is_gone_is_not_committed(
    chain: tuple[Chain, Callable[[int], Any]], monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    chain_, save = chain
    done = between_encoding_and_commit(monkeypatch, lambda: taken_away(chain_.directory, step))
    with pytest.warns(LccodecWarning, match="the save was started again: step 4 was taken away meanwhile"):
        save(5)
    assert len(done) == 1
    assert chain_.steps == [*range(step + 1), 5]
    assert chain_.info(5).parent == step
    assert_same(chain_.restore(5), STATES[5])
    assert validate(chain_.directory, deep=True) == []
    save(6)
    assert_same(chain_.restore(), STATES[6])
    assert not list(chain_.directory.glob(".tmp-0*"))


def test_where_nothing_is_left_it_is_a_keyframe(
    chain: tuple[Chain, Callable[[int], Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    chain_, save = chain

    def remove_all() -> None:
        for path in chain_.directory.glob("*.lcc.h5"):
            path.unlink()

    between_encoding_and_commit(monkeypatch, remove_all)
    with pytest.warns(LccodecWarning, match="the save was started again: step 4 was taken away meanwhile"):
        save(5)
    assert (chain_.steps, chain_.info(5).parent) == ([5], None)
    assert_same(chain_.restore(), STATES[5])


def test_a_second_time_it_is_refused(
    chain: tuple[Chain, Callable[[int], Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    chain_, save = chain
    acts = [lambda step=step: taken_away(chain_.directory, step) for step in (3, 2)]
    between_encoding_and_commit(monkeypatch, *acts)
    with pytest.warns(LccodecWarning, match="started again"):
        with pytest.raises(ChainError, match="step 3 was taken"):
            save(5)
        with suppress(ChainError):  # of a save in the background, once more
            chain_.wait()
        chain_.wait()  # which gives its warnings
    assert chain_.steps == [0, 1, 2]
    save(5)
    assert_same(chain_.restore(), STATES[5])
    assert validate(chain_.directory, deep=True) == []


def test_what_was_written_anew_with_the_same_state_is_as_good(
    chain: tuple[Chain, Callable[[int], Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prune may run beside a save: the delta that was coded is committed."""
    chain_, save = chain
    between_encoding_and_commit(
        monkeypatch, lambda: prune(DirectoryStore(chain_.directory), Keep(latest=1), rewrite=True)
    )
    save(5)
    assert (chain_.steps, chain_.info(5).parent) == ([4, 5], 4)
    assert_same(chain_.restore(), STATES[5])
    assert validate(chain_.directory, deep=True) == []


def test_a_save_waits_for_who_removes_but_not_for_ever(
    chain: tuple[Chain, Callable[[int], Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    chain_, save = chain
    tune(monkeypatch, reference_seconds_to_wait=0.05)
    with DirectoryStore(chain_.directory).locked():
        save(5)
    assert_same(chain_.restore(), STATES[5])


def test_while_a_delta_gets_its_name_nobody_removes(
    chain: tuple[Chain, Callable[[int], Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    chain_, save = chain
    real, free = System.link, []

    def link(source: StrPath, target: StrPath) -> None:
        with Folder(chain_.directory) as folder:
            free.append(folder.lock(wait=False))
        real(source, target)

    monkeypatch.setattr(System, "link", staticmethod(link))
    save(5)
    assert free[0] is (sys.platform == "win32")


# --- at random ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="locks and forks of POSIX")
@pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")  # of jax, where a test loaded it
@pytest.mark.parametrize("who", ["another chain", "a fork", "nobody has a lock"])
def test_rollbacks_at_random_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    generator = random.Random(0)
    tries, refused = 200 if LONG else 6, 0
    if who == "nobody has a lock":
        monkeypatch.setattr(Claim, "take", lambda *_, **__: None)
    states = walk(4, shape=(300, 400))
    for number in range(tries):
        directory = tmp_path / f"run-{number}"
        with Chain(directory, "lossless") as chain:
            save_all(chain, states, range(3))
            future = chain.save_async(3, states[3])
            time.sleep(generator.uniform(0, 0.3 if number % 2 else 0.03))
            if who == "a fork":
                pid = os.fork()
                if pid == 0:
                    try:
                        chain.rollback(1)
                    except ChainError:
                        os._exit(1)
                    os._exit(0)
                refused += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            else:
                try:
                    Chain(directory).rollback(1)
                except ChainError:
                    refused += 1
            future.result()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LccodecWarning)  # it may have begun anew
                chain.wait()
        assert_restores(Chain(directory), states)
        assert validate(directory, deep=True) == []
    if who == "a fork":
        assert refused == tries
