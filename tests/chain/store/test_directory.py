"""A directory as a store, and the chains in the folders of a directory.

The names of what rollbacks set aside; what lies under them is tested with rollbacks.
"""

import errno
import os
from pathlib import Path

import pytest

from lccodec.chain.store.directory import (
    DirectoryStore,
    chains_in,
    in_chain,
    readable_chains_in,
)
from lccodec.chain.store.store import in_order, next_name, parse_name
from lccodec.errors import StorageError

from ...support.paths import checkpoint_path


def test_files_of_a_directory(tmp_path: Path) -> None:
    names = ["000000000012.lcc.h5", "000000000003.lcc.h5", "notes.txt", "000000000003.pin"]
    for name in names:
        (tmp_path / name).write_bytes(b"seven b")
    store = DirectoryStore(tmp_path)
    assert list(store.checkpoints().items()) == [(3, names[1]), (12, names[0])]
    assert sorted(store.names()) == sorted(names)
    assert store.pins() == [3]
    assert store.size(names) == 28
    assert in_chain(tmp_path / "000000000099.lcc.h5")
    assert not in_chain(tmp_path / "notes.txt")
    assert not in_chain(tmp_path / "none" / "000000000003.lcc.h5")
    with pytest.raises(StorageError, match="cannot look at"):
        store.size(["none"])


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "none" / "run")
    assert (store.names(), store.steps(), store.pins(), store.exact_step()) == ([], {}, [], None)
    assert store.nothing().endswith("run holds no checkpoint: there is no such directory")
    store.remove_stale()
    store.make()
    assert store.path.is_dir()
    (tmp_path / "link").symlink_to("gone")
    with pytest.raises(StorageError, match="cannot list"):
        DirectoryStore(tmp_path / "link").names()


def test_files_come_and_go(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    with store.locked() as held:
        held.add("000000000001.pin")
        held.add("000000000001.pin")
        with store.locked_if_free() as other:
            assert other is None
    assert store.pins() == [1]
    with store.locked_if_free() as held_too:
        assert held_too is not None
        held_too.remove(["000000000001.pin", "gone"])
    assert store.pins() == []


def test_a_checkpoint_alone_is_in_no_chain(tmp_path: Path) -> None:
    assert not in_chain(checkpoint_path(tmp_path, 3))
    checkpoint_path(tmp_path, 1).touch()
    assert in_chain(checkpoint_path(tmp_path, 3))
    assert not in_chain(tmp_path / "model.lcc.h5")


def test_a_directory_that_cannot_be_listed_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(3):
        (tmp_path / f"rank-{rank}").mkdir()
        checkpoint_path(tmp_path / f"rank-{rank}", 0).touch()
    (tmp_path / ".rolled-back").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "rank-2")
    (tmp_path / "notes.txt").touch()
    assert [path.name for path in chains_in(tmp_path)] == ["rank-0", "rank-1", "rank-2"]
    listdir = os.listdir

    def refuse(path: Path) -> list[str]:
        if path.name == "rank-1":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listdir(path)

    monkeypatch.setattr("os.listdir", refuse)
    assert [path.name for path in readable_chains_in(tmp_path)] == ["rank-0", "rank-2"]
    told = DirectoryStore(tmp_path).nothing()
    assert told.endswith("holds no checkpoint, but these chains: rank-0, rank-2")
    with pytest.raises(StorageError, match=r"cannot list.*rank-1"):
        chains_in(tmp_path)
    with pytest.raises(StorageError, match="cannot list"):
        chains_in(tmp_path / "missing")
    assert readable_chains_in(tmp_path / "missing") == []


def test_names_have_a_number_and_a_step() -> None:
    assert parse_name("0001-to-20") == (1, 20)
    assert parse_name("12345-to-0") == (12345, 0)
    assert [parse_name(name) for name in ("001-to-20", "0001-to-", "x0001-to-2", "0001-to-2.tmp")] == [
        None
    ] * 4


def test_a_further_name_comes_after_all_others() -> None:
    assert next_name([], 7) == "0001-to-7"
    assert next_name(["0002-to-5", "0010-to-5", "other"], 7) == "0011-to-7"
    assert in_order(["0010-to-5", "other", "0002-to-9", "0003-to-1"]) == [
        *(("0002-to-9", 9), ("0003-to-1", 1), ("0010-to-5", 5)),
    ]
