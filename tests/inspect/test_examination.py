"""A report of a run: its numbers are those of a plain computation, and damage does not stop it.

Two states beside each other, from chains, bundles and files.
"""

import tracemalloc
from collections import Counter

import numpy as np
import pytest

import lccodec
from lccodec.chain.life.prune import pin
from lccodec.chain.read.checkpoint import open_path
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.manifest import QUANTILES
from lccodec.frame.decode import decode_components
from lccodec.inspect import examination
from lccodec.inspect import report as selection
from lccodec.inspect.difference import Replacement
from lccodec.inspect.examination import compare, examine
from lccodec.inspect.report import document
from lccodec.inspect.trajectory import effective_rank

from ..support.damage import flip
from ..support.paths import checkpoint_path
from ..support.runs import arrays_of, run_states, save_run
from ..support.walks import save_all


def rms(array):
    return float(np.sqrt(np.mean(array.astype(np.float64) ** 2)))


def only_run(*args, **options):
    (run,) = examine(*args, **options).runs
    return run


def row_of(run, name):
    return [row.name for row in run.arrays].index(name)


def test_figures_are_those_of_a_plain_computation(tmp_path):
    chain = save_run(tmp_path / "run", run_states(), policy="lossless", keyframe_every=3)
    run = only_run(chain.directory)
    assert (run.kind, run.steps, run.notes) == ("chain", list(range(0, 80, 10)), [])
    restored = [arrays_of(chain.restore(step, exact=False)) for step in run.steps]
    assert [row.name for row in run.arrays] == list(restored[-1])
    for index, row in enumerate(run.arrays):
        series = {name: rows[index] for name, rows in run.figures.items()}
        for place, arrays in enumerate(restored):
            array = arrays[row.name].astype(np.float64)
            assert series["rms"][place] == pytest.approx(rms(array), rel=1e-12)
            assert series["zeros"][place] == np.mean(array == 0)
            assert (series["minimum"][place], series["maximum"][place]) == (array.min(), array.max())
            assert series["not_finite"][place] == 0
            before = restored[place - 1][row.name].astype(np.float64) if place else None
            if before is None or not before.any():
                assert series["movement"][place] is series["error"][place] is series["lag"][place] is None
                continue
            assert series["error"][place] == series["lag"][place] == (0 if (array != before).any() else None)
            change = array - before
            assert series["movement"][place] == pytest.approx(rms(change) / rms(before), rel=1e-12)
            if array.ndim < 2 or not change.any():
                assert series["rank"][place] is None
            else:
                assert series["rank"][place] == pytest.approx(effective_rank(change), rel=1e-6)
        spread = run.histograms[index]
        edges = np.linspace(spread.low, spread.high, len(spread.counts[0]) + 1)
        expected = [np.histogram(arrays[row.name], edges)[0].tolist() for arrays in restored]
        assert spread.counts == expected


def test_no_histogram_is_made_up(tmp_path):
    """Of what lost something there is what its save measured, and of what did not a true count."""
    rng = np.random.default_rng(0)
    with lccodec.Chain(tmp_path / "run", "balanced", roles={"model/*": "weight"}) as chain:
        values = rng.standard_normal(40_960).astype("f4")
        for step in range(3):
            values = values + rng.standard_normal(values.size).astype("f4") / 100
            chain.save(step, {"model": {"w": values}, "other": np.arange(50)})
    run = only_run(tmp_path / "run")
    lossy, exact = row_of(run, "model/w"), row_of(run, "other")
    assert run.histograms[lossy] is None
    assert run.quantiles[exact] is None
    spread = run.histograms[exact]
    edges = np.linspace(spread.low, spread.high, len(spread.counts[0]) + 1)
    assert spread.counts == [np.histogram(np.arange(50), edges)[0].tolist()] * 3
    shares = [0, *QUANTILES, 1]
    assert run.quantiles[lossy][-1] == pytest.approx(np.quantile(values, shares).tolist(), abs=0.3)


@pytest.mark.slow
def test_steps_that_are_protected(tmp_path):
    chain = save_run(tmp_path / "run", run_states(), keyframe_every=3)
    assert not any(found.protected for found in only_run(chain.directory).checkpoints)
    chain.protect(1)
    assert all(found.protected for found in only_run(chain.directory).checkpoints)
    next((chain.directory / ".parity").iterdir()).write_bytes(b"")
    assert sum(found.protected for found in only_run(chain.directory).checkpoints) in (0, len(chain.steps))


def test_checkpoints_arrays_and_bytes(tmp_path):
    states = run_states()
    chain = save_run(tmp_path / "run", states, keyframe_every=3, newest="exact")
    pin(DirectoryStore(chain.directory), 20)
    run = only_run(chain.directory)
    infos = [chain.info(step) for step in chain.steps]
    for found, info in zip(run.checkpoints, infos, strict=True):
        assert found.kind == ("keyframe" if info.parent is None else "delta")
        assert (found.step, found.parent, found.depth) == (info.step, info.parent, info.deltas)
        assert (found.bytes, found.nbytes, found.policy) == (info.file_bytes, info.nbytes, "balanced")
        assert (found.sound, found.problems, found.metadata) == (True, [], info.metadata)
        assert (found.exact, found.pinned) == (info.step == 70, info.step == 20)
        assert sum(found.roles.values()) == sum(array.stored_bytes for array in info.arrays)
    assert {"keyframe", "delta"} == {found.kind for found in run.checkpoints}
    for index, row in enumerate(run.arrays):
        assert row.stored_bytes == sum(info.arrays[index].stored_bytes for info in infos)
        assert row.nbytes == sum(info.arrays[index].nbytes for info in infos)
        newest = infos[-1].arrays[index]
        assert (row.role, row.why, row.quantizer) == (newest.role, newest.why, newest.quantizer)
        assert (row.dtype, row.shape, row.size) == (newest.dtype, newest.shape, int(np.prod(newest.shape)))
    files = sum(path.stat().st_size for path in chain.directory.iterdir())
    assert sum(run.streams.values()) == files
    assert run.streams["exact file"] > 0


def test_a_bundle_and_a_file_are_as_the_chain(tmp_path):
    chain = save_run(tmp_path / "run", run_states(4), newest="exact")
    lccodec.bundle(chain.directory, tmp_path / "run.lccb")
    whole = document(examine(chain.directory))["runs"][0]
    packed = document(examine(tmp_path / "run.lccb"))["runs"][0]
    for name in ("figures", "histograms", "arrays", "steps", "streams"):
        assert packed[name] == whole[name]
    assert [each["exact"] for each in packed["checkpoints"]] == [False, False, False, True]
    assert packed["kind"] == "bundle"
    assert packed["loss"]["steps"] == [30]
    run = only_run(checkpoint_path(chain.directory, 20))
    assert (run.kind, run.steps, [each.depth for each in run.checkpoints]) == ("file", [20], [2])
    assert run.loss is None


def test_a_single_file_without_a_step(tmp_path):
    lccodec.save_file(
        {"w": np.ones((3, 3)), "empty": np.zeros((0, 2)), "nan": np.full(2, np.nan)}, tmp_path / "f.lcc.h5"
    )
    run = only_run(tmp_path / "f.lcc.h5")
    assert run.steps == [0]
    assert run.checkpoints[0].step is None
    assert run.notes == ["The file has no step, and is shown as step 0."]
    assert run.figures["rms"] == [[1.0], [None], [None]]
    assert run.histograms[1:] == [None, None]
    assert [flag.kind for flag in run.flags] == ["not finite"]


# --- what is not whole ----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_damaged_and_a_missing_step(tmp_path):
    chain = save_run(tmp_path / "run", run_states(12), keyframe_every=3)
    infos = [chain.info(step) for step in chain.steps]
    assert [info.step for info in infos if info.parent is None] == [0, 40, 80]
    damaged = checkpoint_path(chain.directory, 20)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    checkpoint_path(chain.directory, 50).unlink()
    run = only_run(chain.directory)
    kinds = {each.step: each.kind for each in run.checkpoints}
    assert [step for step, kind in kinds.items() if kind == "unreadable"] == [20, 30, 60, 70]
    assert run.steps == [0, 10, 40, 80, 90, 100, 110]
    assert all(not each.sound and each.problems for each in run.checkpoints if each.kind == "unreadable")
    assert [(flag.kind, flag.step) for flag in run.flags[:2]] == [("damaged", 20), ("missing", 60)]
    assert "Nor can 1 later step" in run.flags[0].sentence
    index = row_of(run, "model/fc1.weight")
    assert all(value is not None for value in run.figures["rms"][index])
    assert run.notes == ["4 of 11 checkpoints cannot be read, and have no figures."]


def test_a_chain_of_which_nothing_can_be_read(tmp_path):
    chain = save_run(tmp_path / "run", run_states(3))
    for step in chain.steps:
        checkpoint_path(chain.directory, step).write_bytes(b"")
    run = only_run(chain.directory)
    assert (run.arrays, run.steps, run.histograms, run.loss) == ([], [], [], None)
    assert [each.kind for each in run.checkpoints] == ["unreadable"] * 3
    assert run.notes == ["3 of 3 checkpoints cannot be read, and have no figures."]
    with pytest.raises(lccodec.ArgumentError, match=r"has none of the given steps$"):
        examine(chain.directory, steps=[0])


def test_a_damaged_frame_takes_its_arrays_along(tmp_path):
    chain = save_run(tmp_path / "run", run_states(6, width=300), policy="lossless")
    path = checkpoint_path(chain.directory, 20)
    data = bytearray(path.read_bytes())
    with open_path(path) as file:
        link = file.links[-1]
        number = link.frame_of(link.names["model/fc1.weight"])
        place = link.reader._offsets[number] + link.manifest.frames[number].length // 2
    data[place] ^= 1
    path.write_bytes(bytes(data))
    run = only_run(chain.directory)
    broken = row_of(run, "model/fc1.weight")
    others = [i for i, row in enumerate(run.arrays) if row.name.endswith("exp_avg/fc1.weight")]
    assert run.figures["rms"][broken][2:] == [None] * 4
    assert run.histograms[broken].counts[2:] == [[]] * 4
    assert all(value is not None for value in run.figures["rms"][others[0]])
    assert [each.sound for each in run.checkpoints] == [True, True, False, False, False, False]
    assert all("LCC-" in each.problems[0] for each in run.checkpoints[2:])
    assert run.flags[0].kind == "damaged"


@pytest.mark.parametrize("policy", ["balanced", "lossless"])
def test_copies_have_figures(tmp_path, policy):
    rng, weight = np.random.default_rng(0), np.ones((40, 30), np.float32)
    with lccodec.Chain(tmp_path / "run", policy, newest="history") as chain:
        for step in range(4):
            weight = weight + rng.normal(size=weight.shape).astype(np.float32)
            chain.save(step, {"model": {"w.weight": weight.astype("f2")}, "master": {"w.weight": weight}})
    run = only_run(chain.directory)
    assert [array.method for array in chain.info(3).arrays].count("copy") == 1
    assert all(each.sound for each in run.checkpoints)
    copy, source = (run.figures["rms"][row_of(run, f"{place}/w.weight")] for place in ("model", "master"))
    assert copy == pytest.approx(source, rel=0.01)
    assert None not in copy


def test_arrays_that_come_go_and_change_their_type(tmp_path):
    with lccodec.Chain(tmp_path / "run", "lossless") as chain:
        chain.save(0, {"weight": np.ones((4, 4)), "old": np.ones(3)})
        chain.save(1, {"weight": np.ones((4, 5)), "new": np.ones(3)})
        chain.save(2, {"weight": np.full((4, 5), 2.0), "new": np.ones(3, np.float32)})
    run = only_run(tmp_path / "run")
    assert [row.name for row in run.arrays] == ["weight", "new", "old"]
    assert run.figures["movement"] == [[None, None, 1.0], [None, None, None], [None, None, None]]
    assert run.figures["rms"] == [[1.0, 1.0, 2.0], [None, 1.0, 1.0], [1.0, None, None]]


def test_a_step_that_is_pruned_meanwhile_is_left_out(tmp_path):
    chain = save_run(tmp_path / "run", run_states(5), keyframe_every=0)

    def prune(*_):
        checkpoint_path(chain.directory, 20).unlink(missing_ok=True)

    run = only_run(chain.directory, progress=prune)
    assert run.steps == [each.step for each in run.checkpoints] == [0, 10, 30, 40]
    assert run.flags == []


# --- selection ------------------------------------------------------------------------------------


def test_steps_and_arrays_are_chosen(tmp_path, monkeypatch):
    chain = save_run(tmp_path / "run", run_states(8))
    monkeypatch.setattr(selection, "MAX_CELLS", 12)
    monkeypatch.setattr(examination, "largest", lambda rows: selection.largest(rows, 4))
    monkeypatch.setattr(examination, "MAX_CHECKPOINTS", 5)
    run = only_run(chain.directory)
    assert run.steps == [0, 40, 70]
    assert len(run.arrays) == 4
    assert {len(series) for rows in run.figures.values() for series in rows} == {3}
    assert run.notes == [
        "4 of 10 arrays are shown: the largest.",
        "3 of 8 steps have figures: evenly spaced ones.",
        "5 of 8 checkpoints are listed, those with problems too.",
    ]
    assert [each.step for each in run.checkpoints] == [0, 20, 40, 50, 70]


def test_chosen_steps(tmp_path):
    chain = save_run(tmp_path / "run", run_states(8))
    run = only_run(chain.directory, steps=range(20, 60, 20))
    assert run.steps == [20, 40]
    assert run.notes == ["2 of 8 steps have figures: as asked for."]
    states = [arrays_of(state)["model/fc1.weight"].astype(np.float64) for state in run_states(8)]
    moved = [rms(states[step] - states[step - 1]) / rms(states[step]) for step in (2, 4)]
    index = row_of(run, "model/fc1.weight")  # since the save before, which is not shown
    assert run.figures["movement"][index] == pytest.approx(moved, rel=0.01)
    with pytest.raises(lccodec.ArgumentError, match="none of the given steps; it has steps 0 to 70"):
        examine(chain.directory, steps=[5])


# --- what it costs --------------------------------------------------------------------------------


@pytest.fixture(name="decoded")
def _decoded(monkeypatch):
    """How many frames were decoded."""
    decoded = Counter()

    def counted(*args, **options):
        decoded["frames"] += 1
        return decode_components(*args, **options)

    monkeypatch.setattr("lccodec.chain.read.replay.decode_components", counted)
    return decoded


def frames_of(chain):
    return sum(len(open_path(path).links[-1].manifest.frames) for path in chain.directory.glob("0*.h5"))


def test_each_delta_is_decoded_once(tmp_path, decoded):
    chain = save_run(tmp_path / "run", run_states(8), policy="lossless")
    seen = []
    examine(chain.directory, progress=lambda done, total: seen.append((done, total)))
    assert decoded["frames"] == frames_of(chain)
    assert seen == [(number, 8) for number in range(1, 9)]


def test_what_its_saves_measured_is_not_decoded(tmp_path, decoded):
    chain = save_run(tmp_path / "run", run_states(8), newest="history")
    run = only_run(chain.directory)
    few = decoded["frames"]
    again = only_run(chain.directory, against=chain.directory)  # for which all is decoded, twice
    assert decoded["frames"] - few == 2 * frames_of(chain)
    assert few < frames_of(chain) / 2
    assert run.figures == again.figures
    assert run.histograms == again.histograms


def test_a_damaged_frame_that_is_not_decoded_is_found(tmp_path):
    chain = save_run(tmp_path / "run", run_states(4, width=300), newest="history")
    path = checkpoint_path(chain.directory, 10)
    with open_path(path) as file:
        link = file.links[-1]
        place = link.reader._offsets[link.frame_of(link.names["model/fc1.weight"])]
    flip(path, place + 50)
    run = only_run(chain.directory)
    assert [each.sound for each in run.checkpoints] == [True, False, False, False]
    assert "LCC-MAN-08" in run.checkpoints[1].problems[0]
    assert run.figures["rms"][row_of(run, "model/fc1.weight")][1:] == [None] * 3


@pytest.mark.slow
@pytest.mark.parametrize("originals", [False, True])
def test_memory_is_that_of_three_states(tmp_path, originals):
    """One is decoded, one is that of the step before, two more are originals."""
    rng = np.random.default_rng(0)
    state = {f"layer{i}.weight": rng.normal(size=(400, 150)).astype(np.float32) for i in range(20)}
    nbytes = sum(array.nbytes for array in state.values())
    for directory, policy in (("run", "balanced"), ("exact", "lossless")):
        with lccodec.Chain(tmp_path / directory, policy) as chain:
            for step in range(4):
                chain.save(step, {name: array + np.float32(step / 100) for name, array in state.items()})
    examine(tmp_path / "run", steps=[0])  # what is imported and cached stays
    tracemalloc.start()
    examine(tmp_path / "run", against=tmp_path / "exact" if originals else None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (4.9 if originals else 3) * nbytes


# --- two runs, and errors -------------------------------------------------------------------------


@pytest.mark.slow
def test_two_runs_are_compared_at_their_newest_common_step(tmp_path):
    first = save_run(tmp_path / "a", run_states(5), policy="lossless")
    second = save_run(tmp_path / "b", run_states(4, seed=1), policy="lossless")
    report = examine(first.directory, second.directory)
    assert [run.path for run in report.runs] == [str(first.directory), str(second.directory)]
    assert (report.comparison.left, report.comparison.right) == (
        f"{first.directory} step 30",
        f"{second.directory} step 30",
    )
    old, new = (arrays_of(chain.restore(30)) for chain in (first, second))
    for row in report.comparison.rows:
        left, right = old[row.name].astype(np.float64), new[row.name].astype(np.float64)
        assert row.relative == pytest.approx(rms(right - left) / rms(left))
        assert row.largest == pytest.approx(np.abs(right - left).max())
        cosine = (left * right).sum() / np.linalg.norm(left) / np.linalg.norm(right)
        assert row.cosine == pytest.approx(cosine, abs=1e-12)
    assert [row.relative for row in report.comparison.rows] == sorted(
        (row.relative for row in report.comparison.rows), reverse=True
    )
    assert report.comparison.unchanged == 1  # the step
    chosen = examine(first.directory, second.directory, steps=[0, 20, 40])
    assert chosen.comparison.right == f"{second.directory} step 20"


def test_runs_without_a_common_step_or_a_sound_one(tmp_path):
    first = save_run(tmp_path / "a", run_states(2), policy="lossless")
    second = save_run(tmp_path / "b", run_states(2), policy="lossless", every=7)
    checkpoint_path(second.directory, 0).unlink()
    report = examine(first.directory, second.directory)
    assert report.comparison is None
    assert "were not compared: one of the runs has no sound checkpoint" in report.notes[-1]
    lccodec.save_file({"a": np.ones(2)}, tmp_path / "a.lcc.h5")
    lccodec.save_file({"a": np.zeros(2)}, tmp_path / "b.lcc.h5")
    report = examine(tmp_path / "a.lcc.h5", tmp_path / "b.lcc.h5")
    assert report.comparison.rows[0].relative == 1.0


def test_what_cannot_be_examined(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(lccodec.ArgumentError, match="holds no checkpoint"):
        examine(tmp_path / "empty")
    (tmp_path / "text").write_text("nothing")
    with pytest.raises(lccodec.FormatError):
        examine(tmp_path / "text")
    with pytest.raises(lccodec.StorageError):
        examine(tmp_path / "absent")
    chain = save_run(tmp_path / "run", run_states(2))
    with pytest.raises(lccodec.ArgumentError, match="needs exactly one path"):
        examine(chain.directory, chain.directory, against=chain.directory)
    with pytest.raises(lccodec.ArgumentError, match="holds no checkpoint"):
        examine(chain.directory, against=tmp_path / "empty")


OLD = {
    "weight": np.array([3.0, 4.0]),
    "exp_avg": np.ones(2),
    "gone": np.ones(1),
    "kind": np.ones(1),
    "epoch": 1,
}
NEW = {
    "weight": np.array([4.0, -3.0]),
    "exp_avg": np.ones(2),
    "came": np.ones(1),
    "kind": np.ones(2),
    "epoch": 2,
}


def test_states_of_files(tmp_path):
    for name, state in (("old.lcc.h5", OLD), ("new.lcc.h5", NEW)):
        lccodec.save_file(state, tmp_path / name)
    found = compare((tmp_path / "old.lcc.h5", None), (tmp_path / "new.lcc.h5", None))
    assert (found.left, found.right) == (str(tmp_path / "old.lcc.h5"), str(tmp_path / "new.lcc.h5"))
    (row,) = found.rows
    assert (row.name, row.role, row.largest, row.share) == ("weight", "weight", 7.0, 1.0)
    assert row.relative == pytest.approx(np.sqrt(50) / 5)
    assert row.cosine == 0.0
    assert (found.appeared, found.disappeared, found.unchanged) == (("came",), ("gone",), 1)
    assert found.replaced == (Replacement("kind", "float64 (1,)", "float64 (2,)"),)
    assert found.scalars == [Replacement("epoch", "1", "2")]


def test_steps_of_a_chain_and_a_bundle(tmp_path):
    with lccodec.Chain(tmp_path / "run", "lossless") as chain:
        for step in range(3):
            chain.save(step, {"b": np.full(3, 1.0 + step), "a": np.full(2, 1.0 + step**2)})
    lccodec.bundle(tmp_path / "run", tmp_path / "run.lccb")
    found = compare((tmp_path / "run", 0), (tmp_path / "run.lccb", 2))
    assert [(row.name, row.relative) for row in found.rows] == [("a", 4.0), ("b", 2.0)]
    assert found.right.endswith("run.lccb step 2")


def test_what_one_of_two_runs_lost_is_no_difference(tmp_path):
    """The newest states of two runs are equal bit for bit, and their histories are not."""
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.standard_normal((3, 100, 100)) * [[[1]], [[0.01]], [[0.01]]], axis=0)
    states = [{"model": {"w": weights}} for weights in walk.astype("f4")]
    roles = {"model/*": "weight"}
    for name, policy in (("one", "balanced"), ("other", "small")):
        with lccodec.Chain(tmp_path / name, policy, roles=roles) as chain:
            save_all(chain, states)
    found = compare((tmp_path / "one", 2), (tmp_path / "other", 2))
    assert (found.left, found.rows) == (f"{tmp_path / 'one'} step 2 (exact)", [])
    found = compare((tmp_path / "one", 1), (tmp_path / "other", 1))
    assert (found.right, len(found.rows)) == (f"{tmp_path / 'other'} step 1 (as the history decodes)", 1)
    lossless = lccodec.Chain(tmp_path / "third", "lossless")
    lossless.save(2, states[2])
    found = compare((tmp_path / "one", 2), (tmp_path / "third", 2))
    assert (found.right, found.rows) == (f"{tmp_path / 'third'} step 2", [])
