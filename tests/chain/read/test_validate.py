from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec import ArgumentError, Chain, validate
from lccodec.constants import EXACT_NAME, PAYLOAD_OFFSET
from lccodec.container.checkpoint import open_checkpoint
from lccodec.policy.record import NewestMode

from ...support.chains import HistoryChain
from ...support.checkpoints import damage_array
from ...support.damage import flip
from ...support.walks import save_all, walk


def chain(directory: Path) -> list[Path]:
    with HistoryChain(directory, policy="lc-3", keyframe_every=3) as made:
        save_all(made, walk(6))
    return sorted(directory.iterdir())


@pytest.mark.parametrize("deep", [False, True])
def test_a_sound_chain_has_no_problems(tmp_path: Path, deep: bool) -> None:
    files = chain(tmp_path)
    assert validate(tmp_path, deep=deep) == []
    assert validate(files[2], deep=deep) == []


def test_all_damaged_files_are_listed(tmp_path: Path) -> None:
    files = chain(tmp_path)
    for path in (files[1], files[4]):
        flip(path, PAYLOAD_OFFSET + 28)
    files[5].write_bytes(files[5].read_bytes()[:-1])
    (tmp_path / "other.lcc.h5").write_bytes(b"")
    problems = validate(tmp_path)
    assert {(p.rule, p.where.split(":")[0].split("/")[-1]) for p in problems} == {
        ("LCC-MAN-08", files[1].name),
        ("chain", files[2].name),
        ("chain", files[3].name),
        ("LCC-MAN-08", files[4].name),
        ("LCC-H5-01", files[5].name),
        ("LCC-CHN-01", "other.lcc.h5"),
    }


def test_frames_without_a_header_are_listed(tmp_path: Path) -> None:
    """Of a file and of its parent: whether the one needs the other cannot be read any more."""
    with HistoryChain(tmp_path, policy="lossless") as made:
        for step in range(3):
            large = np.random.default_rng(0).standard_normal((600, 100)) + step
            made.save(step, {"large": large, "small": np.arange(step, 400 + step)})
    for path in tmp_path.iterdir():
        with open_checkpoint(path) as reader:
            assert len(reader.manifest.frames) == 2
            end = reader.trailer.spans[2]
        data = bytearray(path.read_bytes())
        data[PAYLOAD_OFFSET:end] = bytes(end - PAYLOAD_OFFSET)
        path.write_bytes(data)
    problems = validate(tmp_path)
    assert [problem.rule for problem in problems].count("LCC-MAN-08") == 6


def test_a_missing_parent_is_a_problem_of_the_chain(tmp_path: Path) -> None:
    files = chain(tmp_path)
    files[0].unlink()
    problems = validate(tmp_path)
    assert {p.rule for p in problems} == {"chain"}
    assert {p.where for p in problems} == {path.name for path in files[1:4]}


def test_deep_finds_what_the_hashes_cannot(tmp_path: Path) -> None:
    """A delta coded against other values than its parent's has right hashes and a wrong sum."""
    from lccodec.container.checkpoint import CheckpointWriter, open_checkpoint
    from lccodec.container.manifest import Manifest, Parent

    before = np.random.default_rng(0).standard_normal(100).astype(np.float32)
    with HistoryChain(tmp_path, policy="lossless") as made:
        made.save(0, {"w": before})
    with open_checkpoint(tmp_path / "000000000000.lcc.h5") as reader:
        root = reader.root
    with CheckpointWriter(tmp_path / "000000000001.lcc.h5") as writer:
        entry = writer.write_frame(lccodec.encode(before + 1, lccodec.ExponentBuckets(2), before * 2))
        writer.commit(Manifest(1, Parent(0, root), "lc-2", {}, {"w": 0}, [], (1,), (entry,)))
    assert validate(tmp_path) == []
    (problem,) = validate(tmp_path, deep=True)
    assert problem.rule == "LCC-FRM-09"
    assert "array 'w'" in problem.where


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no such file"):
        validate(tmp_path / "none")
    assert [(p.rule, p.message) for p in validate(tmp_path)] == [("chain", "holds no checkpoint")]


def two_parts(directory: Path, newest: NewestMode = "history") -> list[Path]:
    """A chain of weights, which are deltas, and first moments, which are stored whole."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((80, 90)).astype(np.float32)
    with Chain(directory, "balanced", newest=newest) as made:
        for step in range(6):
            made.save(step, {"weight": weight, "exp_avg": rng.standard_normal(weight.shape)})
            weight = weight + rng.normal(0, 1e-3, weight.shape).astype(np.float32)
    return sorted(path for path in directory.iterdir() if path.name != EXACT_NAME)


def restorable(directory: Path) -> list[int]:
    found = []
    for step in Chain(directory).steps:
        with suppress(lccodec.LccodecError):
            Chain(directory).restore(step)
            found.append(step)
    return found


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(("name", "lost"), [("weight", [3, 4, 5]), ("exp_avg", [])])
def test_the_steps_that_cannot_be_restored_are_named(
    tmp_path: Path, deep: bool, name: str, lost: list[int]
) -> None:
    files = two_parts(tmp_path)
    damage_array(files[2], name)
    problems = validate(tmp_path, deep=deep)
    assert [p.rule for p in problems] == ["LCC-MAN-08"] + ["chain"] * len(lost)
    assert [p.where for p in problems[1:]] == [files[step].name for step in lost]
    assert {p.message for p in problems[1:]} <= {"cannot be restored as it needs step 2"}
    assert restorable(tmp_path) == [step for step in (0, 1, 3, 4, 5) if step not in lost]


@pytest.mark.parametrize("deep", [False, True])
def test_a_file_that_cannot_be_opened_is_told_once(tmp_path: Path, deep: bool) -> None:
    files = two_parts(tmp_path)
    files[2].write_bytes(files[2].read_bytes()[:-1])
    problems = validate(tmp_path, deep=deep)
    assert [p.rule for p in problems] == ["LCC-H5-01", "chain", "chain", "chain"]
    assert [p.where for p in problems[1:]] == [path.name for path in files[3:]]


@pytest.mark.parametrize("deep", [False, True])
def test_a_second_damage_is_told_too(tmp_path: Path, deep: bool) -> None:
    files = two_parts(tmp_path)
    damage_array(files[1], "weight")
    damage_array(files[3], "exp_avg")
    problems = validate(tmp_path, deep=deep)
    assert [(p.rule, p.where.split(":")[0].split("/")[-1]) for p in problems] == [
        ("LCC-MAN-08", files[1].name),
        ("chain", files[2].name),
        ("LCC-MAN-08", files[3].name),
        *(("chain", path.name) for path in files[3:]),
    ]


@pytest.mark.parametrize("deep", [False, True])
def test_a_sound_exact_file_is_told_of(tmp_path: Path, deep: bool) -> None:
    files = two_parts(tmp_path / "run", "exact")
    damage_array(files[4], "weight")
    lccodec.bundle(tmp_path / "run", tmp_path / "run.lccb")
    assert np.isfinite(Chain(tmp_path / "run").restore()["weight"]).all()
    for place in (tmp_path / "run", tmp_path / "run.lccb"):
        problem = validate(place, deep=deep)[-1]
        assert problem.where == files[5].name
        assert (
            problem.message
            == "cannot be restored in the history (the exact file is sound) as it needs step 4"
        )


def test_an_exact_file_of_a_later_step_says_nothing_of_the_checkpoints(tmp_path: Path) -> None:
    files = two_parts(tmp_path / "run", "exact")
    files[5].unlink()  # as if the disk had been full
    damage_array(files[3], "weight")
    lccodec.bundle(tmp_path / "run", tmp_path / "run.lccb")
    for place in (tmp_path / "run", tmp_path / "run.lccb"):
        problem = validate(place)[-1]
        assert (problem.where, problem.message) == (files[4].name, "cannot be restored as it needs step 3")
