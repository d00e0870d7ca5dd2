"""A checkpoint before anything of it is coded: what is stored, with what, against what, and its manifest.

Everything that a reader would refuse is refused here, before the first byte is written.

Source: SPEC 8 and 9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..container.manifest import INHERITED, Manifest, Parent
from ..container.scalars import Json
from ..container.tree import Flat
from ..container.writer import check_manifest
from ..element_types import Array, ElementType, element_type
from ..errors import ArgumentError
from ..policy.choices import find_known, needed_roles
from ..policy.policy import Candidate
from ..policy.record import Record, write_record
from ..policy.roles import Assignment, Role, assign_roles
from ..quantizers.base import Quantizer
from ..quantizers.lossless import Lossless
from .jobs import DecodedArray, Job, components_of, plan
from .tail import Tail

__all__ = ["Draft", "array_types", "make_draft"]


@dataclass(frozen=True)
class Draft:
    """What a checkpoint will be.

    Parameters
    ----------
    manifest
        All of it but the frames.
    jobs
        What each frame will hold, in their order.
    shortfall
        What the policy's target asks for and cannot be had, in words; None where it is met.
    """

    manifest: Manifest
    jobs: list[Job]
    shortfall: str | None


def make_draft(
    step: int,
    flat: Flat,
    tail: Tail | None,
    record: Record,
    known: Mapping[str, Assignment],
    metadata: dict[str, str],
) -> Draft:
    """Decide how a state is stored.

    Parameters
    ----------
    step, metadata
        Of the checkpoint.
    flat
        The state.
    tail
        What a delta is taken against, None for a keyframe.
    record
        Policy and roles of the chain.
    known
        Roles by name that a framework's structures tell.

    Raises
    ------
    ArgumentError
        For an array or a manifest that no reader would accept; names it.
    """
    parents = tail.arrays if tail else {}
    assigned = assign_roles(flat.names, record.roles, known)
    roles = {name: assignment.role for name, assignment in assigned.items()}
    given = needed_roles(flat.names, record.roles)
    record = replace(record, roles=given, known=find_known(flat.names, given, assigned) if known else {})
    parts = components_of(flat.arrays, flat.names)
    policy = record.policy.settle(_candidates(flat, parts, roles, parents)) if tail else record.policy

    def choose(name: str, kind: ElementType, size: int, relative: bool) -> Quantizer:
        return policy.choose(name, roles[name], kind, size) if relative else Lossless()

    jobs = plan(parts, flat.shapes, flat.names, parents, choose, keyframe=tail is None)
    numbers = [0] * len(flat.arrays)
    for number, job in enumerate(jobs, 1):
        for index in job.indices:
            numbers[index] = number
    inherited = tail is not None and _same_tree(tail.tree, flat.tree)
    manifest = Manifest(
        step=step,
        parent=Parent(tail.step, tail.links[-1].root) if tail else None,
        policy=write_record(record),
        metadata=metadata,
        tree=INHERITED if inherited else flat.tree,
        scalars=flat.scalars,
        arrays=tuple(numbers),
        frames=(),
    )
    check_manifest(manifest, len(jobs))
    return Draft(manifest, jobs, policy.shortfall)


def array_types(flat: Flat) -> dict[str, tuple[ElementType, int]]:
    """Return the element type and the number of elements of each array of a state.

    Raises
    ------
    ArgumentError
        For a dtype that cannot be stored; names the array.
    """
    types = {}
    for name, array in zip(flat.names, flat.arrays, strict=True):
        try:
            types[name] = element_type(array.dtype), array.size
        except ArgumentError as error:
            raise ArgumentError(f"array {name!r}: {error}") from None
    return types


def _candidates(
    flat: Flat,
    parts: Sequence[tuple[ElementType, Array]],
    roles: Mapping[str, Role],
    parents: Mapping[str, DecodedArray],
) -> Iterator[Candidate]:
    """Yield the arrays of a delta with their references."""
    for name, (kind, bits), shape in zip(flat.names, parts, flat.shapes, strict=True):
        parent = parents.get(name)
        fits = parent is not None and parent.kind == kind and parent.shape == shape
        reference = parent.bits if fits and parent is not None else None
        yield Candidate(name, roles[name], kind, shape, bits, reference)


def _same_tree(left: Json, right: Json) -> bool:
    """Whether two trees are the same, the order of their keys included (which `==` ignores)."""
    return bool(left == right) and _same_order(left, right)


def _same_order(left: Json, right: Json) -> bool:
    """Whether the keys of two equal trees are in the same order; leaves, which are many, are left out."""
    if isinstance(left, dict):
        inner = [key for key, child in left.items() if isinstance(child, dict | list)]
        return list(left) == list(right) and all(_same_order(left[key], right[key]) for key in inner)
    return not isinstance(left, list) or all(map(_same_order, left, right))
