"""Readers in other processes while a writer saves, thins out and rewrites: no wrong bit, no error.

A step that is gone is said to have been pruned.
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from lccodec import Chain, Keep, validate

from ..support.killed_loop import state_of
from ..support.profiles import LONG

pytestmark = pytest.mark.slow  # processes

READER = "tests.support.reader_loop"
READERS = 8 if LONG else 3
SECONDS = 60.0 if LONG else 2.0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="files that are open cannot be replaced there")
def test_readers_beside_a_writer(tmp_path: Path) -> None:
    root, directory = Path(__file__).parents[2], tmp_path / "run"
    keep = Keep(latest=4, every=7)
    with Chain(directory, "lossless", keyframe_every=5, newest="exact", keep=keep) as chain:
        chain.save(0, state_of(0))
        readers = [
            subprocess.Popen(
                [sys.executable, "-m", READER, str(directory), str(number)],
                cwd=root,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(READERS)
        ]
        end, step = time.monotonic() + SECONDS, 0
        while time.monotonic() < end or step < 30:
            step += 1
            if step % 3:
                chain.save(step, state_of(step))
            else:
                chain.save_async(step, state_of(step)).result()
            if step % 10 == 0:
                chain.prune(Keep(latest=2, every=14), rewrite=True)
            if step % 25 == 0:
                chain.compact(keyframe_every=2)
        told = [reader.communicate(timeout=240) for reader in readers]
        assert [error for _, error in told] == [""] * READERS
        counts = [tuple(map(int, text.split())) for text, _ in told]
        print(f"{step} saves; restored and gone: {counts}")
        assert all(restored > 0 for restored, _ in counts)
        assert validate(directory, deep=True) == []
