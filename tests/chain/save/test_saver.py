"""Where a save warns, whoever finds out: at the line of the user; and when it is given up."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import Chain, ChainError, LccodecWarning
from lccodec.chain.save import saver
from lccodec.workers.crew import Threads

from ...support.directories import entries
from ...support.paths import checkpoint_path
from ...support.walks import save_all


def test_warnings_are_at_the_line_that_saves(tmp_path: Path) -> None:
    state = {"weight": np.arange(9, dtype=np.float32)}
    Chain(tmp_path, policy="lc-3").save(0, state)
    path = checkpoint_path(tmp_path, 0)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.warns(LccodecWarning) as told:
        Chain(tmp_path).save(1, state)
    assert [warning.filename for warning in told] == [__file__] * 2
    assert "saves are lossless" in str(told[0].message)  # from the settings
    assert "step 0 was written anew from the exact file" in str(told[1].message)  # from the latest


def test_a_save_can_be_given_up_until_the_moment_that_it_is_committed(tmp_path: Path) -> None:
    """A worker looks whether its client is there; the last time, the file is on the disk."""
    looks: list[list[int]] = []

    def heartbeat() -> None:
        looks.append(chain.steps)
        if len(looks) == 1:
            raise EOFError

    chain, state = Chain(tmp_path, "lossless"), {"weight": np.arange(9, dtype=np.float32)}
    chain._writer._saver._crew = Threads(heartbeat=heartbeat)
    with pytest.raises(EOFError):
        chain.save(0, state)
    assert (chain.steps, entries(tmp_path)) == ([], [])
    chain.save(0, state)
    assert looks == [[], []]


@pytest.mark.parametrize("exact_every", [1, 3])
def test_a_state_that_lost_its_reference_twice_is_kept_in_the_exact_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact_every: int
) -> None:
    rng = np.random.default_rng(0)
    states = [{"weight": rng.standard_normal(1000).astype(np.float32)} for _ in range(5)]
    chain = Chain(tmp_path, policy="lc-3", exact_every=exact_every)
    save_all(chain, states, range(3))
    monkeypatch.setattr(saver, "held_together", _gone)
    with pytest.warns(LccodecWarning) as told:
        chain.save(3, states[3])
    assert "the save was started again: it is gone" in str(told[0].message)
    assert "step 3 is saved, but only in the exact file" in str(told[1].message)
    monkeypatch.undo()
    np.testing.assert_array_equal(chain.restore(3)["weight"], states[3]["weight"])
    chain.save(4, states[4])
    assert chain.steps == [0, 1, 2, 3, 4]


@contextmanager
def _gone(*_: Any) -> Iterator[None]:
    raise ChainError("it is gone")
    yield
