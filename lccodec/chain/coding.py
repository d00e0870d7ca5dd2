"""A plan to frames and a manifest: the content of a checkpoint file.

Everything that a reader would refuse is refused before the first frame is coded.

Source: SPEC 8 and 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from ..container.manifest import INHERITED, Manifest, Parent
from ..container.scalars import Json
from ..container.tree import Flat
from ..container.writer import check_manifest
from ..frame.content import Content
from ..frame.encode import Effort, encode_content
from ..frame.raw import RawFrame
from ..parallel import ordered
from ..policy.policy import Candidate
from .decoded import DecodedArray, joined, split
from .plan import FramePlan, Plan

#: A frame of more components than this is coded by several threads.
_MAX_ONE_THREAD_COMPONENTS: Final = 1 << 23


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
    plan: Plan, parents: Mapping[str, DecodedArray], effort: Effort, threads: int
) -> Iterator[tuple[Iterable[bytes], dict[str, DecodedArray]]]:
    """Yield the pieces of each frame, and its decoded arrays by name.

    The arrays hold their decoded values once all pieces have been taken. Each thread codes one
    frame at a time; all threads together code a large frame. The memory of `parents`, the parent's
    arrays as decoded, is reused for the result.
    """

    def encode(frame: FramePlan) -> tuple[Iterable[bytes], dict[str, DecodedArray]]:
        arrays = [plan.candidates[index] for index in frame.arrays]
        content = _content(arrays)
        out = joined([parents[c.name] for c in arrays]) if frame.inherits else np.empty_like(content.bits)
        if frame.relative:
            content = replace(content, reference=out)
        large = threads == 1 or frame.size > _MAX_ONE_THREAD_COMPONENTS
        pieces = encode_content(content, frame.quantizer, out, effort=effort, threads=threads if large else 1)
        decoded = split(out, content.kind, content.shapes)
        named = {c.name: array for c, array in zip(arrays, decoded, strict=True)}
        return pieces if large else list(pieces), named

    return ordered(encode, plan.frames, threads)


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
