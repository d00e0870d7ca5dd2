"""The training benchmark: schemes decode what they say, trials can be cut, tables hold the figures."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lccodec

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


def states(count: int, moments: bool = True) -> list[dict[str, np.ndarray]]:
    """A walk of weights, buffers and moments."""
    random = np.random.default_rng(7)
    shapes = {"a.weight": (40, 50), "a.bias": (40,), "characters.weight": (65, 33)}
    weights = {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    found = []
    for number in range(count):
        state = {f"model/{n}": w.copy() for n, w in weights.items()}
        state["model/count"] = np.array(number)
        for name, shape in shapes.items() if moments else ():
            first = (random.standard_normal(shape) * 1e-3).astype(np.float32)
            first[..., :3] = 0
            state[f"exp_avg/{name}"] = first
            state[f"exp_avg_sq/{name}"] = np.square(first) * np.float32(2)
        found.append(state)
        for name, shape in shapes.items():
            weights[name] += (random.standard_t(3, shape) * 0.01).astype(np.float32)
    return found


def codecs() -> dict[str, object]:
    published, clustered, compressors = map(module, ("published", "clustered", "compressors"))
    return {
        "LC-2": published.LCCheckpoint(2),
        "LC-3": published.LCCheckpoint(3),
        "SCAR": published.Scar(1 / 8),
        "TOPN": published.TopN(1 / 64),
        "CNR-4": published.CheckNRun(4),
        "CNR-8": published.CheckNRun(8),
        "Inshrinkerator": clustered.Inshrinkerator(16, 0.1, 0.005),
        "no pruning": clustered.Inshrinkerator(8, 0.0, 0.01),
        "ExCP": clustered.ExCP(),
        "frame": compressors.Bounded(compressors.frame, 0.5),
        "zlib": compressors.Lossless((lambda d: d.tobytes(), lambda d, _: np.frombuffer(d, "u4")), True),
    }


@pytest.mark.parametrize("moments", [True, False])
@pytest.mark.parametrize(
    "name", ["LC-2", "LC-3", "SCAR", "TOPN", "CNR-4", "CNR-8", "no pruning", "frame", "zlib"]
)
def test_a_closed_loop_follows_the_run(name: str, moments: bool) -> None:
    walk = states(6, moments)
    session = module("schemes").CodecSession(codecs()[name])
    session.start(walk[0])
    for state in walk[1:]:
        sizes = session.save(state)
        kept = session.restore()
        assert kept.keys() == state.keys()
        assert all(kept[n].dtype == a.dtype and kept[n].shape == a.shape for n, a in state.items())
        assert kept["model/count"] == state["model/count"]
    assert set(sizes) == ({"model", "exp_avg", "exp_avg_sq"} if moments else {"model"})
    key = "model/a.weight"
    off, moved = np.abs(kept[key] - walk[-1][key]).mean(), np.abs(walk[-1][key] - walk[0][key]).mean()
    # Values of unit variance, not differences, are what these few levels stand for.
    assert off < {"CNR-4": 0.2, "CNR-8": 0.02, "no pruning": 0.25}.get(name, moved)


def test_lc_checkpoint_promotes_the_largest_exponents() -> None:
    before, now = states(2, moments=False)
    codec = module("published").LCCheckpoint(2)
    kept = codec.decode(codec.encode(now, before), before)
    delta = np.concatenate([(now[n] - before[n]).ravel() for n in kept])
    change = np.concatenate([(kept[n] - before[n]).ravel() for n in kept])
    keys = (delta.view(np.uint32) >> 23).astype(np.int64)
    top = sorted(np.unique(keys), key=lambda k: (-(k & 255), k))[:3]
    assert np.all(change[~np.isin(keys, top)] == 0)
    for key in top:
        members = delta[keys == key]
        assert np.allclose(change[keys == key], (members.max() + members.min()) / 2, rtol=1e-4)


def test_partial_checkpoints_hold_the_farthest_parameters() -> None:
    before, now = states(2)
    for codec, share in ((codecs()["SCAR"], 1 / 8), (codecs()["TOPN"], 1 / 64)):
        streams = codec.encode(now, before)
        kept = codec.decode(streams, before)
        names = [n for n in kept if n.startswith("model/")]
        moved = np.concatenate([np.abs(now[n] - before[n]).ravel() for n in names])
        exact = np.concatenate([(kept[n] == now[n]).ravel() for n in names])
        count = int(moved.size * share)
        assert exact.sum() == count
        assert moved[exact].min() >= moved[~exact].max()
        per_value = 4 + 1 / 8 / share if share == 1 / 8 else 8
        assert len(streams["model"]) == pytest.approx(count * per_value, rel=0.01)


@pytest.mark.parametrize("bits", [4, 8])
def test_check_n_run_is_within_half_a_step_and_skips_rows(bits: int) -> None:
    before, now = states(2, moments=False)
    now["model/a.weight"][5] = before["model/a.weight"][5]
    codec = module("published").CheckNRun(bits)
    kept = codec.decode(codec.encode(now, before), before)
    rows = now["model/a.weight"]
    step = (rows.max(axis=1) - rows.min(axis=1)) / ((1 << bits) - 1)
    assert np.all(np.abs(kept["model/a.weight"] - rows) <= step[:, None] * 0.501)
    assert np.array_equal(kept["model/a.weight"][5], rows[5])
    assert np.array_equal(kept["model/a.bias"], now["model/a.bias"])


def test_inshrinkerator_has_three_tiers() -> None:
    walk = states(4)
    codec = codecs()["Inshrinkerator"]
    for state in walk[1:]:  # from the second on, differences of indices
        kept = codec.decode(codec.encode(state, walk[0]), walk[0])
    assert set(kept) == {"model/a.weight", "model/a.bias", "model/characters.weight"}
    got, was = kept["model/a.weight"].ravel(), walk[-1]["model/a.weight"].ravel()
    sensitivity = np.abs(was * walk[-1]["exp_avg/a.weight"].ravel())
    protected = np.argsort(sensitivity)[-10:]
    assert np.allclose(got[protected], was[protected], rtol=2**-8)
    small = np.argsort(np.abs(was))[:190]
    assert np.count_nonzero(got[np.setdiff1d(small, protected)]) == 0
    assert np.unique(np.delete(got, protected)).size <= 17
    assert np.array_equal(kept["model/a.bias"], walk[-1]["model/a.bias"])


def test_excp_prunes_moments_with_their_weights() -> None:
    before, now = states(2)
    codec = module("clustered").ExCP(alpha=np.inf)
    kept = codec.decode(codec.encode(now, before), before)
    for name in ("a.weight", "characters.weight"):
        moved = np.abs(now[f"model/{name}"] - before[f"model/{name}"])
        pruned = moved <= 2.5 * np.median(moved)
        assert np.array_equal(kept[f"model/{name}"][pruned], before[f"model/{name}"][pruned])
        first, second = kept[f"exp_avg/{name}"], kept[f"exp_avg_sq/{name}"]
        assert not first[pruned].any() and not second[pruned].any() and first.any()
        assert np.array_equal(first != 0, second != 0)
        assert np.unique(first).size <= 16


def test_a_bound_is_kept_in_units_of_the_movement() -> None:
    before, now = states(2)
    codec = codecs()["frame"]
    kept = codec.decode(codec.encode(now, before), before)
    delta = now["model/a.weight"] - before["model/a.weight"]
    off = np.abs(kept["model/a.weight"] - now["model/a.weight"])
    assert 0.4 * np.sqrt(np.mean(delta**2)) < off.max() <= 0.501 * np.sqrt(np.mean(delta**2))
    assert min(a.min() for n, a in kept.items() if n.startswith("exp_avg_sq/")) > 0


@given(st.lists(st.sampled_from([0, 0, 0, 0, 1, 2, 253]), min_size=1, max_size=300))
def test_run_lengths_come_back(symbols: list[int]) -> None:
    clustered = module("clustered")
    packed = clustered.runs_packed(np.array(symbols, np.uint8))
    assert clustered.runs_unpacked(packed, len(symbols)).tolist() == symbols


def test_a_run_of_zeros_takes_the_digits_of_its_length() -> None:
    clustered = module("clustered")
    assert clustered.runs_packed(np.zeros(1000, np.uint8)).size == 9
    assert clustered.runs_packed(np.array([0, 3], np.uint8)).tolist() == [0, 4]


def test_centres_lie_in_the_clusters() -> None:
    random = np.random.default_rng(0)
    middles = np.array([-4.0, -1.0, 0.5, 3.0])
    values = (middles[random.integers(4, size=4000)] + 0.02 * random.standard_normal(4000)).astype(np.float32)
    found = module("clustered").centres(values, 4)
    assert np.allclose(found, middles, rtol=0.02)
    assert module("clustered").centres(values[:2], 15).size == 2


def test_peers_are_lossless_or_named() -> None:
    compressors, contenders = module("compressors"), module("contenders")
    before, now = states(2)
    found, absent = contenders.contenders()
    names = {scheme.name for scheme in found}
    assert set(lccodec.POLICIES) <= names
    assert names.isdisjoint(absent)
    assert {*contenders.BOUNDED, *contenders.LOSSLESS} <= names | set(absent)
    exclusive = compressors.Lossless((lambda d: d.tobytes(), lambda d, _: np.frombuffer(d, "u4")), True)
    integer = compressors.Lossless((lambda d: d.tobytes(), lambda d, _: np.frombuffer(d, "u4")), False)
    for codec in (exclusive, integer):
        kept = codec.decode(codec.encode(now, before), before)
        assert all(a.tobytes() == now[n].tobytes() for n, a in kept.items())


def test_a_session_of_lccodec_hangs_on_its_first_state() -> None:
    session = module("schemes").LccodecSession("lossless")
    walk = states(5)
    session.start(walk[0])
    sizes = [session.save(state)["file"] for state in walk[1:]]
    kept = session.restore()
    assert all(np.array_equal(kept[n], a) for n, a in walk[-1].items())
    infos = [session.chain.info(step) for step in session.chain.steps]
    assert [info.parent for info in infos] == [None, 0, 1, 2, 3]
    assert [info.file_bytes for info in infos[1:]] == sizes
    session.close()
    assert not session.directory.exists()


def test_impossible_moments_are_mended() -> None:
    resume = module("resume")
    first = np.array([0.1, -0.1, 0.1, 0.0, 0.1], np.float32)
    second = np.array([0.001, -1.0, 0.0, 0.0, np.nan], np.float32)
    state, count = resume.mended({"model/w": first, "exp_avg/w": first, "exp_avg_sq/w": second})
    assert count == 3
    mended = state["exp_avg_sq/w"]
    assert mended[0] == second[0] and mended[3] == 0
    assert np.all(np.abs(first) <= resume.STEEPEST * np.sqrt(mended) * 1.0001)


def test_any_gradients_make_possible_moments() -> None:
    resume = module("resume")
    beta1, beta2 = module("tasks").BETAS
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
    comparison, trials = module("comparison"), module("trials")
    stored = {
        ("exact", "chain", 0): {"loss": 9.0},
        ("ExCP, threshold at its cap", "chain", 0): {"loss": 3.0, "weight_ratio": 32.0},
        **{("exact", "resume", seed): {"losses": [2.0 + seed, 1.4 + seed]} for seed in (1, 2, 3)},
        **{
            ("exact, one interval older", "resume", seed): {"losses": [2.1 + seed, 1.4 + seed]}
            for seed in (1, 2, 3)
        },
        **{
            ("ExCP, threshold at its cap", "resume", seed): {"losses": [2.0 + 1.5 * seed, 1.4 + seed]}
            for seed in (1, 2, 3)
        },
    }
    monkeypatch.setattr(trials.Piece, "result", property(lambda p: stored.get((p.scheme, p.kind, p.seed))))
    asked = trials.pieces(["gpt every 20"], ["ExCP, threshold at its cap"], tmp_path, tmp_path, quick=False)
    assert comparison.headway(asked, "gpt every 20") == pytest.approx(0.6 / 240)
    exact, excp = comparison.gather(asked, set(), set())
    assert exact.rework == (0, 0, 0)
    assert excp.gaps[60] == pytest.approx((1.0, 0.5, 1.5))
    assert excp.rework == pytest.approx((400, 200, 600))
    assert excp.gaps[300] == pytest.approx((0, 0, 0))
    for seed in (1, 2, 3):
        stored["exact", "resume", seed]["losses"] = [1.0 + seed, 9.0]
    assert comparison.gather(asked, set(), set())[1].rework is None  # it makes no headway
    quick = trials.pieces(["gpt every 20"], ["ExCP, threshold at its cap"], tmp_path, tmp_path, quick=True)
    assert comparison.headway(quick, "gpt every 20") == pytest.approx(6 / 60)
    stored["exact, one interval older", "resume", 2]["losses"] = [2.9, 2.9]
    assert comparison.headway(quick, "gpt every 20") is None  # an interval cannot be told from noise


def test_tables_are_put_between_their_marks(tmp_path: Path) -> None:
    results, path = module("results"), tmp_path / "RESULTS.md"
    path.write_text("# Results\n")
    results.put_into(path, "a.py", "one")
    path.write_text(path.read_text() + "\n## After\n")
    results.put_into(path, "a.py", "two")
    text = path.read_text()
    assert text.startswith("# Results\n") and text.endswith("\n## After\n")
    assert "two" in text and "one" not in text


def tiny_task(name: str, *_: object, **__: object) -> object:
    tasks, datasets, models = module("tasks"), module("datasets"), module("models")
    random = np.random.default_rng(1)
    if name == "logistic":
        images = random.standard_normal((96, 1, 28, 28)).astype(np.float32)
        split = datasets.Split(images, (images.mean((1, 2, 3)) > 0).astype(np.int64))
        return tasks.Task(name, models.logistic_regression, split, split, batch=16, learning_rate=0.02)
    text = random.integers(65, size=600)
    return tasks.Task(
        name,
        lambda: models.GPT(8, 1, heads=2, context=8),
        text,
        text,
        batch=2,
        learning_rate=1e-3,
        adam=True,
        context=8,
        tests=4,
    )


def test_a_run_goes_on_as_if_nothing_had_happened() -> None:
    tasks = module("tasks")
    for task in map(tiny_task, ("gpt", "logistic")):
        one = tasks.Run(task)
        one.advance(3, 5)
        state = one.state()
        other = tasks.Run(task, seed=9)
        other.put_back(state, 3)
        for run in (one, other):
            run.advance(2, 6)
        assert all(np.array_equal(a, other.state()[n]) for n, a in one.state().items())
        assert one.quality() == other.quality()


def test_batches_depend_on_seed_and_iteration() -> None:
    task = tiny_task("logistic")
    epoch = np.concatenate([task.batch_of(1, i)[0].numpy() for i in range(1, 7)])
    assert np.unique(epoch.reshape(96, -1), axis=0).shape[0] == 96
    assert np.array_equal(task.batch_of(1, 2)[0], task.batch_of(1, 2)[0])
    assert not np.array_equal(task.batch_of(1, 2)[0], task.batch_of(2, 2)[0])


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    trials, training = module("trials"), module("training")
    for name, case in {
        "logistic every 20": trials.Case("logistic every 20", "logistic", 4, 1, marks=(2,)),
        "gpt every 20": trials.Case("gpt every 20", "gpt", 4, 1, marks=(1, 2), restores=True),
        "finetune every 20": trials.Case("finetune every 20", "finetune", 3, 1, marks=(1,), close=True),
    }.items():
        monkeypatch.setitem(trials.CASES, name, case)
    monkeypatch.setattr(trials, "task", tiny_task)
    monkeypatch.setattr(training, "prepare", lambda: None)
    monkeypatch.setattr(training, "ProcessPoolExecutor", Alone)

    def run(*arguments: str | Path) -> int:
        fixed = ["--data", tmp_path, "--cache", tmp_path / "cache"]
        monkeypatch.setattr(sys, "argv", ["training.py", *map(str, [*fixed, *arguments])])
        return training.main()

    return run


class Alone:
    """A pool that works in this process."""

    def __init__(self, *_: object, **__: object) -> None:
        self.pieces = 0

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, function, *arguments):
        future = module("concurrent.futures").Future()
        function(*arguments)
        future.set_result(None)
        return future


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
    rows = json.loads((tmp_path / "all.json").read_text())["rows"]
    assert len(rows) == 2 * (len(SCHEMES) + 2) + 4  # of the literature none that is looked at closely
    for row in rows:
        if row["scheme"] == "exact":
            assert set(map(tuple, row["gaps"].values())) == {(0.0, 0.0, 0.0)}
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
    contenders = module("contenders")
    monkeypatch.setattr(contenders.importlib.util, "find_spec", lambda _: None)
    training("--cases", "logistic every 20", "--schemes", "lc-2")
    out = capsys.readouterr().out
    assert f"Not installed: {', '.join([*contenders.BOUNDED, *contenders.LOSSLESS])}." in out
