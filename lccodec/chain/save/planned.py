"""What users are told of a save before it is made: of each array, how it would be stored, and why.

A plan is made where the reference is, which may be another process. So what is told of it has no
arrays.

Source: SPEC 9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, overload

from ...frame.header import Shape
from ...policy.roles import Role
from ...quantizers.base import Quantizer
from ...table import Overview, Shown
from ..overview import plan_overview

#: How a save stores an array: without a reference, against the parent's array, or not at all.
Stored: TypeAlias = Literal["whole", "delta", "unchanged", "waits", "copy"]


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
        array; or it does not store the array, which is ``"unchanged"``, ``"waits"``, or is a
        ``"copy"`` of another array, equal to it or rounded: then `why` names that.
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


@dataclass(frozen=True)
class Estimate:
    """What a save would store of one array.

    Parameters
    ----------
    stored_bytes
        Bytes of its frame; of a frame that it shares, its share by size. The manifest and the HDF5
        structure come on top: about 2 KiB for each checkpoint.
    error
        Root mean square of the error over that of the movement since the last checkpoint, or over
        that of the values if that has no such array. 0.0 if nothing is lost, ``None`` if it is not
        defined, as for an array that does not move.
    sampled
        Whether only a sample was coded.
    """

    stored_bytes: int
    error: float | None
    sampled: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Shown, Sequence[ArrayPlan]):
    """What a save does: a sequence of one `ArrayPlan` for every array, in the order of the state.

    Parameters
    ----------
    parent
        Step of the parent; ``None`` for a keyframe.
    arrays
        The plan of each array.
    shortfall
        Why the policy's target cannot be met, in words; ``None`` if it is met.
    group
        With ``hindsight=``, what becomes of the step in its group, in words; otherwise ``None``.
    """

    parent: int | None
    arrays: Sequence[ArrayPlan]
    shortfall: str | None
    group: str | None
    _estimate: Callable[[], list[Estimate]]

    def estimates(self) -> list[Estimate]:
        """Return how many bytes each array would take, and with which error; see `Estimate`.

        A sample of each large array is coded. Call it before the chain saves again: the plan refers
        to the state and to the arrays of the last checkpoint.
        """
        return self._estimate()

    def _overview(self) -> Overview:
        return plan_overview(self)

    def __len__(self) -> int:
        return len(self.arrays)

    @overload
    def __getitem__(self, index: int) -> ArrayPlan: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ArrayPlan]: ...
    def __getitem__(self, index: int | slice) -> ArrayPlan | Sequence[ArrayPlan]:
        return self.arrays[index]

    def __iter__(self) -> Iterator[ArrayPlan]:
        return iter(self.arrays)


@dataclass
class FramePlan:
    """One frame of a checkpoint. Several arrays make a run."""

    arrays: list[int]  # indices in the state, rising
    quantizer: Quantizer
    relative: bool  # whether the frame is relative to the parent's arrays
    inherits: bool  # whether the parent has all of these arrays, with the same types and shapes
    size: int = 0  # components of all arrays
