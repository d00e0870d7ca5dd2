"""Which chain a file of a group belongs to, and which it never does."""

from __future__ import annotations

from pathlib import Path

import pytest

from lccodec import StorageError
from lccodec.chain.mend.parity_folder import above, home_of, homes_of, locked_homes, make_home
from lccodec.chain.store.directory import DirectoryStore


def test_the_chain_of_a_file(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    assert home_of(store, "exact.lcc.h5") == (store, "exact.lcc.h5")
    home, name = home_of(store, "rank-3/exact.lcc.h5")
    assert (home.path, name) == (tmp_path / "rank-3", "exact.lcc.h5")


@pytest.mark.parametrize(
    ("name", "is_one"), [("rank-0", True), ("rank-12", True), ("rank-01", False), ("run", False)]
)
def test_the_directory_of_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_one: bool
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    for path in (tmp_path / name, Path()):
        found = above(DirectoryStore(path))
        assert (found and found.path) == (tmp_path.resolve() if is_one else None)


def test_folders_are_made_and_links_are_refused(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    make_home(store, "rank-1/exact.lcc.h5")
    make_home(store, "rank-1/exact.lcc.h5")
    make_home(store, "exact.lcc.h5")
    names = ["rank-1/exact.lcc.h5", "rank-0/exact.lcc.h5", "rank-1/000000000000.lcc.h5", "exact.lcc.h5"]
    assert [home.path for home in homes_of(store, names)] == [tmp_path, tmp_path / "rank-1"]
    with locked_homes(store, names), store.locked_if_free() as held:
        assert held is None
        with DirectoryStore(tmp_path / "rank-1").locked_if_free() as inner:
            assert inner is None
    (tmp_path / "rank-0").symlink_to(tmp_path / "rank-1")
    with pytest.raises(StorageError, match="it is a link"):
        homes_of(store, names)
