"""The regressions of the fuzz targets, in bounded time and memory, and the driver itself."""

import importlib
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from lccodec.frame.decode import decode_components

from .support.bounds import bounded

FUZZ = Path(__file__).parents[1] / "fuzz"
REGRESSIONS = sorted((FUZZ / "regressions").glob("*/*"))
TARGETS = sorted({path.parent.name for path in REGRESSIONS})  # each has some
OUTCOMES = json.loads((FUZZ / "regressions" / "outcomes.json").read_bytes())
MAX_SECONDS = 10  # of CPU: other tests run beside
MAX_BYTES = 256 << 20  # of inputs of at most 128 KiB


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where targets put their inputs: each has a folder there as long as the process lives."""
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(autouse=True)
def _as_the_driver(monkeypatch: pytest.MonkeyPatch, scratch: Path) -> None:
    monkeypatch.syspath_prepend(str(FUZZ))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))


def target(name: str) -> ModuleType:
    return importlib.import_module(f"target_{name}")


def test_there_are_regressions() -> None:
    names = [path.parent.name for path in REGRESSIONS]
    assert set(TARGETS) == set(importlib.import_module("run").TARGETS)
    assert min(names.count("frame"), names.count("checkpoint")) > 20


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_regression(path: Path) -> None:
    module = target(path.parent.name)
    before = Counter(module.outcomes)
    with bounded(MAX_SECONDS, MAX_BYTES):
        module.check(path.read_bytes())
    if path.parent.name in OUTCOMES:
        # An input of an older form would be refused early, and test nothing any more.
        assert list(module.outcomes - before) == [OUTCOMES[path.parent.name][path.name]]


@pytest.mark.slow
def test_the_heaviest_frames_are_light() -> None:
    """What took seconds and hundreds of megabytes before its limits, at 4 KiB a frame."""
    heaviest = importlib.import_module("heaviest")
    frames = list(heaviest.heavy_frames(1 << 12))
    assert max(frame.components.nbytes for frame in frames) > 3 << 20
    with bounded(MAX_SECONDS, 64 << 20):
        for frame in frames:
            decoded = decode_components(memoryview(frame.data), None)
            assert decoded.tobytes() == frame.components.tobytes(), frame.name


@pytest.mark.parametrize("name", TARGETS)
def test_the_invariant_is_on_line_1(name: str) -> None:
    first = (FUZZ / f"target_{name}.py").read_text().splitlines()[0]
    assert first.startswith('"""Invariant: ')
    assert "LccodecError, nothing else, in bounded time and memory" in first


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_seeds_decode(name: str) -> None:
    """Seeds get to the end, so that mutations of them begin there."""
    module = target(name)
    seeds = list(module.seeds())
    module.outcomes.clear()
    for seed in seeds:
        module.check(seed)
    assert module.outcomes["decoded"] == len(seeds)


def test_mutations_are_those_of_the_seed() -> None:
    mutation = importlib.import_module("mutation")

    def some(seed: int) -> list[bytes]:
        rng, data = random.Random(seed), bytes(range(100))
        return [mutation.mutate(data, [b"other", b""], [b"token"], rng) for _ in range(200)]

    assert some(1) == some(1) != some(2)
    assert len(set(some(1))) > 150


@pytest.mark.slow
@pytest.mark.parametrize("name", ["checkpoint", "chain", "parity"])
def test_the_driver_runs(name: str) -> None:
    command = [sys.executable, FUZZ / "run.py", name, "--seconds", "1", "--engine", "mutation", "--seed", "1"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "rules reached" in run.stdout


def test_a_violation_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(data: bytes) -> None:
        if len(data) > 3:
            raise KeyError("not of the taxonomy")

    run = importlib.import_module("run")
    with run.Session(check, tmp_path) as session:
        assert not run.attack(session, [b"one"], [b"more bytes"], seconds=60, seed=1)
    kept = [path for path in tmp_path.iterdir() if not path.suffix and path.name != "current"]
    assert len(kept) == 1
    assert len(kept[0].read_bytes()) > 3
    assert "KeyError" in kept[0].with_suffix(".txt").read_text()
    assert "invariant is broken" in capsys.readouterr().out
