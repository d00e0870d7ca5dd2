"""Trials can be cut anywhere, moments are mended, tables hold the figures."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.networks import tasks, trajectories
from benchmarks.schemes import catalogue
from benchmarks.trials import pieces, program, resume, table

from ..support.pools import Here
from ..support.tiny_tasks import tiny_task


def test_impossible_moments_are_mended() -> None:
    first = np.array([0.1, -0.1, 0.1, 0.0, 0.1], np.float32)
    second = np.array([0.001, -1.0, 0.0, 0.0, np.nan], np.float32)
    state, count = resume.mended({"model/w": first, "exp_avg/w": first, "exp_avg_sq/w": second})
    assert count == 3
    mended = state["exp_avg_sq/w"]
    assert mended[0] == second[0] and mended[3] == 0
    assert np.all(np.abs(first) <= resume.STEEPEST * np.sqrt(mended) * 1.0001)


def test_any_gradients_make_possible_moments() -> None:
    beta1, beta2 = tasks.BETAS
    # The steepest there is: gradients that grow as Cauchy and Schwarz's equality asks.
    first = second = 0.0
    for step in range(200):
        gradient = (beta2 / beta1) ** step
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient**2
    assert first / np.sqrt(second) == pytest.approx(resume.STEEPEST, rel=0.002)
    assert first / np.sqrt(second) < resume.STEEPEST


def test_rework_is_the_gap_by_the_slope_of_the_exact_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = {
        ("exact", "chain", 0): {"loss": 9.0},
        ("ExCP, threshold at its cap", "chain", 0): {"loss": 3.0, "chain_ratio": 32.0},
        **{("exact", "resume", seed): {"losses": [2.0 + seed, 1.4 + seed]} for seed in pieces.SEEDS},
        **{
            ("exact, one interval older", "resume", seed): {"losses": [2.1 + seed, 1.4 + seed]}
            for seed in pieces.SEEDS
        },
        **{
            ("ExCP, threshold at its cap", "resume", seed): {"losses": [2.0 + 1.5 * seed, 1.4 + seed]}
            for seed in pieces.OTHERS_SEEDS
        },
        **{
            ("exact", "apart", seed): {"losses": [9.0] * 5 + [1.0, 2.0, 2.0, 2.0, 3.0]}
            for seed in pieces.SEEDS
        },
        **{("balanced", "apart", seed): {"losses": [2.0 + 0.02 * seed] * 10} for seed in pieces.SEEDS},
        ("balanced", "chain", 0): {"loss": 3.0, "chain_ratio": 90.0},
    }
    monkeypatch.setattr(pieces.Piece, "result", property(lambda p: stored.get((p.scheme, p.kind, p.seed))))
    names = ["ExCP, threshold at its cap", "balanced"]
    asked = pieces.pieces(["gpt every 20"], names, tmp_path, tmp_path, quick=False)
    assert table.headway(asked, "gpt every 20") == pytest.approx(0.6 / 240)
    exact, excp, balanced = table.gather(asked, set(), set())
    assert exact.rework == (0, 0) and exact.apart is None and excp.apart is None
    assert excp.gaps[60] == pytest.approx((1.0, 0.5 / 3**0.5))
    assert excp.rework == pytest.approx((400, 200 / 3**0.5))
    assert excp.gaps[300] == pytest.approx((0, 0))
    assert balanced.apart == pytest.approx((0.01, 0.0))  # of one seed
    for seed in pieces.SEEDS:
        stored["exact", "resume", seed]["losses"] = [1.0 + seed, 9.0]
    assert table.gather(asked, set(), set())[1].rework is None  # it makes no headway
    quick = pieces.pieces(["gpt every 20"], names, tmp_path, tmp_path, quick=True)
    assert table.headway(quick, "gpt every 20") == pytest.approx(6 / 60)
    stored["exact, one interval older", "resume", 2]["losses"] = [0.0, 0.0]
    assert table.headway(quick, "gpt every 20") is None  # an interval cannot be told from noise


def test_restores_apart_of_a_lossless_scheme_change_nothing(tmp_path: Path) -> None:
    found = trajectories.trajectory(tiny_task("momentum"), tmp_path, 3, 1)
    lossless, lossy = (next(s for s in catalogue.catalogue()[0] if s.name == n) for n in ("lossless", "lc-2"))
    exact = resume.ten_restores_apart(found, None, seed=4)
    assert resume.ten_restores_apart(found, lossless, seed=4) == exact
    assert resume.ten_restores_apart(found, lossy, seed=4) != exact


def test_a_part_of_a_trajectory(tmp_path: Path) -> None:
    found = trajectories.trajectory(tiny_task("logistic"), tmp_path, 6, 2)
    part = found.part(4, 10)
    assert part.iterations == (4, 8) and part.losses == (found.losses[1], found.losses[3])
    assert found.part(2, 12) == found


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name, case in {
        "logistic every 20": pieces.Case("logistic every 20", "logistic", 4, 1, marks=(2,)),
        "gpt every 20": pieces.Case("gpt every 20", "gpt", 4, 1, marks=(1, 2), restores=True, apart=2),
        "finetune every 20": pieces.Case("finetune every 20", "finetune", 3, 1, marks=(1,), close=True),
    }.items():
        monkeypatch.setitem(pieces.CASES, name, case)
    monkeypatch.setattr(pieces, "task", tiny_task)
    monkeypatch.setattr(program, "prepare", lambda: None)
    monkeypatch.setattr(program, "ProcessPoolExecutor", Here)

    def run(*arguments: str | Path) -> int:
        fixed = ["--data", tmp_path, "--cache", tmp_path / "cache"]
        monkeypatch.setattr(sys, "argv", ["training.py", *map(str, [*fixed, *arguments])])
        return program.main()

    return run


CASES = ("logistic every 20", "gpt every 20", "finetune every 20")


SCHEMES = ("lossless", "lc-3", "LC-Checkpoint, 2 bits", "TOPN, 1/64")


def test_command(training, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--cases", *CASES, "--schemes", *SCHEMES, "--json", tmp_path / "all.json"]
    assert training(*asked, "--minutes", "0") == 1
    assert "not measured yet" in capsys.readouterr().out
    assert training(*asked) == 0
    first = capsys.readouterr().out
    assert all(f"### {case}" in first for case in CASES)
    assert "**lc-3**" in first and "| TOPN, 1/64 |" in first
    assert "| case | policy | at a keyframe, s |" in first and "| gpt every 20 | lc-3 | 0." in first
    rows = json.loads((tmp_path / "all.json").read_text())["rows"]
    assert len(rows) == 2 * (len(SCHEMES) + 2) + 4  # of the literature none that is looked at closely
    for row in rows:
        trial = row["trial"]
        if row["scheme"] in SCHEMES:
            assert trial["checkpoints"] == pieces.CASES[row["case"]].checkpoints
            deltas = trial["checkpoints"] - trial["keyframes"]
            whole = trial["keyframes"] * trial["keyframe_bytes"] + deltas * trial["delta_bytes"]
            assert trial["chain_bytes"] == pytest.approx(whole)
            assert len(trial["restores"]) == (3 if row["own"] else 0)
        if row["scheme"] == "exact":
            assert set(map(tuple, row["gaps"].values())) == {(0.0, 0.0)}
        elif not row["lossless"]:
            gpt, own = row["case"] == "gpt every 20", row["scheme"] == "lc-3"
            older = row["scheme"] == "exact, one interval older"
            assert len(row["gaps"]) == (2 if gpt and (own or older) else 1)
            assert (row["degradation"] is not None) == (gpt and own)
    # Nothing is measured again.
    assert training(*asked) == 0
    assert capsys.readouterr().out == first


def test_schemes_that_are_not_installed_are_named(
    training, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(catalogue.importlib.util, "find_spec", lambda _: None)
    training("--cases", "logistic every 20", "--schemes", "lc-2")
    out = capsys.readouterr().out
    assert f"Not installed: {', '.join([*catalogue.BOUNDED, *catalogue.LOSSLESS])}." in out
