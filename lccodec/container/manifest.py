"""The manifest of a checkpoint file: what the file holds, as canonical JSON (SPEC 8, LCC-MAN).

Each manifest can be written in only one way (LCC-MAN-01): bytes that parse are equal to the bytes
that are written from the result.

A copy is an array that is another one of the same checkpoint, as it is or rounded. Mixed precision
has each weight twice: as float32, which the optimizer changes, and rounded to bfloat16 or float16,
which the model computes with. Target networks and averages of the weights begin as equal arrays.
The second array has no bytes in the payload.

Figures are what a save measured of each array (LCC-FIG). A figure has one bfloat16 number for each
array, or seven: three digits are enough.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ..constants import (
    DIGEST_SIZE,
    ELEMENT_TYPES,
    EQUAL_COPY,
    FORMAT_MAJOR,
    FORMAT_MINOR,
    MAX_ARRAYS,
    MAX_STEP,
    MAX_WEIGHT,
    MIN_PIECE_BYTES,
    PIECE_ENTRY_SIZE,
    ROOT_SIZE,
    ElementType,
)
from ..errors import ArgumentError, FormatError, LimitError, UnsupportedError
from ..policy.roles import Role
from .piece_table import FrameEntry
from .tree import Json, dump_json, parse_base64, parse_json, parse_scalars, parse_tree, write_base64

if TYPE_CHECKING:
    from ..element_types import Array


#: The figures, in the order of LCC-FIG-01.
FIGURES: Final = (
    *("spread", "movement", "error", "lag"),
    *("rms", "minimum", "maximum", "zeros", "not_finite", "quantiles"),
)

#: The shares of elements that are not above each number of ``quantiles`` (LCC-FIG-05).
QUANTILES: Final = (0.0668, 0.1587, 0.3085, 0.5, 0.6915, 0.8413, 0.9332)

_NUMBERS: Final = {"quantiles": len(QUANTILES)}  # of each array; one, if it is not here
OF_LOST: Final = frozenset(FIGURES[4:])  # only of arrays that lost something (LCC-FIG-03)
OF_MOVEMENT: Final = frozenset({"movement", "lag"})  # those that need the save before
_SIGNED: Final = frozenset({"lag", "minimum", "maximum", "quantiles"})
UNKNOWN_PATTERN: Final = 0x7FC0  # LCC-FIG-04
_INFINITE: Final = 0x7F80
NEGATIVE_ZERO: Final = 0x8000
# First bytes of numbers that may be, whatever the second is.
_PLAIN: Final = bytes(range(0x7F))
_PLAIN_SIGNED: Final = bytes((*range(0x7F), *range(0x81, 0xFF)))


@dataclass(frozen=True)
class StoredFigures:
    """The figures of a checkpoint, as stored."""

    since: int | None  # the step of the save before; ``None`` if no figure needs it
    # By name, in the order of `FIGURES`, the bytes of a figure: bfloat16, by array; from ``rms``
    # on, only of arrays that lost something.
    numbers: Mapping[str, bytes]

    def read(self, name: str, arrays: int) -> Array:
        """Return the number of each array, float32; NaN where it is not known.

        ``quantiles`` have a row for each array.
        """
        import numpy as np

        from ..element_types import widen

        numbers: Array = np.full((arrays, _NUMBERS.get(name, 1)), np.nan, np.float32)
        if name in self.numbers:
            own = have_lost(self._patterns("error")) if name in OF_LOST else slice(None)
            numbers[own] = widen(self._patterns(name)).reshape(-1, numbers.shape[1])
        return numbers if name in _NUMBERS else numbers[:, 0]

    def _patterns(self, name: str) -> Array:
        from ..element_types import read_numbers

        return read_numbers(self.numbers[name], "u2")


def have_lost(errors: Array) -> Array:
    """Return which arrays lost something, by the patterns of their errors (LCC-FIG-03)."""
    lost: Array = (errors != 0) & (errors != UNKNOWN_PATTERN)
    return lost


def parse_figures(document: Json, arrays: int, step: int | None, where: str) -> StoredFigures:
    """Read the member of a manifest of `arrays` arrays; `step` is ``None`` where it must not be.

    Raises ``FormatError`` or ``UnsupportedError`` for another form (LCC-FIG-01 to LCC-FIG-04).
    """
    if type(document) is not dict:
        raise FormatError("LCC-FIG-01", where, "not an object")
    for name in document:
        if name not in ("since", *FIGURES):
            raise UnsupportedError("LCC-FIG-01", where, f"unknown figure {name!r}")
    names = [name for name in FIGURES if name in document]
    needed = ["since"] if OF_MOVEMENT.intersection(names) else []
    if not names or list(document) != [*needed, *names]:
        raise FormatError("LCC-FIG-01", where, "empty, or figures out of order, or 'since' out of place")
    if step is None:
        raise FormatError("LCC-FIG-01", where, "not of a step, or of an exact file")
    since = document.get("since")
    if needed and not (type(since) is int and 0 <= since < step):
        raise FormatError("LCC-FIG-02", f"{where}: since", "not a step before this one")
    numbers: dict[str, bytes] = {}
    lost = 0  # how many arrays
    for name in names:
        count, which = (lost, "arrays that lost something") if name in OF_LOST else (arrays, "arrays")
        size = 2 * _NUMBERS.get(name, 1)
        data = parse_base64(document[name], size * count)
        if data is None:
            message = f"not {size} bytes for each of {count} {which}"
            raise FormatError("LCC-FIG-03", f"{where}: {name}", message)
        numbers[name] = data
        first, signed = data[1::2], name in _SIGNED  # of each number the byte with its sign
        plain = first and not first.translate(None, _PLAIN_SIGNED if signed else _PLAIN)
        if plain and name != "error":
            continue
        patterns = struct.unpack(f"<{len(data) // 2}H", data)  # NumPy takes longer for a few of them
        if name == "error":
            lost = arrays - patterns.count(0) - patterns.count(UNKNOWN_PATTERN)  # as `have_lost` says
        if plain:
            continue
        known = set(patterns) - {UNKNOWN_PATTERN}
        most = NEGATIVE_ZERO | _INFINITE if signed else _INFINITE
        if not known or any(n >= most or n == NEGATIVE_ZERO or _INFINITE <= n < NEGATIVE_ZERO for n in known):
            message = "not finite, or negative, or nothing is known"
            raise FormatError("LCC-FIG-04", f"{where}: {name}", message)
    return StoredFigures(since, numbers)


@dataclass(frozen=True)
class Figures:
    """What a save measured of an array or, combined, of the arrays of a role; ``None`` if unknown.

    They have three digits. All but the extremes and `not_finite` are estimates by a sample. What
    follows `lag` is kept of arrays that lost something: of others, restored values tell it. Spread,
    movement, error and rms have the unit of the values. They are root mean squares over elements,
    also where arrays are combined.

    Parameters
    ----------
    spread
        How far the values lie from their mean; combined, from the mean of their array. Of equal
        values, their size.
    movement
        How far the values moved since the save before.
    error
        How far restored values lie from the values that were saved.
    lag
        How far restored values lie behind, along the last movement, in intervals between saves: 1
        where they are those of the save before, 0 where they are not behind.
    rms
        The root mean square of the values.
    minimum, maximum
        The least and the greatest value that is finite.
    zeros
        The share of values that are 0.
    not_finite
        How many values are NaN or infinite.
    quantiles
        The values that the shares `QUANTILES` of the array are not above: those of a normal
        distribution at -1.5, -1, ..., 1.5 standard deviations. Of one array only.
    """

    spread: float | None = None
    movement: float | None = None
    error: float | None = None
    lag: float | None = None
    rms: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    zeros: float | None = None
    not_finite: float | None = None
    quantiles: tuple[float, ...] | None = None

    @property
    def relative_movement(self) -> float | None:
        """The movement over the root mean square of the values."""
        return 0.0 if self.movement == 0 else _ratio(self.movement, self.rms)

    @property
    def error_in_movements(self) -> float | None:
        """The error in movements: 1 is as far as the values moved since the save before."""
        return _ratio(self.error, self.movement)

    @property
    def bias(self) -> float | None:
        """The correlation of error and movement about 0: below 0, restored values lie behind."""
        lag = None if self.lag is None else -self.lag
        ratio = _ratio(lag, self.error_in_movements)
        return None if ratio is None else min(max(ratio, -1.0), 1.0)

    @property
    def error_in_spreads(self) -> float | None:
        """The error in spreads: 1 is as far as the values lie from their mean."""
        return _ratio(self.error, self.spread)

    def numbers(self) -> dict[str, float | Sequence[float] | None]:
        """Return all numbers by name: those that are stored, and the error in both other units.

        Examples
        --------
        >>> Figures(spread=2.0, error=0.5).numbers()["error_in_spreads"]
        0.25
        """
        ratios = {"error_in_movements": self.error_in_movements, "error_in_spreads": self.error_in_spreads}
        return {**vars(self), **ratios}


#: The figures of an array that nothing is known of.
UNKNOWN: Final = Figures()


def _ratio(number: float | None, unit: float | None) -> float | None:
    return None if number is None or not unit else number / unit


def read_figures(stored: StoredFigures | None, arrays: int) -> list[Figures]:
    """Return the figures of each array of a checkpoint."""
    if stored is None:
        return [UNKNOWN] * arrays
    columns = {name: map(_known, stored.read(name, arrays).tolist()) for name in stored.numbers}
    return [Figures(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def _known(number: Any) -> Any:
    """Return a number, or numbers as a tuple; ``None`` for what is not known."""
    if isinstance(number, list):
        return None if any(map(math.isnan, number)) else tuple(number)
    return None if math.isnan(number) else number


def numbers_by_role(roles: Mapping[Role, Figures]) -> dict[str, float]:
    """Return what is known of error, lag and movement of weights and moments, by name.

    Other arrays, such as counters, have no common unit. The names are ``checkpoint/error/ROLE``, in
    movements, ``checkpoint/lag/ROLE``, in intervals, and ``checkpoint/movement/ROLE``, in the unit
    of the values.

    Examples
    --------
    >>> numbers_by_role({"weight": Figures(movement=2.0, error=0.5)})
    {'checkpoint/error/weight': 0.25, 'checkpoint/movement/weight': 2.0}
    """
    by_place: dict[str, float] = {}
    for role, figures in roles.items():
        if role == "other":
            continue
        numbers = {"error": figures.error_in_movements, "lag": figures.lag, "movement": figures.movement}
        by_place |= {
            f"checkpoint/{name}/{role}": number for name, number in numbers.items() if number is not None
        }
    return by_place


def combined(arrays: Iterable[tuple[Figures, int]]) -> Figures:
    """Return the figures of several arrays together; each array comes with its number of elements.

    Their movement and lag are known only if those of all are. What is left of a role after a
    restart without the original may be its exact arrays, and their 0 is not the error of the role.
    """
    weighted = list(arrays)
    if any(figures.movement is None for figures, _ in weighted):
        weighted = [(replace(figures, movement=None, lag=None), count) for figures, count in weighted]

    def known(name: str) -> list[tuple[float, int]]:
        numbers = [(getattr(figures, name), count) for figures, count in weighted]
        return [(number, count) for number, count in numbers if number is not None]

    def size(name: str) -> float | None:
        total = sum(count for _, count in known(name))
        return math.sqrt(sum(n * n * count for n, count in known(name)) / total) if total else None

    lags = [(f.lag, (f.movement or 0) ** 2 * count) for f, count in weighted if f.lag is not None]
    moved = sum(weight for _, weight in lags)
    zeros, bad = known("zeros"), known("not_finite")
    return Figures(
        spread=size("spread"),
        movement=size("movement"),
        error=size("error"),
        lag=sum(lag * weight for lag, weight in lags) / moved if moved else None,
        rms=size("rms"),
        minimum=min((n for n, _ in known("minimum")), default=None),
        maximum=max((n for n, _ in known("maximum")), default=None),
        zeros=_ratio(sum(n * count for n, count in zeros), sum(count for _, count in zeros)),
        not_finite=sum(n for n, _ in bad) if bad else None,
    )


#: The types that copies are rounded to, and that of their sources (LCC-CPY-01, LCC-CPY-02).
COPY_TYPES: Final = {kind.code: kind for kind in ELEMENT_TYPES if kind.name in ("float16", "bfloat16")}
SOURCE_TYPE: Final = next(kind for kind in ELEMENT_TYPES if kind.name == "float32")


@dataclass(frozen=True)
class Copy:
    """What an array is a copy of: the index of the other array, and the type it is rounded to.

    `kind` is ``None`` for an equal copy: it has the source's type and bits.
    """

    source: int
    kind: ElementType | None

    def to_json(self) -> Json:
        """Return the copy as a manifest has it."""
        return [self.source, EQUAL_COPY if self.kind is None else self.kind.code]


def parse_copies(document: Mapping[str, Json], arrays: Sequence[int | None], where: str) -> tuple[Copy, ...]:
    """Read the copies of a manifest (LCC-CPY-01); `arrays` has the numbers of its frames."""
    expected = arrays.count(None)
    entries = document.get("copies", [])
    if type(entries) is not list or len(entries) != expected or ("copies" in document and not entries):
        raise FormatError("LCC-CPY-01", where, f"not the sources of {expected} copies")
    copies: list[Copy] = []
    pairs: set[tuple[int, bool]] = set()
    for number, entry in enumerate(entries):
        place = f"{where}: {number}"
        if type(entry) is not list or len(entry) != 2 or not all(type(item) is int for item in entry):
            raise FormatError("LCC-CPY-01", place, "not the index of an array and an element type")
        source, code = entry
        if code != EQUAL_COPY and code not in COPY_TYPES:
            raise UnsupportedError("LCC-CPY-01", place, f"copies of the element type {code} are not known")
        kind = source, code == EQUAL_COPY
        if not 0 <= source < len(arrays) or arrays[source] is None or kind in pairs:
            raise FormatError("LCC-CPY-01", place, f"{source} is no array, a copy, or copied already")
        pairs.add(kind)
        copies.append(Copy(source, COPY_TYPES.get(code)))
    return tuple(copies)


@dataclass(frozen=True)
class Parent:
    """A checkpoint that another is taken against, by its step and its root (LCC-MAN-04)."""

    step: int
    root: bytes


#: Stands for a tree that is equal to the parent's (LCC-MAN-07); ``None`` is the tree of one scalar.
INHERITED: Final = object()


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds (LCC-MAN-03). The fields have their names in the file."""

    step: int | None  # the training step, or None
    parent: Parent | None  # the earlier checkpoint that this one is taken against; None for a keyframe
    policy: Json  # a JSON value: how the frames were made; readers do not need it
    metadata: dict[str, str]  # the user's own strings
    tree: Json  # as `tree.flatten` returns it, or `INHERITED` if it is equal to the parent's
    scalars: list[Json]  # as `tree.flatten` returns them
    # For each array the number of its frame, from 1 on; 0 if it is its reference, unchanged;
    # ``None`` if it is a copy of another array. The arrays of one frame lie in it in the order of
    # their indices.
    arrays: tuple[int | None, ...]
    frames: tuple[FrameEntry, ...]  # an entry for each frame, in the order of the payload
    minor: int = FORMAT_MINOR
    # The root of the exact file that was committed with the checkpoint (LCC-EXA-02).
    exact: bytes | None = None
    is_exact: bool = False  # whether it is the manifest of an exact file
    later: Parent | None = None  # the later one, of an interpolated checkpoint (LCC-INT-01)
    weight: int = 0  # how much the later one counts, in 256ths
    replaces: tuple[bytes, ...] = ()  # roots of the checkpoints that it took the place of (LCC-MAN-12)
    # What the save measured of each array (LCC-FIG-01); ``None`` if nothing.
    figures: StoredFigures | None = None
    # For each array that is a copy, in their order, of which array and of which type.
    copies: tuple[Copy, ...] = ()

    @property
    def parents(self) -> tuple[Parent, ...]:
        """The checkpoints that this one is taken against, the earlier one first."""
        if self.parent is None:
            return ()
        return (self.parent,) if self.later is None else (self.parent, self.later)

    @property
    def span(self) -> tuple[int, int]:
        """The steps of both parents of an interpolated checkpoint (LCC-INT-02)."""
        low, high = self.parents
        return low.step, high.step

    @property
    def payload_length(self) -> int:
        """Bytes of all frames and their tables together."""
        total = 0
        for entry in self.frames:
            total += entry.length + entry.table
        return total

    @property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the arrays of each frame."""
        members = list[list[int]]()
        for _ in self.frames:
            members.append([])
        for index, number in enumerate(self.arrays):
            if number:
                members[number - 1].append(index)
        return tuple(map(tuple, members))

    def inherit(self, tree: Json, where: str) -> Manifest:
        """Return this manifest with the parent's `tree` for `INHERITED`, checked as its own."""
        if self.tree is not INHERITED:
            return self
        return self.with_tree(parse_tree(tree, len(self.arrays), len(self.scalars), f"{where}: tree"))

    def with_tree(self, tree: Json) -> Manifest:
        """Return this manifest with a tree that has been checked."""
        manifest = object.__new__(Manifest)  # `dataclasses.replace` takes ten times as long
        manifest.__dict__.update(self.__dict__, tree=tree)
        return manifest

    def to_bytes(self) -> bytes:
        """Return the manifest as stored in the file (LCC-MAN-01, LCC-MAN-03)."""
        figures: dict[str, Json] = {}
        if self.figures is not None:
            figures = {} if self.figures.since is None else {"since": self.figures.since}
            for name, data in self.figures.numbers.items():
                figures[name] = write_base64(data)
        frames: list[Json] = []
        for entry in self.frames:
            table = (entry.table,) if entry.table else ()
            frames.append([entry.length, write_base64(entry.digest), *table])
        document = {
            "lccodec": [FORMAT_MAJOR, self.minor],
            "step": self.step,
            "parent": self.parent and [self.parent.step, write_base64(self.parent.root)],
            "later": self.later and [self.later.step, write_base64(self.later.root), self.weight],
            "replaces": list(map(write_base64, self.replaces)),
            "exact": self.is_exact or (self.exact and write_base64(self.exact)),
            "policy": self.policy,
            "figures": figures,
            "metadata": self.metadata,
            "tree": self.tree,
            "scalars": self.scalars,
            "arrays": list(self.arrays),
            "copies": list(map(Copy.to_json, self.copies)),
            "frames": frames,
        }
        for optional in ("later", "replaces", "exact", "figures", "metadata", "scalars", "copies"):
            if not document[optional]:
                del document[optional]
        if self.tree is INHERITED:
            del document["tree"]
        try:
            return dump_json(document)
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(f"the manifest cannot be written as JSON: {error}") from error


_MAX_LENGTH: Final = MAX_STEP  # bytes of a frame: like a step, exact in every JSON reader
# LCC-MAN-03: in this order. `checkpoint.py` reads those before `policy` by pattern.
_KEYS: Final = (
    *("lccodec", "step", "parent", "later", "replaces", "exact", "policy", "figures"),
    *("metadata", "tree", "scalars", "arrays", "copies", "frames"),
)
_REQUIRED_KEYS: Final = ("lccodec", "step", "parent", "policy", "arrays", "frames")


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Read a manifest (LCC-MAN-01 to LCC-MAN-12); errors begin with the place `where`.

    A key, a type of copies or a major version that is not known is an ``UnsupportedError``, and too
    much of something a ``LimitError`` (LCC-LIM-05 to LCC-LIM-07, LCC-LIM-13).
    """
    document = parse_json(data, where)
    if type(document) is not dict:
        raise FormatError("LCC-MAN-03", where, "not a JSON object")
    for key in document:
        if key not in _KEYS:
            raise UnsupportedError("LCC-MAN-03", where, f"unknown key {key!r}")
    if list(document) != [key for key in _KEYS if key in document or key in _REQUIRED_KEYS]:
        raise FormatError("LCC-MAN-03", where, f"keys missing or out of order: {', '.join(document)}")

    version, step, parent = document["lccodec"], document["step"], document["parent"]
    is_version = type(version) is list and len(version) == 2
    if not (is_version and _is_integer(version[0], 0xFFFF) and _is_integer(version[1], 0xFFFF)):
        raise FormatError("LCC-MAN-09", f"{where}: lccodec", "not a version")
    if version[0] != FORMAT_MAJOR:
        raise UnsupportedError("LCC-MAN-09", f"{where}: lccodec", f"format version {version[0]}.{version[1]}")
    if step is not None and not _is_integer(step, MAX_STEP):
        raise FormatError("LCC-MAN-02", f"{where}: step", "not null and not a step")
    metadata = document.get("metadata", {})
    if type(metadata) is not dict or not {*map(type, metadata.values())} <= {str}:
        raise FormatError("LCC-MAN-06", f"{where}: metadata", "not an object of strings")
    if not metadata and "metadata" in document:
        raise FormatError("LCC-MAN-06", f"{where}: metadata", "empty, and should be left out")
    if "tree" not in document and parent is None:
        raise FormatError("LCC-MAN-07", f"{where}: tree", "left out, but there is no parent")

    # The specification fixes the order of these checks.
    named = None if parent is None else _parse_parent(parent, f"{where}: parent")
    later, weight = _parse_later(document, named, f"{where}: later") if "later" in document else (None, 0)
    replaces = _parse_replaces(document, f"{where}: replaces") if "replaces" in document else ()
    is_exact = document.get("exact") is True
    exact = parse_base64(document.get("exact"), ROOT_SIZE)
    fits = parent is None if is_exact else exact is not None
    if "exact" in document and not (fits and step is not None):
        message = "not true in a keyframe or the root of an exact file, or no step"
        raise FormatError("LCC-EXA-02", f"{where}: exact", message)
    scalars = document.get("scalars", [])
    if "scalars" in document and not parse_scalars(scalars, f"{where}: scalars"):
        raise FormatError("LCC-MAN-11", f"{where}: scalars", "empty, and should be left out")
    frames = _parse_frames(document["frames"], f"{where}: frames")
    arrays = _parse_arrays(document["arrays"], len(frames), parent is not None, f"{where}: arrays")
    copies = parse_copies(document, arrays, f"{where}: copies")
    figures = None
    if "figures" in document:
        of_step = None if is_exact else step
        figures = parse_figures(document["figures"], len(arrays), of_step, f"{where}: figures")
    sizes = len(arrays), len(scalars)
    tree = parse_tree(document["tree"], *sizes, f"{where}: tree") if "tree" in document else INHERITED
    return Manifest(
        step=step,
        parent=named,
        policy=document["policy"],
        metadata=metadata,
        tree=tree,
        scalars=scalars,
        arrays=arrays,
        frames=frames,
        minor=version[1],
        exact=exact,
        is_exact=is_exact,
        later=later,
        weight=weight,
        replaces=replaces,
        figures=figures,
        copies=copies,
    )


def _parse_parent(parent: Json, where: str) -> Parent:
    if type(parent) is not list or len(parent) != 2:
        raise FormatError("LCC-MAN-04", where, "not a step and a root")
    step, text = parent
    if not _is_integer(step, MAX_STEP):
        raise FormatError("LCC-MAN-02", f"{where}: step", "not a step")
    root = parse_base64(text, ROOT_SIZE)
    if root is None:
        raise FormatError("LCC-MAN-04", f"{where}: root", "not a root")
    return Parent(step, root)


def _parse_later(document: dict[str, Json], parent: Parent | None, where: str) -> tuple[Parent, int]:
    """Return the later parent, and how much it counts (LCC-INT-01)."""
    step, later = document["step"], document["later"]
    if type(later) is list and len(later) == 3 and _is_integer(later[0], MAX_STEP):
        root = parse_base64(later[1], ROOT_SIZE)
        between = step is not None and parent is not None and parent.step < step < later[0]
        if root is not None and between and _is_integer(later[2], MAX_WEIGHT):
            return Parent(later[0], root), later[2]
    raise FormatError("LCC-INT-01", where, "not a later step, a root and a weight, or not later")


def _parse_replaces(document: dict[str, Json], where: str) -> tuple[bytes, ...]:
    """Return the roots that a checkpoint replaces (LCC-MAN-12)."""
    if document["step"] is None or document.get("exact") is True:
        raise FormatError("LCC-MAN-12", where, "not of a step, or of an exact file")
    texts = document["replaces"]
    decoded = [parse_base64(text, ROOT_SIZE) for text in texts] if type(texts) is list else []
    roots = tuple(root for root in decoded if root is not None)
    if not roots or len(set(roots)) < len(decoded):
        raise FormatError("LCC-MAN-12", where, "not a list of roots, each once")
    return roots


def _parse_arrays(arrays: Json, frames: int, is_delta: bool, where: str) -> tuple[int | None, ...]:
    if type(arrays) is not list:
        raise FormatError("LCC-MAN-10", where, "not a list")
    if len(arrays) > MAX_ARRAYS:
        raise LimitError("LCC-LIM-06", where, f"{len(arrays)} arrays")
    known = 0
    for index, number in enumerate(arrays):
        if number is None:
            continue  # a copy
        if not _is_integer(number, known + 1) or (number == 0 and not is_delta):
            message = "not the next frame, an earlier frame, the parent's array or null"
            raise FormatError("LCC-MAN-10", f"{where}: {index}", message)
        known = max(known, number)
    if frames != known:
        raise FormatError("LCC-MAN-10", where, f"{known} frames are named and {frames} are listed")
    return tuple(arrays)


def _parse_frames(frames: Json, where: str) -> tuple[FrameEntry, ...]:
    if type(frames) is not list:
        raise FormatError("LCC-MAN-05", where, "not a list")
    entries = []
    for number, entry in enumerate(frames):
        place = f"{where}: {number}"
        lengths = entry[::2] if type(entry) is list and len(entry) in (2, 3) else [0]
        for length in lengths:
            if not _is_integer(length, _MAX_LENGTH) or not length:
                raise FormatError("LCC-MAN-05", place, "not the length and the digest of a frame")
        digest = parse_base64(entry[1], DIGEST_SIZE)
        if digest is None:
            raise FormatError("LCC-MAN-08", place, "not a digest")
        entries.append(FrameEntry(entry[0], digest, *lengths[1:]))
        most = 3 + entries[-1].length // MIN_PIECE_BYTES
        if entries[-1].table > PIECE_ENTRY_SIZE * most:
            message = f"a table of {entries[-1].table} bytes has more than {most} pieces"
            raise LimitError("LCC-LIM-13", place, message)
    return tuple(entries)


def _is_integer(value: Json, maximum: int) -> bool:
    return type(value) is int and 0 <= value <= maximum
