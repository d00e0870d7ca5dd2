"""Where a save warns, whoever finds out: at the line of the user."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lccodec import Chain, LccodecWarning
from lccodec.chain.directory import checkpoint_path


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
