"""From a state at hand to a checkpoint, and when a root is not enough to know a state."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from lccodec import ChainError, FormatError
from lccodec.chain.life.compact import rewrite
from lccodec.chain.read.checkpoint import open_step
from lccodec.chain.read.follower import is_state_of, open_since
from lccodec.chain.read.links import Link
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.reader import open_checkpoint

from ....support.walks import NAMES, chain_of, lossy_chain


def steps_since(directory: Path, base: Link, name: str) -> list[int | None] | None:
    with ExitStack() as opened:
        store = DirectoryStore(directory)
        links = open_since(store.open(name), base, store, opened)
        if links is None:
            return None
        assert links[0].parent is base
        return [link.manifest.step for link in links]


def link_of(directory: Path, step: int) -> Link:
    with open_step(DirectoryStore(directory), step) as file:
        return file.links[-1]


def test_only_what_lies_behind_is_opened(tmp_path: Path) -> None:
    chain_of(tmp_path, 7)  # keyframes at 0, 3, 6
    base = link_of(tmp_path, 3)
    (tmp_path / NAMES[3]).unlink()
    assert steps_since(tmp_path, base, NAMES[4]) == [4]
    assert steps_since(tmp_path, base, NAMES[5]) == [4, 5]
    (tmp_path / NAMES[4]).unlink()
    with pytest.raises(ChainError, match="its parent, step 4, is missing"):
        steps_since(tmp_path, base, NAMES[5])


def test_what_does_not_go_on_from_there(tmp_path: Path) -> None:
    chain_of(tmp_path, 7)
    assert steps_since(tmp_path, link_of(tmp_path, 1), NAMES[5]) is None  # behind a keyframe
    assert steps_since(tmp_path, link_of(tmp_path, 5), NAMES[4]) is None  # before it
    other = tmp_path / "other"
    chain_of(other, 4)[0].rollback(0)
    with open_checkpoint(other / NAMES[0]) as reader:
        same = Link(reader)
    assert steps_since(tmp_path, same, NAMES[1]) == [1]  # the same bytes, the same root
    base = link_of(tmp_path, 4)
    rewrite(DirectoryStore(tmp_path), 4, None)
    assert steps_since(tmp_path, base, NAMES[5]) == [5]  # it names the old root


@pytest.mark.parametrize("lossy", [False, True])
def test_a_rewritten_checkpoint_has_the_same_state_where_nothing_may_get_lost(
    tmp_path: Path, lossy: bool
) -> None:
    """After a lossy policy it may stand for a settled one, which had other values."""
    if lossy:
        lossy_chain(tmp_path)
        step, name = 10, "000000000010.lcc.h5"
    else:
        chain_of(tmp_path)
        step, name = 1, NAMES[1]
    with open_checkpoint(tmp_path / name) as before:
        rewrite(DirectoryStore(tmp_path), step, None)
        with open_checkpoint(tmp_path / name) as after:
            assert is_state_of(before, before)
            assert is_state_of(after, before) != lossy
            assert not is_state_of(before, after)


def test_a_step_that_is_its_own_parent_is_refused(tmp_path: Path) -> None:
    chain_of(tmp_path)
    base = link_of(tmp_path, 0)
    with open_checkpoint(tmp_path / NAMES[2]) as reader, ExitStack() as opened:
        object.__setattr__(reader.manifest, "step", 1)
        with pytest.raises(FormatError, match="LCC-CHN-02"):
            open_since(reader, base, DirectoryStore(tmp_path), opened)
