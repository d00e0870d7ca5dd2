"""A follower that starts from arrays at hand reads nothing of their step, and refuses others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import ArgumentError, Chain, ChainError, follow
from lccodec.container.source import FileSource

from ....support.following import Run, Served, mixed, rounded
from ....support.walks import assert_same, walk


@pytest.mark.parametrize("step", [0, 2, 4])  # keyframes and a delta
def test_only_deltas_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    run, served = Run(tmp_path, keyframe_every=3), Served()
    run.save(*range(step + 1))
    own = {**run.states[step]["model"], **{"wide": run.states[step]["model"]["wide"].copy()}}
    with follow(tmp_path, keys="model", start=(step, {"model": own}), timeout=0) as follower:
        assert follower.step == step
        assert_same(follower.state(), {f"model/{name}": array for name, array in own.items()})
        assert list(follower) == []
        run.save(step + 1)
        size = (tmp_path / f"{step + 1:012d}.lcc.h5").stat().st_size
        read, whole = [0], FileSource.read

        def counted(source: FileSource, offset: int, size: int) -> bytes:
            read[0] += size
            return whole(source, offset, size)

        monkeypatch.setattr(FileSource, "read", counted)
        served.arrays = {f"model/{name}": array.copy() for name, array in own.items()}
        [update] = list(follower)
        served.take(update)
        assert read[0] < size + 4096
    assert (update.base, update.step) == (step, step + 1)
    served.check({"model": run.states[step + 1]["model"]})
    assert_same(own, run.states[step]["model"])  # a copy was followed


def test_weights_that_are_copies(tmp_path: Path) -> None:
    state = mixed(np.random.default_rng(0))
    with Chain(tmp_path, "lossless") as chain:
        chain.save(0, state)
        start = (0, {"model": state["model"]})
        with follow(tmp_path, keys="model", start=start, timeout=0) as follower:
            state["optimizer"]["master"][:3] += 1
            state["model"]["weight"] = rounded(state["optimizer"]["master"])
            chain.save(1, state)
            [update] = list(follower)
            assert (update.names, update.nbytes) == (("model/weight",), 6)
        start[1]["model"] = {"weight": rounded(state["optimizer"]["master"])}
        with pytest.raises(ArgumentError, match="'model/weight' differs"):
            follow(tmp_path, keys="model", start=start)


def changed(model: dict[str, Any], name: str) -> dict[str, Any]:
    return {**model, name: np.nextafter(model[name], np.float32(9), dtype=model[name].dtype)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: changed(model, "wide"), "not the arrays of step 2: 'model/wide' differs"),
        (lambda model: changed(model, "bias1"), "'model/bias1' differs"),  # shares a frame
        (lambda model: {**model, "wide": model["wide"].astype("f8")}, "'model/wide' differs"),
        (lambda model: {**model, "half": model["half"].T.copy()}, "'model/half' differs"),
        (lambda model: {k: a for k, a in model.items() if k != "ids"}, "'model/ids' is missing"),
        (lambda _: {}, "'model/wide' is missing, .*, and 3 more"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    run = Run(tmp_path)
    run.save(0, 1, 2)
    model = run.states[2]["model"]
    follow(tmp_path, keys="model", start=(2, {"model": model})).close()
    with pytest.raises(ArgumentError, match=message):
        follow(tmp_path, keys="model", start=(2, {"model": change(model)}))


def test_a_step_that_cannot_be_started_from(tmp_path: Path) -> None:
    states = walk(9, shape=(80, 60))
    with Chain(tmp_path, "balanced", hindsight=4) as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
    with pytest.raises(ChainError, match="step 2 is interpolated"):
        follow(tmp_path, start=(2, states[2]))
    with pytest.raises(ChainError, match="has no step 99"):
        follow(tmp_path, start=(99, states[2]))
    for start in (3, (1, 2, 3), ("1", {})):
        with pytest.raises(ArgumentError, match="must be"):
            follow(tmp_path, start=start)  # type: ignore[arg-type]
