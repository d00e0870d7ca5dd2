"""What is known of a checkpoint without decoding it, from the heads of its arrays.

Source: SPEC 9.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from ...constants import ELEMENT_TYPES, METHOD_CODEBOOK, METHOD_SMOOTH
from ...container.manifest import UNKNOWN, Figures, combined, numbers_by_role
from ...container.tree import scalar_at
from ...errors import ArgumentError
from ...policy.roles import ROLES, Role
from ...table import Overview, Shown, ratio
from ..overview import checkpoint_overview
from .links import Head, Link

if TYPE_CHECKING:
    from ...policy.record import Choice

#: What the quantizer of an array is called if this version does not know the policy.
_UNKNOWN_QUANTIZER: Final = "unknown"

_LOSSY_METHODS: Final = (METHOD_CODEBOOK, METHOD_SMOOTH)


@dataclass(frozen=True)
class ArrayInfo:
    """One array of a checkpoint.

    Parameters
    ----------
    name
        Its path in the state.
    dtype, shape
        Type and shape of the array, the shape in elements.
    method
        ``"raw"``, ``"planes"``, ``"codebook"``, ``"unchanged"`` from the parent,
        ``"interpolated"`` from both parents, or a ``"copy"`` of another array, rounded.
    relative
        Whether its frame in this checkpoint is decoded against the parent's array.
    stored_bytes
        Bytes of its frame in this checkpoint. Of a frame that several arrays share, its share by
        size.
    nbytes
        Bytes of the array itself.
    lossy
        Whether its values come from a quantizer: the newest frame that holds it, in this checkpoint
        or an earlier one, has the method ``"codebook"``. Also if they are interpolated, or the
        checkpoint took the place of another one, and the policy lets the array lose something.
    role, why
        Its role in the run, and in a few words why it has it.
    quantizer
        What the recorded policy codes it with in deltas, as text. ``"unknown"`` if this version
        does not know the policy.
    figures
        What the save measured of it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    method: str
    relative: bool
    stored_bytes: int
    nbytes: int
    lossy: bool
    role: Role
    why: str
    quantizer: str
    figures: Figures = UNKNOWN


@dataclass(frozen=True)
class _Whole:
    """What is known of a checkpoint as a whole; `CheckpointInfo` says what the fields are."""

    step: int | None
    parent: int | None
    deltas: int
    root: str
    policy: Any
    metadata: dict[str, str]
    file_bytes: int
    nbytes: int
    exact: bool
    exact_root: str | None
    replaces: tuple[str, ...]
    since: int | None
    later: int | None

    @property
    def kind(self) -> Literal["keyframe", "delta", "interpolated"]:
        """What it is stored as."""
        return "keyframe" if self.parent is None else "delta" if self.later is None else "interpolated"

    @property
    def parents(self) -> tuple[int, ...]:
        """The steps of its parents, the earlier one first."""
        return tuple(step for step in (self.parent, self.later) if step is not None)


@dataclass(frozen=True)
class CheckpointSummary(_Whole):
    """What is known of a checkpoint as a whole, which takes less time than each array."""

    lossy: bool


@dataclass(frozen=True, repr=False)
class CheckpointInfo(Shown, _Whole):
    """What is known of one checkpoint without decoding it.

    Parameters
    ----------
    step
        Its step; ``None`` for a single file.
    parent
        The parent's step; ``None`` for a keyframe.
    deltas
        Number of other checkpoints that a restore decodes.
    root
        SHA-256 that stands for all bytes of the file, hexadecimal.
    policy
        What the writer recorded of its policy.
    metadata
        The user's strings.
    file_bytes
        Size of the file in bytes.
    nbytes
        Bytes of all arrays, each counted once.
    exact
        Whether an exact file holds its state bit for bit: this file, or the one beside the chain.
    exact_root
        The root of the exact file that was committed with it, hexadecimal; ``None`` without one.
    replaces
        Roots of the checkpoints that this one took the place of, with the same state.
    since
        The step of the save that movements and lags begin at; ``None`` if they are not known.
    later
        The later parent's step of an interpolated checkpoint; ``None`` for all others.
    arrays
        In the order of the state.
    """

    arrays: tuple[ArrayInfo, ...]

    @property
    def figures(self) -> dict[Role, Figures]:
        """What the save measured of the arrays of each role that has figures.

        An array counts by its elements; its lag counts by the square of its movement. The errors
        are those of this checkpoint, also if an exact file holds its state too.

        Examples
        --------
        >>> import tempfile, numpy as np, lccodec
        >>> chain = lccodec.Chain(tempfile.mkdtemp(), policy="lossless")
        >>> for step in range(2):
        ...     _ = chain.save(step, {"weight": np.array([-1.0, 1.0]) + step})
        >>> chain.info(0).figures["weight"].movement  # nothing was saved before
        >>> found = chain.info(1).figures["weight"]
        >>> found.movement, found.spread, found.error_in_movements, found.lag
        (1.0, 1.0, 0.0, 0.0)
        """
        found = {}
        for role in ROLES:
            arrays = [a for a in self.arrays if a.role == role and a.figures != UNKNOWN]
            if arrays:
                found[role] = combined((a.figures, math.prod(a.shape)) for a in arrays)
        return found

    @property
    def lossy(self) -> bool:
        """Whether any of its arrays is lossy."""
        return any(array.lossy for array in self.arrays)

    def numbers(self) -> dict[str, float]:
        """Return what a tracker of experiments logs: numbers by name, as far as they are known.

        ``checkpoint/step``, ``checkpoint/bytes`` of the file, ``checkpoint/ratio`` to the bytes of
        the arrays; of weights and moments, by role, ``checkpoint/error/ROLE`` in movements,
        ``checkpoint/lag/ROLE`` in intervals, ``checkpoint/movement/ROLE`` in the unit of values.

        Examples
        --------
        >>> import tempfile, numpy as np, lccodec
        >>> chain = lccodec.Chain(tempfile.mkdtemp(), policy="lossless")
        >>> for step in range(2):
        ...     _ = chain.save(step, {"weight": np.array([-1.0, 1.0]) + step})
        >>> numbers = chain.info().numbers()
        >>> numbers["checkpoint/movement/weight"], numbers["checkpoint/error/weight"]
        (1.0, 0.0)
        """
        sizes = {"step": self.step, "bytes": self.file_bytes, "ratio": ratio(self.nbytes, self.file_bytes)}
        known = {f"checkpoint/{name}": number for name, number in sizes.items() if number is not None}
        return {**known, **numbers_by_role(self.figures)}

    def _overview(self) -> Overview:
        return checkpoint_overview(self)


def checkpoint_summary(link: Link, heads: Mapping[str, Head], deltas: int) -> CheckpointSummary:
    """Return what is stored in a link as a whole; `deltas` is the number of deltas up to it."""
    found = [heads[name] for name in link.index_names]
    lossy = any(head.header.method in _LOSSY_METHODS for head in found)
    if not lossy and (link.manifest.replaces or any(head.interpolated for head in found)):
        choices = _choices(link, heads)
        lossy = any(_is_lossy(link, heads[name], choices[name]) for name in link.index_names)
    nbytes = sum(head.nbytes for head in found)
    return CheckpointSummary(**_as_a_whole(link, deltas), nbytes=nbytes, lossy=lossy)


def checkpoint_info(link: Link, heads: Mapping[str, Head], deltas: int) -> CheckpointInfo:
    """Return what is stored in a link; `deltas` is the number of deltas up to it."""
    manifest = link.manifest
    arrays = []
    choices = _choices(link, heads)
    sizes = {kind: kind.itemsize for kind in ELEMENT_TYPES}
    totals: dict[int, int] = {}  # bytes that a frame decodes to, by the id of its header
    measured = link.figures()
    for index, name in enumerate(link.index_names):
        header, shape, unchanged, _, _ = heads[name]
        nbytes = math.prod(shape) * sizes[header.kind]
        stored = 0
        if number := manifest.arrays[index]:
            length = manifest.frames[number - 1].length
            if id(header) not in totals:
                totals[id(header)] = header.nbytes
            stored = round(length * nbytes / totals[id(header)]) if nbytes else length
        arrays.append(
            ArrayInfo(
                name=name,
                dtype=header.kind.name,
                shape=shape,
                method=_method(heads[name]),
                relative=not unchanged and header.relative,
                stored_bytes=stored,
                nbytes=nbytes,
                lossy=_is_lossy(link, heads[name], choices[name]),
                role=choices[name].role,
                why=choices[name].why,
                quantizer=choices[name].quantizer,
                figures=measured[name],
            )
        )
    nbytes = sum(array.nbytes for array in arrays)
    return CheckpointInfo(**_as_a_whole(link, deltas), nbytes=nbytes, arrays=tuple(arrays))


def _as_a_whole(link: Link, deltas: int) -> dict[str, Any]:
    """Return what is known of a checkpoint without its arrays."""
    manifest = link.manifest
    return {
        "step": manifest.step,
        "parent": manifest.parent.step if manifest.parent else None,
        "later": manifest.later.step if manifest.later else None,
        "deltas": deltas,
        "root": link.reader.root.hex(),
        "policy": manifest.policy,
        "metadata": dict(manifest.metadata),
        "file_bytes": link.reader.file_size,
        "exact": manifest.is_exact,
        "exact_root": None if manifest.exact is None else manifest.exact.hex(),
        "replaces": tuple(root.hex() for root in manifest.replaces),
        "since": link.since,
    }


def _is_lossy(link: Link, head: Head, choice: Choice) -> bool:
    """Return whether the values of an array may have lost something."""
    written_anew = bool(link.manifest.replaces)  # without loss, from values that may have lost something
    return (
        head.header.method in _LOSSY_METHODS
        or ((written_anew or head.interpolated) and choice.lossy)
        or (head.interpolated and choice.quantizer == _UNKNOWN_QUANTIZER)
    )


def _method(head: Head) -> str:
    """Return how a checkpoint has an array, in a word."""
    if head.copied:
        return "copy"
    return "interpolated" if head.interpolated else "unchanged" if head.unchanged else head.header.method_name


def _choices(link: Link, heads: Mapping[str, Head]) -> Mapping[str, Choice]:
    """Return what the recorded policy of a checkpoint chooses for its arrays."""
    found = ((name, heads[name]) for name in link.index_names)
    types = tuple((name, head.header.kind.code, head.shape) for name, head in found)
    from ...policy.declared import DECLARED  # here, as a summary does without

    text = scalar_at(link.manifest.tree, link.manifest.scalars, DECLARED)
    return _choices_of(json.dumps(link.manifest.policy), types, text if isinstance(text, str) else "")


@lru_cache(maxsize=4)  # the checkpoints of a chain have the same policy and arrays
def _choices_of(
    policy: str, arrays: tuple[tuple[str, int, tuple[int, ...]], ...], declared: str
) -> Mapping[str, Choice]:
    """Return the choices of a policy, which is JSON, for arrays: name, element type and shape."""
    # here, as a summary does without the policies, which load all quantizers
    from ...policy.declared import parse
    from ...policy.presets import POLICIES
    from ...policy.record import Record, choose, read_record

    types = {name: (ELEMENT_TYPES[code], shape) for name, code, shape in arrays}
    try:
        return choose(types, read_record(json.loads(policy)), declared=parse(declared))
    except ArgumentError:  # written by another version or program
        found = choose(types, Record(POLICIES["lossless"]))
        return {name: replace(choice, quantizer=_UNKNOWN_QUANTIZER) for name, choice in found.items()}
