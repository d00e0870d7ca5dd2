"""The benchmark of weight updates, at a small size: real updates; every way gives their bits."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.measure.figures import Figure
from benchmarks.sync import bucket, program, updates, ways

from ..support.tiny_tasks import tiny_task


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "task", tiny_task)
    monkeypatch.setattr(updates, "RUNS", {})


@pytest.mark.parametrize("kind", ["bfloat16", "float8"])
def test_about_as_many_values_change_as_asked_for(tmp_path: Path, kind: updates.Kind) -> None:
    few = updates.make_update(tmp_path, kind, 0.02, 30_000, quick=True)
    many = updates.make_update(tmp_path, kind, 0.2, 30_000, quick=True)
    assert 0.005 < few.share < 0.05 < many.share < 0.4
    assert few.rate < many.rate
    assert few.nbytes >= 30_000
    assert few.changed_bytes <= few.nbytes
    assert {array.dtype.itemsize for array in few.old.values()} == {2 if kind == "bfloat16" else 1}


def test_each_step_begins_where_the_one_before_ended(tmp_path: Path) -> None:
    update = updates.make_update(tmp_path, "bfloat16", 0.05, 50_000, quick=True)
    name = "blocks.0.attend.weight" if "blocks.0.attend.weight" in update.old else next(iter(update.old))
    steps = update.nbytes // (2 * sum(p.numel() for p in updates.RUNS[tmp_path, True].parameters.values()))
    old, new = (each[name].view(np.uint16).reshape(steps, -1) for each in (update.old, update.new))
    assert steps > 2
    np.testing.assert_array_equal(old[1:], new[:-1])


def test_every_way_gives_the_new_arrays(tmp_path: Path) -> None:
    update = updates.make_update(tmp_path, "bfloat16", 0.05, 50_000, quick=True)
    for way in ways.all_ways(update, tmp_path / "ways"):
        size = way.publish()
        way.prepare()
        with pytest.raises(SystemExit, match="is wrong"):
            way.check()
        way.commit()
        way.check()
        assert 0 < size < 1.2 * update.nbytes


def test_a_follower_of_a_bucket_reads_the_delta(tmp_path: Path) -> None:
    update = updates.make_update(tmp_path, "bfloat16", 0.05, 50_000, quick=True)
    seconds, kilobytes = bucket.bucket_goals(update, "memory://benchmark-of-sync", 2 * update.nbytes)
    assert seconds.measured is not None
    assert seconds.measured > 0
    assert kilobytes.is_met


def test_bounds(tmp_path: Path) -> None:
    update = updates.make_update(tmp_path, "bfloat16", 0.05, 50_000, quick=True)
    figures = [
        Figure("Weight sync", "", "lccodec", "bytes", 50.0),
        Figure("Weight sync", "", "XOR + zstd -1", "bytes", 25.0),
        Figure("Weight sync", "", "lccodec", "prepare", 20.0, seconds=1.0),
        Figure("Weight sync", "", "lccodec", "pause", 2.0, seconds=0.001),
        Figure("Weight sync", "", "lccodec, 2 workers", "prepare", 12.0, seconds=0.6),
    ]
    goals = {goal.what.partition(": ")[2]: goal for goal in program.goals_of(update, 0.05, figures)}
    assert goals["bytes, over the array's"].measured == pytest.approx(20)
    assert goals["bytes, over XOR + zstd -1"].measured == pytest.approx(0.5)
    assert goals["pause"].measured == pytest.approx(1)
    assert goals["pause"].must > len(update.old)
    assert goals["prepare, two workers over one"].measured == pytest.approx(0.6)
    for workers, seconds in (("", 1.001), (", two workers", 0.601)):
        found = goals[f"one step behind, for 1 GB{workers}"]
        assert found.measured == pytest.approx(seconds * 1e9 / update.nbytes)


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "SHARES", (0.05,))
    figures = tmp_path / "figures.json"
    words = ["--data", tmp_path, "--quick", "--size", 50_000, "--rounds", 1]
    program.main([*map(str, words), "--json", str(figures), "--results", str(tmp_path)])
    assert '["overwrite + zstd -1",' in (tmp_path / "follow.json").read_text()
    assert len(json.loads(figures.read_text())["figures"]) == 2 * 6 * 4
