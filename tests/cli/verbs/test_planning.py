"""The verb plan: what a save would do, as the save then does it."""

import numpy as np
import pytest

import lccodec
from lccodec.adapters.files.formats import save_file

from ...support.commands import run, run_json
from ...support.runs import arrays_of, run_states


@pytest.fixture(name="files")
def _files(tmp_path):
    for number, state in enumerate(run_states(3)):
        save_file(arrays_of(state), tmp_path / f"state-{number}.npz", {})
    return sorted(tmp_path.glob("*.npz"))


def test_a_plan_is_what_the_save_does(files, tmp_path):
    run("save", tmp_path / "run", files[0], files[1], "--policy", "balanced")
    before = sorted((tmp_path / "run").iterdir())
    document = run_json("plan", tmp_path / "run", files[2])
    assert sorted((tmp_path / "run").iterdir()) == before
    run("save", tmp_path / "run", files[2])
    info = lccodec.Chain(tmp_path / "run").info(2)
    assert document["parent"] == info.parent == 1
    for planned, saved in zip(document["arrays"], info.arrays, strict=True):
        assert (planned["name"], planned["role"], planned["why"]) == (saved.name, saved.role, saved.why)
        assert planned["estimated_bytes"] == pytest.approx(saved.stored_bytes, abs=1)
        assert (planned["stored"] == "unchanged") == (saved.method == "unchanged")
    assert "about " in run("plan", tmp_path / "run", files[2])[0]
    assert document["last"]["step"] == 1
    assert document["last"]["figures"]["weight"]["error"] > 0


def test_a_newest_checkpoint_that_cannot_be_read(files, tmp_path):
    run("save", tmp_path / "run", files[0], files[1], "--policy", "balanced", "--newest", "history")
    newest = max((tmp_path / "run").glob("*.lcc.h5"))
    newest.write_bytes(newest.read_bytes()[:-1])
    document = run_json("plan", tmp_path / "run", files[2])
    assert (document["parent"], document["last"]) == (None, None)


def test_a_new_chain(files, tmp_path):
    document = run_json("plan", tmp_path / "new", files[0])
    assert not (tmp_path / "new").exists()
    assert document["last"] is None
    assert (document["parent"], {array["estimated_error"] for array in document["arrays"]}) == (None, {0.0})
    lossy = run_json("plan", tmp_path / "new", files[0], "--policy", "small")
    assert lossy["totals"]["estimated_bytes"] < document["totals"]["estimated_bytes"]
    assert "This would be a keyframe" in run("plan", tmp_path / "new", files[0])[0]


def test_roles_of_a_file_of_torch(tmp_path):
    import torch

    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "s.pt")
    document = run_json("plan", tmp_path / "new", tmp_path / "s.pt")
    assert {"weight", "first_moment", "second_moment"} <= {array["role"] for array in document["arrays"]}


def test_what_cannot_be_planned(tmp_path):
    (tmp_path / "state.txt").write_text("")
    assert "state.txt: not one of" in run("plan", tmp_path, tmp_path / "state.txt", code=2)[1]
    np.savez(tmp_path / "text.npz", a=np.array(["text"]))
    assert "lccodec: error" in run("plan", tmp_path / "new", tmp_path / "text.npz", code=2)[1]
