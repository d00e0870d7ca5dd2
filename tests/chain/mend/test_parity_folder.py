"""The parity files of a chain: groups, and files that belong to none."""

from __future__ import annotations

from pathlib import Path

import pytest

from lccodec import ArgumentError, bundle
from lccodec.chain.mend.parity_folder import ParityFolder, directory_of
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.opening import BundleStore

from ...support.damage import protected_run


def test_no_parity(tmp_path: Path) -> None:
    folder = ParityFolder(DirectoryStore(tmp_path))
    assert (folder.names(), folder.size(), folder.groups()) == ([], 0, ([], {}))
    folder.remove(["0123456789abcdef-00.lcc.par"])


def test_groups_and_what_else_is_there(tmp_path: Path) -> None:
    protected_run(tmp_path, 2, 3, newest="exact")
    (tmp_path / ".parity/README").write_text("not lccodec's")
    folder = ParityFolder(DirectoryStore(tmp_path))
    groups, errors = folder.groups()
    assert [(len(g.index.layout.members), g.is_complete) for g in groups if len(g.names) == 2] in (
        [(3, True), (1, True)],
        [(1, True), (3, True)],
    )
    assert errors == {}
    assert len(folder.names()) == 4


def test_a_file_that_is_cut_off_is_not_complete(tmp_path: Path) -> None:
    protected_run(tmp_path, 2, 3)
    folder = ParityFolder(DirectoryStore(tmp_path))
    path = tmp_path / ".parity" / folder.names()[0]
    path.write_bytes(path.read_bytes()[:-100])
    [group], errors = folder.groups()
    assert (group.is_complete, errors) == (False, {})
    path.write_bytes(b"")
    [group], errors = folder.groups()
    assert (group.is_complete, len(group.names), list(errors)) == (False, 2, [path.name])


def test_a_file_under_the_name_of_another_group(tmp_path: Path) -> None:
    protected_run(tmp_path, 1, 3)
    folder = ParityFolder(DirectoryStore(tmp_path))
    [name] = folder.names()
    (tmp_path / ".parity" / name).rename(tmp_path / ".parity/0123456789abcdef-00.lcc.par")
    groups, errors = folder.groups()
    assert (groups, [error.rule for error in errors.values()]) == ([], ["LCC-PAR-01"])


def test_the_directory_goes_when_it_is_empty(tmp_path: Path) -> None:
    protected_run(tmp_path, 1, 3)
    folder = ParityFolder(DirectoryStore(tmp_path))
    folder.remove(folder.names())
    assert not (tmp_path / ".parity").exists()


def test_only_directories_have_parity(tmp_path: Path) -> None:
    protected_run(tmp_path / "run", 1, 2)
    bundle(tmp_path / "run", tmp_path / "run.lcc")
    with (
        BundleStore(tmp_path / "run.lcc") as store,
        pytest.raises(ArgumentError, match=r"parity lies beside the files of a directory"),
    ):
        directory_of(store)
