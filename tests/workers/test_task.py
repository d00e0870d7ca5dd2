"""What becomes of a task, and which tasks write into arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from lccodec.chain.read.crew import CloseFile, DecodeGroup, DecodeRange, Source
from lccodec.workers.memory import Arena, place_of
from lccodec.workers.task import Bench, Done, Writes

SOURCE = Source("nowhere", b"")


@dataclass(frozen=True)
class _Nothing:
    def run(self, bench: Bench) -> int:
        return len(bench)


def test_a_result_or_an_error() -> None:
    assert Done.of(_Nothing(), {}).value() == 0
    with pytest.raises(TypeError):
        Done.of(_Nothing(), None).value()  # type: ignore[arg-type]


def test_tasks_that_write_are_staged() -> None:
    group = DecodeGroup(SOURCE, [0, 1], [np.zeros(5, np.uint8), None])
    part = DecodeRange(SOURCE, "w", 10, 15, 1, 3, np.zeros(5, np.uint32))
    arena = Arena()
    for task, out in ((group, group.out[0]), (part, part.out)):
        assert isinstance(task, Writes)
        staged = task.staged(arena)
        written = staged.out[0] if isinstance(staged, DecodeGroup) else staged.out
        assert written is not None
        assert place_of(written) is not None
        written[:] = range(5)
        task.take(staged)  # type: ignore[arg-type]
        assert out is not None
        assert out.tolist() == [*range(5)]
        assert place_of(out) is None
    assert len(arena.segments) == 1
    assert not isinstance(CloseFile(), Writes)
