"""Checkpoints rewritten: the same state, other parents, and all that named the old file."""

from __future__ import annotations

import errno
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import Chain, ChainError, DataError, StorageError, validate
from lccodec.chain.life import rewrite_step as module
from lccodec.chain.life.rewrite_step import rewrite
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.reader import open_checkpoint
from lccodec.container.writer import CheckpointWriter

from ...support.chains import HistoryChain
from ...support.crashes import hold
from ...support.mirrors import chain_files
from ...support.systems import Faulty
from ...support.walks import assert_same, is_so, walk

STATES = walk(6, shape=(20, 30))
NAME = "{:012d}.lcc.h5"


@pytest.fixture(name="chain")
def _chain(tmp_path: Path) -> Chain:
    chain = HistoryChain(tmp_path / "run", "lc-3", newest="exact")
    for step in range(5):
        chain.save(step, STATES[step], {"loss": step})
    return chain


def history(chain: Chain) -> list[Any]:
    return [chain.restore(step, exact=False, dtype="bits") for step in chain.steps]


@pytest.mark.parametrize(
    ("step", "parent"), [(3, None), (3, 1), (2, 0), (4, None), (4, 0), (0, None), (1, 0)]
)
def test_the_state_and_all_that_names_it_stay(chain: Chain, step: int, parent: int | None) -> None:
    before, info = history(chain), chain.info(step)
    others = chain_files(chain.directory)
    del others[NAME.format(step)]
    done = rewrite(DirectoryStore(chain.directory), step, parent)
    assert done is not None
    new = chain.info(step)
    assert (done.step, done.parent) == (step, parent)
    assert (done.before, done.after) == (info.file_bytes, new.file_bytes)
    assert (new.parent, new.replaces) == (parent, (info.root,))
    assert (new.metadata, new.policy) == (info.metadata, info.policy)
    now, was = ([(a.name, a.role, a.quantizer) for a in each.arrays] for each in (new, info))
    assert now == was
    assert_same(history(chain), before)
    assert validate(chain.directory, deep=True) == []
    assert chain_files(chain.directory).items() >= others.items()
    assert chain.info(4).exact
    assert_same(HistoryChain(chain.directory).restore(), STATES[4])
    HistoryChain(chain.directory).save(5, STATES[5])
    assert chain.info(5).parent == 4


def test_again_and_again(chain: Chain) -> None:
    before = history(chain)
    roots = []
    for parent in (None, 0, 1, None):
        roots.append(chain.info(2).root)
        rewrite(DirectoryStore(chain.directory), 2, parent)
    assert chain.info(2).replaces == tuple(roots)
    assert_same(history(chain), before)
    assert validate(chain.directory, deep=True) == []


def test_what_is_lossy_stays_known_as_lossy(chain: Chain) -> None:
    lossy = [array.name for array in chain.info(3).arrays if array.lossy]
    rewrite(DirectoryStore(chain.directory), 3, None)
    assert [array.name for array in chain.info(3).arrays if array.lossy] == lossy != []


def test_a_delta_of_another_process_meanwhile(chain: Chain) -> None:
    """A writer that had looked at its parent before goes on: the new file takes its place."""
    delta = HistoryChain(shutil.copytree(chain.directory, chain.directory.parent / "copy"))
    delta.save(5, STATES[5])
    rewrite(DirectoryStore(chain.directory), 4, None)
    shutil.copy(delta.directory / NAME.format(5), chain.directory)
    assert_same(chain.restore(5, exact=False), delta.restore(5, exact=False))


def test_an_open_chain_goes_on(chain: Chain) -> None:
    rewrite(DirectoryStore(chain.directory), 4, None)
    chain.save(5, STATES[5])
    assert chain.info(5).parent == 4
    assert validate(chain.directory, deep=True) == []


def test_another_file_in_its_place_is_still_noticed(chain: Chain) -> None:
    other = HistoryChain(chain.directory.parent / "other", "lc-3")
    for step in range(4):
        other.save(step, STATES[5 - step])
    rewrite(DirectoryStore(other.directory), 3, None)
    shutil.copy(other.directory / NAME.format(3), chain.directory)
    with pytest.raises(ChainError, match="is not the parent it was taken against"):
        chain.restore(4, exact=False)


def test_a_state_that_is_a_liar_is_found(chain: Chain) -> None:
    """A file that claims to replace another one, with other values."""
    path = chain.directory / NAME.format(0)
    with open_checkpoint(path) as reader:
        root = reader.root
    liar = HistoryChain(chain.directory.parent / "liar", "lc-3")
    liar.save(0, {**STATES[0], "layer": {**STATES[0]["layer"], "weight": np.zeros((20, 30), "f4")}})
    with open_checkpoint(liar.directory / NAME.format(0)) as reader:
        frames = [reader.frame(number) for number in range(len(reader.manifest.frames))]
        manifest = reader.manifest
    with CheckpointWriter(path, overwrite=True) as writer:
        entries = tuple(map(writer.write_frame, frames))
        writer.commit(replace(manifest, frames=entries, replaces=(root,)))
    with pytest.raises(DataError, match="LCC-FRM-09"):
        chain.restore(1)
    assert validate(chain.directory, deep=True)


@pytest.mark.parametrize("parent", [None, 0])
def test_dry_runs_say_the_bytes(chain: Chain, parent: int | None) -> None:
    told = rewrite(DirectoryStore(chain.directory), 3, parent, dry_run=True)
    assert chain.info(3).replaces == ()
    assert rewrite(DirectoryStore(chain.directory), 3, parent) == told


def test_only_if_it_gets_smaller(chain: Chain) -> None:
    before = chain_files(chain.directory)
    for dry_run in (True, False):
        assert rewrite(DirectoryStore(chain.directory), 3, None, smaller=True, dry_run=dry_run) is None
    assert chain_files(chain.directory) == before
    rewrite(DirectoryStore(chain.directory), 3, None)
    found = rewrite(DirectoryStore(chain.directory), 3, 2, smaller=True)
    assert found is not None
    assert found.after < found.before


def test_errors_leave_the_old_file(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    before = chain_files(chain.directory)
    with pytest.raises(StorageError):
        rewrite(DirectoryStore(chain.directory), 9, None)
    with pytest.raises(DataError, match="LCC-CHN-02"):
        rewrite(DirectoryStore(chain.directory), 3, 4)
    full = Faulty(errno.ENOSPC, lambda name, _: name == "write")
    with pytest.raises(StorageError, match="No space"):
        rewrite(DirectoryStore(chain.directory, full), 3, None)
    monkeypatch.setattr(module, "_is_equal", lambda *_: False)
    with pytest.raises(ChainError, match="has another state, so the old file stays"):
        rewrite(DirectoryStore(chain.directory), 3, None)
    assert chain_files(chain.directory) == before


@pytest.mark.slow
@pytest.mark.parametrize("ignore", ["", "sync"])
def test_no_crash_changes_a_state(chain: Chain, ignore: str) -> None:
    expected = history(chain)

    def check(_: bool, place: Path) -> bool:
        found = HistoryChain(place)
        return is_so(lambda: assert_same([*history(found), found.restore()], [*expected, STATES[4]]))

    def work(system: Any) -> None:
        rewrite(DirectoryStore(chain.directory, system), 2, None)
        rewrite(DirectoryStore(chain.directory, system), 4, 1)

    hold(chain.directory, work, check, ignore, above=6)
