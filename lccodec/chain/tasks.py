"""The tasks that a save divides among the members of a crew (:mod:`lccodec.workers.crew`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ..element_types import Array, ElementType
from ..frame.content import Content
from ..frame.encode import Effort, FrameCoder, encode_content
from ..frame.header import Shape
from ..quantizers.base import Quantizer
from ..workers.task import Bench

_FRAME: Final = "frame"  # where the coder of a frame lies on the bench


@dataclass(frozen=True, eq=False)
class FrameInput:
    """What a frame is made of.

    Parameters
    ----------
    arrays
        The components of each array.
    kind, shapes
        The element type, and the shape of each array.
    out
        Where the decoded components go.
    relative
        Whether `out` holds the reference before.
    quantizer, effort
        How they are coded.
    """

    arrays: list[Array]
    kind: ElementType
    shapes: tuple[Shape, ...]
    out: Array
    relative: bool
    quantizer: Quantizer
    effort: Effort

    @property
    def size(self) -> int:
        """Components of the frame."""
        return self.out.size

    def content(self) -> Content:
        """Return the content of the frame; a run is copied."""
        run = len(self.arrays) > 1
        bits = np.concatenate(self.arrays) if run else self.arrays[0]
        content = Content(bits, self.kind, self.shapes, run=run)
        return replace(content, reference=self.out) if self.relative else content


@dataclass(frozen=True, eq=False)
class EncodeFrames:
    """Code frames; the result is a list of them."""

    frames: list[FrameInput]

    def run(self, bench: Bench) -> list[bytes]:  # noqa: ARG002
        """Do the task."""
        return [
            b"".join(encode_content(frame.content(), frame.quantizer, frame.out, effort=frame.effort))
            for frame in self.frames
        ]


@dataclass(frozen=True, eq=False)
class OpenFrame:
    """Leave the coder of a frame on the bench, for `EncodeBlock`."""

    frame: FrameInput

    def run(self, bench: Bench) -> None:
        """Do the task."""
        frame = self.frame
        bench[_FRAME] = FrameCoder(frame.content(), frame.quantizer, frame.out, frame.effort)


@dataclass(frozen=True)
class CloseFrame:
    """Take the coder off the bench, and with it what it keeps of the frame."""

    def run(self, bench: Bench) -> None:
        """Do the task."""
        del bench[_FRAME]


@dataclass(frozen=True)
class EncodeBlock:
    """Code one block of the frame on the bench; the result is the block and its part of the sum."""

    number: int

    def run(self, bench: Bench) -> tuple[bytes, int]:
        """Do the task."""
        return frame_coder(bench).write_block(self.number)


def frame_coder(bench: Bench) -> FrameCoder:
    """Return the coder that `OpenFrame` has left on a bench."""
    coder: FrameCoder = bench[_FRAME]
    return coder


#: The classes of all tasks, and of what they are made of.
TASKS: Final = (FrameInput, EncodeFrames, OpenFrame, CloseFrame, EncodeBlock)
