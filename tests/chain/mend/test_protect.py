"""Which files are protected, in which groups, by how many bytes."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import Chain, ChainError, StorageError, validate
from lccodec.chain.mend.parity_folder import ParityFolder
from lccodec.chain.mend.protect import Redundancy, parse_redundancy, protect, unprotect
from lccodec.chain.mend.protect import damage as damage_of
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.system import System

from ...support.crashes import hold
from ...support.damage import files_in, flip, is_true, protected_names, protected_run, without_parity
from ...support.segments import STATES, run_of
from ...support.systems import attempts

# --- groups ---------------------------------------------------------------------------------------


def test_nothing_else_changes(tmp_path: Path) -> None:
    run_of(tmp_path, 3, newest="exact").close()
    before = files_in(tmp_path)
    found = protect(DirectoryStore(tmp_path), Redundancy(files=1))
    assert (found.groups, found.made, len(found.files)) == (2, 2, 4)
    assert without_parity(tmp_path) == before
    assert found.parity_bytes == sum(len(d) for n, d in files_in(tmp_path).items() if n not in before)
    assert validate(tmp_path, deep=True) == []
    again = protect(DirectoryStore(tmp_path), Redundancy(files=1))
    assert (again.groups, again.made, again.files) == (2, 0, found.files)
    assert unprotect(DirectoryStore(tmp_path)) == found.parity_bytes
    assert files_in(tmp_path) == before
    assert not (tmp_path / ".parity").exists()


@pytest.mark.slow
def test_a_full_group_stays(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "lossless", newest="history")
    state = {"w": np.ones(9, np.float32)}
    for step in range(66):
        chain.save(step, {"w": state["w"] * step})
    protect(DirectoryStore(tmp_path), Redundancy(files=1))
    names = set(files_in(tmp_path / ".parity"))
    chain.save(66, state)
    found = chain.protect(1)
    assert (found.groups, found.made, len(found.files)) == (2, 1, 67)
    assert len(names & set(files_in(tmp_path / ".parity"))) == 1
    assert is_true(tmp_path)


def test_damaged_files_are_not_protected(tmp_path: Path) -> None:
    chain = run_of(tmp_path, 4)
    path = tmp_path / "000000000002.lcc.h5"
    flip(path, 400)
    (tmp_path / "000000000001.lcc.h5").write_bytes(b"")
    found = chain.protect(2)
    assert list(found.unprotected) == ["000000000001.lcc.h5", "000000000002.lcc.h5"]
    assert protected_names(tmp_path) == list(found.files)
    assert len(found.files) == 2


def parity_of(directory: Path) -> dict[str, bytes]:
    return files_in(directory / ".parity")


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("sizes", [[5, 5, 5, 5], [5, 9000, 70, 90_000, 3], [90_000, 3, 3]])
def test_a_group_grows_by_its_new_files(tmp_path: Path, files: int, sizes: list[int]) -> None:
    """What is there is byte for byte what all files together give."""
    run, anew = tmp_path / "run", tmp_path / "anew"
    chain = Chain(run, "lossless", keyframe_every=0, newest="history")
    rng = np.random.default_rng(files)
    for step, size in enumerate(sizes):
        chain.save(step, {"w": rng.standard_normal(size)})
        found = protect(store := DirectoryStore(run), Redundancy(files=files))
        assert (found.groups, found.made, len(found.files)) == (1, 1, step + 1)
        assert is_true(run)
        shutil.rmtree(anew, ignore_errors=True)
        shutil.copytree(run, anew, ignore=shutil.ignore_patterns(".parity"))
        [group] = ParityFolder(store).groups()[0]
        fresh = Redundancy(files=files).layout(group.index.layout.members)
        protect(DirectoryStore(anew), Redundancy(files=files))
        if fresh == group.index.layout:
            assert parity_of(run) == parity_of(anew)
    chain.close()
    before = files_in(run)
    for name in list(without_parity(run))[:files]:
        (run / name).unlink()
    assert repair(DirectoryStore(run)).lost == {}
    assert files_in(run) == before


def test_old_files_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = run_of(tmp_path, 5)
    chain.protect(2)
    chain.save(5, STATES[5])
    read = list[str]()
    made = damage_of.__globals__  # the module

    def verified(store: DirectoryStore, member: Any) -> str | None:
        read.append(member.name)
        return damage_of(store, member)

    monkeypatch.setitem(made, "damage", verified)
    bands = made["read_band"]
    columns = set[int]()

    def noted(layout: Any, files: Any, column: int, *rows: int) -> Any:
        columns.add(column)
        return bands(layout, files, column, *rows)

    monkeypatch.setitem(made, "read_band", noted)
    chain.protect(2)
    assert (read, columns) == (["000000000005.lcc.h5"], {5})
    assert is_true(tmp_path)


@pytest.mark.parametrize("place", [100, -200, 3000])
def test_damaged_parity_does_not_go_on(tmp_path: Path, place: int) -> None:
    """Then all files are read, and the parity is that of a chain that was never damaged."""
    for run in (tmp_path / "a", tmp_path / "b"):
        chain = run_of(run, 4)
        chain.protect(1)
        chain.save(4, STATES[4])
    [path] = (tmp_path / "a/.parity").iterdir()
    flip(path, place)
    for run in (tmp_path / "a", tmp_path / "b"):
        Chain(run).protect(1)
    assert is_true(tmp_path / "a")
    assert parity_of(tmp_path / "a") == parity_of(tmp_path / "b")


@pytest.mark.parametrize("redundancy", [1, "40%"])
@pytest.mark.parametrize("how", ["damaged", "gone", "cut"])
def test_a_file_that_is_lost_stays_protected(tmp_path: Path, redundancy: Any, how: str) -> None:
    """Also by a run that goes on and protects each save."""
    run_of(tmp_path, 4).close()
    protect(DirectoryStore(tmp_path), parse_redundancy(redundancy))
    path = tmp_path / "000000000001.lcc.h5"
    before = path.read_bytes()
    path.unlink()
    if how != "gone":
        path.write_bytes(before if how == "damaged" else before[:-1])
    if how == "damaged":
        flip(path, -30)
    with Chain(tmp_path, parity=redundancy) as chain:
        for step in (4, 5):
            chain.save(step, STATES[step])
    found = repair(DirectoryStore(tmp_path))
    assert (found.mended, found.lost, found.protected) == ((path.name,), {}, 6)
    assert path.read_bytes() == before
    protect(DirectoryStore(tmp_path), parse_redundancy(redundancy))
    assert is_true(tmp_path)
    assert len(ParityFolder(DirectoryStore(tmp_path)).groups()[0]) == 1


def test_no_chain(tmp_path: Path) -> None:
    with pytest.raises(ChainError, match="holds no checkpoint"):
        protect(DirectoryStore(tmp_path), Redundancy(files=1))
    assert not list(tmp_path.iterdir())


def test_a_link_in_the_place_of_the_parity(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 2)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run/.parity").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="it is a link"):
        protect(DirectoryStore(tmp_path / "run"), Redundancy(files=1))
    assert not list((tmp_path / "elsewhere").iterdir())


# --- crashes and faults ---------------------------------------------------------------------------


@pytest.mark.slow
def test_no_crash_of_a_protect_harms(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 4, newest="exact").close()
    before = without_parity(tmp_path / "run")

    def check(done: bool, place: Path) -> bool:
        if without_parity(place) != before:
            return False
        found = repair(DirectoryStore(place))  # never makes it worse
        return without_parity(place) == before and not found.mended and (not done or is_true(place))

    def work(system: Any) -> None:
        protect(DirectoryStore(tmp_path / "run", system), Redundancy(files=1))

    hold(tmp_path / "run", work, check, above=4)


@pytest.mark.slow
def test_no_crash_leaves_less_protected(tmp_path: Path) -> None:
    """The group that takes the place of another is there before that one goes."""
    protected_run(tmp_path / "run", 1, 3)
    Chain(tmp_path / "run").save(3, STATES[3])
    lost = "000000000001.lcc.h5"
    before = (tmp_path / "run" / lost).read_bytes()

    def check(_: bool, place: Path) -> bool:
        (place / lost).unlink()
        return repair(DirectoryStore(place)).mended == (lost,) and (place / lost).read_bytes() == before

    def work(system: Any) -> None:
        protect(DirectoryStore(tmp_path / "run", system), Redundancy(files=1))

    hold(tmp_path / "run", work, check, above=4)


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_faults_at_every_operation_of_a_protect(tmp_path: Path, code: int) -> None:
    run_of(tmp_path / "run", 3).close()
    before = without_parity(tmp_path / "run")

    def act(place: Path, system: System) -> None:
        protect(DirectoryStore(place, system), Redundancy(files=1))

    told = 0
    for place, error in attempts(tmp_path / "run", act, code):
        told += error is not None
        assert without_parity(place) == before
        protect(DirectoryStore(place), Redundancy(files=1))
        assert is_true(place)
    assert told > 10
