"""A plan to frames and a manifest: the content of a checkpoint file.

Everything that a reader would refuse is refused before the first frame is coded. The frames are
tasks that a save divides among the members of a crew (:mod:`lccodec.workers.crew`).

Source: SPEC 8 and 9.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from ...constants import METHOD_RAW, ElementType
from ...container.checkpoint import check_manifest
from ...container.manifest import INHERITED, Copy, Manifest, Parent
from ...container.tree import Flat, Json
from ...element_types import Array
from ...entropy.stream_writer import Piece
from ...frame.content import Content
from ...frame.encode import MAX_BLOCK_COMPONENTS, Effort, FrameCoder, RawFrame, encode_content
from ...frame.header import FrameHeader, Shape
from ...parallel import batches
from ...policy.policy import Candidate
from ...quantizers.base import Quantizer
from ...workers.crew import Bench, Crew
from ..read.replay import DecodedArray, copy_of, joined, split
from .plan import SavePlan

_FRAME: Final = "frame"  # where the coder of a frame lies on the bench


@dataclass(frozen=True, eq=False)
class FrameInput:
    """What a frame is made of."""

    arrays: list[Array]  # the components of each array
    # `kind`, `shapes`: the element type, and the shape of each array.
    kind: ElementType
    shapes: tuple[Shape, ...]
    out: Array  # where the decoded components go
    relative: bool  # whether `out` holds the reference before
    # `quantizer`, `effort`: how they are coded.
    quantizer: Quantizer
    effort: Effort

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

    def run(self, bench: Bench) -> tuple[list[Piece], int]:
        """Do the task."""
        coder: FrameCoder = bench[_FRAME]
        pieces, total = coder.write_block(coder.parts[self.number])
        return [b"".join(pieces)], total  # bytes can be sent


#: The classes of all tasks, and of what they are made of.
TASKS: Final = (FrameInput, EncodeFrames, OpenFrame, CloseFrame, EncodeBlock)

#: Fewer components are coded by one member: to hand them out takes longer.
_MIN_SHARED_COMPONENTS: Final = 1 << 21

#: Frames of fewer components are coded together, by one member.
_MIN_TASK_COMPONENTS: Final = 1 << 19

#: A frame is coded by all members if its share of the state, times the members, is above this.
_MAX_SHARE: Final = 1.5


def plan_manifest(
    plan: SavePlan,
    flat: Flat,
    *,
    step: int | None,
    policy: Json,
    metadata: dict[str, str],
    parent: tuple[bytes, Json] | None = None,
) -> Manifest:
    """Return the manifest of a planned checkpoint, without its frames.

    `parent` has the root and the tree of the parent. It is ``None`` for a keyframe. Raises
    ``ArgumentError`` if readers would refuse the manifest.
    """
    root, tree = parent or (b"", None)
    manifest = Manifest(
        step=step,
        parent=None if plan.parent is None else Parent(plan.parent, root),
        policy=policy,
        metadata=metadata,
        # Their texts: `==` would ignore the order of keys.
        tree=INHERITED if parent is not None and repr(tree) == repr(flat.tree) else flat.tree,
        scalars=flat.scalars,
        arrays=tuple(plan.frame_numbers()),
        frames=(),
        copies=tuple(Copy(plan.copies[i], plan.rounded(i)) for i in sorted(plan.copies)),
    )
    check_manifest(manifest, len(plan.frames))
    return manifest


def encode_plan(
    plan: SavePlan, parents: Mapping[str, DecodedArray], effort: Effort, crew: Crew
) -> Iterator[tuple[Iterable[Piece], dict[str, DecodedArray]]]:
    """Yield the chunks of each frame, and its decoded arrays by name.

    The arrays hold their decoded values once all chunks have been taken. Each member of the crew
    codes one frame at a time; all of them together code a large frame. The memory of `parents`, the
    parent's arrays as decoded, is reused for the result.
    """
    inputs, total = [], 0
    for frame in plan.frames:
        bits, shapes, before = [], [], []
        for index in frame.arrays:
            c = plan.candidates[index]
            bits.append(c.bits)
            shapes.append(c.shape)
            if frame.inherits:
                before.append(parents[c.name])
        kind = plan.candidates[frame.arrays[0]].kind
        out = crew.shared(joined(before)) if frame.inherits else crew.empty(frame.size, kind.bits)
        inputs.append(FrameInput(bits, kind, tuple(shapes), out, frame.relative, frame.quantizer, effort))
        total += frame.size
    coded: Iterator[Iterable[Piece]]
    if crew.members == 1 or total < _MIN_SHARED_COMPONENTS:
        coded = map(_chunks, inputs, itertools.repeat(crew.heartbeat))
    else:
        coded = itertools.chain.from_iterable(
            _encode_together(group, crew) if together else _encode_apart(group, crew)
            for together, group in itertools.groupby(inputs, lambda f: _is_for_all(f, total, crew.members))
        )
    for given, frame, chunks in zip(inputs, plan.frames, coded, strict=True):
        names = [plan.candidates[index].name for index in frame.arrays]
        yield chunks, dict(zip(names, split(given.out, given.kind, given.shapes), strict=True))


def _chunks(frame: FrameInput, heartbeat: Callable[[], None]) -> Iterator[Piece]:
    """Yield the chunks of a frame that this process codes."""
    for chunk in encode_content(frame.content(), frame.quantizer, frame.out, effort=frame.effort):
        heartbeat()
        yield chunk


def _is_for_all(frame: FrameInput, total: int, members: int) -> bool:
    """Return whether all members code a frame together, block by block.

    Each member fits the quantizer of such a frame. So that is worth it for a lossy frame only if
    the others would wait for the member that codes it. An exact frame is not held whole in memory.
    """
    size = frame.out.size
    if size <= MAX_BLOCK_COMPONENTS:
        return False
    return not frame.quantizer.lossy or size * members > _MAX_SHARE * total


def _encode_apart(frames: Iterable[FrameInput], crew: Crew) -> Iterator[Iterable[Piece]]:
    """Yield frames, each coded by one member."""
    # A task takes about as long to hand out as a small frame takes to code.
    together = batches(frames, lambda frame: frame.out.size, _MIN_TASK_COMPONENTS)
    for coded in crew.ordered(map(EncodeFrames, together)):
        for frame in coded:
            yield (frame,)


def _encode_together(frames: Iterable[FrameInput], crew: Crew) -> Iterator[Iterable[Piece]]:
    """Yield the chunks of frames, each coded by all members; they are to be taken one by one."""
    for frame in frames:
        crew.everywhere(OpenFrame(frame))
        coder: FrameCoder = crew.bench[_FRAME]
        yield coder.join(crew.ordered(map(EncodeBlock, range(len(coder.parts)))))
        del coder
        crew.everywhere(CloseFrame())


def decoded_copies(plan: SavePlan, arrays: Mapping[str, DecodedArray]) -> dict[str, DecodedArray]:
    """Return the copies of a plan as decoded, by name; `arrays` has their sources as decoded."""
    decoded = {}
    for index, source in plan.copies.items():
        c = plan.candidates[index]
        decoded[c.name] = copy_of(arrays[plan.candidates[source].name], c.kind)
    return decoded


def encode_unchained(plan: SavePlan) -> Iterator[Iterator[Piece]]:
    """Yield the chunks of each frame, without decoded arrays: no delta will need them."""
    for frame in plan.frames:
        content = _content([plan.candidates[index] for index in frame.arrays])
        yield encode_content(content, frame.quantizer)


def raw_frames(
    plan: SavePlan, inherited: Callable[[Sequence[str]], list[Array]] | None = None
) -> list[RawFrame]:
    """Return the frames with their values as they are, whatever their quantizers.

    `inherited` returns the components of arrays that the save leaves out, by their names, when a
    frame is written; by default they are those of the plan.
    """
    frames = []
    for frame in plan.frames:
        arrays = [plan.candidates[index] for index in frame.arrays]
        shapes = tuple(c.shape for c in arrays)
        header = FrameHeader(METHOD_RAW, arrays[0].kind, False, shapes, 0, len(arrays) > 1)
        frames.append(RawFrame(header, partial(_content, arrays, inherited)))
    return frames


def _content(
    arrays: Sequence[Candidate], inherited: Callable[[Sequence[str]], list[Array]] | None = None
) -> Content:
    """Return arrays as the content of one frame, without a reference."""
    values, shapes = {}, []
    for c in arrays:
        values[c.name] = c.bits
        shapes.append(c.shape)
    left = [c.name for c in arrays if c.inherited] if inherited is not None else []
    if inherited is not None and left:
        values |= zip(left, inherited(left), strict=True)
    run = len(arrays) > 1
    bits = np.concatenate(list(values.values())) if run else values[arrays[0].name]
    return Content(bits, arrays[0].kind, tuple(shapes), run=run)
