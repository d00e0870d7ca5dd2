"""The sections measure what they say, and the check finds what is lost; nothing here is timed."""

import cProfile
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import lccodec
from benchmarks.measure import figures
from benchmarks.measure.results import parse
from benchmarks.networks import tasks
from benchmarks.speed import (
    forms,
    frameworks,
    goals,
    inputs,
    many,
    measuring,
    memory,
    peers,
    plan,
    program,
    savers,
    settled,
    stages,
    tables,
    updates,
)

from ..support.tiny_tasks import tiny_task


def tiny(directory: Path):
    return plan.Plan(
        sizes=(1_000, 20_000),
        sweep=2_000,
        zero_shares=(0.5, 0.999),
        symbols=5_000,
        state=60_000,
        chain=30_000,
        tensor=20_000,
        checkpoint=3,
        many=5,
        updates=20_000,
        rounds=1,
        settling=1,
        small_network=True,
        directory=directory,
    )


@pytest.mark.parametrize("share", [0.5, 0.9, 0.999])
@pytest.mark.parametrize("bits", [None, 2, 3])
def test_made_differences_have_the_zero_share(share: float, bits: int | None) -> None:
    if bits is None:
        array, reference = inputs.spread(share, 100_000)
        quantizer = lccodec.UniformDeadzone(step=inputs.STEP)
    else:
        array, reference = inputs.bucketed(share, 100_000, bits)
        quantizer = lccodec.ExponentBuckets(bits=bits)
    decoded = lccodec.decode(lccodec.encode(array, quantizer, reference), reference)
    assert np.mean(decoded == reference) == pytest.approx(share, abs=0.005)


def test_repeats_of_a_walk_are_all_different() -> None:
    walk = inputs.load_walk(None)
    width = walk.layer[0].size
    array = walk.array(3, 3 * width + 5)
    assert np.array_equal(array[:width], walk.layer[3].reshape(-1))
    assert np.unique(array[: 2 * width]).size > 1.9 * width
    assert np.array_equal(array[2 * width :], walk.array(3, width + 5, start=2))
    state = walk.state(3, 3 * width, 2 * width)
    assert [a.size for a in state.values()] == [2 * width, width]


def test_walk_of_stored_states(tmp_path: Path) -> None:
    states = {f"{step}/fc1.weight": np.full((2, 3), step, np.float32) for step in range(1, 41)}
    np.savez(tmp_path / "states.npz", **states)
    walk = inputs.load_walk(tmp_path / "states.npz")
    assert walk.layer.shape == (40, 2, 3) and walk.layer[9, 0, 0] == 10
    np.savez(tmp_path / "few.npz", **{name: states[name] for name in list(states)[:9]})
    with pytest.raises(SystemExit, match="9 checkpoints"):
        inputs.load_walk(tmp_path / "few.npz")


def test_dtypes() -> None:
    array = inputs.load_walk(None).array(0, 10_000)
    bfloat16 = inputs.as_dtype(array, "bfloat16")
    assert bfloat16.dtype == lccodec.BFLOAT16_BITS
    assert bfloat16.tobytes() == array.astype(ml_dtypes.bfloat16).tobytes()
    doubles = inputs.as_dtype(array, "float64")
    assert doubles.dtype == np.float64
    assert np.mean(doubles.view(np.uint64) & 0xFFFF != 0) > 0.99
    assert inputs.as_dtype(array, "float32") is array


def test_symbols_have_the_entropy() -> None:
    symbols = inputs.symbols_of_entropy(3.70, 41, 200_000)
    shares = np.bincount(symbols, minlength=41) / symbols.size
    assert shares.size == 41 and shares.min() > 0
    assert -(shares @ np.log2(shares)) == pytest.approx(3.70, abs=0.01)


@pytest.mark.filterwarnings("default")  # what the peers warn of is theirs
def test_peers_give_back_what_they_were_given() -> None:
    difference = np.random.default_rng(0).standard_normal(5_000).astype(np.float32)
    for name, peer in peers.lossless_peers()[0].items():
        decoded = np.frombuffer(peer.decode(peer.encode(difference), 5_000), np.float32)
        assert np.array_equal(decoded, difference), name
    for name, peer in peers.bounded_peers(0.5, "")[0].items():
        coded = peer.encode(difference)
        assert np.abs(peer.decode(coded, 5_000) - difference).max() <= 0.5001, name
        assert len(coded) < difference.nbytes
    ((_, zlib),) = peers.huffman_peers().items()
    symbols = difference.view(np.uint8)
    assert np.array_equal(zlib.decode(zlib.encode(symbols), symbols.size), symbols)


def test_peers_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = ("zstandard", "pcodec", "blosc2", "zfpy", "hdf5plugin", "torch", "safetensors.numpy")
    for package in (*packages, "zipnn", "openzl"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    found, absent = peers.lossless_peers()
    assert (found, absent) == (
        {},
        ["zstd -1", "zstd -3", "pcodec", "blosc2, shuffle + zstd -1", "ZipNN", "OpenZL"],
    )
    assert peers.bounded_peers(1.0, "x") == ({}, ["SZ3, x", "ZFP, x"])
    found, absent = savers.savers()
    assert [saver.name for saver in found] == ["np.save", "np.savez"]
    assert absent == ["safetensors", "torch.save", "Orbax"]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_every_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "POLICIES", ("lc-3",))
    monkeypatch.setattr(tasks, "task", lambda name, _, **__: tiny_task(name))
    plan = replace(tiny(tmp_path), data=tmp_path)
    walk = inputs.load_walk(None)
    found, _ = program.measure(plan, walk, program.SECTIONS)
    assert {f.section for f in found} == set(program.SECTIONS)
    assert len({f.key for f in found}) == len(found)
    assert all(math.isfinite(f.ratio) and (f.ratio > 0 or f.section == "memory") for f in found)
    assert not [f.note for f in found if "the bound" in f.note]
    text = figures.markdown(found)
    assert all(f.subject in text and f.cell in text for f in found)
    (zeros,) = (f for f in found if (f.section, f.subject, f.action) == ("settled", "small", "encode"))
    assert zeros.bits is not None and zeros.bits < 4
    assert not list(tmp_path.iterdir())


def test_stages_begin_at_functions_of_the_library() -> None:
    for place in stages.STAGES:
        name, _, function = place.partition(".")
        source = (Path(lccodec.__file__).parent / f"{name}.py").read_text()
        assert not function or f"def {function}(" in source, place


@pytest.mark.parametrize("threshold", [1, 2])
def test_the_profile_divides_all_of_the_time(threshold: int) -> None:
    array, reference = inputs.load_walk(None).pair(200_000)
    profile = cProfile.Profile()
    profile.runcall(lccodec.encode, array, lccodec.ExponentBuckets(bits=threshold), reference)
    seconds = stages.stage_seconds(profile)
    assert sum(seconds.values()) == pytest.approx(sum(own for _, _, own, _, _ in profile.stats.values()))
    assert {stages.FIND, stages.FIT, stages.QUANTIZE, stages.RUNS, stages.HUFFMAN, stages.SUM} <= set(seconds)
    assert stages.PLANES not in seconds
    assert all(share >= -1e-9 for share in seconds.values())


def test_bounds_are_those_of_settled_deltas() -> None:
    rows = (("balanced", 9.0), ("zstd -1", 20.0), (settled.sz3_name("balanced"), 80.0), ("lc-3", 33.0))
    found = [
        figures.Figure("settled", "16,046,080 float32", name, "encode", ratio, seconds=ratio)
        for name, ratio in rows
    ]
    measured = {goal.what: goal for goal in goals.goals(found) if goal.measured is not None}
    assert [(goal.measured, goal.is_met) for goal in measured.values()] == [
        (9.0, True),
        (9 / 20, True),
        (9 / 80, True),
        (33.0, False),
        (33 / 20, False),
    ]
    assert len(goals.goals([])) == 30
    assert not [
        goal for goal in goals.goals([replace(f, case="500 float32") for f in found]) if goal.measured
    ]


@pytest.mark.parametrize("where", [updates.SPREAD, updates.ROWS])
@pytest.mark.parametrize("share", updates.SHARES)
def test_an_update_changes_its_share_by_small_steps(share: float, where: str) -> None:
    after, before = updates.update(1_000_000, share, where)
    assert np.mean(after != before) == pytest.approx(share, rel=0.1)
    steps = after.astype(np.int64) - before
    assert np.mean(abs(steps[steps != 0]) == 1) == pytest.approx(updates.ONE_STEP, abs=0.01)


def test_bounds_of_compiled_loops_find_their_figures() -> None:
    def of(subject: str, action: str, seconds: float) -> figures.Figure:
        case = "16,000,000 float32, all moved, lc-3"
        return figures.Figure(forms.SECTION, case, subject, action, 1.0, seconds=seconds)

    rows = [of(forms.COMPILED, "encode", 3.0), of("zstd -1", "encode", 4.0)]
    (goal,) = (goal for goal in goals.goals(rows) if goal.measured is not None)
    assert (goal.measured, goal.is_met) == (0.75, False)


def test_bounds_of_updates_find_their_figures() -> None:
    def of(subject: str, action: str, ratio: float, bits: float) -> figures.Figure:
        case = f"16,000,000 bfloat16, 1.0% changed, {updates.SPREAD}"
        return figures.Figure(updates.SECTION, case, subject, action, ratio, bits=bits)

    rows = [
        of(updates.OWN, "encode", 13.0, 0.09),
        of(updates.OWN, "decode in place", 5.0, 0.09),
        of(updates.PEER, "encode", 9.0, 0.18),
    ]
    measured = {goal.what: goal for goal in goals.goals(rows) if goal.measured is not None}
    assert [(goal.measured, goal.is_met) for goal in measured.values()] == [
        (0.09, True),
        (0.5, True),
        (13.0, False),
        (5.0, True),
    ]


def figure(ratio: float) -> figures.Figure:
    return figures.Figure("real", "a case", "lc-3", "encode", ratio)


def test_what_seems_lost_is_measured_again() -> None:
    asked = []

    def again(sections: set[str]) -> list[object]:
        asked.append(sections)
        return [figure(11.0)]

    assert program.check([figure(20.0)], [figure(10.0)], again) == []
    assert asked == [{"real"}]
    (line,) = program.check([figure(20.0)], [figure(5.0)], again)
    assert "lc-3" in line and "+120%" in line


def test_a_bound_that_seems_missed_is_measured_again() -> None:
    def encode(copies: float) -> figures.Figure:
        return figures.Figure("settled", "16,046,080 float32", "balanced", "encode", copies)

    assert program.check([encode(12.0)], [], lambda _: [encode(9.0)]) == []
    (line,) = program.check([encode(12.0)], [], lambda _: [encode(11.0)])
    assert line == "encode, balanced: missed, 1.10 x the bound"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(program, "QUICK", replace(tiny(tmp_path), rounds=2))

    def run(*arguments: str | Path) -> int:
        monkeypatch.setattr(sys, "argv", ["throughput.py", "--quick", *map(str, arguments)])
        return program.main()

    return run


def test_command_line(run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "stored.json"
    assert run("--only", "huffman", "--json", path) == 0
    assert "| lccodec |" in capsys.readouterr().out
    document = json.loads(path.read_text())
    assert document["quick"] and document["versions"]["numpy"] == np.__version__

    for factor, status in ((1e3, 0), (1e-3, 1)):
        scaled = [{**f, "ratio": f["ratio"] * factor} for f in document["figures"]]
        path.write_text(json.dumps({"figures": scaled}))
        assert run("--only", "huffman", "--check", path) == status
        assert ("lost more than 15 %" in capsys.readouterr().out) == (status == 1)

    path.write_text(json.dumps({"figures": []}))
    assert run("--only", "huffman", "--check", path) == 2
    assert "none of its figures" in capsys.readouterr().out
    assert run("--only", "huffman", "--check") == 2
    assert "no bound was measured" in capsys.readouterr().out


def test_figures_of_several_runs_are_reported_together(
    run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--only", "huffman", "--json", tmp_path / "huffman.json") == 0
    assert run("--only", "--add", tmp_path / "huffman.json", "--results", tmp_path / "kept") == 0
    out, written = capsys.readouterr().out, (tmp_path / "kept" / "throughput.json").read_text()
    assert out.count("| zlib Z_HUFFMAN_ONLY |") == 2 and written.count('["zlib Z_HUFFMAN_ONLY"') == 1
    assert "--add huffman.json" in written and str(tmp_path) not in written


@pytest.mark.filterwarnings("default")
def test_sizes_are_asked_for(run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--only", "dtypes", "real", "--elements", "1e3", "2e3", "--rounds", "1") == 0
    out = capsys.readouterr().out
    assert "1,000 float32, random walk" in out and "2,000 float32, random walk" in out


def test_frameworks(capsys):
    frameworks.main(["--million", "0", "--rounds", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["torch", "torch", "jax", "jax", "load_into", "import:"]
    assert all("adapter alone" in line for line in lines[:4])


def test_many_checkpoints(capsys):
    assert many.main(["--checkpoints", "20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {action}" for action in many.BOUNDS]


def test_measuring(monkeypatch, tmp_path: Path, capsys):
    tiny = measuring.Case("tiny", ((3, 5), (4,)), moments=True)
    monkeypatch.setattr(measuring, "CASES", (tiny,))
    monkeypatch.setattr(measuring, "BOUND", 1.0)
    words = ["--saves", "2", "--policies", "balanced", "--results", str(tmp_path)]
    assert measuring.main(words) == 0
    assert parse(capsys.readouterr().out) == json.loads((tmp_path / "measuring.json").read_text())
    assert (tmp_path / "measuring.json").read_text().count('["tiny",') == 2
    monkeypatch.setattr(measuring, "BOUND", 0.0)
    assert measuring.main(["--saves", "1", "--policies", "balanced"]) == 1
    assert "missed" in capsys.readouterr().out


def test_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--rows", "3000", "--rounds", "1", "--directory", str(tmp_path), "--results", str(tmp_path)]
    tables.main(words)
    out = capsys.readouterr().out
    assert parse(out) == json.loads((tmp_path / "tables.json").read_text())
    rows = [line.split(" | ") for line in out.splitlines() if line.startswith("| steps, anywhere")]
    assert [row[2] for row in rows] == 3 * ["hashes"] + 3 * ["values"] + 3 * ["zstd -1"]
    assert [row[3] for row in rows[:3]] == [row[3] for row in rows[3:6]]  # the same files
