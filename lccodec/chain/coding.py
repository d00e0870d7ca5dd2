"""A plan to frames and a manifest: the content of a checkpoint file.

Everything that a reader would refuse is refused before the first frame is coded.

Source: SPEC 8 and 9.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from ..container.manifest import INHERITED, Manifest, Parent
from ..container.scalars import Json
from ..container.tree import Flat
from ..container.writer import check_manifest
from ..frame.content import Content
from ..frame.encode import MAX_BLOCK_COMPONENTS, Effort, encode_content
from ..frame.raw import RawFrame
from ..parallel import batches
from ..policy.policy import Candidate
from ..workers.crew import Crew, Threads
from .decoded import DecodedArray, joined, split
from .plan import Plan
from .planned import FramePlan
from .tasks import CloseFrame, EncodeBlock, EncodeFrames, FrameInput, OpenFrame, frame_coder

#: Fewer components are coded by one member: to hand them out takes longer.
_MIN_SHARED_COMPONENTS: Final = 1 << 21

#: Frames of fewer components are coded together, by one member.
_MIN_TASK_COMPONENTS: Final = 1 << 19

#: A frame is coded by all members if its share of the state, times the members, is above this.
_MAX_SHARE: Final = 1.5


def plan_manifest(
    plan: Plan,
    flat: Flat,
    *,
    step: int | None,
    policy: Json,
    metadata: dict[str, str],
    parent: tuple[bytes, Json] | None = None,
) -> Manifest:
    """Return the manifest of a planned checkpoint, without its frames.

    `parent` has the root and the tree of the parent. It is ``None`` for a keyframe.

    Raises
    ------
    ArgumentError
        If readers would refuse the manifest.
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
    )
    check_manifest(manifest, len(plan.frames))
    return manifest


def encode_plan(
    plan: Plan, parents: Mapping[str, DecodedArray], effort: Effort, crew: Crew
) -> Iterator[tuple[Iterable[bytes], dict[str, DecodedArray]]]:
    """Yield the pieces of each frame, and its decoded arrays by name.

    The arrays hold their decoded values once all pieces have been taken. Each member of the crew
    codes one frame at a time; all of them together code a large frame. The memory of `parents`, the
    parent's arrays as decoded, is reused for the result.
    """
    inputs = [_frame_input(plan, frame, parents, effort, crew) for frame in plan.frames]
    total = sum(frame.size for frame in inputs)
    if total < _MIN_SHARED_COMPONENTS:
        crew = Threads()
    coded = itertools.chain.from_iterable(
        _encode_together(group, crew) if together else _encode_apart(group, crew)
        for together, group in itertools.groupby(inputs, lambda f: _is_for_all(f, total, crew.members))
    )
    for frame, planned, pieces in zip(inputs, plan.frames, coded, strict=True):
        arrays = [plan.candidates[index] for index in planned.arrays]
        decoded = split(frame.out, arrays[0].kind, frame.shapes)
        yield pieces, {c.name: array for c, array in zip(arrays, decoded, strict=True)}


def _frame_input(
    plan: Plan, frame: FramePlan, parents: Mapping[str, DecodedArray], effort: Effort, crew: Crew
) -> FrameInput:
    arrays = [plan.candidates[index] for index in frame.arrays]
    kind = arrays[0].kind
    if frame.inherits:
        out = crew.shared(joined([parents[c.name] for c in arrays]))
    else:
        out = crew.empty(frame.size, kind.bits)
    shapes = tuple(c.shape for c in arrays)
    bits = [c.bits for c in arrays]
    return FrameInput(bits, kind, shapes, out, frame.relative, frame.quantizer, effort)


def _is_for_all(frame: FrameInput, total: int, members: int) -> bool:
    """Return whether all members code a frame together, block by block.

    Each member fits the quantizer of such a frame. So that is worth it for a lossy frame only if
    the others would wait for the member that codes it. An exact frame is not held whole in memory.
    """
    if members == 1 or frame.size <= MAX_BLOCK_COMPONENTS:
        return members == 1
    return not frame.quantizer.lossy or frame.size * members > _MAX_SHARE * total


def _encode_apart(frames: Iterable[FrameInput], crew: Crew) -> Iterator[Iterable[bytes]]:
    """Yield frames, each coded by one member."""
    # A task takes about as long to hand out as a small frame takes to code.
    together = batches(frames, lambda frame: frame.size, _MIN_TASK_COMPONENTS)
    for coded in crew.ordered(map(EncodeFrames, together)):
        for frame in coded:
            yield (frame,)


def _encode_together(frames: Iterable[FrameInput], crew: Crew) -> Iterator[Iterable[bytes]]:
    """Yield the pieces of frames, each coded by all members; they are to be taken one by one."""
    for frame in frames:
        crew.everywhere(OpenFrame(frame))
        coder = frame_coder(crew.bench)
        yield coder.join(crew.ordered(map(EncodeBlock, range(coder.blocks))))
        del coder
        crew.everywhere(CloseFrame())


def encode_unchained(plan: Plan) -> Iterator[Iterator[bytes]]:
    """Yield the pieces of each frame, without decoded arrays: no delta will need them."""
    for frame in plan.frames:
        content = _content([plan.candidates[index] for index in frame.arrays])
        yield encode_content(content, frame.quantizer)


def raw_frames(plan: Plan) -> list[RawFrame]:
    """Return the frames with their values as they are, whatever their quantizers."""
    frames = []
    for frame in plan.frames:
        arrays = [plan.candidates[index] for index in frame.arrays]
        shapes = tuple(c.shape for c in arrays)
        frames.append(RawFrame(arrays[0].kind, shapes, len(arrays) > 1, partial(_content, arrays)))
    return frames


def _content(arrays: Sequence[Candidate]) -> Content:
    """Return arrays as the content of one frame, without a reference."""
    run = len(arrays) > 1
    bits = np.concatenate([c.bits for c in arrays]) if run else arrays[0].bits
    return Content(bits, arrays[0].kind, tuple(c.shape for c in arrays), run=run)
