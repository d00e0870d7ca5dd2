"""Where a save warns, whoever finds out: at the line of the user; and when it is given up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lccodec import Chain, LccodecWarning
from lccodec.chain.directory import checkpoint_path
from lccodec.workers.crew import Threads

from ..support.directories import entries


def test_warnings_are_at_the_line_that_saves(tmp_path: Path) -> None:
    state = {"weight": np.arange(9, dtype=np.float32)}
    Chain(tmp_path, policy="lc-3").save(0, state)
    path = checkpoint_path(tmp_path, 0)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.warns(LccodecWarning) as told:
        Chain(tmp_path).save(1, state)
    assert [warning.filename for warning in told] == [__file__] * 2
    assert "goes on lossless" in str(told[0].message)  # from the settings
    assert "goes on with a keyframe" in str(told[1].message)  # from the tail


def test_a_save_can_be_given_up_until_the_moment_that_it_is_committed(tmp_path: Path) -> None:
    """A worker looks whether its client is there; the last time, the file is on the disk."""
    looks: list[list[int]] = []

    def between() -> None:
        looks.append(chain.steps)
        if len(looks) == 1:
            raise EOFError

    chain, state = Chain(tmp_path, "lossless"), {"weight": np.arange(9, dtype=np.float32)}
    chain._saver._crew = Threads(between=between)
    with pytest.raises(EOFError):
        chain.save(0, state)
    assert (chain.steps, entries(tmp_path)) == ([], [])
    chain.save(0, state)
    assert looks == [[], []]
