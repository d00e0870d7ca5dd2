"""The plan of a checkpoint: for every array its role, quantizer, reference and frame, and why.

A plan is a value. `make_plan` makes it of a state, a policy and the parent's arrays; `Chain.plan` shows it;
`lccodec.chain.coding` executes it. Making it compares the values of arrays, but codes nothing.

An array that did not change has no frame, nor has one that waits for a trigger. The reference of a delta is
always the parent as decoded, so that errors do not accumulate (LC-Checkpoint, section 3.1).

Source: SPEC 9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, overload

from ..element_types import Array, components
from ..errors import ArgumentError
from ..frame.header import Shape, check_shape
from ..parallel import slices
from ..policy.policy import Candidate, Policy
from ..policy.roles import Assignment, Role
from ..quantizers.base import Quantizer
from ..quantizers.lossless import Lossless
from ..quantizers.registry import quantizer_text
from .decoded import DecodedArray

__all__ = ["RUN_ARRAY", "ArrayPlan", "FramePlan", "Plan", "candidates", "make_plan"]

#: Components of an array, at most, that shares a run with others, and of a run: large enough to pay for the
#: NumPy calls, small enough to be read for the sake of one of its arrays.
RUN_ARRAY: Final = 1 << 14
_RUN_TOTAL: Final = 1 << 20

#: How a save stores an array: without a reference, against the parent's, or not at all.
Stored: TypeAlias = Literal["whole", "delta", "unchanged", "waits"]

_EXACTLY: Final = Lossless()


@dataclass(frozen=True)
class ArrayPlan:
    """What a save makes of one array.

    Parameters
    ----------
    name
        Its path in the state.
    dtype, shape
        Type and shape of the array, the shape in elements.
    nbytes
        Its bytes.
    role, why
        ``"weight"``, ``"first_moment"``, ``"second_moment"`` or ``"other"``, and in a few words why.
    quantizer
        What codes it in deltas, as text. In a keyframe, and where the parent has no such array, it is
        stored exactly.
    lossy
        Whether that may lose anything.
    guarantee
        What holds for every value that it codes, in words; empty where nothing does.
    stored
        What this save does: stores it ``"whole"``, or as a ``"delta"`` to the parent's; or not, as it is
        ``"unchanged"`` or ``"waits"``.
    frame
        Number of its frame, from 0 on, which it may share with other arrays; ``None`` if it has none.
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
    """One frame of a checkpoint.

    Parameters
    ----------
    arrays
        Indices of its arrays in the state, rising; several make a run.
    quantizer
        What codes them.
    relative
        Whether the frame is relative to the parent's arrays.
    inherits
        Whether the parent has all of them, of the same type and shape.
    size
        Components of all arrays.
    """

    arrays: list[int]
    quantizer: Quantizer
    relative: bool
    inherits: bool
    size: int = 0


@dataclass(frozen=True, eq=False)
class Plan(Sequence[ArrayPlan]):
    """What a save does; a sequence of an `ArrayPlan` for every array, in the order of the state.

    Parameters
    ----------
    parent
        Step of the checkpoint that it is a delta to; ``None`` for a keyframe.
    candidates, quantizers
        The arrays, and what codes each of them in deltas.
    frames
        In the order of their first arrays.
    waiting
        Indices of the arrays that wait.
    shortfall
        What the policy's target asks for and cannot be had, in words; ``None`` if it is met.
    """

    parent: int | None
    candidates: Sequence[Candidate]
    quantizers: Sequence[Quantizer]
    frames: Sequence[FramePlan]
    waiting: frozenset[int] = field(default_factory=frozenset)
    shortfall: str | None = None

    def frame_numbers(self) -> list[int]:
        """Return the number of the frame of each array, from 1 on; 0 if it has none (SPEC 8)."""
        numbers = [0] * len(self.candidates)
        for number, frame in enumerate(self.frames, 1):
            for index in frame.arrays:
                numbers[index] = number
        return numbers

    def __len__(self) -> int:
        return len(self.candidates)

    @overload
    def __getitem__(self, index: int) -> ArrayPlan: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ArrayPlan]: ...
    def __getitem__(self, index: int | slice) -> ArrayPlan | Sequence[ArrayPlan]:
        return self._arrays()[index]

    def __iter__(self) -> Iterator[ArrayPlan]:
        return iter(self._arrays())

    def _arrays(self) -> list[ArrayPlan]:
        return [self._array(index, number) for index, number in enumerate(self.frame_numbers())]

    def _array(self, index: int, number: int) -> ArrayPlan:
        c, quantizer = self.candidates[index], self.quantizers[index]
        if number:
            stored: Stored = "delta" if self.frames[number - 1].relative else "whole"
        else:
            stored = "waits" if index in self.waiting else "unchanged"
        return ArrayPlan(
            c.name,
            c.kind.name,
            c.shape,
            c.bits.nbytes,
            c.role,
            c.why,
            quantizer_text(quantizer),
            quantizer.lossy,
            quantizer.guarantee,
            stored,
            number - 1 if number else None,
        )


def candidates(
    arrays: Mapping[str, Array], roles: Mapping[str, Assignment], parents: Mapping[str, DecodedArray]
) -> list[Candidate]:
    """Return the arrays of a state as components, with their roles and references.

    Parameters
    ----------
    arrays
        By name; an array in another order than C's, or another byte order, is copied.
    roles
        Role of each, and why it has it.
    parents
        The parent's arrays as decoded.

    Raises
    ------
    ArgumentError
        For an array that cannot be stored; names it.
    """
    found = []
    for name, array in arrays.items():
        try:
            check_shape(array.shape)
            kind, bits = components(array)
        except ArgumentError as error:
            raise type(error)(f"array {name!r}: {error}") from None
        parent = parents.get(name)
        fits = parent is not None and parent.kind == kind and parent.shape == array.shape
        reference = parent.bits if parent is not None and fits else None
        role = roles[name]
        found.append(Candidate(name, role.role, role.why, kind, array.shape, bits, reference))
    return found


def make_plan(arrays: Sequence[Candidate], policy: Policy, parent: int | None) -> Plan:
    """Decide which arrays of a state are stored, with what, against what, and which share a frame.

    Parameters
    ----------
    arrays
        The arrays of the state; those of a keyframe have no references.
    policy
        Policy of the chain.
    parent
        Step of the checkpoint that has the references; ``None`` for a keyframe.
    """
    if parent is not None:
        policy = policy.settle(arrays)
    quantizers, waiting = [], []
    frames: list[FramePlan] = []
    open_runs: dict[object, FramePlan] = {}  # that more arrays may join
    for index, c in enumerate(arrays):
        quantizer = policy.choose(c.name, c.role, c.kind, c.bits.size // c.kind.components)
        quantizers.append(quantizer)
        coder: Quantizer = _EXACTLY
        relative = False
        if c.reference is not None:
            if _equal(c.bits, c.reference):
                continue
            if quantizer.waits(c.bits, c.reference, c.kind):
                waiting.append(index)
                continue
            coder = quantizer.awake
            relative = not _stands_alone(coder, c)
        like = (c.kind, coder, c.reference is None, relative)
        small = 0 < c.bits.size <= RUN_ARRAY
        frame = open_runs.get(like) if small else None
        if frame is None or frame.size + c.bits.size > _RUN_TOTAL:
            frame = FramePlan([], coder, relative, c.reference is not None)
            frames.append(frame)
            if small:
                open_runs[like] = frame
        frame.arrays.append(index)
        frame.size += c.bits.size
    return Plan(parent, arrays, quantizers, frames, frozenset(waiting), policy.shortfall)


def _stands_alone(quantizer: Quantizer, c: Candidate) -> bool:
    """Return whether an array is coded without its reference; the values of a small one do not count."""
    if c.reference is None or quantizer.absolute or c.bits.size <= RUN_ARRAY:
        return quantizer.absolute
    return quantizer.stands_alone(c.bits, c.reference, c.kind)


def _equal(left: Array, right: Array) -> bool:
    """Return whether two arrays are the same; where they are not, that mostly shows at once."""
    if left.size and left.item(0) != right.item(0):  # comparing thousands of arrays one call each is slow
        return False
    if left.size <= RUN_ARRAY:  # one comparison of bytes is faster than three calls
        return left.tobytes() == right.tobytes()
    return all(bool((left[part] == right[part]).all()) for part in slices(left.size))
