"""A restore that falls back: the newest whole step is returned, and what was skipped is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import ArgumentError, Chain, ChainError, ChecksumError, DataError, LccodecWarning

from ..support.checkpoints import damage_array
from ..support.commands import damage, run, run_json, step_file

STEPS = [0, 10, 20, 30, 40]  # 0 and 30 are keyframes


def state(step: int) -> dict[str, Any]:
    weight = np.random.default_rng(1).normal(size=(200, 300))
    return {"weight": weight + step, "first": np.arange(50_000.0) * step, "step": step}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with Chain(tmp_path / "run", "lossless", keyframe_every=2) as chain:
        for step in STEPS:
            chain.save(step, state(step))
    return tmp_path / "run"


def damage_steps(directory: Path, *steps: int) -> None:
    for step in steps:
        damage(step_file(directory, step))


def test_a_whole_chain_returns_its_newest_step_without_a_warning(directory: Path) -> None:
    chain = Chain(directory)
    assert chain.restore(fallback=True)["step"] == chain.latest == 40
    assert chain.restore(20, fallback=True)["step"] == 20


@pytest.mark.parametrize(
    ("damaged", "wanted", "restored", "skipped"),
    [
        ([40], None, 30, "skipped step 40: "),
        ([30], None, 20, "skipped steps 40, 30: "),  # the parent of 40
        ([30, 20], None, 10, "skipped.* step 20: "),
        ([40, 20], 20, 10, "skipped step 20: "),
    ],
)
def test_the_newest_whole_step_is_restored(
    directory: Path, damaged: list[int], wanted: int | None, restored: int, skipped: str
) -> None:
    damage_steps(directory, *damaged)
    chain = Chain(directory)
    with pytest.raises(ChecksumError):
        chain.restore(wanted)
    with pytest.warns(LccodecWarning, match=skipped) as warned:
        found = chain.restore(wanted, fallback=True)
    [message] = [str(each.message) for each in warned]
    assert f"restored step {restored}" in message
    assert all(
        step_file(directory, step).name in message for step in damaged if step > restored and step != 40
    )
    assert found["step"] == restored
    assert np.array_equal(found["weight"], state(restored)["weight"])


def notes_of(chain: Chain, *arguments: Any) -> list[str]:
    with pytest.raises((DataError, ChainError)) as caught:
        chain.restore(*arguments)
    return getattr(caught.value, "__notes__", [])


def test_the_error_of_a_damaged_step_says_how_an_older_one_is_restored(directory: Path) -> None:
    note = "the newest step before it that is whole"
    chain = Chain(directory)
    damage_steps(directory, 0, 40)
    assert notes_of(chain) == notes_of(chain, 40) == [f"restore(fallback=True) returns {note}"]
    assert notes_of(chain, 0) == notes_of(chain, 35) == []  # no older one, no such step
    words = "restore", directory, "-o", directory.parent / "state.npz"
    assert run(*words, code=1)[1].splitlines()[-1] == f"lccodec: note: --fallback restores {note}"
    assert note not in run(*words, "--step", 0, code=1)[1]
    assert note not in run(*words, "--step", 35, code=1)[1]


def test_a_missing_parent_is_skipped(directory: Path) -> None:
    step_file(directory, 30).unlink()
    with pytest.warns(LccodecWarning, match=r"restored step 20.*step 40: .*parent"):
        assert Chain(directory).restore(fallback=True)["step"] == 20


def test_a_part_comes_from_a_step_that_is_whole(directory: Path) -> None:
    """So the parts of a state that are restored one after the other fit together."""
    chain = Chain(directory)
    damage_array(step_file(directory, 40), "weight")
    assert chain.restore(keys=["first", "step"])["step"] == 40
    steps = []
    for key in ("first", "weight", "step"):
        with pytest.warns(LccodecWarning, match="skipped step 40"):
            steps.append(chain.restore(keys=iter([key, "step"]), fallback=True)["step"])
    assert steps == [30, 30, 30]


def test_a_run_goes_on_from_the_step(directory: Path) -> None:
    damage_steps(directory, 40)
    with Chain(directory) as chain:
        with pytest.warns(LccodecWarning, match="roll back to step 30"):
            step = chain.restore(fallback=True)["step"]
        chain.rollback(step)
        chain.save(40, state(40))
        assert chain.restore()["step"] == 40


def lossy(directory: Path, **options: Any) -> Chain:
    with Chain(directory, "balanced", **options) as chain:
        for step in (0, 1, 2):
            chain.save(step, state(step))
    return Chain(directory)


def test_a_damaged_exact_file_falls_back_to_the_history(tmp_path: Path) -> None:
    chain = lossy(tmp_path)
    damage(tmp_path / "exact.lcc.h5")
    with pytest.warns(LccodecWarning, match="exact file"):
        found = chain.restore(fallback=True)
    assert found["step"] == 2


def test_exact_file_and_newest_step_damaged(tmp_path: Path) -> None:
    chain = lossy(tmp_path)
    damage(tmp_path / "exact.lcc.h5")
    damage_steps(tmp_path, 2)
    with pytest.warns(LccodecWarning) as warned:
        assert chain.restore(fallback=True)["step"] == 1
    assert "restored step 1" in str(warned[-1].message)


def test_an_older_exact_file_stands_in_for_a_damaged_history(tmp_path: Path) -> None:
    chain = lossy(tmp_path, exact_every=2, keyframe_every=9)  # of step 2, then of none later
    with Chain(tmp_path, exact_every=9) as more:
        more.save(3, state(3))
    damage_steps(tmp_path, 0)  # which all deltas need
    exact = chain.exact_step
    with pytest.warns(LccodecWarning):
        found = chain.restore(fallback=True)
    assert found["step"] == exact
    assert exact is not None
    assert np.array_equal(found["weight"], state(exact)["weight"])


def test_all_damaged_is_an_error_that_lists_all(directory: Path) -> None:
    damage_steps(directory, *STEPS)
    with pytest.raises(ChainError, match="no step can be restored") as caught:
        Chain(directory).restore(fallback=True)
    assert all(str(step) in str(caught.value) for step in STEPS)


def test_an_unknown_step_stays_an_error(directory: Path) -> None:
    with pytest.raises(ChainError, match="has no step 15"):
        Chain(directory).restore(15, fallback=True)


def test_arguments_are_not_damage(directory: Path) -> None:
    with pytest.raises(ArgumentError):
        Chain(directory).restore(keys=["weigth"], fallback=True)
    with pytest.raises(ArgumentError):
        Chain(directory).restore("20", fallback=True)


def test_no_chain(tmp_path: Path) -> None:
    chain = Chain(tmp_path / "none")
    assert chain.latest is None
    with pytest.raises(ChainError, match="no checkpoint"):
        chain.restore(fallback=True)


def test_from_the_shell(directory: Path) -> None:
    output = directory.parent / "out.npz"
    damage_steps(directory, 40)
    run("restore", directory, "-o", output, code=1)
    stdout, stderr = run("restore", directory, "-o", output, "--fallback")
    assert stdout.startswith("step 30")
    assert "skipped step 40: " in stderr
    assert run_json("restore", directory, "-o", output, "--fallback", "--key", "first")["step"] == 30
    damage_steps(directory, *STEPS[:-1])
    _, stderr = run("restore", directory, "-o", output, "--fallback", code=1)
    assert "no step can be restored" in stderr


def test_of_a_bundle_from_the_shell(tmp_path: Path) -> None:
    chain = lossy(tmp_path / "run", keyframe_every=0)
    bundle = tmp_path / "run.lcc"
    run("bundle", chain.directory, "-o", bundle)
    assert run_json("restore", bundle, "-o", tmp_path / "out.npz", "--fallback")["step"] == 2
    data = bytearray(bundle.read_bytes())
    parts = [step_file(chain.directory, 2), chain.directory / "exact.lcc.h5"]
    for content in (path.read_bytes() for path in parts):
        data[data.index(content) + len(content) // 2] ^= 0xFF
    bundle.write_bytes(data)
    stdout, stderr = run("restore", bundle, "-o", tmp_path / "out.npz", "--fallback")
    assert stdout.startswith("step 1")
    assert "skipped step 2: " in stderr
