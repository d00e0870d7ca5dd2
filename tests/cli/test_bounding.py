"""The verbs that read files of strangers refuse what asks for more than they are allowed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import lccodec

from ..support.commands import run, run_json


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bounding") / "run"
    with lccodec.Chain(path, "lossless") as chain:
        for step in range(4):
            chain.save(step, {"w": np.arange(1001.0) + step})
    lccodec.bundle(path, path.parent / "run.lcc")
    shutil.copy(path / "000000000003.lcc.h5", path / "renamed.h5")
    return path


@pytest.mark.parametrize(
    "words",
    [
        ["check", "run"],
        ["check", "--deep", "run.lcc"],
        ["restore", "run", "-o", "out.npz"],
        ["average", "run", "--last", "2", "-o", "out.npz"],
        ["show", "run", "w"],
        ["diff", "run", "0", "3"],
        ["convert", "run", "out.safetensors"],
        ["convert", "run/000000000003.lcc.h5", "out.safetensors"],
        ["convert", "run/renamed.h5", "out.safetensors"],
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_verbs(chain: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(chain.parent)
    for option, value in (("--max-bytes", "8kB"), ("--max-deltas", "2")):
        document = run_json(*words, option, value, code=1)
        assert document["error"]["rule"] == option[2:].replace("-", "_")
    assert not list(chain.parent.glob("out.*"))


def test_files_of_others_have_no_bounds(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", w=np.zeros(10))
    said = run("convert", tmp_path / "a.npz", tmp_path / "b.npz", "--max-bytes", "1MB", code=2)[1]
    assert "bound checkpoints, not other files" in said
    assert not (tmp_path / "b.npz").exists()
