"""The files of a chain's directory, by their names alone."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.chain.store.directory import (
    chains_in,
    check_name,
    checkpoint_path,
    directory_names,
    directory_steps,
    in_chain,
    next_step,
    no_checkpoint,
    readable_chains_in,
    step_index,
    steps_of,
)
from lccodec.constants import MAX_STEP
from lccodec.errors import ArgumentError, FormatError, StorageError

STEPS = [0, 7, 999_999_999_999, 1_000_000_000_000, (1 << 53) - 1]
OTHER_NAMES = ["7.lcc.h5", "00000000000007.lcc.h5", "0123456789012.lcc.h5", "000000000007.lcc.h5.part", "a"]


@pytest.mark.parametrize("step", STEPS)
def test_a_name_is_read_as_it_is_written(step: int) -> None:
    path = checkpoint_path(Path("run"), step)
    assert steps_of(Path("run"), [path.name]) == {step: path}
    check_name(path.name, step)
    with pytest.raises(FormatError, match=f"holds step {step + 1}") as caught:
        check_name(path.name, step + 1)
    assert caught.value.rule == "LCC-CHN-01"


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_other_names_are_no_steps(name: str) -> None:
    assert steps_of(Path("run"), [name]) == {}
    check_name(name, 3)  # a file of another name may hold any step


@given(st.sets(st.integers(0, MAX_STEP), max_size=5))
def test_a_file_is_found_by_the_name_it_was_given(steps: set[int]) -> None:
    names = [checkpoint_path(Path("run"), step).name for step in steps]
    assert steps_of(Path("run"), names) == {step: checkpoint_path(Path("run"), step) for step in steps}
    assert list(steps_of(Path("run"), names)) == sorted(steps)


@pytest.mark.parametrize(
    "name",
    [
        "7.lcc.h5",
        "0000000000007.lcc.h5",
        "000000000007.h5",
        "000000000007.lcc.h5.tmp",
        "000000000007.lcc.h5\n",
        "-00000000007.lcc.h5",
        "00000000000٣.lcc.h5",
        "99999999999999999.lcc.h5",
    ],
)
def test_names_that_are_not_those_of_checkpoints(name: str) -> None:
    assert steps_of(Path("run"), [name]) == {}
    assert not in_chain(Path("run") / name)


def test_files_of_a_directory(tmp_path: Path) -> None:
    for name in ("000000000012.lcc.h5", "000000000003.lcc.h5", "notes.txt"):
        (tmp_path / name).touch()
    assert list(directory_steps(tmp_path)) == [3, 12]
    assert sorted(directory_names(tmp_path)) == ["000000000003.lcc.h5", "000000000012.lcc.h5", "notes.txt"]
    assert in_chain(tmp_path / "000000000099.lcc.h5")
    assert not in_chain(tmp_path / "notes.txt")
    assert not in_chain(tmp_path / "none" / "000000000003.lcc.h5")
    with pytest.raises(StorageError, match="cannot list") as caught:
        directory_steps(tmp_path / "none")
    assert caught.value.errno == errno.ENOENT


def test_steps_rise(tmp_path: Path) -> None:
    for step in reversed(STEPS):
        checkpoint_path(tmp_path, step).touch()
    (tmp_path / "notes.txt").touch()
    assert list(directory_steps(tmp_path)) == STEPS
    with pytest.raises(StorageError, match="cannot list"):
        directory_steps(tmp_path / "absent")


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
    assert [path.name for path in chains_in(tmp_path)] == ["rank-0", "rank-1", "rank-2"]
    listdir = os.listdir

    def refuse(path: Path) -> list[str]:
        if path.name == "rank-1":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listdir(path)

    monkeypatch.setattr("os.listdir", refuse)
    assert [path.name for path in readable_chains_in(tmp_path)] == ["rank-0", "rank-2"]
    assert no_checkpoint(tmp_path).endswith("holds no checkpoint, but these chains: rank-0, rank-2")
    with pytest.raises(StorageError, match=r"cannot list.*rank-1"):
        chains_in(tmp_path)
    with pytest.raises(StorageError, match="cannot list"):
        chains_in(tmp_path / "missing")
    assert readable_chains_in(tmp_path / "missing") == []


def test_integers_are_steps() -> None:
    assert [step_index(step) for step in (3, np.int64(3), np.uint8(3), np.array(3))] == [3] * 4
    for step in (True, np.True_, 3.0, "3", None):
        with pytest.raises(ArgumentError, match="a step must be an integer"):
            step_index(step)


def test_a_new_step_comes_after_all_others() -> None:
    run = Path("run")
    assert next_step(np.int64(7), [], run) == 7
    assert next_step(7, [2, 6], run) == 7
    for step, message in ((6, "exists already in run"), (5, "above the latest, 6 in run"), (-1, "from 0")):
        with pytest.raises(ArgumentError, match=message):
            next_step(step, [2, 6], run)
    with pytest.raises(ArgumentError, match=f"from 0 to {MAX_STEP}"):
        next_step(MAX_STEP + 1, [], run)
