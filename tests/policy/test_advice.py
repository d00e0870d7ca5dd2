"""What is said of roles: lines to try where most is exact, and roles that are known to do harm."""

import logging
from ast import literal_eval
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec


def state(**entries: np.ndarray) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    layers = {f"fc{n}": {"weight": rng.normal(size=(50, 100)).astype(np.float32)} for n in range(2)}
    memory = {"0": dict(entries), "1": dict(entries)}
    return {"model": layers, "optimizer": {"state": memory}}


def signed() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(50, 100)).astype(np.float32)


def test_an_optimizer_that_nobody_knows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    unknown = state(h=np.abs(signed()), slow_m=signed())
    roles = {
        "optimizer/state/*/h": "second_moment",
        "optimizer/state/*/slow_m": "first_moment",
        "model/fc0/weight": "weight",
        "model/fc1/weight": "weight",
    }
    chain = lccodec.Chain(tmp_path / "a", newest="history")
    why, *lines = chain.plan(unknown).advice
    assert "most bytes are exact" in why
    assert literal_eval("{" + "\n".join(lines) + "}") == roles
    assert all(line in str(chain.plan(unknown)) for line in lines)
    with caplog.at_level(logging.WARNING, "lccodec"):
        chain.save(0, unknown)
    assert all(line in caplog.text for line in lines)
    chain = lccodec.Chain(tmp_path / "b", newest="history", roles=roles)
    assert all(array.lossy for array in chain.plan(unknown))
    assert not chain.plan(unknown).advice


def test_nothing_is_advised_where_most_is_lossy_or_nothing_may_be(tmp_path: Path) -> None:
    known = state(exp_avg=signed(), exp_avg_sq=np.abs(signed()))
    assert not lccodec.Chain(tmp_path / "a").plan(known).advice
    unknown = state(h=signed())
    assert not lccodec.Chain(tmp_path / "b", "lossless").plan(unknown).advice


def test_moments_in_another_basis(tmp_path: Path) -> None:
    soap = state(exp_avg=signed(), exp_avg_sq=np.abs(signed()), GG=signed()[:, :50], Q=signed()[:, :50])
    chain = lccodec.Chain(tmp_path / "a")
    assert "exp_avg" not in "".join(chain.plan(soap).advice)
    roles = {"*exp_avg": "first_moment", "model/*": "weight"}
    line = lccodec.Chain(tmp_path / "b", roles=roles).plan(soap).advice[-1]
    assert "known to do harm" in line
    assert "optimizer/state/0/exp_avg" in line
