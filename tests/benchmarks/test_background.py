"""Ways to save do what their rows say, and the bounds find their figures; nothing here is timed."""

import json
import math
import os
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import lccodec
from benchmarks.background import (
    bounds,
    calls,
    crews,
    devices,
    first,
    loop,
    memory,
    plan,
    program,
    states,
    ways,
)
from benchmarks.measure import figures
from benchmarks.networks import tasks

from ..support.tiny_tasks import tiny_task

SETTINGS = replace(plan.QUICK, steps=(2, 2, 2), loops=1, values=4_000, large=4_000, depth=2, many=3, rounds=1)


def small_run(count: int = 2) -> list[states.State]:
    run = tasks.Run(tiny_task("gpt"))
    found = []
    for _ in range(count):
        run.advance(1, seed=0)
        found.append({name: array.copy() for name, array in states.views(run).items()})
    return found


def test_a_model_on_a_device_is_saved_and_served(capsys: pytest.CaptureFixture[str]) -> None:
    assert devices.main(["--device", "cpu", "--megabytes", "0.1", "--rounds", "1"]) == 0
    shown = [line.split(" | ")[0] for line in capsys.readouterr().out.splitlines()]
    assert len(shown) == len(set(shown)) == 4 + 1 + 2 * len(devices.SHARES)


def test_views_are_the_memory_of_the_run() -> None:
    run = tasks.Run(tiny_task("gpt"))
    run.advance(1, seed=0)
    state = states.views(run)
    assert {name.split(".")[0] for name in state} == {"model", "exp_avg", "exp_avg_sq"}
    before = {name: array.copy() for name, array in state.items()}
    run.advance(1, seed=0)
    assert all(not np.array_equal(before[name], state[name]) for name in ("model.head.weight",))


def test_repeats_of_a_network_are_all_different() -> None:
    run = small_run()
    values = sum(array.size for array in run[0].values())
    adam = states.Adam(run, 2 * values + 1)
    assert adam.values > 2 * values and len(adam) == 2
    state = adam.state(1)
    assert sum(array.size for array in state.values()) == adam.values
    assert np.array_equal(state["model.000.head.weight"], run[1]["model.head.weight"])
    (scale,) = {
        round(float(np.abs(state[f"model.001.{name}"]).sum() / np.abs(run[1][f"model.{name}"]).sum()), 3)
        for name in ("head.weight", "characters.weight")
    }
    assert scale != 1
    one, other = (
        np.sort(a, axis=None) for a in (state["exp_avg_sq.001.head.weight"], run[1]["exp_avg_sq.head.weight"])
    )
    assert np.allclose(one, scale**2 * other, rtol=1e-2)
    roles = {a.role for a in lccodec.Chain("nowhere").plan(state)}
    assert roles == {"weight", "first_moment", "second_moment"}
    small = states.small_arrays(run[0], 3)
    assert [array.size for array in small.values()] == [1_000] * 3


@pytest.mark.parametrize("kind", [*ways.OWN, ways.TwoWorkers])
def test_our_ways_store_the_state_at_the_call(kind: type[ways.Way], tmp_path: Path) -> None:
    way = kind(tmp_path / "way")
    state = {"counts": np.zeros(5_000, np.int64), "weight": np.zeros(5_000, np.float32)}
    for step in range(2):
        state["counts"][:] = step
        way.save(step, state)
        state["counts"][:] = 99
    way.settle()
    assert len(way.calls) == len(way.durable) == 2 and not way.busy
    assert all(durable >= call for durable, call in zip(way.durable, way.calls, strict=True))
    way.close()
    chain = lccodec.Chain(tmp_path / "way")
    assert [int(chain.restore(step)["counts"][0]) for step in (0, 1)] == [0, 1]


@pytest.mark.filterwarnings("default")  # what the peers warn of is theirs
@pytest.mark.parametrize("kind", [ways.TorchSave, ways.Dcp, ways.Orbax])
def test_peers_write_and_tidy_up(kind: type[ways.Way], tmp_path: Path) -> None:
    way = kind(tmp_path / "way")
    state = {"weight": np.zeros(5_000, np.float32)}
    way.save(0, state)
    way.save(1, state)
    way.settle()
    assert len(way.calls) == len(way.durable) == 2
    assert not list((tmp_path / "way").iterdir())
    way.close()
    assert not torch.distributed.is_initialized()


def test_a_way_that_fails_says_so(tmp_path: Path) -> None:
    class Failing(ways.Way):
        def begin(self, *_: object) -> Future[None]:
            future: Future[None] = Future()
            future.set_exception(OSError("the disk is full"))
            return future

    way = Failing(tmp_path / "way")
    way.save(0, {})
    with pytest.raises(OSError, match="the disk is full"):
        way.settle()


def test_ways_that_are_not_installed_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    found, absent = ways.opened([ways.Nothing, ways.Orbax], tmp_path)
    assert [way.name for way in found] == ["no saving"] and absent == ["Orbax, async"]


def test_a_segment_knows_which_steps_met_a_save(tmp_path: Path) -> None:
    class Slow(ways.Way):
        """Its save ends after the second step."""

        def begin(self, *_: object) -> Future[None]:
            self.future: Future[None] = Future()
            return self.future

    class Run(tasks.Run):
        def advance(self, iterations: int, seed: int) -> None:
            super().advance(iterations, seed)
            if self.iteration % 4 == 3:
                way.future.set_result(None)

    way, run = Slow(tmp_path / "way"), Run(tiny_task("gpt"))
    tasks.Run.advance(run, 1, seed=0)
    segment = loop.run_segment(run, way, every=4, steps=8)
    assert segment.flying == [True, False, False, False] * 2
    assert len(segment.steps) == 8 and len(segment.slowed) == len(segment.calls) == 2
    assert len(segment.durable) == 2


def test_memory_is_that_of_a_process_and_those_below_it() -> None:
    code = "print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in memory.family(os.getpid())
        assert 0 < memory.share(child.pid) <= memory.status(child.pid, "VmHWM")
        child.communicate(b"\n")


def figure(section: str, subject: str, action: str, ratio: float, case: str = "a case") -> figures.Figure:
    return figures.Figure(section, case, subject, action, ratio, seconds=ratio, values=1 << 20)


def test_every_bound_finds_its_figure() -> None:
    one, two = (crews.row("balanced", n) for n in (1, 2))
    way = ways.Async.name
    found = [
        figure(calls.SECTION, way, loop.CALL, 1.2),
        *(figure(loop.SECTION, way, loop.WHILE, 4.0, f"a save {loop.often(n)}") for n in plan.INTERVALS),
        *(figure(crews.SECTION, one, action, 4.0) for action in bounds.ACTIONS),
        *(figure(crews.SECTION, two, action, 2.4) for action in bounds.ACTIONS),
        figure(first.SECTION, two, first.FIRST, 1.0),
        figure(first.SECTION, two, first.WHOLE, 40.0),
        figure(memory.SECTION, way, memory.PROCESS, 70.0),
        figure(memory.SECTION, way, memory.WORKER, 100.0),
        figure(crews.SMALL, crews.row("balanced", None), crews.SAVE, 2.0),
        figure(crews.SMALL, one, crews.SAVE, 3.0),
    ]
    goals = bounds.bounds(found)
    assert set(goals) == set(program.SECTIONS)
    measured = [[goal.measured for goal in of if goal.measured is not None] for of in goals.values()]
    assert measured == [[1.2], [4.0] * 3, [0.6, 0.6, 0.6, 1.0], [2.5], [66.0, 100.0], [1.5]]
    missed = [goal.what for of in goals.values() for goal in of if goal.measured and not goal.is_met]
    assert missed == [
        "training process beyond its state and one in shared memory, 1 worker",
        "save of small arrays with 1 worker, over without",
    ]
    assert len(program.goals([])) == 21


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_every_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "task", lambda name, _, **__: tiny_task(name))
    for module in (loop, calls):
        monkeypatch.setattr(module, "PEERS", (ways.TorchSave,))
    monkeypatch.setattr(crews, "POLICIES", ("balanced",))
    monkeypatch.setattr(memory, "SAVES", 1)
    settings = replace(SETTINGS, directory=tmp_path, data=tmp_path)
    adam = states.Adam(list(states.train(tmp_path, 3, quick=True)), settings.values)
    found, _ = program.measure(settings, adam, program.SECTIONS)
    assert {f.section for f in found} == set(program.SECTIONS)
    assert len({f.key for f in found}) == len(found)
    assert all(math.isfinite(f.ratio) for f in found)
    unknown = [goal.what for goal in program.goals(found) if goal.measured is None]
    assert all("slowdown" in what or "lossless" in what or "lc-3" in what for what in unknown)
    assert all(f.cell in figures.markdown(found) for f in found)
    assert not list(tmp_path.iterdir())


def test_stored_figures_are_reported_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*found: figures.Figure) -> int:
        figures.dump(found, {}, tmp_path / "stored.json")
        words = ["--only", "--add", str(tmp_path / "stored.json"), "--check", "--results", str(tmp_path)]
        return program.main(words)

    call = figure(calls.SECTION, ways.Async.name, loop.CALL, 1.2)
    assert run() == 2
    assert run(call) == 0
    assert run(replace(call, ratio=1.6)) == 1
    assert "Missed:\nblocking time of save_async" in capsys.readouterr().out
    assert "1 bounds are met" in (tmp_path / "overlap.json").read_text()
    assert json.loads((tmp_path / "stored.json").read_text())["figures"]
