"""The verb ls, with and without --json, and what it loads."""

import re
import shutil

import lccodec
from lccodec.container.manifest import parse_manifest

from ..support.commands import run, run_json, step_file
from ..support.programs import run_program
from ..support.runs import run_states, save_run


def test_ls(chain):
    stdout, stderr = run("ls", chain)
    lines = stdout.splitlines()
    assert lines[0].split() == ["step", "kind", "values", "parent", "bytes", "ratio", "deltas"]
    assert [line.split()[:4] for line in lines[1:4]] == [
        ["10", "key", "exact", "-"],
        ["20", "delta", "lossy", "10"],
        ["30", "delta", "lossy", "20"],
    ]
    assert lines[-1].startswith("3 checkpoints, 1 of them keyframes: ")
    assert re.fullmatch("bytes, logarithmic  [\u2581-\u2588]{3}", lines[-2])
    assert stderr == ""
    document = run_json("ls", chain)
    assert [entry["step"] for entry in document["checkpoints"]] == [10, 20, 30]
    assert [entry["deltas"] for entry in document["checkpoints"]] == [0, 1, 2]
    assert [entry["lossy"] for entry in document["checkpoints"]] == [False, True, True]
    assert document["checkpoints"][1]["file_bytes"] == step_file(chain, 20).stat().st_size
    assert document["totals"]["file_bytes"] == sum(path.stat().st_size for path in chain.iterdir())
    assert document["errors"] == []


def test_ls_shows_pins(chain, tmp_path):
    assert run_json("ls", chain)["pins"] == []
    run("pin", chain, 20, 10)
    assert run("ls", chain)[0].splitlines()[-1] == "pinned: 10, 20"
    assert run_json("ls", chain)["pins"] == [10, 20]
    lccodec.bundle(chain, tmp_path / "run.lcc")
    assert run_json("ls", tmp_path / "run.lcc")["pins"] == []


def test_ls_lists_what_is_whole(chain):
    step_file(chain, 20).write_bytes(step_file(chain, 20).read_bytes()[:-1])
    stdout, stderr = run("ls", chain, code=1)
    assert "10" in stdout
    assert stderr.count("lccodec: error: ") == 2  # the damaged one, and the one that needs it
    document = run_json("ls", chain, code=1)
    assert [entry["step"] for entry in document["checkpoints"]] == [10]
    assert [entry["step"] for entry in document["errors"]] == [20, 30]
    assert document["errors"][0]["rule"].startswith("LCC-")


def test_ls_reads_each_file_once(chain, monkeypatch):
    parsed = []

    def counted(data, where):
        parsed.append(where)
        return parse_manifest(data, where)

    monkeypatch.setattr("lccodec.container.checkpoint.parse_manifest", counted)
    run("ls", chain)
    assert len(parsed) == len(set(parsed)) == 3


def test_ls_of_an_empty_directory(tmp_path):
    assert run("ls", tmp_path, code=1)[1].endswith("holds no checkpoint\n")
    assert run_json("ls", tmp_path, code=1)["error"]["type"] == "ChainError"


def test_ls_of_a_folder_above_chains(chain, tmp_path):
    above = tmp_path / "above"
    for name in ("process-0", "process-1"):
        shutil.copytree(chain, above / name)
    (above / "logs").mkdir()
    lines = run("ls", above)[0].splitlines()
    assert lines[-2:] == [f"  {above}/process-{n}: 3 checkpoints, steps 10 to 30" for n in (0, 1)]
    document = run_json("ls", above)
    assert document["chains"] == [str(above / "process-0"), str(above / "process-1")]
    assert (document["checkpoints"], document["totals"]["ratio"]) == ([], None)
    hint = "holds no checkpoint, but these chains: process-0, process-1"
    for words in (["info"], ["average", "--last", 1, "-o", tmp_path / "a.npz"], ["compact"]):
        assert hint in run(words[0], above, *words[1:], code=1)[1]
    assert hint in run("check", above, code=1)[0].replace("above: above: ", "")


def test_ls_of_records_names_the_chains_of_the_ranks(chain):
    shutil.copytree(chain, chain / "rank-0")
    stdout = run("ls", chain)[0]
    assert "3 checkpoints, 1 of them keyframes" in stdout
    assert stdout.endswith(f"  {chain}/rank-0: 3 checkpoints, steps 10 to 30\n")


def test_what_the_saves_lost(tmp_path):
    chain = save_run(tmp_path / "run", run_states(4), policy="balanced", newest="exact")
    true = {step: chain.info(step).figures for step in chain.steps}
    assert 0 < true[30]["weight"].lag != true[30]["weight"].error_in_movements
    shown = [line.split() for line in run("ls", chain.directory, "--quality")[0].splitlines()[1:5]]
    assert shown[0][3:] == ["-", "-", f"{100 * true[0]['weight'].error_in_spreads:.3g}", "%", "-", "-"]
    for step, row in zip(true, shown, strict=True):
        moment = true[step]["first_moment"]
        assert row[0] == str(step)
        if step:
            weight = true[step]["weight"]
            assert row[3:5] == [f"{weight.error_in_movements:.3g}", f"{weight.lag:.2f}"]
            assert row[5] == f"{100 * weight.error_in_spreads:.3g}"
            assert row[7:] == [f"{moment.error_in_movements:.3g}", f"{moment.lag:.2f}"]
    documents = run_json("ls", chain.directory, "--quality")["checkpoints"]
    for step, document in zip(true, documents, strict=True):
        assert document["figures"] == {role: found.numbers() for role, found in true[step].items()}
        assert run_json("info", chain.directory, "--step", step)["figures"] == document["figures"]
    assert documents[0]["figures"]["weight"]["error_in_movements"] is None
    assert "figures" not in run_json("ls", chain.directory)["checkpoints"][0]


def test_ls_loads_little(chain):
    """What saves, decodes, mends, reports and converts is not loaded to list, nor is NumPy."""
    program = (
        "import sys\nfrom lccodec.__main__ import main\ntry:\n    main()\n"
        "except SystemExit:\n    print(*sys.modules, sep='\\n')"
    )
    found = run_program(program, "ls", chain).stdout.splitlines()
    assert "lccodec.cli.listing" in found
    assert not {"numpy", "h5py", "rich", "concurrent.futures"} & set(found)
    others = (
        "quantizers",
        "frame.decode",
        "chain.chain",
        "chain.save",
        "chain.mend",
        "chain.life",
        "report",
        "exchange",
        "adapters.files",
    )
    assert [name for name in found if name.startswith(tuple(f"lccodec.{other}" for other in others))] == []
