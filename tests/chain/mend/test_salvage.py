"""What is left of a damaged chain goes into a new one, and what is gone is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lccodec import ArgumentError, Chain, validate

from ...support.checkpoints import damage_array
from ...support.walks import assert_same

STATES = [
    {"model": {"a": np.full(3000, step, np.float32), "b": np.arange(3000.0) * step}, "epoch": step}
    for step in range(6)
]


def chain_of(directory: Path) -> Chain:
    chain = Chain(directory, "lossless", keyframe_every=2, newest="history")
    for step, state in enumerate(STATES):
        chain.save(step, state, {"loss": step})
    chain.close()
    return Chain(directory)


def test_a_sound_chain(tmp_path: Path) -> None:
    found = chain_of(tmp_path / "run").salvage(tmp_path / "new")
    assert (found.whole, found.partial, found.gone) == (tuple(range(6)), {}, {})
    for step, state in enumerate(STATES):
        assert_same(Chain(tmp_path / "new").restore(step), state)
    assert validate(tmp_path / "new", deep=True) == []


def test_other_arrays_of_damaged_steps_are_kept(tmp_path: Path) -> None:
    chain = chain_of(tmp_path / "run")
    damage_array(tmp_path / "run/000000000003.lcc.h5", "model/a")
    found = chain.salvage(tmp_path / "new")
    assert found.whole == (0, 1, 2)
    assert {step: list(lost) for step, lost in found.partial.items()} == {
        step: ["model/a"] for step in (3, 4, 5)
    }
    assert "do not match their digest" in found.partial[4]["model/a"]
    new = Chain(tmp_path / "new")
    for step in (3, 4, 5):
        assert_same(new.restore(step), {"model/b": STATES[step]["model"]["b"]})
    assert new.info(3).metadata["loss"] == "3"


def test_steps_whose_parent_is_missing_are_gone(tmp_path: Path) -> None:
    chain = chain_of(tmp_path / "run")
    (tmp_path / "run/000000000003.lcc.h5").unlink()
    (tmp_path / "run/000000000000.lcc.h5").write_bytes(b"")
    found = chain.salvage(tmp_path / "new")
    assert (found.whole, found.partial, list(found.gone)) == ((), {}, [0, 1, 2, 4, 5])
    assert "parent" in found.gone[4]


def test_only_into_a_new_directory(tmp_path: Path) -> None:
    chain = chain_of(tmp_path / "run")
    with pytest.raises(ArgumentError, match="needs a new or empty directory"):
        chain.salvage(tmp_path / "run")
