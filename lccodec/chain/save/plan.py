"""The plan of a checkpoint: for every array its role, quantizer, reference and frame, and why.

A plan is a value. `make_plan` makes it from a state, a policy and the parent's arrays.
`lccodec.chain.save.encode` executes it. Making a plan compares arrays, but does not code them.

An array has no frame if it did not change, or if it waits for a trigger. The reference of a delta
is always the parent as decoded, so that errors do not accumulate (LC-Checkpoint, section 3.1).

`Chain.plan` describes a plan. It is made where the reference is, which may be another process. So
what is told of it has no arrays.

What a plan would store of each array, in bytes and error, is estimated from a sample. Of an array
of more than a million components, 256 evenly spread stretches are coded and decoded as the save
would do it, with the quantizer fitted to them; a half of them tells how bytes grow. Smaller arrays,
those that share a frame, and fields are coded whole: then the estimate is what the save stores.
Tests hold a sample of a tenth within a factor of 1.5 in bytes, and of 1.33 in the error. An array
with a few very large elements can be farther off.

Two states of a run tell about how many bytes a chain takes (`forecast`), and a good first keyframe.
The first state is estimated as a keyframe and the second as a delta; all others are taken to be
like them. The steps of a good first keyframe follow the movement. Without the next state, they are
parts of the values' spread. In a fine-tuning little moves, so such a step is many movements wide,
and even a hundred deltas do not make up for it.

Source: SPEC 9; ``spec/decisions/0011-lossy-keyframes.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, overload

import numpy as np

from ...constants import ElementType
from ...container.tree import Adapter, Flat, from_framework, scalar_at
from ...element_types import Array, components, has_negative, stretches, work, zero
from ...errors import ArgumentError
from ...frame.content import MAX_SHARED_COMPONENTS, Content
from ...frame.decode import decode_components
from ...frame.encode import Effort, encode_content
from ...frame.header import Shape, check_shape
from ...policy.advice import advised_roles, known_to_harm
from ...policy.centered import CenteredMean, centered
from ...policy.declared import DECLARED, obeying, parse, roles_of
from ...policy.hindsight import kept_between
from ...policy.policy import Candidate, Declaration, Policy
from ...policy.presets import POLICIES, resolve_policy
from ...policy.record import Record
from ...policy.roles import Assignment, Role, assign_roles
from ...policy.values import changed_share, following, is_equal
from ...quantizers.base import Guarantee, Lossless, Quantizer, guarantee_of
from ...quantizers.registry import quantizer_text
from ...table import Overview, Shown
from ..overview import plan_overview
from ..read.replay import DecodedArray


@dataclass(frozen=True)
class SavedState:
    """What a save stores."""

    flat: Flat
    metadata: dict[str, str]
    known: Mapping[str, Assignment]  # the roles that are known of its arrays
    inherited: frozenset[str] = frozenset()  # the names of the arrays that are the parent's
    # Whether it has some arrays of a state, to be stored over the parent's
    # (:mod:`lccodec.chain.save.partial`).
    is_selection: bool = False
    # Quantizers of the first keyframe by name, where it is known what follows.
    first: Mapping[str, Quantizer] = field(default_factory=dict)
    # Quantizers of arrays that have lost something already, by name; ``None`` but for a state of a
    # finished run.
    again: Mapping[str, Quantizer] | None = None
    closes: bool = False  # whether no state follows


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
    advice
        What to try if most bytes are exact, and which given roles are known to do harm, in words.
    """

    parent: int | None
    arrays: Sequence[ArrayPlan]
    shortfall: str | None
    group: str | None
    advice: Sequence[str]
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


#: Most components of a run: reading one of its arrays means reading the whole run.
_MAX_RUN_COMPONENTS: Final = 1 << 20

#: Share of an array that may differ from its reference, below which the reference is taken.
_MIN_CHANGED: Final = 0.5

#: Bytes of a small array that changed, below which it is not stored as a copy of an equal one.
_MIN_CHANGED_BYTES: Final = 64

#: Lines of advice; more would hide what is said beside them.
_MAX_ADVISED: Final = 8

#: The role of an array in a single file. Roles matter only for deltas.
_NO_ROLE: Final = Assignment("other", "in a single file")


@dataclass(frozen=True, eq=False)
class SavePlan:
    """What a save does with each array, in the order of the state."""

    parent: int | None  # step of the parent; ``None`` for a keyframe
    # `candidates`, `quantizers`: the arrays, and the quantizer that codes each of them in deltas.
    candidates: Sequence[Candidate]
    quantizers: Sequence[Quantizer]
    frames: Sequence[FramePlan]  # the frames, in the order of their first arrays
    waiting: frozenset[int]  # indices of the arrays that wait
    policy: Policy
    group: str | None = None  # what becomes of the step in a group of a history with hindsight, in words
    # Indices of the arrays that are copies, rising, and those of their sources.
    copies: Mapping[int, int] = field(default_factory=dict)
    # Indices of the arrays whose quantizer depends on their values, and why it is what it is.
    verdicts: Mapping[int, str] = field(default_factory=dict)
    settles: bool = False  # whether the step may be coded again in a group

    def losing(self) -> set[int]:
        """Return the indices of the arrays that may lose something in this checkpoint."""
        found = set(self.waiting)
        for frame in self.frames:
            if frame.quantizer.lossy:
                found.update(frame.arrays)
        for index, source in self.copies.items():  # which is no copy itself
            if source in found:
                found.add(index)
        return found

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
        numbers: list[int | None] = [0] * len(self.candidates)
        for index in self.copies:
            numbers[index] = None
        for number, frame in enumerate(self.frames, 1):
            for index in frame.arrays:
                numbers[index] = number
        return numbers

    def told(self) -> tuple[int | None, list[ArrayPlan], str | None, str | None, list[str]]:
        """Return what users are told: the members of a `Plan`."""
        return self.parent, self.described(), self.policy.shortfall, self.group, self.advice()

    def advice(self) -> list[str]:
        """Return what to try if most bytes are exact, and what is known to do harm, in words."""
        exact = {c.name for i, c in enumerate(self.candidates) if not self.may_lose(i)}
        asked = advised_roles(self.candidates, exact) if self.policy.lossy else {}
        found = ["most bytes are exact; to try in roles={...}, if that is what they are:"] if asked else []
        lines = [f"{pattern!r}: {role!r}," for pattern, role in asked.items()]
        found += lines[:_MAX_ADVISED]
        if len(lines) > _MAX_ADVISED:
            found.append(f"# and {len(lines) - _MAX_ADVISED} more: patterns for all of them are wanted")
        if harmed := known_to_harm(self.candidates) if self.policy.lossy else []:
            found.append(
                f"known to do harm: errors of moments in another basis, as of {harmed[0]!r} and"
                f" {len(harmed) - 1} more; without roles= they are exact"
            )
        return found

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

    Raises ``ArgumentError`` if an array cannot be stored. The message names it.
    """
    roles: dict[str, Assignment] = {}
    declared: dict[str, Declaration] = {}
    if given is not None:
        told = known or {}
        if (text := scalar_at(flat.tree, flat.scalars, DECLARED)) is not None:
            declared = parse(text)
            told = {**roles_of(declared), **told}
        shapes = {name: array.shape for name, array in zip(flat.names, flat.arrays, strict=True)}
        roles = assign_roles(shapes, given, told)
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
    overrides: Mapping[str, Quantizer | None] = MappingProxyType({}),
    renew: bool = False,
    again: Mapping[str, Quantizer] = MappingProxyType({}),
) -> SavePlan:
    """Choose for each array of a state whether it is stored, its quantizer, reference and frame.

    `parent` is the step of the parent; ``None`` for a keyframe. The references of a keyframe's
    arrays only show how far they moved. `width` is as in `Policy.settle`. `first` has
    quantizers of arrays without a reference by name, in place of the policy's; `overrides` those of
    arrays with one, and ``None`` for arrays that stay as their reference is. With `renew`, a delta
    stores arrays as a keyframe does, but for those that it inherits. `again` has the quantizers of
    arrays that have lost something already, in deltas and in keyframes.
    """
    alone = parent is None or renew
    policy = following(centered(obeying(policy, arrays), arrays, alone), arrays)
    copies = _copies(arrays, policy, alone)
    if parent is not None:
        # No moments belong to copies, and their steps are those of their sources.
        own = [c for i, c in enumerate(arrays) if i not in copies] if copies else arrays
        policy = policy.settle(own, width, sum(arrays[index].bits.nbytes for index in copies))
    quantizers, waiting, verdicts = [], [], {}
    frames: list[FramePlan] = []
    open_runs: dict[object, FramePlan] = {}  # runs that more arrays may join
    for index, c in enumerate(arrays):
        asked = again.get(c.name) or policy.choose(c.name, c.role, c.kind, c.elements)
        quantizer = asked
        if asked.resolve is not None:
            quantizer, why = asked.resolve(c.bits, c.shape, c.kind)
            if quantizer is not asked:
                verdicts[index] = why
        quantizers.append(quantizer)
        relative = False
        coder: Quantizer
        if index in copies or (c.inherited and parent is not None):
            continue
        if c.inherited:
            coder = Lossless()  # a second loss would add to that of the reference
        elif alone or c.reference is None:
            coder = again.get(c.name) or policy.choose_keyframe(c.name, c.role, c.kind, c.elements)
            coder = first.get(c.name, coder) if c.reference is None else coder
            if coder == asked:
                coder = quantizer
            elif coder.resolve is not None:
                coder, _ = coder.resolve(c.bits, c.shape, c.kind)
            if coder.lossy:
                coder = coder.settled(c.bits, c.reference, c.kind)
        else:
            if _is_unchanged(c) and not isinstance(quantizer, CenteredMean):
                continue
            chosen = overrides.get(c.name, quantizer)
            if chosen is not None and (trigger := chosen.trigger) is not None:
                chosen = None if trigger.waits(c.bits, c.reference, c.kind) else trigger.then
            if chosen is None:
                waiting.append(index)
                continue
            coder = chosen
            relative = not coder.absolute
            # Only large arrays are examined.
            is_large = c.reference is not None and c.bits.size > MAX_SHARED_COMPONENTS
            is_near = c.changed is not None and c.changed < _MIN_CHANGED
            if relative and is_large and not is_near and coder.stands_alone is not None:
                relative = not coder.stands_alone(c.bits, c.reference, c.kind)
        like = (c.kind, coder, c.reference is None, relative)
        small = 0 < c.bits.size <= MAX_SHARED_COMPONENTS and coder.shares_frames(c.bits.size)
        if coder.lossy:  # a quantizer that was resolved shares frames as the one that was asked for
            small = small and asked.shares_frames(c.bits.size)
        frame = open_runs.get(like) if small else None
        if frame is None or frame.size + c.bits.size > _MAX_RUN_COMPONENTS:
            frame = FramePlan([], coder, relative, c.reference is not None)
            frames.append(frame)
            if small:
                open_runs[like] = frame
        frame.arrays.append(index)
        frame.size += c.bits.size
    if copies and not alone:
        copies = _changed_copies(copies, arrays, waiting, frames)
    hidden = frozenset(waiting)
    return SavePlan(parent, arrays, quantizers, frames, hidden, policy, copies=copies, verdicts=verdicts)


def _changed_copies(
    copies: Mapping[int, int],
    arrays: Sequence[Candidate],
    waiting: Sequence[int],
    frames: Sequence[FramePlan],
) -> dict[int, int]:
    """Return the copies of a delta but for those that are as they were, as their sources are."""
    moved = set(waiting)
    for frame in frames:
        moved.update(frame.arrays)
    found = {}
    for index, source in copies.items():
        rounded = arrays[index].kind is not arrays[source].kind
        if (rounded and source in moved) or not _is_unchanged(arrays[index]):
            found[index] = source
    return found


def _is_unchanged(c: Candidate) -> bool:
    """Return whether an array is its reference; if not, the first element mostly differs."""
    if c.changed is not None:
        return not c.changed
    if c.reference is None:
        return False
    if c.bits.size and c.bits.item(0) != c.reference.item(0):  # as mostly: comparing thousands is slow
        return False
    if c.bits.size <= MAX_SHARED_COMPONENTS:  # one comparison of bytes is faster than three calls
        return c.bits.tobytes() == c.reference.tobytes()
    return is_equal(c.bits, c.reference)


def _copies(arrays: Sequence[Candidate], policy: Policy, alone: bool) -> dict[int, int]:
    """Return the arrays that are stored as copies, and of which, by index.

    A copy loses what its source loses. So its source loses nothing, or the policy codes both in the
    same way: equal arrays of one role; and roundings without the promise of a bound, which the
    rounding of a lossy number may break. `alone` says that no array has a reference.
    """
    places: dict[str, int] = {}
    copies = []
    for index, c in enumerate(arrays):
        places[c.name] = index
        if c.source:
            copies.append((index, c, c.source))
    found = {}
    for index, c, name in copies:
        place = places.get(name)
        if place is None:
            continue
        source = arrays[place]
        same = c.kind is source.kind
        small = c.bits.size <= MAX_SHARED_COMPONENTS
        if same and not alone and small and changed_share(c) * c.bits.nbytes < _MIN_CHANGED_BYTES:
            continue  # its part of a shared frame is smaller
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


def _coders(policy: Policy, c: Candidate) -> tuple[Quantizer, Quantizer]:
    """Return what codes an array, in deltas and in keyframes."""
    told = c.name, c.role, c.kind, c.elements
    return policy.choose(*told), policy.choose_keyframe(*told)


_STRETCHES: Final = 256
_STRETCH_COMPONENTS: Final = 1 << 12


def estimate_frames(
    candidates: Sequence[Candidate], frames: Sequence[FramePlan], waiting: Collection[int], effort: Effort
) -> list[Estimate]:
    """Return the estimate of each array of a plan, in its order. Nothing is written.

    The state must be as it was planned, and the chain must not have saved since.

    Examples
    --------
    >>> import tempfile, lccodec
    >>> chain = lccodec.Chain(tempfile.mkdtemp(), "lossless")
    >>> plan = chain.plan({"weight": np.zeros(1000, np.float32)})
    >>> (found,) = plan.estimates()
    >>> found.stored_bytes < 100, found.error
    (True, 0.0)
    """
    found: dict[int, Estimate] = {}
    for frame in frames:
        arrays = [candidates[index] for index in frame.arrays]
        found.update(zip(frame.arrays, _frame_estimates(frame, arrays, effort), strict=True))
    for index, c in enumerate(candidates):
        error: float | None = 0.0
        if index in waiting:  # it misses all of its movement
            error = None if c.reference is None else _error(c.reference, c.bits, c.reference, c.kind)
        found.setdefault(index, Estimate(0, error))  # it has no frame
    return [found[index] for index in range(len(candidates))]


def _frame_estimates(frame: FramePlan, arrays: Sequence[Candidate], effort: Effort) -> list[Estimate]:
    """Code the arrays of a frame, or a sample of a large one."""
    parts, first = [slice(0, frame.size)], arrays[0]
    # Stretches of an array that is coded as a field would lack its neighbours.
    field_of = frame.quantizer.field if first.kind.kind == "f" else None
    if len(arrays) == 1 and (field_of is None or field_of(first.bits, first.kind) is None):
        parts = list(stretches(frame.size, _STRETCHES, _STRETCH_COMPONENTS)) or parts
    length, samples = _coded(frame, arrays, parts, effort)
    taken = sum(bits.size for bits, *_ in samples)
    sampled = taken < frame.size
    if sampled:  # a codebook and its tables do not grow with the size, so half of the sample is coded too
        half_length, half = _coded(frame, arrays, parts[::2], effort)
        grown = (length - half_length) / (taken - half[0][0].size)
        length += round((frame.size - taken) * min(max(grown, length / taken / 2), length / taken))
    kind, estimates = arrays[0].kind, []
    for candidate, sample in zip(arrays, samples, strict=True):
        share = candidate.bits.size / frame.size if frame.size else 1.0
        estimates.append(Estimate(round(length * share), _error(*sample, kind), sampled))
    return estimates


def _coded(
    frame: FramePlan, arrays: Sequence[Candidate], parts: Sequence[slice], effort: Effort
) -> tuple[int, list[tuple[Array, Array, Array | None]]]:
    """Code parts of arrays as a frame; return its length, and what `_error` needs of each array."""
    kind, run = arrays[0].kind, len(arrays) > 1
    bits = [np.concatenate([c.bits[part] for part in parts]) for c in arrays]
    references = [
        None if c.reference is None else np.concatenate([c.reference[part] for part in parts]) for c in arrays
    ]
    whole = all(piece.size == c.bits.size for piece, c in zip(bits, arrays, strict=True))
    shapes = tuple(c.shape for c in arrays) if whole else ((bits[0].size // kind.components,),)
    known = [each for each in references if each is not None] if frame.relative else []
    reference = np.concatenate(known) if known else None
    content = Content(np.concatenate(bits), kind, shapes, reference, run)
    quantizer = frame.quantizer if whole else frame.quantizer.sampled(parts)
    coded = b"".join(encode_content(content, quantizer, effort=effort))
    decoded = np.split(
        decode_components(memoryview(coded), reference), np.cumsum([piece.size for piece in bits])[:-1]
    )
    return len(coded), list(zip(decoded, bits, references, strict=True))


def _error(decoded: Array, bits: Array, reference: Array | None, kind: ElementType) -> float | None:
    """Return the error of decoded components over their movement, or over their values."""
    if np.array_equal(decoded, bits):
        return 0.0
    with np.errstate(all="ignore"):
        values, found = (work(each, kind).astype(np.float64) for each in (bits, decoded))
        moved = values if reference is None else values - work(reference, kind).astype(np.float64)
        errors = found - values
        kept = np.isfinite(errors) & np.isfinite(moved)
        square, moved_square = (float(np.sum(np.square(each[kept]))) for each in (errors, moved))
    if not (0 < moved_square < math.inf and square < math.inf):
        return None
    return math.sqrt(square / moved_square)


def foresee(
    pair: tuple[Any, Any],
    adapter: Adapter | None,
    known: Mapping[str, Assignment | Role] | None,
    record: Record,
) -> dict[str, Quantizer]:
    """Return the quantizers of `first_keyframe` for two states, given as to `Chain.save`."""
    if record.policy.keyframes == "exact":
        return {}
    arrays = []
    for state in pair:
        flat, _, roles = from_framework(adapter, state, None, known)
        arrays.append(candidates(flat, {}, record.roles, roles))
    return first_keyframe(arrays[0], arrays[1], record.policy)


def first_keyframe(
    arrays: Sequence[Candidate], following: Sequence[Candidate], policy: Policy
) -> dict[str, Quantizer]:
    """Return the quantizers of a first keyframe by name, where the next state has the array too.

    An array that does not move is exact, and so is one whose steps would take as many bytes.
    Arrays that the policy stores as it always does are left out.
    """
    policy = obeying(policy, arrays)
    later = {c.name: c for c in following}
    found: dict[str, Quantizer] = {}
    for c in arrays:
        quantizer = policy.choose_keyframe(c.name, c.role, c.kind, c.elements)
        other = later.get(c.name)
        if not quantizer.lossy or other is None or (other.kind, other.shape) != (c.kind, c.shape):
            continue
        foreseen = quantizer.foreseen(c.bits, other.bits, c.kind)
        if foreseen is not quantizer:
            found[c.name] = foreseen
    lossy = [c for c in arrays if c.name in found and found[c.name].lossy]
    if not lossy:
        return found
    exact = dict.fromkeys(found, Lossless())
    lossy_bytes, exact_bytes = (
        [estimate.stored_bytes for estimate in make_plan(lossy, policy, None, 1.0, choice).estimates()]
        for choice in (found, exact)
    )
    for c, steps, whole in zip(lossy, lossy_bytes, exact_bytes, strict=True):
        if whole <= steps:
            found[c.name] = Lossless()
    return found


#: A restore replays at most this many deltas unless a chain is told otherwise (LCC-CHN-04).
KEYFRAME_EVERY: Final = 32

#: Of a checkpoint beside its frames: the HDF5 structure, and the manifest (SPEC 8).
_FILE_BYTES: Final = 800
_ARRAY_BYTES: Final = 60


@dataclass(frozen=True)
class Forecast:
    """About how many bytes a chain takes."""

    policy: str  # name of the policy
    keyframe: int  # bytes of a keyframe
    delta: int  # bytes of a delta
    exact: int  # bytes of the newest state bit for bit
    nbytes: int  # bytes of the arrays of a state

    def chain_bytes(self, states: int, exact: bool = True) -> int:
        """Return the bytes of so many checkpoints, and of the exact file of a lossy chain.

        `exact` says whether there is such a file.
        """
        keyframes = -(-states // (KEYFRAME_EVERY + 1))
        beside = self.exact if exact and self.policy != "lossless" else 0
        return keyframes * self.keyframe + (states - keyframes) * self.delta + beside


def forecast(
    states: Sequence[Any], policy: str | Policy, known: Mapping[str, Assignment | Role] | None = None
) -> Forecast:
    """Return about how many bytes a chain of states like these takes. Nothing is written.

    `states`: one state, or two that follow each other, as given to `Chain.save` without an adapter.
    `policy`: the name of a preset, or a policy. `known`: roles of arrays by full name.

    Examples
    --------
    >>> import numpy as np
    >>> states = [{"weight": np.full(100_000, x, np.float32)} for x in (1, 2)]
    >>> found = forecast(states, "lossless")
    >>> found.keyframe < 2000, found.chain_bytes(10) == found.keyframe + 9 * found.delta
    (True, True)
    """
    chosen, exact = resolve_policy(policy), POLICIES["lossless"]
    flats = [from_framework(None, state, None, known) for state in states[:2]]
    arrays = candidates(flats[0][0], {}, {}, flats[0][2])
    parents = {c.name: DecodedArray(c.kind, c.shape, c.bits) for c in arrays}
    first, delta = {}, None
    if len(flats) > 1:
        after = candidates(flats[1][0], parents, {}, flats[1][2])
        first = first_keyframe(arrays, after, chosen)
        delta = _file_bytes(make_plan(after, chosen, 0))
    keyframe = _file_bytes(make_plan(arrays, chosen, None, 1.0, first))
    return Forecast(
        chosen.name,
        keyframe,
        keyframe if delta is None else delta,
        keyframe if chosen == exact else _file_bytes(make_plan(arrays, exact, None)),
        sum(c.bits.nbytes for c in arrays),
    )


def _file_bytes(plan: SavePlan) -> int:
    frames = sum(estimate.stored_bytes for estimate in plan.estimates())
    return frames + _FILE_BYTES + _ARRAY_BYTES * len(plan.candidates)
