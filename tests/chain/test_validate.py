from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec import ArgumentError, validate
from lccodec.constants import PAYLOAD_OFFSET

from ..support.chains import HistoryChain
from ..support.walks import walk


def chain(directory: Path) -> list[Path]:
    with HistoryChain(directory, policy="lc-3", keyframe_every=3) as made:
        for step, state in enumerate(walk(6)):
            made.save(step, state)
    return sorted(directory.iterdir())


@pytest.mark.parametrize("deep", [False, True])
def test_a_sound_chain_has_no_problems(tmp_path: Path, deep: bool) -> None:
    files = chain(tmp_path)
    assert validate(tmp_path, deep=deep) == []
    assert validate(files[2], deep=deep) == []


def test_all_damaged_files_are_listed(tmp_path: Path) -> None:
    files = chain(tmp_path)
    for path in (files[1], files[4]):
        data = bytearray(path.read_bytes())
        data[PAYLOAD_OFFSET + 28] ^= 1
        path.write_bytes(bytes(data))
    files[5].write_bytes(files[5].read_bytes()[:-1])
    (tmp_path / "other.lcc.h5").write_bytes(b"")
    problems = validate(tmp_path)
    assert {(p.rule, p.where.split(":")[0].split("/")[-1]) for p in problems} == {
        ("LCC-MAN-08", files[1].name),
        ("LCC-MAN-08", files[4].name),
        ("LCC-H5-01", files[5].name),
        ("LCC-CHN-01", "other.lcc.h5"),
    }


def test_a_missing_parent_is_a_problem_of_the_chain(tmp_path: Path) -> None:
    files = chain(tmp_path)
    files[0].unlink()
    problems = validate(tmp_path)
    assert {p.rule for p in problems} == {"chain"}
    assert {p.where for p in problems} == {path.name for path in files[1:4]}


def test_deep_finds_what_the_hashes_cannot(tmp_path: Path) -> None:
    """A delta coded against other values than its parent's has right hashes and a wrong sum."""
    from lccodec.container.manifest import Manifest, Parent
    from lccodec.container.reader import open_checkpoint
    from lccodec.container.writer import CheckpointWriter

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
