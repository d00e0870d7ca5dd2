"""What a chain, a checkpoint, a plan and a pruning print: short, cheap, also if damaged."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.source import FileSource

LAYERS = 1000


def state(step: int, layers: int = 1) -> dict[str, np.ndarray]:
    """Weights that move a little at each step, whose files have the same bytes everywhere."""
    values = np.arange(600, dtype=np.float32) % 97 / 64
    return {f"layer{i}.weight": values * (1 + step / 1024) for i in range(layers)}


@pytest.fixture(name="run")
def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> lccodec.Chain:
    monkeypatch.chdir(tmp_path)
    with lccodec.Chain("run", "lc-3", keyframe_every=2) as chain:
        for step in range(0, 80, 20):
            chain.save(step, state(step), {"note": "first"}, metrics={"loss": 1 / (1 + step)})
    return chain


def test_a_chain(run: lccodec.Chain) -> None:
    run.pin(0)
    run.pin(20)
    sizes = [run.info(step).file_bytes for step in run.steps]
    total = sum(sizes) + Path("run/exact.lcc.h5").stat().st_size
    assert repr(run).split("\n") == [
        "Chain run: 4 checkpoints, steps 0 to 60",
        "policy  lc-3",
        "exact   step 60, bit for bit",
        "pinned  0 to 20",
        f"files   {total:,} bytes",
        "",
        "step  kind   parent  bytes     loss",
        f"   0  key         -  {sizes[0]:5,}        1",
        f"  20  delta       0  {sizes[1]:5,}  0.04762",
        f"  40  delta      20  {sizes[2]:5,}  0.02439",
        f"  60  key         -  {sizes[3]:5,}  0.01639",
    ]
    assert str(run) == repr(run)
    html = run._repr_html_()
    assert html is not None
    assert html.count("<tr>") == 5


@pytest.mark.usefixtures("run")
def test_the_policy_is_the_given_one_or_the_recorded_one() -> None:
    assert "policy  small\n" in repr(lccodec.Chain("run", "small"))
    assert "policy  lc-3\n" in repr(lccodec.Chain("run"))
    assert repr(lccodec.Chain("new", "small")) == "Chain new: no checkpoints\npolicy  small"
    assert repr(lccodec.Chain("new")) == "Chain new: no checkpoints"
    assert not Path("new").exists()


def test_a_path_elsewhere_is_whole(run: lccodec.Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("other").mkdir()
    monkeypatch.chdir("other")
    assert repr(run).startswith(f"Chain {run.directory}: 4 checkpoints")
    Path("../other").resolve().rmdir()
    if not Path("/proc/self/cwd").exists():  # there is no working directory any more
        assert repr(run).startswith(f"Chain {run.directory}: 4 checkpoints")


def test_a_chain_with_damaged_files_says_so(run: lccodec.Chain) -> None:
    Path("run/000000000000.lcc.h5").unlink()
    Path("run/000000000020.lcc.h5").write_bytes(b"")
    Path("run/000000000040.lcc.h5").write_bytes(Path("run/000000000060.lcc.h5").read_bytes()[:-50])
    Path("run/exact.lcc.h5").write_bytes(b"\0" * 500)
    shown = repr(run).split("\n")
    assert shown[0] == "Chain run: 3 checkpoints, steps 20 to 60"
    assert not any(line.startswith("exact") for line in shown)
    assert [line.split()[:2] for line in shown[-3:]] == [
        ["20", "unreadable"],
        ["40", "unreadable"],
        ["60", "key"],
    ]


def test_a_chain_that_is_gone_or_no_directory(run: lccodec.Chain) -> None:
    shutil.rmtree("run")
    assert repr(run) == "Chain run: no checkpoints\npolicy  lc-3"
    Path("run").write_text("")
    shown = repr(run)
    assert shown.startswith("Chain run\nunreadable  ")
    assert "cannot list" in shown


def test_a_step_that_only_the_exact_file_has(run: lccodec.Chain) -> None:
    Path("run/000000000060.lcc.h5").unlink()
    assert repr(run).split("\n")[-1].split()[:2] == ["60", "exact"]
    for step in (0, 20, 40):
        Path(f"run/{step:012d}.lcc.h5").unlink()
    assert repr(run).startswith("Chain run: 1 checkpoint, step 60\n")


def test_a_group_with_hindsight(tmp_path: Path) -> None:
    with lccodec.Chain(tmp_path / "run", "balanced", hindsight=2) as chain:
        for step in range(0, 100, 20):
            chain.save(step, state(step))
    assert " interp " in repr(chain)
    assert " 40, 80 " in repr(chain), "an interpolated checkpoint has two parents"


def test_a_failed_save_is_told(run: lccodec.Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(run), "failure", OSError("disk\nfull"))
    assert repr(run).split("\n")[1] == r"failed  disk\nfull"


def test_an_object_that_is_half_made() -> None:
    assert repr(lccodec.Chain.__new__(lccodec.Chain)).startswith("<lccodec.chain.chain.Chain object")


@pytest.mark.slow
def test_of_a_long_chain_few_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand steps, with links to one file: names are read, and ten checkpoints."""
    chain = lccodec.Chain(tmp_path, "lossless")
    chain.save(0, state(0, LAYERS))
    for step in range(20, 200_000, 20):
        os.link(tmp_path / "000000000000.lcc.h5", tmp_path / f"{step:012d}.lcc.h5")
    read: list[str] = []
    source = DirectoryStore.source

    def counted(store: DirectoryStore, name: str) -> FileSource:
        read.append(name)
        return source(store, name)

    monkeypatch.setattr(DirectoryStore, "source", counted)
    shown = repr(chain)
    assert len(read) == 10
    assert len(shown.split("\n")) == 15
    assert shown.startswith(f"Chain {tmp_path}: 10,000 checkpoints, steps 0 to 199980\n")
    assert "\n... 9,990 more\n" in shown
    html = chain._repr_html_()
    assert html is not None
    assert len(html) < 4000


@pytest.mark.slow
def test_a_plan_of_many_arrays(tmp_path: Path) -> None:
    chain = lccodec.Chain(tmp_path, "lc-3")
    arrays = state(0, LAYERS) | {"table": np.arange(5), "index": np.zeros(0, np.int32)}
    assert repr(chain.plan(arrays)).split("\n")[:6] == [
        "Plan of a keyframe: 1,002 arrays, 2,400,040 bytes",
        "weights       1,000 arrays, 2,400,000 bytes, lossy",
        "other arrays  2 arrays, 40 bytes, exact",
        "",
        "name             shape  role    because                                   in deltas          stored",
        "layer0.weight    600    weight  named 'weight'                            ExponentBuckets()  whole",
    ]
    assert len(repr(chain.plan(arrays)).split("\n")) == 16
    chain.save(0, arrays)
    assert repr(chain.plan(arrays)).startswith("Plan of a delta to step 0: ")
    assert repr(chain.plan({})) == "Plan of a delta to step 0: 0 arrays, 0 bytes"
    with lccodec.Chain(tmp_path / "grouped", "balanced", hindsight=2) as grouped:
        plan = grouped.plan(state(0) | {"norm.weight": np.ones(3, np.float32)})
        assert plan.group is not None
        assert repr(plan).split("\n")[:3] == [
            "Plan of a keyframe: 2 arrays, 2,412 bytes",
            "weights  2 arrays, 2,412 bytes, 1 of them lossy",
            f"group    {plan.group}",
        ]


def test_a_checkpoint_of_many_arrays(tmp_path: Path) -> None:
    chain = lccodec.Chain(tmp_path, "lc-3")
    notes = {f"key {i}": "x" * 500 for i in range(40)} | {"lccodec.own": "of an adapter"}
    chain.save(0, state(0, LAYERS), notes)
    shown = repr(chain.info(0)).split("\n")
    assert len(shown) < 40
    assert max(map(len, shown)) <= 120
    assert ["more", "metadata", "30"] in [line.split() for line in shown]
    assert not any("lccodec.own" in line for line in shown)
    assert "... 990 more" in shown
    assert shown[-1].split()[:5] == ["layer999.weight", "float32", "600", "weight", "exact"]


def test_a_pruning(run: lccodec.Chain) -> None:
    found = run.prune(lccodec.Keep(steps=[40]), dry_run=True)
    assert repr(found).split("\n") == [
        "Pruning of 0 of 4 checkpoints, 0 bytes",
        "removed               nothing",
        "kept, asked for       40",
        "kept, newest          60",
        "kept, needed by them  0 to 20",
    ]
    rewriting = run.prune(lccodec.Keep(steps=[40]), rewrite=True, dry_run=True)
    assert "removed          0 to 20\n" in repr(rewriting)
    assert repr(rewriting).endswith("\nrewritten        40")
