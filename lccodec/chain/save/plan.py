"""The plan of a checkpoint: for every array its role, quantizer, reference and frame, and why.

A plan is a value. `make_plan` makes it from a state, a policy and the parent's arrays.
`lccodec.chain.save.encode` executes it, and `Chain.plan` describes it. Making a plan compares
arrays, but does not code them.

An array has no frame if it did not change, or if it waits for a trigger. The reference of a delta
is always the parent as decoded, so that errors do not accumulate (LC-Checkpoint, section 3.1).

Source: SPEC 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from ...container.leaves import scalar_at
from ...container.tree import Flat
from ...element_table import ElementType
from ...element_types import Array, components
from ...errors import ArgumentError
from ...frame.content import MAX_SHARED_COMPONENTS
from ...frame.header import check_shape
from ...policy.again import kept_between
from ...policy.copies.equal import changed_share, is_equal
from ...policy.declared import DECLARED, obeying, parse, roles_of
from ...policy.policy import Candidate, Declaration, Policy
from ...policy.roles import Assignment, Role, assign_roles
from ...quantizers.base import Quantizer, guarantee_of
from ...quantizers.guarantee import Guarantee
from ...quantizers.lossless import Lossless
from ...quantizers.registry import quantizer_text
from ...quantizers.signs import has_negative, zero
from ..read.replay import DecodedArray
from .estimate import estimate_frames
from .planned import ArrayPlan, Estimate, FramePlan, Stored

#: Most components of a run: reading one of its arrays means reading the whole run.
_MAX_RUN_COMPONENTS: Final = 1 << 20

#: Share of an array that may differ from its reference, below which the reference is taken.
_MIN_CHANGED: Final = 0.5

#: Bytes of a small array that changed, below which it is not stored as a copy of an equal one.
_MIN_CHANGED_BYTES: Final = 64

#: The role of an array in a single file. Roles matter only for deltas.
_NO_ROLE: Final = Assignment("other", "in a single file")


@dataclass(frozen=True, eq=False)
class SavePlan:
    """What a save does with each array, in the order of the state.

    Parameters
    ----------
    parent
        Step of the parent; ``None`` for a keyframe.
    candidates, quantizers
        The arrays, and the quantizer that codes each of them in deltas.
    frames
        The frames, in the order of their first arrays.
    waiting
        Indices of the arrays that wait.
    policy
        The policy that chose.
    group
        What becomes of the step in a group of a history with hindsight, in words.
    copies
        Indices of the arrays that are copies, rising, and those of their sources.
    verdicts
        Indices of the arrays whose quantizer depends on their values, and why it is what it is.
    settles
        Whether the step may be coded again in a group.
    """

    parent: int | None
    candidates: Sequence[Candidate]
    quantizers: Sequence[Quantizer]
    frames: Sequence[FramePlan]
    waiting: frozenset[int]
    policy: Policy
    group: str | None = None
    copies: Mapping[int, int] = field(default_factory=dict)
    verdicts: Mapping[int, str] = field(default_factory=dict)
    settles: bool = False

    def losing(self) -> set[int]:
        """Return the indices of the arrays that may lose something in this checkpoint."""
        coded = (frame.arrays for frame in self.frames if frame.quantizer.lossy)
        found = set(self.waiting).union(*coded)
        return found.union(index for index, source in self.copies.items() if source in found)

    def may_lose(self, index: int) -> bool:
        """Return whether anything of an array may be lost, in a delta or in a keyframe."""
        if index in self.verdicts:
            return self.quantizers[index].lossy
        c = self.candidates[index]
        return self.policy.may_lose(c.name, c.role, c.kind, c.elements)

    def guarantee(self, index: int) -> Guarantee:
        """Return what holds of an array as it will be restored at any step.

        It may be coded in a delta or in a keyframe, and again between two ends.
        """
        c, quantizer = self.candidates[index], self.quantizers[index]
        asked = self.policy.choose(c.name, c.role, c.kind, c.elements)
        alone = self.policy.choose_keyframe(c.name, c.role, c.kind, c.elements)
        if quantizer.lossy and index in self.verdicts:  # another state may lead to another quantizer
            quantizer = asked
        found = guarantee_of(quantizer).either(guarantee_of(quantizer if alone == asked else alone))
        return kept_between(found) if self.settles else found

    def estimates(self) -> list[Estimate]:
        """Return how many bytes each array would take, and with which error; see `Estimate`."""
        return estimate_frames(self.candidates, self.frames, self.waiting, self.policy.effort)

    def rounded(self, index: int) -> ElementType | None:
        """Return the type that a copy is rounded to; ``None`` if it is equal to its source."""
        own, source = self.candidates[index].kind, self.candidates[self.copies[index]].kind
        return None if own is source else own

    def frame_numbers(self) -> list[int | None]:
        """Return the number of each array's frame, from 1 on; 0 without one, None for a copy."""
        numbers: list[int | None] = [None if i in self.copies else 0 for i in range(len(self.candidates))]
        for number, frame in enumerate(self.frames, 1):
            for index in frame.arrays:
                numbers[index] = number
        return numbers

    def told(self) -> tuple[int | None, list[ArrayPlan], str | None, str | None]:
        """Return what users are told: the parent, each array, the shortfall, and of the group."""
        return self.parent, self.described(), self.policy.shortfall, self.group

    def described(self) -> list[ArrayPlan]:
        """Return what users are told of each array."""
        return [self._array(index, number) for index, number in enumerate(self.frame_numbers())]

    def _array(self, index: int, number: int | None) -> ArrayPlan:
        c, quantizer = self.candidates[index], self.quantizers[index]
        stored: Stored
        why = c.why
        if verdict := self.verdicts.get(index):
            why = f"{c.why}; {verdict}"
        if number is None:
            what = "the rounding of" if self.rounded(index) else "equal to"
            stored, why = "copy", f"{c.why}; {what} {self.candidates[self.copies[index]].name!r}"
        elif number:
            stored = "delta" if self.frames[number - 1].relative else "whole"
        else:
            stored = "waits" if index in self.waiting else "unchanged"
        return ArrayPlan(
            c.name,
            c.kind.name,
            c.shape,
            c.bits.nbytes,
            c.role,
            why,
            quantizer_text(quantizer),
            self.may_lose(index),
            str(self.guarantee(index)),
            stored,
            number - 1 if number else None,
        )


def candidates(
    flat: Flat,
    parents: Mapping[str, DecodedArray],
    given: Mapping[str, Role] | None = None,
    known: Mapping[str, Assignment] | None = None,
) -> list[Candidate]:
    """Return the arrays of a state as components, with their roles and references.

    An array that is not in C order and native byte order is copied. `given` and `known` are as in
    :func:`lccodec.policy.roles.assign_roles`; without `given`, every role is ``other``.

    Raises
    ------
    ArgumentError
        If an array cannot be stored. The message names it.
    """
    roles: dict[str, Assignment] = {}
    declared: dict[str, Declaration] = {}
    if given is not None:
        declared = parse(scalar_at(flat.tree, flat.scalars, DECLARED))
        shapes = {name: array.shape for name, array in zip(flat.names, flat.arrays, strict=True)}
        roles = assign_roles(shapes, given, {**roles_of(declared), **(known or {})})
    found = []
    for name, array in zip(flat.names, flat.arrays, strict=True):
        try:
            check_shape(array.shape)
            kind, bits = components(array)
        except ArgumentError as error:
            raise type(error)(f"array {name!r}: {error}") from None
        parent = parents.get(name)
        fits = parent is not None and parent.kind == kind and parent.shape == array.shape
        reference = parent.bits if parent is not None and fits else None
        role = roles.get(name, _NO_ROLE)
        found.append(Candidate(name, role.role, role.why, kind, array.shape, bits, reference))
        found[-1].declared = declared.get(name)
    return found


def make_plan(
    arrays: Sequence[Candidate],
    policy: Policy,
    parent: int | None,
    width: float = 1.0,
    first: Mapping[str, Quantizer] = MappingProxyType({}),
    instead: Mapping[str, Quantizer | None] = MappingProxyType({}),
    renew: bool = False,
    again: Mapping[str, Quantizer] = MappingProxyType({}),
) -> SavePlan:
    """Choose for each array of a state whether it is stored, its quantizer, reference and frame.

    `parent` is the step of the parent; ``None`` for a keyframe. The references of a keyframe's
    arrays only show how far they moved. `width` is as in `Policy.settle`. `first` has
    quantizers of arrays without a reference by name, in place of the policy's; `instead` those of
    arrays with one, and ``None`` for arrays that stay as their reference is. With `renew`, a delta
    stores arrays as a keyframe does, but for those that it inherits. `again` has the quantizers of
    arrays that have lost something already, in deltas and in keyframes.
    """
    policy = obeying(policy, arrays)
    alone = parent is None or renew
    copies = _copies(arrays, policy, alone)
    if parent is not None:
        # No moments belong to copies, and their steps are those of their sources.
        own = [c for i, c in enumerate(arrays) if i not in copies]
        policy = policy.settle(own, width, sum(arrays[i].bits.nbytes for i in copies))
    quantizers, waiting, verdicts = [], [], {}
    frames: list[FramePlan] = []
    open_runs: dict[object, FramePlan] = {}  # runs that more arrays may join
    for index, c in enumerate(arrays):
        asked = again.get(c.name) or policy.choose(c.name, c.role, c.kind, c.elements)
        quantizer = asked.resolved(c.bits, c.shape, c.kind)
        quantizers.append(quantizer)
        if quantizer is not asked:
            verdicts[index] = asked.verdict(quantizer)
        relative = False
        coder: Quantizer
        if index in copies or (c.inherited and parent is not None):
            continue
        if c.inherited:
            coder = Lossless()  # a second loss would add to that of the reference
        elif alone or c.reference is None:
            coder = again.get(c.name) or policy.choose_keyframe(c.name, c.role, c.kind, c.elements)
            coder = first.get(c.name, coder) if c.reference is None else coder
            coder = quantizer if coder == asked else coder.resolved(c.bits, c.shape, c.kind)
            coder = coder.settled(c.bits, c.reference, c.kind)
        else:
            if _is_unchanged(c):
                continue
            chosen = instead.get(c.name, quantizer)
            if chosen is None or chosen.waits(c.bits, c.reference, c.kind):
                waiting.append(index)
                continue
            coder = chosen.awake
            relative = not _stands_alone(coder, c)
        like = (c.kind, coder, c.reference is None, relative)
        small = 0 < c.bits.size <= MAX_SHARED_COMPONENTS and _shares_frames(asked, coder, c.bits.size)
        frame = open_runs.get(like) if small else None
        if frame is None or frame.size + c.bits.size > _MAX_RUN_COMPONENTS:
            frame = FramePlan([], coder, relative, c.reference is not None)
            frames.append(frame)
            if small:
                open_runs[like] = frame
        frame.arrays.append(index)
        frame.size += c.bits.size
    moved = {index for frame in frames for index in frame.arrays}.union(waiting)
    copies = {
        index: source
        for index, source in copies.items()
        if alone
        or (source in moved and arrays[index].kind is not arrays[source].kind)
        or not _is_unchanged(arrays[index])
    }
    hidden = frozenset(waiting)
    return SavePlan(parent, arrays, quantizers, frames, hidden, policy, copies=copies, verdicts=verdicts)


def _is_unchanged(c: Candidate) -> bool:
    if c.changed is not None:
        return not c.changed
    return c.reference is not None and _equal(c.bits, c.reference)


def _copies(arrays: Sequence[Candidate], policy: Policy, alone: bool) -> dict[int, int]:
    """Return the arrays that are stored as copies, and of which, by index.

    A copy loses what its source loses. So its source loses nothing, or the policy codes both in the
    same way: equal arrays of one role; and roundings without the promise of a bound, which the
    rounding of a lossy number may break. `alone` says that no array has a reference.
    """
    places = {c.name: index for index, c in enumerate(arrays)} if any(c.source for c in arrays) else {}
    found = {}
    for index, c in enumerate(arrays):
        place = places.get(c.source) if c.source else None
        if place is None:
            continue
        source = arrays[place]
        same = c.kind is source.kind
        if same and not alone and _is_nearly_unchanged(c):
            continue
        coders = _coders(policy, source)
        lossy = [coder for coder in coders if coder.lossy]
        if not lossy or (
            coders == _coders(policy, c)
            and (source.role == c.role if same else _keeps_rounding(c, source, lossy))
        ):
            found[index] = place
    return found


def _keeps_rounding(c: Candidate, source: Candidate, lossy: Sequence[Quantizer]) -> bool:
    """Return whether the rounding of what a source decodes to keeps all that holds of the copy.

    A number that is rounded to 0 may decode to another one, which the rounding of that then is.
    """
    if any(guarantee_of(coder) != Guarantee() for coder in lossy):
        return False
    return has_negative(c.bits, c.kind) or not bool((zero(c.bits) & ~zero(source.bits)).any())


def _is_nearly_unchanged(c: Candidate) -> bool:
    """Return whether a small array changed so little that its part of a shared frame is smaller."""
    small = c.bits.size <= MAX_SHARED_COMPONENTS
    return small and changed_share(c) * c.bits.nbytes < _MIN_CHANGED_BYTES


def _coders(policy: Policy, c: Candidate) -> tuple[Quantizer, Quantizer]:
    """Return what codes an array, in deltas and in keyframes."""
    told = c.name, c.role, c.kind, c.elements
    return policy.choose(*told), policy.choose_keyframe(*told)


def _stands_alone(quantizer: Quantizer, c: Candidate) -> bool:
    """Return whether an array is coded without its reference; only large arrays are examined."""
    if c.reference is None or quantizer.absolute or c.bits.size <= MAX_SHARED_COMPONENTS:
        return quantizer.absolute
    if c.changed is not None and c.changed < _MIN_CHANGED:
        return False
    return quantizer.stands_alone(c.bits, c.reference, c.kind)


def _shares_frames(asked: Quantizer, coder: Quantizer, size: int) -> bool:
    """Return whether a small array shares a frame, given its quantizer before it was resolved."""
    return coder.shares_frames(size) and (not coder.lossy or asked.shares_frames(size))


def _equal(left: Array, right: Array) -> bool:
    """Return whether two arrays are equal; if not, the first element mostly differs."""
    if left.size and left.item(0) != right.item(0):  # comparing thousands of arrays one call each is slow
        return False
    if left.size <= MAX_SHARED_COMPONENTS:  # one comparison of bytes is faster than three calls
        return left.tobytes() == right.tobytes()
    return is_equal(left, right)
