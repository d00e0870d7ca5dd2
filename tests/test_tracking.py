"""W&B and MLflow: the programs of the page run offline, and what they logged is what the chain has.

Both trackers take what they are given to their own files. It is read back as they read it.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lccodec

from .support.pages import DOCS, programs, run


def program_of(tracker: str) -> str:
    (program,) = [program for program in programs(DOCS / "tracking.md") if tracker in program]
    return program


def records(path: Path) -> Iterator[Any]:
    """The records of a run of W&B: messages in the log of LevelDB, behind seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, block, head = path.read_bytes(), 7, 1 << 15, 7
    message = b""
    while place + head <= len(data):
        if (left := block - place % block) < head:  # the rest of a block is empty
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        message += data[place + head : place + head + length]
        place += head + length
        if kind in (1, 4):  # a whole one, or its last part
            record = Record()
            record.ParseFromString(message)
            yield record
            message = b""


@pytest.fixture(name="offline")
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run in, which W&B and MLflow write to and to nothing else."""
    for name in ("DIR", "DATA_DIR", "CACHE_DIR", "CONFIG_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", str(tmp_path / "wandb"))
    (tmp_path / "wandb").mkdir()
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'mlruns'}")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # they maintain it, and recommend a database
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    return tmp_path


@pytest.mark.slow
def test_wandb(offline: Path) -> None:
    import wandb

    assert wandb.run is None
    run(program_of("wandb"))
    wandb.teardown()  # ends the process that writes the file
    (file,) = offline.glob("wandb/wandb/offline-run-*/run-*.wandb")
    found = list(records(file))
    rows = [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for record in found
        if record.WhichOneof("record_type") == "history"
    ]
    assert sum("loss" in row for row in rows) == 301
    saved = {row["checkpoint/step"]: row for row in rows if "checkpoint/step" in row}
    assert sorted(saved) == list(range(0, 301, 20))
    chain = lccodec.Chain("run")
    assert 0 in chain.steps
    assert 60 not in chain.steps
    for step in chain.steps:
        numbers = {k: v for k, v in saved[step].items() if k.startswith("checkpoint/")}
        assert numbers == pytest.approx(chain.info(step).numbers())
    metrics = [record.metric for record in found if record.WhichOneof("record_type") == "metric"]
    assert {metric.glob_name: metric.step_metric for metric in metrics}["checkpoint/*"] == "checkpoint/step"
    (artifact,) = [record.artifact for record in found if record.WhichOneof("record_type") == "artifact"]
    uploaded = {entry.path: entry for entry in artifact.manifest.contents}
    assert sorted(uploaded) == [f"{step:012d}.lcc.h5" for step in chain.steps]
    for name, entry in uploaded.items():
        assert entry.local_path == str(Path("run", name)), "a copy was made"
        assert entry.size == Path("run", name).stat().st_size


@pytest.mark.slow
def test_mlflow(offline: Path) -> None:
    from mlflow import MlflowClient, artifacts

    run(program_of("mlflow"))
    client = MlflowClient()
    (found,) = client.search_runs(["0"])
    chain = lccodec.Chain("run")
    assert chain.steps == list(range(0, 101, 20))
    last = chain.info().numbers()
    assert {name for name in found.data.metrics if "/" in name} == set(last)
    for name in last:
        logged = {metric.step: metric.value for metric in client.get_metric_history(found.info.run_id, name)}
        wanted = {step: chain.info(step).numbers() for step in chain.steps}
        assert logged == pytest.approx({step: each[name] for step, each in wanted.items() if name in each})
    place = artifacts.download_artifacts(
        run_id=found.info.run_id, artifact_path="history/run.lcc", dst_path=str(offline / "back")
    )
    assert lccodec.unbundle(place, offline / "again") == chain.steps
    assert lccodec.save(lccodec.Chain("again").restore(40)) == lccodec.save(lccodec.Chain("run").restore(40))


def test_numbers_are_those_that_are_known(tmp_path: Path) -> None:
    weights = {"weight": np.linspace(-1, 1, 5000, dtype=np.float32), "step": 1}
    with lccodec.Chain(tmp_path / "run", "balanced") as chain:
        chain.save(10, weights)
        chain.save(20, weights | {"weight": weights["weight"] * np.float32(1.01)})
    first, second = (chain.info(step) for step in (10, 20))
    figures = second.figures["weight"]
    assert set(first.numbers()) == {"checkpoint/step", "checkpoint/bytes", "checkpoint/ratio"}
    assert second.numbers() == {
        "checkpoint/step": 20,
        "checkpoint/bytes": (tmp_path / "run" / "000000000020.lcc.h5").stat().st_size,
        "checkpoint/ratio": 20_000 / second.file_bytes,
        "checkpoint/error/weight": figures.error_in_movements,
        "checkpoint/lag/weight": figures.lag,
        "checkpoint/movement/weight": figures.movement,
    }
    assert figures.movement == pytest.approx(0.01 * 0.577, rel=0.05)
    lccodec.save_file(weights, tmp_path / "single.lcc.h5")
    with lccodec.open(tmp_path / "single.lcc.h5") as file:
        assert set(file.info().numbers()) == {"checkpoint/bytes", "checkpoint/ratio"}
    chain = lccodec.Chain(tmp_path / "empty")
    chain.save(0, {})
    assert set(chain.info().numbers()) == {"checkpoint/step", "checkpoint/bytes", "checkpoint/ratio"}
