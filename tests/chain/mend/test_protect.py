"""Which files are protected, in which groups, by how many bytes; and what is kept up to date."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import Chain, ChainError, Keep, StorageError, bundle, unbundle, validate
from lccodec.chain.mend.parity_folder import ParityFolder
from lccodec.chain.mend.protect import protect, recorded, unprotect
from lccodec.chain.mend.redundancy import Redundancy, parse_redundancy
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore

from ...support.crashes import broken
from ...support.damage import files_in, protected_run
from ...support.segments import STATES, all_restore, run_of
from ...support.systems import Faulty


def without_parity(directory: Path) -> dict[str, bytes]:
    return {name: data for name, data in files_in(directory).items() if not name.startswith(".")}


def protected_names(directory: Path) -> list[str]:
    """The files that are named by the groups whose parity is complete."""
    groups, _ = ParityFolder(DirectoryStore(directory)).groups()
    return sorted(m.name for group in groups if group.is_complete for m in group.index.layout.members)


def is_true(directory: Path) -> bool:
    """Whether every file is protected, and every group is of the files that are there."""
    found = repair(DirectoryStore(directory), dry_run=True)
    return not (found.stale or found.lost or found.mended or found.parity) and protected_names(
        directory
    ) == sorted(without_parity(directory))


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
    data = bytearray(path.read_bytes())
    data[400] ^= 1
    path.write_bytes(data)
    (tmp_path / "000000000001.lcc.h5").write_bytes(b"")
    found = chain.protect(2)
    assert list(found.unprotected) == ["000000000001.lcc.h5", "000000000002.lcc.h5"]
    assert protected_names(tmp_path) == list(found.files)
    assert len(found.files) == 2


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


# --- what else is done with the chain -------------------------------------------------------------


@pytest.mark.parametrize("redundancy", [2, "20%"])
def test_parity_stays_true(tmp_path: Path, redundancy: object) -> None:
    protected_run(tmp_path / "run", redundancy, 9, newest="exact")
    chain = Chain(tmp_path / "run")
    asked = recorded(DirectoryStore(tmp_path / "run"))
    assert asked == parse_redundancy(redundancy)
    assert is_true(tmp_path / "run")
    chain.prune(Keep(latest=1, steps=[4]))
    assert chain.steps == [3, 4, 6, 7, 8]
    assert is_true(tmp_path / "run")
    chain.prune(Keep(latest=1, steps=[4, 7]), rewrite=True)
    assert chain.steps == [4, 7, 8]
    assert is_true(tmp_path / "run")
    chain.rollback(7)
    assert chain.steps == [4, 7]
    assert is_true(tmp_path / "run")
    chain.undo_rollback()
    assert chain.steps == [4, 7, 8]
    assert is_true(tmp_path / "run")
    chain.compact(keyframe_every=0)
    assert is_true(tmp_path / "run")
    assert recorded(DirectoryStore(tmp_path / "run")) == asked
    assert all_restore(tmp_path / "run")
    bundle(tmp_path / "run", tmp_path / "run.lcc")
    assert is_true(tmp_path / "run")
    unbundle(tmp_path / "run.lcc", tmp_path / "other")
    assert not (tmp_path / "other/.parity").exists()


def test_what_was_removed_does_not_come_back(tmp_path: Path) -> None:
    protected_run(tmp_path, 64, 6)
    chain = Chain(tmp_path)
    chain.rollback(3, delete=True)
    assert repair(DirectoryStore(tmp_path)).mended == ()
    assert chain.steps == [0, 1, 2, 3]


def test_while_a_chain_prunes_after_saves_it_is_not_worse_off(tmp_path: Path) -> None:
    protected_run(tmp_path, 64, 6)
    chain = Chain(tmp_path, keep=Keep(latest=1))
    chain.save(6, STATES[6])
    steps = chain.steps
    assert steps[0] > 0
    assert repair(DirectoryStore(tmp_path)).mended == ()
    assert chain.steps == steps


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

    tried, wrong = broken(tmp_path / "run", work, check)
    assert (tried > 4, wrong) == (True, 0)


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

    tried, wrong = broken(tmp_path / "run", work, check)
    assert (tried > 4, wrong) == (True, 0)


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_faults_at_every_operation_of_a_protect(tmp_path: Path, code: int) -> None:
    run_of(tmp_path / "run", 3).close()
    before = without_parity(tmp_path / "run")
    healthy = Faulty(0, lambda *_: False)
    copy = Path(shutil.copytree(tmp_path / "run", tmp_path / "healthy"))
    protect(DirectoryStore(copy, healthy), Redundancy(files=1))
    for position in range(len(healthy.log)):
        place = Path(shutil.copytree(tmp_path / "run", tmp_path / f"{position}"))
        system = Faulty(code, lambda _, number, position=position: number == position)
        try:
            protect(DirectoryStore(place, system), Redundancy(files=1))
        except StorageError as error:
            assert error.errno == code
        assert without_parity(place) == before
        protect(DirectoryStore(place), Redundancy(files=1))
        assert is_true(place)
