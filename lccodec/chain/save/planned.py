"""What a plan says of one array, and of one frame.

Source: SPEC 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ...frame.header import Shape
from ...policy.roles import Role
from ...quantizers.base import Quantizer

#: How a save stores an array: without a reference, against the parent's array, or not at all.
Stored: TypeAlias = Literal["whole", "delta", "unchanged", "waits"]


@dataclass(frozen=True)
class ArrayPlan:
    """The plan for one array.

    Parameters
    ----------
    name
        Path of the array in the state.
    dtype, shape
        Type of the array, and its shape in elements.
    nbytes
        Size of the array in bytes.
    role, why
        ``"weight"``, ``"first_moment"``, ``"second_moment"`` or ``"other"``, and the reason in a
        few words.
    quantizer
        The quantizer that codes the array in deltas, as text. In a keyframe, and if the parent has
        no such array, the `keyframes` of the policy apply.
    lossy
        Whether anything may be lost, in a delta or in a keyframe.
    guarantee
        What holds for every value that the quantizer codes, in words; empty if there is no
        guarantee.
    stored
        What this save does: it stores the array ``"whole"``, or as a ``"delta"`` to the parent's
        array; or it does not store the array, which is ``"unchanged"`` or ``"waits"``.
    frame
        Number of the array's frame, from 0 on; ``None`` if it has no frame. Small arrays share a
        frame.
    """

    name: str
    dtype: str
    shape: Shape
    nbytes: int
    role: Role
    why: str
    quantizer: str
    lossy: bool
    guarantee: str = ""
    stored: Stored = "whole"
    frame: int | None = None


@dataclass
class FramePlan:
    """One frame of a checkpoint. Several arrays make a run."""

    arrays: list[int]  # indices in the state, rising
    quantizer: Quantizer
    relative: bool  # whether the frame is relative to the parent's arrays
    inherits: bool  # whether the parent has all of these arrays, with the same types and shapes
    size: int = 0  # components of all arrays
