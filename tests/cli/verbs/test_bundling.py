"""The verbs bundle and unbundle, and the verbs that take a bundle as they take a chain."""

import numpy as np
import pytest

import lccodec
from lccodec.adapters import npz

from ...support.commands import run, run_json, step_file


@pytest.fixture
def bundled(chain, tmp_path):
    run("bundle", chain, "-o", tmp_path / "run.lcc")
    return tmp_path / "run.lcc"


def test_bundle_and_unbundle(chain, tmp_path):
    path = tmp_path / "run.lcc"
    stdout, _ = run("bundle", chain, "-o", path)
    assert stdout == f"{path}: 3 checkpoints, steps 10 to 30, {path.stat().st_size:,} bytes\n"
    document = run_json("bundle", chain, "-o", path, "--step", 10)
    root = path.read_bytes()[-32:].hex()
    assert document == {
        "directory": str(chain),
        "bundle": str(path),
        "bytes": path.stat().st_size,
        "root": root,
        "steps": [10],
        "exact": False,
    }
    run("bundle", chain, "-o", path)
    stdout, _ = run("unbundle", path, tmp_path / "back")
    assert stdout == f"{tmp_path / 'back'}: 3 checkpoints, steps 10 to 30\n"
    assert run_json("unbundle", path, tmp_path / "back")["steps"] == [10, 20, 30]
    assert step_file(tmp_path / "back", 20).read_bytes() == step_file(chain, 20).read_bytes()


def test_the_exact_file_is_told(tmp_path):
    with lccodec.Chain(tmp_path / "run", newest="exact") as chain:
        chain.save(1, {"w": np.ones(3)})
    stdout, _ = run("bundle", tmp_path / "run", "-o", tmp_path / "run.lcc")
    assert "1 checkpoint, step 1, the exact file, " in stdout
    assert run_json("ls", tmp_path / "run.lcc")["exact"]["step"] == 1
    for path in ("run", "run.lcc"):
        assert run_json("info", tmp_path / path)["exact"]
    assert run_json("restore", tmp_path / "run.lcc", "-o", tmp_path / "a.npz")["exact"]
    assert not run_json("restore", tmp_path / "run.lcc", "-o", tmp_path / "a.npz", "--history")["exact"]


def test_a_bundle_is_shown_as_the_chain_is(chain, bundled, tmp_path):
    for words in (
        ("ls",),
        ("info", "--step", 20),
        ("info",),
        ("show", "model/weight"),
        ("show", "model/weight", "--step", 10),
        ("show", "note"),
        ("diff", 10, 30),
    ):
        verb, *rest = words
        of_chain, of_bundle = run(verb, chain, *rest)[0], run(verb, bundled, *rest)[0]
        assert of_bundle == of_chain
    run("restore", chain, "--step", 20, "-o", tmp_path / "a.npz", "--key", "model")
    run("restore", bundled, "--step", 20, "-o", tmp_path / "b.npz", "--key", "model")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    run("convert", bundled, "--step", 20, tmp_path / "c.lcc.h5")
    weight = npz.load_file(tmp_path / "a.npz")["model/weight"]
    with lccodec.open(tmp_path / "c.lcc.h5") as file:
        np.testing.assert_array_equal(file.get("model/weight"), weight)


def test_check(bundled):
    assert run("check", bundled, "--deep")[0] == f"{bundled}: sound\n"
    data = bytearray(bundled.read_bytes())
    data[600] ^= 1
    bundled.write_bytes(data)
    assert "000000000010.lcc.h5" in run("check", bundled, code=1)[0]


def test_what_is_not_a_bundle(chain, bundled, tmp_path):
    npz.save_file({"x": np.ones(2)}, tmp_path / "a.npz")
    assert "must be a directory or a bundle" in run("ls", tmp_path / "a.npz", code=2)[1]
    assert "not a bundle" in run("unbundle", tmp_path / "a.npz", tmp_path / "new", code=1)[1]
    assert "has no step 15; the nearest is" in run("info", bundled, "--step", 15, code=1)[1]
    assert "not a directory" in run("save", bundled, tmp_path / "a.npz", code=1)[1]
    assert step_file(chain, 10).unlink() is None
    run("unbundle", bundled, chain)  # adds what is missing
    assert run_json("check", chain)["sound"]
    _, stderr = run("bundle", chain, "-o", step_file(chain, 10), code=2)
    assert "is a checkpoint of a chain" in stderr
