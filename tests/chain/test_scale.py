"""Ten thousand checkpoints in a directory: only those that are needed are opened."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from lccodec import Keep
from lccodec.cli.listing import ls
from lccodec.container.system import System

from ..support.chains import HistoryChain
from ..support.paths import checkpoint_path
from ..support.walks import assert_same, walk

COUNT = 10_000
STATES = walk(6)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A keyframe and two deltas behind files that nobody may open: names of one damaged file."""
    directory = tmp_path_factory.mktemp("many")
    with HistoryChain(directory, "lossless") as chain:
        for step in range(3):
            chain.save(COUNT + step, STATES[step])
    other = directory / "damaged"
    other.write_bytes(b"not a checkpoint")
    for step in range(COUNT):
        os.link(other, checkpoint_path(directory, step))
    return directory


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each checkpoint is opened."""
    counts, real = Counter[str](), os.open

    def count(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).endswith(".lcc.h5"):
            counts[Path(path).name] += 1
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", count)
    yield counts


@pytest.mark.slow
def test_nothing_is_opened_to_list_steps(many: Path, opened: Counter[str]) -> None:
    assert HistoryChain(many).steps == list(range(COUNT + 3))
    assert not opened


@pytest.mark.slow
def test_the_newest_needs_its_parents_alone(many: Path, opened: Counter[str]) -> None:
    chain = HistoryChain(many)
    assert_same(chain.restore(), STATES[2])
    assert_same(chain.restore(COUNT + 1), STATES[1])
    assert chain.info().deltas == 2
    assert chain.average(last=2)["epoch"] == 2
    assert set(opened) == {f"{COUNT + step:012d}.lcc.h5" for step in range(3)}


@pytest.mark.slow
def test_a_save_reads_no_more(many: Path, opened: Counter[str]) -> None:
    with HistoryChain(many) as chain:
        chain.save(COUNT + 3, STATES[3])
        opened.clear()
        chain.save(COUNT + 4, STATES[4])
        del opened["exact.lcc.h5"]  # a look whether there is one
        assert set(opened.values()) == {2}  # before the delta is coded, and before it gets its name
        assert len(opened) == 4  # its links
        chain.rollback(COUNT + 2, delete=True)
    del opened["exact.lcc.h5"]
    assert len(opened) == 5


@pytest.mark.slow
def test_ls_and_prune_open_each_file_a_few_times(
    tmp_path: Path, opened: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(System, "fsync", staticmethod(lambda _: None))
    with HistoryChain(tmp_path, "lossless", keyframe_every=10) as chain:
        for step in range(200):
            chain.save(step, {"a": np.full(3, step)})
    opened.clear()
    shown = CliRunner().invoke(ls, [str(tmp_path)])
    assert "200 checkpoints, 19 of them keyframes" in shown.output
    assert set(opened.values()) == {2}
    opened.clear()
    assert len(HistoryChain(tmp_path).prune(Keep(latest=5)).removed) == 187
    assert max(opened.values()) <= 2
    assert sum(opened.values()) < 2 * 200
