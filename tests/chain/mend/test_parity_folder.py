"""The parity files of a chain: groups, and files that belong to none.

Bands of blocks: all rows once, and zeros where nothing is.

Which chain a file of a group belongs to, and which it never does.
"""

from pathlib import Path

import numpy as np
import pytest

from lccodec import ArgumentError, StorageError, bundle
from lccodec.chain.mend.parity_folder import (
    ParityFolder,
    bands,
    home_of,
    homes_of,
    locked_homes,
    make_home,
    read_band,
)
from lccodec.chain.store.directory import BundleStore, DirectoryStore, as_directory, parity_places
from lccodec.container.parity import Layout, Member
from lccodec.container.source import FileSource

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
        pytest.raises(ArgumentError, match="parity needs a directory on a disk"),
    ):
        as_directory(store, "parity")


def layout_of(sizes: list[int], rows: int, aligned: bool, block: int = 512) -> Layout:
    members = [Member(f"{i:012d}.lcc.h5", size, bytes(32)) for i, size in enumerate(sizes)]
    return Layout(block, rows, 1, 1, aligned, tuple(members))


def test_bands_hold_every_row_once() -> None:
    layout = layout_of([1 << 20], 2048, True)
    rows = [row for start, count in bands(layout) for row in range(start, start + count)]
    assert rows == list(range(2048))
    assert len(list(bands(layout))) == 4


@pytest.mark.parametrize("aligned", [True, False])
def test_bytes_are_where_the_layout_says(tmp_path: Path, aligned: bool) -> None:
    sizes = [700, 1500, 200]
    rng = np.random.default_rng(0)
    contents = [rng.bytes(size) for size in sizes]
    for i, data in enumerate(contents):
        (tmp_path / str(i)).write_bytes(data)
    layout = layout_of(sizes, 3, aligned)
    sources = {i: FileSource(tmp_path / str(i)) for i in range(3)}
    columns = contents if aligned else [b"".join(contents)[:1536], b"".join(contents)[1536:]]
    for number, column in enumerate(columns):
        band, is_whole = read_band(layout, sources, number, 0, 3)
        assert (band.tobytes(), is_whole) == (column.ljust(1536, b"\0"), True)
        band, _ = read_band(layout, sources, number, 1, 1)
        assert band.tobytes() == column.ljust(1536, b"\0")[512:1024]
    sources.pop(1).close()
    band, is_whole = read_band(layout, sources, 1, 0, 2)
    assert not is_whole
    assert not band.any() or not aligned
    for source in sources.values():
        source.close()


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"x" * 600)
    source = FileSource(tmp_path / "0")
    band, is_whole = read_band(layout_of([1000], 2, True), {0: source}, 0, 0, 2)
    assert (band.tobytes(), is_whole) == (b"x" * 600 + bytes(424), False)
    source.close()


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
        own, *ranks = parity_places(store := DirectoryStore(path))
        expected = [(tmp_path.resolve(), f"{name}/")] if is_one else []
        assert own == (store, "")
        assert [(found.path, before) for found, before in ranks] == expected


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
