"""What is known of a checkpoint without decoding it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec.chain.read.checkpoint import open_path
from lccodec.chain.read.survey import survey
from lccodec.chain.store.opening import open_store
from lccodec.frame.header import FrameHeader

from ...support.chains import HistoryChain
from ...support.walks import walk


def test_the_bytes_of_a_run_are_added_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(header: FrameHeader) -> int:
        calls.append(header)
        return header.components * header.kind.size

    small = {f"a{i}": np.full(500, i, np.float32) for i in range(30)}
    halves = {f"h{i}": np.full(300, i, np.float16) for i in range(30)}
    path = tmp_path / "model.lcc.h5"
    lccodec.save_file({"big": np.arange(40_000.0), **small, **halves}, path)
    monkeypatch.setattr(FrameHeader, "nbytes", property(counted))
    with open_path(path) as file:
        assert len(file.info().arrays) == 61
    assert len(calls) == 3


def test_lossy_is_what_the_newest_frame_of_an_array_is(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    first, second, third = (rng.standard_normal(3000).astype(np.float32) for _ in range(3))
    still = rng.standard_normal(20_000).astype(np.float32)
    with HistoryChain(tmp_path, "lc-3", roles={"w": "weight", "n": "weight"}) as chain:
        chain.save(1, {"w": first, "n": still, "count": np.arange(3)})
        chain.save(2, {"w": second, "n": still, "count": np.arange(3) + 1})
        restored = chain.restore()
        chain.save(3, {"w": restored["w"], "n": still, "count": np.arange(3) + 2})
    with HistoryChain(tmp_path, "lossless") as chain, pytest.warns(lccodec.LccodecWarning):
        chain.save(4, {"w": third, "n": still, "count": np.arange(3) + 2})
    lossy = {step: {a.name: (a.lossy, a.method) for a in chain.info(step).arrays} for step in (1, 2, 3, 4)}
    assert not any(found for found, _ in lossy[1].values())
    assert lossy[2]["w"] == (True, "codebook")
    assert lossy[3]["w"] == (True, "unchanged")
    assert not lossy[4]["w"][0]
    assert not any(lossy[step][name][0] for step in (2, 3, 4) for name in ("n", "count"))
    assert [chain.info(step).lossy for step in (1, 2, 3, 4)] == [False, True, True, False]


def test_a_summary_is_the_info_without_the_arrays(tmp_path: Path) -> None:
    """Of keyframes, deltas, interpolated checkpoints and what is written anew, lossy and exact."""
    states = [{"w": np.cumsum(np.ones(3000, np.float32)) + step, "n": np.arange(3)} for step in range(9)]
    kinds = set()
    for policy, hindsight in (("balanced", 3), ("lossless", 0)):
        with lccodec.Chain(tmp_path / policy, policy, roles={"w": "weight"}, hindsight=hindsight) as chain:
            for step, state in enumerate(states):
                chain.save(step, state, metadata={"run": "first"})
            chain.prune(lccodec.Keep(latest=4))
        with open_store(tmp_path / policy) as store:
            for visit in survey(store, store.steps()):
                info, summary = visit.info(), visit.summary()
                expected = {**vars(info), "lossy": info.lossy}
                del expected["arrays"]
                assert vars(summary) == expected
                assert (summary.kind, summary.parents) == (info.kind, info.parents)
                kinds.add((info.kind, info.lossy, bool(info.replaces)))
    assert {kind for kind, *_ in kinds} == {"keyframe", "delta", "interpolated"}
    assert {(lossy, anew) for _, lossy, anew in kinds} == {(False, False), (True, False), (True, True)}


def test_metadata_and_info(tmp_path: Path) -> None:
    with lccodec.Chain(tmp_path, policy="lc-3") as chain:
        states = walk(2)
        chain.save(5, states[0], metadata={"run": "first"})
        size = chain.save(7, states[1])
        first, second = chain.info(5), chain.info()
    assert (first.step, first.parent, first.metadata, first.policy) == (5, None, {"run": "first"}, "lc-3")
    assert (second.step, second.parent, second.deltas, second.file_bytes) == (7, 5, 1, size)
    assert second.nbytes == 40 * 30 * 4 + 40 * 4 + 8000
    weight = next(a for a in second.arrays if a.name == "layer/weight")
    assert (weight.dtype, weight.shape, weight.method, weight.relative) == (
        "float32",
        (40, 30),
        "codebook",
        True,
    )
