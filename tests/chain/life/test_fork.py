"""A fork: what it begins with, that the old chain is not touched, and what is refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lccodec import ArgumentError, Chain, ChainError, StorageError, validate
from lccodec.chain.life.fork import fork
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import EXACT_NAME
from lccodec.policy.presets import POLICIES

from ...support.crashes import hold
from ...support.directories import entries
from ...support.mirrors import chain_files
from ...support.systems import Faulty
from ...support.walks import assert_restores, assert_same, is_so, save_all, walk

STATES = walk(8, shape=(6, 5))


@pytest.fixture(name="chain")
def _chain(tmp_path: Path) -> Chain:
    chain = Chain(tmp_path / "all" / "run", "lossless", keyframe_every=3, newest="exact")
    save_all(chain, STATES, range(7))
    return chain


def test_a_fork_goes_on_by_itself(chain: Chain, tmp_path: Path) -> None:
    before = chain_files(chain.directory)
    assert chain.fork(tmp_path / "new" / "fork", 6) == [4, 5, 6]
    other = Chain(tmp_path / "new" / "fork")
    assert (other.steps, other.policy.name, other.newest) == ([4, 5, 6], "lossless", "exact")
    assert_same(other.restore(), STATES[6])
    other.save(7, STATES[0])
    assert_same(other.restore(), STATES[0])
    assert validate(other.directory, deep=True) == []
    assert chain_files(chain.directory) == before
    chain.save(7, STATES[7])
    assert_same(other.restore(), STATES[0])
    assert (other.directory / "000000000004.lcc.h5").samefile(chain.directory / "000000000004.lcc.h5")


def test_of_an_older_step(chain: Chain, tmp_path: Path) -> None:
    (tmp_path / "fork").mkdir()
    assert chain.fork(str(tmp_path / "fork"), 2) == [0, 1, 2]
    assert not (tmp_path / "fork" / EXACT_NAME).exists()
    assert_same(Chain(tmp_path / "fork").restore(), STATES[2])


def test_without_hard_links_files_are_copied(chain: Chain, tmp_path: Path) -> None:
    system = Faulty(errno.EPERM, lambda name, _: name == "link")
    assert fork(DirectoryStore(chain.directory), DirectoryStore(tmp_path / "fork", system), 6) == [4, 5, 6]
    for path in entries(tmp_path / "fork"):
        assert path.read_bytes() == (chain.directory / path.name).read_bytes()
        assert not path.samefile(chain.directory / path.name)


def test_onto_something(chain: Chain, tmp_path: Path) -> None:
    chain.fork(tmp_path / "fork", 2)
    assert chain.fork(tmp_path / "fork", 2) == [0, 1, 2]  # the same once more
    for target, message in ((tmp_path / "fork", "holds a chain"), (chain.directory, "the chain itself")):
        before = chain_files(target)
        with pytest.raises(ArgumentError, match=message):
            chain.fork(target, 5)
        assert chain_files(target) == before
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    with pytest.raises(ArgumentError, match=r"holds 'a\.txt'"):
        chain.fork(tmp_path / "notes", 2)
    with pytest.raises(StorageError):
        chain.fork(tmp_path / "notes" / "a.txt", 2)


def test_onto_itself(tmp_path: Path) -> None:
    """The steps behind an interpolated one must stay, though the fork does not need them."""
    with Chain(tmp_path / "run", POLICIES["balanced"], newest="history") as made:
        save_all(made, STATES, range(3))
        made.compact(directory=tmp_path / "chain", hindsight=2)
    with Chain(tmp_path / "chain") as chain:
        assert chain.fork(tmp_path / "fork", 1) == [0, 1]
        (tmp_path / "second").symlink_to("chain")
        for same in (tmp_path / "chain", tmp_path / "second"):
            with pytest.raises(ArgumentError, match="holds the chain itself"):
                chain.fork(same, 1)
        assert chain.steps == [0, 1, 2]


def test_of_a_step_that_is_not_there_or_broken(chain: Chain, tmp_path: Path) -> None:
    with pytest.raises(ChainError, match="no step 9"):
        chain.fork(tmp_path / "fork", 9)
    (chain.directory / "000000000001.lcc.h5").unlink()
    with pytest.raises(ChainError, match="its parent, step 1"):
        chain.fork(tmp_path / "fork", 2)
    assert not (tmp_path / "fork").exists()


@pytest.mark.parametrize("links", [True, False])
def test_no_crash_leaves_more_than_a_part(chain: Chain, links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the new chain every step can be restored, and forking again finishes it."""
    root = chain.directory.parent

    def work(system: object) -> None:
        if not links:
            monkeypatch.setattr(system, "link", refuse)
        fork(DirectoryStore(root / "run"), DirectoryStore(root / "fork", system), 6)  # type: ignore[arg-type]

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def check(done: bool, place: Path) -> bool:
        if not (place / "fork").exists():
            return not done
        found = Chain(place / "fork")

        def finish() -> None:
            assert_restores(found, STATES, exact=False)
            if not done:
                fork(DirectoryStore(place / "run"), DirectoryStore(place / "fork"), 6)
            assert chain_files(place / "run").keys() == chain_files(root / "run").keys()
            assert found.steps == [4, 5, 6]
            assert len(chain_files(place / "fork")) == 4
            assert found.info().exact

        return is_so(finish)

    hold(root, work, check, above=5)
