"""Rounds are timed, figures are stored and compared, tables are kept as data."""

import argparse
import json
from pathlib import Path

import pytest

from benchmarks.measure import figures, goals, results, rounds


def test_rounds() -> None:
    prepared = []
    job = rounds.Job(lambda: prepared.append("run"), lambda: prepared.append("prepare"))
    timings = rounds.measure({"job": job, "short": rounds.Job(int)}, lambda: sum(range(1_000)), 2)
    assert set(timings) == {"np.copyto", "job", "short"}
    assert prepared == ["prepare", "run"] * 3
    assert timings["np.copyto"].ratio == 1
    assert timings["short"].seconds > 0


TABLE = """about these

**A case**

| what | |
|---|---:|
| one | 1 |
| two | |

1 of 2 bounds is met."""


def test_tables_of_a_script_are_kept_as_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    results.add_results(parser)
    for words in ([], ["--results", str(tmp_path / "kept")]):
        results.tell(TABLE, "a.py --every 2", parser.parse_args(words).results)
        assert capsys.readouterr().out == f"{TABLE}\n"
    results.put_into(tmp_path / "kept", "b.py", "nothing")
    assert json.loads((tmp_path / "kept" / "a-every-2.json").read_text()) == [
        {"about": ["about these", "A case"], "columns": ["what", ""], "rows": [["one", "1"], ["two", ""]]},
        {"about": ["1 of 2 bounds is met."], "columns": [], "rows": []},
    ]
    assert json.loads((tmp_path / "kept" / "b.json").read_text()) == [
        {"about": ["nothing"], "columns": [], "rows": []}
    ]


def test_results_of_this_project_are_such_data() -> None:
    kept = sorted((Path(results.__file__).parents[1] / "results").glob("*.json"))
    assert {"follow.json", "promise.json", "throughput.json", "training.json"} <= {path.name for path in kept}
    for path in kept:
        for table in json.loads(path.read_text()):
            assert all(len(row) == len(table["columns"]) for row in table["rows"])


def figure(ratio: float, subject: str = "lc-3", *, peer: bool = False):
    return figures.Figure("real", "a case", subject, "encode", ratio, peer=peer, bits=1.5)


def test_figures_are_stored_and_compared(tmp_path: Path) -> None:
    stored = [figure(10.0), figure(5.0, "lc-2"), figure(3.0, "zstd", peer=True)]
    figures.dump(stored, {"data": "made"}, tmp_path / "stored.json")
    assert figures.load(tmp_path / "stored.json") == stored
    zero = [figures.Figure("memory", "a case", "a way", "more", 0.0, base="MiB")]
    figures.dump(zero, {}, tmp_path / "zero.json")
    assert figures.load(tmp_path / "zero.json") == zero
    now = [figure(11.6), figure(5.7, "lc-2"), figure(9.0, "zstd", peer=True), figure(99.0, "new")]
    assert figures.losses(now, stored) == [(now[0], 10.0)]
    assert figures.better(now, [figure(10.5)]) == [figure(10.5), *now[1:]]


def test_goals_say_what_is_missed() -> None:
    found = [
        goals.Goal("a", 4.0, 5, 2, unit="copies"),
        goals.Goal("b", 11.0, 10, 5),
        goals.Goal("c", 3.0, 10, unit="%"),
        goals.Goal("d", None, 10),
    ]
    assert [goal.state for goal in found] == [
        "met, 2.00 x the goal",
        "missed, 1.10 x the bound, 2.20 x the goal",
        "met",
        "not measured",
    ]
    assert goals.missed(found) == [found[1]]
    text = goals.summary(found)
    assert text.startswith("2 of 3 bounds are met. Not measured in this run: 1 more.")
    assert text.endswith("- b")
    assert "| a | 1/4 | 1/5 | 1/2 | met, 2.00 x the goal |" in goals.table(found)
    assert "| d | - | 10 x | - | not measured |" in goals.table(found)
