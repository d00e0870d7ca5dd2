"""A fork: what it begins with, that the old chain is not touched, and what is refused.

A chain in one file, and back: the same bytes, the same states, and what is refused.
"""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import Chain, validate
from lccodec.chain.life.transfer import fork, write_bundle
from lccodec.chain.read.checkpoint import open_path
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import EXACT_NAME, PAYLOAD_OFFSET
from lccodec.container.bundle import Bundle
from lccodec.errors import ArgumentError, ChainError, DataError, LccodecError, LccodecWarning, StorageError
from lccodec.policy.presets import POLICIES

from ...support.checkpoints import listing
from ...support.crashes import Replay, hold, power_losses
from ...support.directories import entries
from ...support.systems import Faulty
from ...support.walks import assert_restores, assert_same, chain_of, lossy_chain, save_all, walk

STATES = walk(8, shape=(6, 5))


@pytest.fixture(name="chain")
def _chain(tmp_path: Path) -> Chain:
    chain = Chain(tmp_path / "all" / "run", "lossless", keyframe_every=3, newest="exact")
    save_all(chain, STATES, range(7))
    return chain


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in entries(directory)}


def test_a_fork_goes_on_by_itself(chain: Chain, tmp_path: Path) -> None:
    before = content(chain.directory)
    assert chain.fork(tmp_path / "new" / "fork", 6) == [4, 5, 6]
    other = Chain(tmp_path / "new" / "fork")
    assert (other.steps, other.policy.name, other.newest) == ([4, 5, 6], "lossless", "exact")
    assert_same(other.restore(), STATES[6])
    other.save(7, STATES[0])
    assert_same(other.restore(), STATES[0])
    assert validate(other.directory, deep=True) == []
    assert content(chain.directory) == before
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
        before = content(target)
        with pytest.raises(ArgumentError, match=message):
            chain.fork(target, 5)
        assert content(target) == before
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
        fork(DirectoryStore(root / "run"), DirectoryStore(root / "fork", system), 6)

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def check(done: bool, place: Path) -> bool:
        if not (place / "fork").exists():
            return not done
        try:
            found = Chain(place / "fork")
            assert_restores(found, STATES, exact=False)
            if not done:
                fork(DirectoryStore(place / "run"), DirectoryStore(place / "fork"), 6)
            return (
                content(place / "run").keys() == content(root / "run").keys()
                and found.steps == [4, 5, 6]
                and len(content(place / "fork")) == 4
                and found.info().exact
            )
        except (LccodecError, AssertionError):
            return False

    hold(root, work, check, above=5)


def same_files(left: Path, right: Path) -> bool:
    return {p.name: p.read_bytes() for p in entries(left)} == {p.name: p.read_bytes() for p in entries(right)}


# --- there and back -------------------------------------------------------------------------------


@pytest.mark.parametrize("newest", ["exact", "history"])
def test_a_chain_comes_back_byte_for_byte(tmp_path: Path, newest: Any) -> None:
    chain = lossy_chain(tmp_path / "run", newest=newest)
    path = tmp_path / "run.lcc"
    size = lccodec.bundle(chain.directory, path)
    assert size == path.stat().st_size
    assert lccodec.validate(path, deep=True) == []
    assert lccodec.unbundle(path, tmp_path / "back") == chain.steps
    assert same_files(chain.directory, tmp_path / "back")
    (chain.directory / "notes.txt").write_text("not of the chain")
    lccodec.bundle(str(chain.directory), str(tmp_path / "again.lcc"))
    assert (tmp_path / "again.lcc").read_bytes() == path.read_bytes()
    assert listing(tmp_path) == ["again.lcc", "back", "run", "run.lcc"]


def test_some_steps_come_with_what_they_need(tmp_path: Path) -> None:
    chain = lossy_chain(tmp_path / "run", steps=7, newest="exact")
    assert [chain.info(step).parent for step in chain.steps] == [None, 0, 10, None, 30, 40, None]
    path = tmp_path / "part.lcc"
    lccodec.bundle(chain.directory, path, [50, 10])
    with Bundle(path) as bundle:
        assert bundle.steps == [0, 10, 30, 40, 50]
        assert bundle.index.exact is None
    lccodec.bundle(chain.directory, path, np.array([60]))
    with Bundle(path) as bundle:
        assert bundle.steps == [60]
        assert bundle.index.exact is not None
    assert lccodec.validate(path, deep=True) == []


def test_what_a_killed_bundle_left_is_removed(tmp_path: Path) -> None:
    chain, _ = chain_of(tmp_path / "run")
    (tmp_path / ".tmp-0123456789abcdef").write_bytes(b"half a bundle")
    lccodec.bundle(chain.directory, tmp_path / "run.lcc")
    assert listing(tmp_path) == ["run", "run.lcc"]


# --- what is refused ------------------------------------------------------------------------------


def test_a_chain_that_is_not_whole_makes_no_bundle(tmp_path: Path) -> None:
    chain, _ = chain_of(tmp_path / "run")
    path = tmp_path / "run.lcc"
    path.write_bytes(b"an older one")
    keyframe = chain.directory / "000000000000.lcc.h5"
    whole = keyframe.read_bytes()
    keyframe.unlink()
    with pytest.raises(ChainError, match=r"000000000001\.lcc\.h5: its parent, step 0, is missing"):
        lccodec.bundle(chain.directory, path)
    lccodec.save_file({"x": 1}, tmp_path / "other.lcc.h5")
    shutil.copy(tmp_path / "other.lcc.h5", keyframe)
    with pytest.raises(DataError, match="LCC-CHN-01"):
        lccodec.bundle(chain.directory, path)
    with Chain(tmp_path / "other") as other:
        other.save(0, {"x": 1})
    shutil.copy(other.directory / keyframe.name, keyframe)
    with pytest.raises(ChainError, match="is not the parent it was taken against"):
        lccodec.bundle(chain.directory, path)
    keyframe.write_bytes(whole[:-1])
    with pytest.raises(DataError, match="LCC-H5-01"):
        lccodec.bundle(chain.directory, path)
    lccodec.bundle(chain.directory, tmp_path / "part.lcc", [3])
    for steps, message in (
        ([9], "has no step 9"),
        ([], "at least one step"),
        (3, "iterable"),
        ("ab", "integer"),
    ):
        with pytest.raises(LccodecError, match=message):
            lccodec.bundle(chain.directory, path, steps)
    assert path.read_bytes() == b"an older one"
    assert listing(tmp_path) == ["other", "other.lcc.h5", "part.lcc", "run", "run.lcc"]


def test_nothing_to_bundle(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ChainError, match="holds no checkpoint"):
        lccodec.bundle(tmp_path / "empty", tmp_path / "run.lcc")
    with pytest.raises(ChainError, match="there is no such directory"):
        lccodec.bundle(tmp_path / "none", tmp_path / "run.lcc")
    chain, _ = chain_of(tmp_path / "run")
    with pytest.raises(ArgumentError, match="is a checkpoint of a chain"):
        lccodec.bundle(chain.directory, chain.directory / "000000000001.lcc.h5")


def test_an_exact_file_of_no_use_is_left_out_with_a_warning(tmp_path: Path) -> None:
    chain = lossy_chain(tmp_path / "run", steps=3, newest="exact")
    path, exact = tmp_path / "run.lcc", chain.directory / "exact.lcc.h5"
    whole = exact.read_bytes()
    for data in (whole[:-1], b"", (chain.directory / "000000000020.lcc.h5").read_bytes()):
        exact.write_bytes(data)
        with pytest.warns(LccodecWarning, match=r"exact\.lcc\.h5 is left out"):
            lccodec.bundle(chain.directory, path)
        with Bundle(path) as bundle:
            assert bundle.index.exact is None
    exact.write_bytes(whole)
    chain.save(30, walk(4)[3])
    exact.write_bytes(whole)  # a crash between the two commits
    with pytest.warns(LccodecWarning, match="not that of step 30"):
        lccodec.bundle(chain.directory, path)


def test_a_check_finds_what_is_wrong_with_the_files(tmp_path: Path) -> None:
    chain = lossy_chain(tmp_path / "run", steps=3, newest="exact")
    path = tmp_path / "run.lcc"
    lccodec.bundle(chain.directory, path)
    whole = path.read_bytes()
    with Bundle(path) as bundle:
        places = [offset + PAYLOAD_OFFSET + 65 for offset in bundle.index.offsets]
    for place, name in zip(places, ["000000000000", "000000000010", "000000000020", "exact"], strict=True):
        data = bytearray(whole)
        data[place] ^= 1
        path.write_bytes(data)
        found = lccodec.validate(path)
        own = [problem for problem in found if problem.rule != "chain"]
        assert {problem.rule for problem in own} == {"LCC-MAN-08"}
        assert all(f"{name}.lcc.h5" in problem.where for problem in own)
        step = None if name == "exact" else int(name)
        needing = [problem for problem in found if problem.rule == "chain"]
        assert all(problem.message.endswith(f"as it needs step {step}") for problem in needing)
        assert len(needing) == {0: 2, 10: 1}.get(step, 0)
    path.write_bytes(whole[:-1])
    assert [problem.rule for problem in lccodec.validate(path)] == ["LCC-BUN-01"]


# --- taking apart ---------------------------------------------------------------------------------


def test_a_directory_of_another_chain_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    chain = lossy_chain(tmp_path / "run", newest="exact")
    lccodec.bundle(chain.directory, tmp_path / "run.lcc")
    other = Chain(tmp_path / "other", newest="exact")
    other.save(0, {"x": 1})
    for name in ("000000000000.lcc.h5", "000000000077.lcc.h5", "exact.lcc.h5"):
        target = tmp_path / f"with-{name}"
        target.mkdir()
        shutil.copy(other.directory / "000000000000.lcc.h5", target / name)
        with pytest.raises(ArgumentError, match=f"{name} is not of this bundle"):
            lccodec.unbundle(tmp_path / "run.lcc", target)
        assert listing(target) == [name]
    (tmp_path / "file").write_bytes(b"")
    for path, directory in (("run.lcc", "file"), ("none.lcc", "new"), ("file", "new")):
        with pytest.raises(LccodecError):
            lccodec.unbundle(tmp_path / path, tmp_path / directory)
    assert not (tmp_path / "new").exists()


def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    chain = lossy_chain(tmp_path / "run", newest="exact")
    lccodec.bundle(chain.directory, tmp_path / "run.lcc")
    lccodec.unbundle(tmp_path / "run.lcc", tmp_path / "back")
    kept = tmp_path / "back" / "000000000010.lcc.h5"
    before = kept.stat().st_ino
    for name in ("000000000020.lcc.h5", "000000000040.lcc.h5", "exact.lcc.h5"):
        (tmp_path / "back" / name).unlink()
    lccodec.unbundle(tmp_path / "run.lcc", tmp_path / "back")
    assert same_files(chain.directory, tmp_path / "back")
    assert kept.stat().st_ino == before


def test_a_chain_goes_on_from_what_was_taken_apart(tmp_path: Path) -> None:
    chain = lossy_chain(tmp_path / "run")
    lccodec.bundle(chain.directory, tmp_path / "run.lcc")
    lccodec.unbundle(tmp_path / "run.lcc", tmp_path / "back")
    with Chain(tmp_path / "back") as back:
        back.save(50, walk(6)[5])
        assert back.info(50).parent == 40


# --- kill and power loss --------------------------------------------------------------------------


@pytest.mark.parametrize("older", [False, True])
def test_a_bundle_is_whole_or_as_before_after_a_power_loss(tmp_path: Path, older: bool) -> None:
    chain = lossy_chain(tmp_path / "run", steps=3, newest="exact")
    lccodec.bundle(chain.directory, tmp_path / "whole.lcc")
    whole = (tmp_path / "whole.lcc").read_bytes()
    if older:
        (tmp_path / "run.lcc").write_bytes(b"before")
    with Replay(tmp_path) as replay:
        assert write_bundle(DirectoryStore(chain.directory), tmp_path / "run.lcc") == len(whole)
    found = {state.get("run.lcc") for _, state in replay.states()}
    assert found == {b"before" if older else None, whole}
    assert {replay.after(kept).get("run.lcc") for kept in power_losses(replay.log)} == {whole}


@pytest.mark.slow
def test_many_steps(tmp_path: Path) -> None:
    """Links are checked in linear time, and one file is open however many steps there are."""
    chain = Chain(tmp_path / "run", "lossless", keyframe_every=400)
    for step in range(300):
        chain.save(step, {"w": np.full(3, step)})
    lccodec.bundle(chain.directory, tmp_path / "run.lcc")
    with open_path(tmp_path / "run.lcc") as file:
        assert file.state()["w"].tolist() == [299] * 3
        assert len(file.links) == 300
    assert lccodec.validate(tmp_path / "run.lcc", deep=True) == []


def test_a_chain_that_was_written_anew(tmp_path: Path) -> None:
    """Children and the exact file may name a checkpoint by the root it had before."""
    chain = lossy_chain(tmp_path / "run", steps=6, newest="exact")
    expected = [chain.restore(step, exact=False) for step in (40, 50)]
    chain.prune(lccodec.Keep(steps=[40, 50]), rewrite=True)
    assert chain.info(40).replaces
    path = tmp_path / "run.lcc"
    lccodec.bundle(chain.directory, path)
    assert lccodec.validate(path, deep=True) == []
    for step, state in zip((40, 50), expected, strict=True):
        with open_path(path, step=step, exact=False) as file:
            assert_same(file.state(), state)
    with open_path(path) as file:
        assert file.info().exact
        assert_same(file.state(), chain.restore())
    assert lccodec.unbundle(path, tmp_path / "back") == [40, 50]
    assert same_files(chain.directory, tmp_path / "back")
