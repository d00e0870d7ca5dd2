"""The verbs against damage: what they print, and their exit codes."""

from pathlib import Path

import numpy as np

import lccodec
from lccodec.adapters import safetensors

from ..support.commands import damage, run, run_json
from ..support.segments import run_of


def test_protect_and_repair(tmp_path: Path) -> None:
    run_of(tmp_path, 4).close()
    out = run("protect", tmp_path, "--files", "1")[0]
    assert out.startswith("4 files of ")
    assert "are protected (1 files), in 1 groups" in out
    assert run("repair", tmp_path)[0] == "nothing is damaged\n"
    (tmp_path / "000000000002.lcc.h5").unlink()
    assert run("repair", tmp_path, "--dry-run")[0] == "000000000002.lcc.h5: can be mended\n"
    assert run_json("repair", tmp_path)["mended"] == ["000000000002.lcc.h5"]
    assert run("check", tmp_path)[0] == f"{tmp_path}: sound\n"


def test_check_says_what_is_repairable(tmp_path: Path) -> None:
    run_of(tmp_path, 4).close()
    run("protect", tmp_path, "--redundancy", "30%")
    path = tmp_path / "000000000001.lcc.h5"
    path.write_bytes(path.read_bytes()[:-40])
    assert run("check", tmp_path, code=1)[0].splitlines()[-1] == f"{tmp_path}: repairable: yes"
    assert run_json("check", tmp_path, code=1)["paths"][0]["repairable"] == "yes"
    for other in tmp_path.glob("*.h5"):
        other.write_bytes(b"")
    assert run("check", tmp_path, code=1)[0].splitlines()[-1] == f"{tmp_path}: repairable: no"
    assert "000000000001.lcc.h5: cannot be mended: " in run("repair", tmp_path, code=1)[0]


def test_the_newest_step_mends_itself(tmp_path: Path) -> None:
    """Without parity: the exact file and the checkpoint are copies of each other."""
    run_of(tmp_path, 4, newest="exact").close()
    names = ("000000000003.lcc.h5", "exact.lcc.h5")
    told = ("as a keyframe, from the exact file", "bit for bit, from the checkpoint of its step")
    for name, how in zip(names, told, strict=True):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-40])
        assert run("check", tmp_path, code=1)[0].splitlines()[-1] == f"{tmp_path}: repairable: yes"
        assert run("repair", tmp_path, "--dry-run")[0] == f"{name}: can be mended {how}\n"
        assert run_json("repair", tmp_path)["remade"] == {name: how}
        assert run("check", tmp_path)[0] == f"{tmp_path}: sound\n"
    (tmp_path / "000000000001.lcc.h5").write_bytes(b"")
    assert "repairable" not in run("check", tmp_path, code=1)[0]


def test_parity_is_removed(tmp_path: Path) -> None:
    run_of(tmp_path, 2).close()
    run("protect", tmp_path, "--files", "1")
    assert run("protect", tmp_path, "--remove")[0].startswith("parity removed: ")
    assert not (tmp_path / ".parity").exists()


def test_one_option_must_say_how_much(tmp_path: Path) -> None:
    run_of(tmp_path, 1).close()
    for options in ([], ["--files", "1", "--redundancy", "5%"], ["--files", "0"]):
        run("protect", tmp_path, *options, code=2)


def test_salvage(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 4).close()
    (tmp_path / "run/000000000001.lcc.h5").write_bytes(b"")
    out = run("repair", tmp_path / "run", "--salvage", tmp_path / "new", code=1)[0]
    assert out.splitlines()[0] == "2 steps are whole"
    assert "step 1: lost: " in out
    run("check", tmp_path / "new")
    for option in (["--dry-run"], ["--max-bytes", "1GB"]):
        run("repair", tmp_path / "run", "--salvage", tmp_path / "n", *option, code=2)


def test_a_repair_keeps_bounds(tmp_path: Path) -> None:
    with lccodec.Chain(tmp_path, "lossless", newest="exact") as chain:
        chain.save(0, {"w": np.zeros(1000)})
    (tmp_path / "exact.lcc.h5").write_bytes(b"")
    assert "max_bytes is 1,000" in run("repair", tmp_path, "--max-bytes", "1kB", code=1)[0]
    run("repair", tmp_path, "--max-bytes", "8kB", "--max-deltas", "0")


def test_a_mirror_is_brought_up_to_date(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 3).close()
    assert ": 3 files, " in run("mirror", tmp_path / "run", tmp_path / "m", "--dry-run")[0]
    assert not (tmp_path / "m").exists()
    assert run("mirror", tmp_path / "run", tmp_path / "m")[0] == (
        f"{tmp_path / 'm'}: up to date, after 3 files were copied\n"
    )
    assert run_json("mirror", tmp_path / "run", tmp_path / "m")["copied"] == 0
    (tmp_path / "run/000000000001.lcc.h5").unlink()
    out = run("repair", tmp_path / "run", "--mirror", tmp_path / "m", "--dry-run")[0]
    assert out == f"000000000001.lcc.h5: can be mended from {tmp_path / 'm'}\n"
    assert run_json("repair", tmp_path / "run", "--mirror", tmp_path / "m")["mirrored"] == {
        "000000000001.lcc.h5": str(tmp_path / "m")
    }
    (tmp_path / "run/000000000001.lcc.h5").write_bytes(b"")
    (tmp_path / "m/000000000001.lcc.h5").unlink()
    assert "000000000001.lcc.h5: not copied: " in run("mirror", tmp_path / "run", tmp_path / "m", code=1)[0]
    run("mirror", tmp_path / "none", tmp_path / "m", code=2)
    (tmp_path / "empty").mkdir()
    assert "holds no checkpoint" in run("mirror", tmp_path / "empty", tmp_path / "m", code=1)[1]


def test_a_directory_is_sealed_and_checked(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    safetensors.save_file({"w": np.ones(9), "v": np.ones(9)}, folder / "m.safetensors")
    size = (folder / "m.safetensors").stat().st_size
    sealed = f"{folder / 'lccodec.sha256'}: 1 file of {size} bytes, with 2 tensors\n"
    assert run("seal", folder)[0] == sealed
    assert run("check", folder, "-j", 2)[0] == f"{folder}: sound\n"
    damage(folder / "m.safetensors")
    (folder / "new").touch()
    assert run("check", folder, code=1)[0].splitlines() == [
        f"{folder}: m.safetensors: changed: tensor 'v' [seal]",
        f"{folder}: new: new: it was not there when the directory was sealed [seal]",
    ]
    assert (
        "m.safetensors: changed: tensor 'v' since"
        in run("convert", folder / "m.safetensors", tmp_path / "m.lcc.h5", code=1)[1]
    )
    assert "replace the seal" in run("seal", folder, code=2)[1]
    assert run_json("seal", folder, "--replace", "-j", 0)["seals"] == [
        {"path": str(folder / "lccodec.sha256"), "files": 2, "tensors": 2, "nbytes": size}
    ]
    run("check", folder, folder / "m.safetensors")


def test_what_is_sealed_and_of_lccodec_is_checked_as_both(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 2).close()
    path = tmp_path / "run" / "000000000000.lcc.h5"
    run("seal", tmp_path / "run")
    run("check", tmp_path / "run", path)
    path.write_bytes(path.read_bytes()[:-40])
    for place in (tmp_path / "run", path):
        found = run_json("check", place, code=1)["paths"][0]["problems"]
        assert {problem["rule"][:4] for problem in found} >= {"seal", "LCC-"}
