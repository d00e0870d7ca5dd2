"""The verbs of a chain's life: rollback, rolled-back, fork, prune, compact, pin, unpin."""

import numpy as np
import pytest

import lccodec

from ..support.commands import run, run_json, state, step_file
from ..support.directories import entries


def test_rollback_and_back(chain):
    size = step_file(chain, 20).stat().st_size + step_file(chain, 30).stat().st_size
    text, _ = run("rollback", chain, 10)
    assert text == (
        f"step 10 is the newest; set aside as 0001-to-10: 2 checkpoints, steps 20 to 30, {size:,} bytes\n"
    )
    assert lccodec.Chain(chain).steps == [10]
    listed = f"0001-to-10: 2 checkpoints, steps 20 to 30, {size:,} bytes\n"
    assert run("rolled-back", chain)[0] == listed
    document = run_json("rolled-back", chain)
    assert document["rolled_back"][0]["steps"] == [20, 30]
    assert run("rolled-back", chain, "--undo")[0] == f"put back {listed}"
    assert lccodec.Chain(chain).steps == [10, 20, 30]
    assert run("rolled-back", chain)[0] == "no steps are set aside\n"
    assert run("rollback", chain, 30)[0] == "step 30 is the newest; there are no later steps\n"


def test_purges(chain):
    document = run_json("rollback", chain, 20, "--delete")
    assert (document["steps"], document["name"], document["deleted"]) == ([30], "", True)
    assert run("rollback", chain, 10)[0].startswith("step 10 is the newest; set aside as 0001-to-10: 1 ")
    assert run("rolled-back", chain, "--delete")[0].startswith("removed 0001-to-10: 1 checkpoint")
    assert [path.name for path in entries(chain)] == [step_file(chain, 10).name]
    document = run_json("rolled-back", chain, "--delete")
    assert document == {"directory": str(chain), "done": "deleted", "rolled_back": []}


def test_what_is_refused(chain, tmp_path):
    assert "no step 15" in run("rollback", chain, 15, code=1)[1]
    assert "has nothing rolled back" in run("rolled-back", chain, "--undo", code=1)[1]
    assert "not both" in run("rolled-back", chain, "--undo", "--delete", code=2)[1]
    assert "holds the chain itself" in run("fork", chain, 10, chain, code=2)[1]
    assert "no step 15" in run("pin", chain, 15, code=1)[1]
    assert "does not exist" in run("rollback", tmp_path / "nothing", 1, code=2)[1]
    assert lccodec.Chain(chain).steps == [10, 20, 30]


def test_fork(chain, tmp_path):
    text, _ = run("fork", chain, 20, tmp_path / "fork")
    assert text == f"{tmp_path / 'fork'}: 2 checkpoints, the newest is step 20\n"
    document = run_json("fork", chain, 20, tmp_path / "fork")
    assert document == {"directory": str(chain), "fork": str(tmp_path / "fork"), "steps": [10, 20]}
    assert run_json("check", tmp_path / "fork", "--deep")["sound"]


def test_prune(chain):
    with lccodec.Chain(chain, keyframe_every=2) as open_chain:
        for step in (40, 50, 60):
            open_chain.save(step, state(step), {"loss": step})
    size = sum(step_file(chain, step).stat().st_size for step in (10, 20, 30))
    assert run("prune", chain, "--latest", 1, "--dry-run")[0] == (
        f"would remove 3 of 6 checkpoints, {size:,} bytes\n  10 to 30\n"
        "kept (latest): 60\nneeded by 60: 40 to 50\n"
    )
    assert lccodec.Chain(chain).steps == [10, 20, 30, 40, 50, 60]
    document = run_json("prune", chain, "--best", 1, "loss", "min", "--step", 20, "--newer-than", "0s")
    assert document["kept"] == {"20": "asked for", "40": "best loss", "60": "newest"}
    assert document["needed"] == {"10": 20, "50": 60}
    assert (document["removed"], document["dry_run"]) == ([30], False)
    assert lccodec.Chain(chain).steps == [10, 20, 40, 50, 60]
    assert run("prune", chain, "--newer-than", "2h")[0].startswith(
        "removed 0 of 5 checkpoints, 0 bytes\nkept"
    )
    for words in (
        ["--newer-than", "2"],
        ["--newer-than", "xd"],
        ["--latest", 0],
        ["--best", 1, "a", "b"],
        [],
    ):
        run("prune", chain, *words, code=2)
    assert "say what to keep: --latest, --every, --best" in run("prune", chain, code=2)[1]
    assert "keeps none of the 5" in run("prune", chain, "--step", 7, code=2)[1]


def test_prune_and_write_anew(chain):
    size = step_file(chain, 30).stat().st_size
    shown, _ = run("prune", chain, "--latest", 1, "--rewrite", "--dry-run")
    lines = shown.splitlines()
    assert lines[0].startswith("would remove 2 of 3 checkpoints, ")
    assert lines[1:3] == ["  10 to 20", "kept (latest): 30"]
    assert lines[3].startswith("rewritten: 30, keyframe, ")
    assert lines[3].endswith(f" bytes for {size:,}")
    document = run_json("prune", chain, "--latest", 1, "--rewrite", "--dry-run")
    assert document["net"] == document["cost"] - document["freed"]
    document = run_json("prune", chain, "--latest", 1, "--rewrite")
    assert document["rewritten"][0] | {"after": 0} == {"step": 30, "parent": None, "before": size, "after": 0}
    takes = f"the chain takes {-document['net']:,} fewer bytes than before"
    assert lines[4] == f"that takes {document['cost']:,} more bytes; {takes}"
    assert step_file(chain, 30).stat().st_size == size + document["cost"]
    assert lccodec.Chain(chain).steps == [30]
    assert run("ls", chain)[0].splitlines()[1].split()[:3] == ["30", "key", "lossy"]


@pytest.fixture
def lossy(tmp_path):
    """A chain whose lossy keyframe takes a part of what its state takes without loss."""
    rng = np.random.default_rng(0)
    weight = rng.normal(0, 0.05, (200, 300)).astype(np.float32)
    with lccodec.Chain(tmp_path / "run", "balanced", newest="history") as chain:
        for step in range(100, 700, 100):
            chain.save(step, {"weight": weight})
            weight = weight + rng.normal(0, 1e-3, weight.shape).astype(np.float32)
    return tmp_path / "run"


def test_a_prune_that_makes_the_chain_larger_is_refused(lossy):
    before = {path.name: path.read_bytes() for path in entries(lossy)}
    _, stderr = run("prune", lossy, "--latest", 3, "--rewrite", code=2)
    assert "nothing was pruned, because with --rewrite the chain takes" in stderr
    assert "--grow prunes anyway" in stderr
    run_json("prune", lossy, "--latest", 3, "--rewrite", code=2)
    run("prune", lossy, "--latest", 3, "--rewrite", "--dry-run")
    assert {path.name: path.read_bytes() for path in entries(lossy)} == before
    stdout, _ = run("prune", lossy, "--latest", 3, "--rewrite", "--grow")
    more = sum(path.stat().st_size for path in entries(lossy)) - sum(map(len, before.values()))
    assert stdout.splitlines()[0] == f"the chain takes {more:,} more bytes than before"
    assert stdout.count("than before") == 1
    assert lccodec.Chain(lossy).steps == [400, 500, 600]


def test_grow_without_rewrite_is_refused(lossy):
    _, stderr = run("prune", lossy, "--latest", 3, "--grow", code=2)
    assert "--grow needs --rewrite" in stderr


def test_a_prune_that_removes_nothing_says_why(lossy):
    stdout, _ = run("prune", lossy, "--latest", 3)
    assert stdout.splitlines() == [
        "removed 0 of 6 checkpoints, 0 bytes",
        "kept (latest): 400 to 600",
        "needed by 400: 100 to 300",
        "nothing to remove: all steps back to a keyframe are needed by 400",
        "they can be removed after more saves, when the kept steps begin with a keyframe",
        "or now, with --rewrite; --rewrite --dry-run shows the cost",
    ]
    assert run("prune", lossy, "--latest", 9)[0].splitlines()[-1] == "nothing to remove: every step is kept"


def test_compact(chain, tmp_path):
    before = sum(path.stat().st_size for path in entries(chain))
    shown, _ = run("compact", chain, "--keyframe-every", 1, "--dry-run")
    assert shown.startswith("rewritten: 30, keyframe, ")
    assert "3 checkpoints: " in shown
    assert shown.endswith(f" bytes, before {before:,}\n")
    document = run_json("compact", chain, "--keyframe-every", 1, "-o", tmp_path / "new")
    assert document["directory"] == str(tmp_path / "new")
    assert document["after"] == sum(path.stat().st_size for path in entries(tmp_path / "new"))
    assert sum(path.stat().st_size for path in entries(chain)) == before
    text, _ = run("compact", chain, "--policy", "lc-2", "-o", tmp_path / "lossy")
    assert "additional loss, weight: " in text
    assert "needs" not in text
    run("compact", chain, "--policy", "lc-2", code=2)
    assert run("compact", chain)[0] == f"3 checkpoints: {before:,} bytes, before {before:,}\n"


def test_pins(chain):
    assert run("pin", chain)[0] == "no pins\n"
    assert run("pin", chain, 30, 10)[0] == "pinned: 10, 30\n"
    assert "step 30 of" in run("rollback", chain, 20, "--delete", code=2)[1]
    assert ", pinned: 30" in run("rollback", chain, 20)[0]
    assert run_json("rolled-back", chain)["rolled_back"][0]["pins"] == [30]
    assert "0001-to-20, is pinned" in run("rolled-back", chain, "--delete", code=2)[1]
    assert "--pinned needs --delete" in run("rolled-back", chain, "--pinned", code=2)[1]
    run("rolled-back", chain, "--undo")
    run("rollback", chain, 20)
    assert run("rolled-back", chain, "--delete", "--pinned")[0].startswith("removed 0001-to-20: ")
    assert run("rolled-back", chain)[0] == "no steps are set aside\n"
    assert run_json("unpin", chain, 30) == {"directory": str(chain), "pins": [10]}
    assert run("unpin", chain, 10, 20)[0] == "no pins\n"
