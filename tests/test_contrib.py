"""The rules for file(1) know checkpoints of every version and bundles, and nothing else."""

import subprocess
from pathlib import Path

import h5py
import pytest

ROOT = Path(__file__).parents[1]
RULES = ROOT / "contrib" / "lccodec.magic"
VALID = ROOT / "spec" / "vectors" / "valid"

pytestmark = pytest.mark.slow  # it needs file(1), which a fresh machine lacks


def told(*words: str | Path) -> str:
    command = ["file", "-b", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("name", "text", "media_type"),
    [
        ("000000000110.lcc.h5", "lccodec checkpoint, format 1.1", "checkpoint"),
        ("scalar.lcc.h5", "lccodec checkpoint, format 1.1", "checkpoint"),
        ("exact.lcc.h5", "lccodec checkpoint, format 1.1", "checkpoint"),
        ("chain.lcc", "lccodec bundle, format 1.0", "bundle"),
    ],
)
def test_our_files(name: str, text: str, media_type: str) -> None:
    assert told("-m", RULES, VALID / name) == text
    assert told("-m", RULES, "--mime-type", VALID / name) == f"application/vnd.lccodec.{media_type}"
    assert f"application/vnd.lccodec.{media_type}" in (ROOT / "spec" / "SPEC.md").read_text()


def test_other_files(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["payload"] = [1, 2]
    (tmp_path / "cut.lcc.h5").write_bytes((VALID / "000000000110.lcc.h5").read_bytes()[:-1])
    for path in (tmp_path / "a.h5", tmp_path / "cut.lcc.h5", VALID / "raw-bool.lcf", RULES):
        assert "lccodec checkpoint" not in told("-m", RULES, path)
        assert "lccodec bundle" not in told("-m", RULES, path)
