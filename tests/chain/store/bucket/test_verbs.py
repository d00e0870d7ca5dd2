"""The verbs of the shell, and what else takes a directory, with an address."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import lccodec
from lccodec.cli.program import program
from lccodec.errors import ArgumentError, ChainError

from ....support.walks import assert_same, walk


@pytest.fixture
def chain(place: str) -> str:
    """The address of a chain of six steps."""
    with lccodec.Chain(place, "lc-3", keyframe_every=3) as saved:
        for step, state in enumerate(walk(6)):
            saved.save(10 * step, state, metrics={"loss": 1 / (step + 1)})
    return place


def ask(words: str, code: int = 0) -> str:
    result = CliRunner().invoke(program, words.split())
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def answer(words: str) -> Any:
    return json.loads(ask(f"{words} --json"))


def test_verbs_that_show(chain: str, tmp_path: Path) -> None:
    found = answer(f"ls {chain}")
    assert found["directory"] == chain
    assert [each["step"] for each in found["checkpoints"]] == [0, 10, 20, 30, 40, 50]
    assert found["exact"]["step"] == 50
    assert found["exact"]["problem"] is None
    assert answer(f"info {chain} --step 20")["deltas"] == 2
    assert answer(f"info {chain}")["exact"]
    assert answer(f"show {chain} layer/weight --over-time")["over_time"]["steps"] == [0, 10, 20, 30, 40, 50]
    assert [each["name"] for each in answer(f"diff {chain} 10 20")["changed"]] == [
        "layer/weight",
        "layer/bias",
    ]
    assert answer(f"check {chain} --deep")["sound"]
    (run,) = answer(f"report {chain} --against {chain}")["runs"]
    assert run["path"] == chain
    assert [each["sound"] for each in run["checkpoints"]] == [True] * 6
    ask(f"restore {chain} -o {tmp_path / 'a.npz'} --key layer --step 10")
    with np.load(tmp_path / "a.npz") as file:
        assert_same(file["layer/bias"], lccodec.Chain(chain).restore(10)["layer"]["bias"])
    assert answer(f"average {chain} --last 2 -o {tmp_path / 'b.npz'}")["steps"] == [40, 50]


def test_verbs_that_change(chain: str) -> None:
    assert answer(f"pin {chain} 20")["pins"] == [20]
    pruned = answer(f"prune {chain} --latest 1")
    assert pruned["removed"] == [30]
    assert answer(f"unpin {chain} 20")["pins"] == []
    rewritten = answer(f"prune {chain} --latest 1 --step 10 --rewrite --grow")
    assert rewritten["removed"] == [0, 20, 40]
    assert lccodec.Chain(chain).steps == [10, 50]
    assert lccodec.validate(chain, deep=True) == []
    assert answer(f"compact {chain}")["rewritten"] != []
    assert lccodec.validate(chain, deep=True) == []


def test_a_bundle_of_a_bucket_is_a_chain(chain: str, tmp_path: Path) -> None:
    target = tmp_path / "run.lcc"
    assert answer(f"bundle {chain} -o {target}")["steps"] == [0, 10, 20, 30, 40, 50]
    assert_same(lccodec.Chain(chain).restore(), lccodec.open(target).state())
    assert lccodec.unbundle(target, tmp_path / "run") == [0, 10, 20, 30, 40, 50]
    assert lccodec.validate(tmp_path / "run", deep=True) == []
    lccodec.bundle(chain, target, steps=[30, 40])
    with lccodec.open(target, step=40) as file:
        assert_same(file.state(), lccodec.Chain(chain).restore(40))


def test_an_empty_place_is_told(place: str) -> None:
    assert f"{place} holds no checkpoint" in ask(f"ls {place}", code=1)
    with pytest.raises(ChainError, match="holds no checkpoint"):
        lccodec.open(place)
    assert [problem.message for problem in lccodec.validate(place)] == ["holds no checkpoint"]


def test_what_needs_a_directory_says_so(chain: str) -> None:
    assert "a path must be local" in ask(f"restore {chain} -o {chain}/a.npz", code=2)


def test_averages_of_a_bucket(chain: str) -> None:
    found = lccodec.Chain(chain).average(last=2)
    assert found["epoch"] == 5


def test_a_group_is_settled_in_a_bucket(place: str) -> None:
    states = walk(9)
    with lccodec.Chain(place, "lc-3", hindsight=4) as saved:
        for step, state in enumerate(states):
            saved.save(step, state)
    kinds = [lccodec.Chain(place).info(step).kind for step in range(9)]
    assert kinds.count("interpolated") == 6
    assert lccodec.validate(place, deep=True) == []
    assert_same(lccodec.Chain(place).restore(), states[-1])


def test_a_chain_thins_itself_out(place: str) -> None:
    with lccodec.Chain(place, "lossless", keyframe_every=0, keep=lccodec.Keep(latest=2)) as saved:
        for step, state in enumerate(walk(5)):
            saved.save(step, state)
        assert saved.steps == [3, 4]


def test_a_rollback_sets_aside_and_is_undone(chain: str) -> None:
    before = {step: lccodec.Chain(chain).restore(step, exact=False) for step in range(0, 60, 10)}
    with lccodec.Chain(chain) as saved:
        saved.pin(40)
        gone = saved.rollback(20)
        assert (gone.name, gone.steps, gone.exact, gone.pins) == ("0001-to-20", (30, 40, 50), True, (40,))
        assert saved.steps == [0, 10, 20]
        assert saved.pins == []
        assert saved.exact_step is None
        assert saved.rolled_back == [gone]
        assert lccodec.validate(chain, deep=True) == []
        undone = saved.undo_rollback()
        assert undone == gone
        assert saved.rolled_back == []
        assert saved.steps == [0, 10, 20, 30, 40, 50]
        assert saved.pins == [40]
        assert saved.exact_step == 50
        assert lccodec.validate(chain, deep=True) == []
        for step, state in before.items():
            assert_same(saved.restore(step, exact=False), state)
        saved.save(60, walk(7)[6])
        assert saved.info(60).parent == 50


def test_what_was_rolled_back_outlasts_other_steps_of_the_same_number(
    chain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lccodec.chain.store.bucket.store.MIN_AGE_SECONDS", -60.0)
    before = lccodec.Chain(chain).restore(40, exact=False)
    other = walk(6, seed=7)
    with lccodec.Chain(chain) as saved:
        saved.rollback(20)
        saved.save(30, other[3])
        saved.save(40, other[4])
        assert_same(saved.restore(), other[4])
        with pytest.raises(ArgumentError, match="has other steps now"):
            saved.undo_rollback()
        saved.rollback(20)
        assert [each.name for each in saved.rolled_back] == ["0001-to-20", "0002-to-20"]
        saved.undo_rollback("0001-to-20")
        assert_same(saved.restore(40, exact=False), before)
        assert [each.name for each in saved.delete_rolled_back()] == ["0002-to-20"]
        assert saved.rolled_back == []
        assert lccodec.validate(chain, deep=True) == []


def test_a_rollback_that_deletes(chain: str) -> None:
    assert answer(f"rollback {chain} 30 --delete")["steps"] == [40, 50]
    assert lccodec.Chain(chain).steps == [0, 10, 20, 30]
    assert answer(f"rolled-back {chain}")["rolled_back"] == []
    assert answer(f"rollback {chain} 0")["name"] == "0001-to-0"
    assert answer(f"rolled-back {chain} --undo")["done"] == "undone"
    assert lccodec.Chain(chain).steps == [0, 10, 20, 30]


def test_the_runs_below_an_address(place: str) -> None:
    """Whatever their depth; not what a rollback has set aside."""
    above, _, name = place.rpartition("/")
    for below, steps in ((place, (0, 1)), (f"{above}/deep/er", (5,))):
        with lccodec.Chain(below, "lossless") as chain:
            for step in steps:
                chain.save(step, {"a": np.ones(4)})
            if len(steps) > 1:
                chain.rollback(0)
    assert f"  {above}/deep/er: 1 checkpoint, step 5\n  {above}/{name}: " in ask(f"ls {above}")
    assert answer(f"ls {above}")["chains"] == sorted([f"{above}/deep/er", place])
    assert f"holds no checkpoint, but these chains: deep/er, {name}" in ask(f"info {above}", 1)
    if place.startswith("s3://"):
        bucket = place.removeprefix("s3://").partition("/")[0]
        assert {f"{above}/deep/er", place} <= {*answer(f"ls s3://{bucket}")["chains"]}
        assert "there is no such bucket; make it first" in ask("ls s3://nobody-has-this", 1)
