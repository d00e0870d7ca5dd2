"""The report of a run: all that a page, a terminal or another program shows of a chain.

A report is a value. :mod:`lccodec.inspect.examination` makes it. :func:`document` turns it into
JSON: names and metadata are as stored, so whoever shows them escapes them. What is not defined or
not finite is ``None``.

Where there are more arrays and steps than a page can hold, the largest arrays are shown, and evenly
spaced steps with the first and the last. The numbers that a user saves beside the arrays, such as a
loss, are in the metadata as text, where ``metrics=`` of a save puts them, or scalars of the state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias

from ..container.manifest import Figures
from ..container.tree import unescaped
from ..policy.roles import Role
from .difference import Replacement
from .picture import Picture

#: One number for each shown step; ``None`` where it is not defined or not finite.
Series: TypeAlias = Sequence[float | None]

#: What is measured of every array at every shown step: by its save, or of what is exact.
FIGURES: Final = (
    *("movement", "rms", "zeros", "minimum", "maximum", "not_finite", "rank"),
    *("error", "lag"),
)

#: Where the bytes of files go.
STREAMS: Final = ("container", "manifest", "raw", "planes", "codebook", "smooth", "exact file")

#: Significant digits of a number in a document: more would only make the page larger.
_DIGITS: Final = 5


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as it was found, also one that cannot be read.

    Parameters
    ----------
    step
        Its step; ``None`` for a single file without one.
    kind
        ``"keyframe"``, ``"delta"``, ``"interpolated"``, or ``"unreadable"``.
    parent, depth
        Step of the parent, and number of deltas that a restore replays.
    bytes, nbytes
        Bytes of the file, and of all arrays.
    policy
        Name of the policy that was recorded.
    metadata
        The user's strings.
    sound
        Whether all hashes hold, and what had to be decoded could be.
    problems
        What is wrong, in words.
    exact
        Whether an exact file holds its state bit for bit.
    pinned
        Whether the step is pinned.
    protected
        Whether its file has parity, from which it can be mended.
    roles
        Bytes stored in this file for the arrays of each role.
    figures
        What the save measured of the arrays of each role that has figures. A document has their
        numbers by name.
    """

    step: int | None
    kind: Literal["keyframe", "delta", "interpolated", "unreadable"]
    parent: int | None = None
    depth: int = 0
    bytes: int = 0
    nbytes: int = 0
    policy: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    sound: bool = True
    problems: Sequence[str] = ()
    exact: bool = False
    pinned: bool = False
    protected: bool = False
    roles: Mapping[Role, int] = field(default_factory=dict)
    figures: Mapping[Role, Figures] = field(default_factory=dict)


@dataclass(frozen=True)
class ArrayRow:
    """An array of a run. Its type, role and quantizer are those of the newest step that has it.

    `stored_bytes` and `nbytes` are sums over all checkpoints: in files, and of the array itself.
    `of` is the weight whose moment it is, if that is known.
    """

    name: str
    role: Role
    why: str
    dtype: str
    shape: Sequence[int]
    size: int
    quantizer: str
    stored_bytes: int
    nbytes: int
    of: str | None = None

    @property
    def label(self) -> str:
        """Its name as the user knows it: of a moment, the weight that it belongs to."""
        if self.of is None:
            return unescaped(self.name)
        return f"{unescaped(self.of)}, {self.role.replace('_', ' ')}"


@dataclass(frozen=True)
class Histogram:
    """How the finite elements of an array are spread at each shown step, over the same bins.

    The bins have equal width, from `low` on; each is without its upper end. A step without values
    has no counts: its list is empty.
    """

    low: float
    high: float
    counts: Sequence[Sequence[int]]


@dataclass(frozen=True)
class Flag:
    """What should be looked at: of arrays, of a step, or of both.

    Parameters
    ----------
    severity, kind
        How grave it is, and what it is.
    array
        Its array; of several, the first one.
    step
        The step that shows it first; ``None`` if it is of no step.
    sentence
        What it is, in words that do not repeat the steps. Arrays are named by their labels.
    since
        The last step that does not show it: it happened behind that one, up to `step`.
    arrays
        All of its arrays.
    """

    severity: Literal["error", "warning", "note"]
    kind: Literal[
        "dead",
        "frozen",
        "exploding",
        "not finite",
        "damaged",
        "missing",
        "coarse",
        "jumping",
        "changed",
        "shifting",
    ]
    array: str | None
    step: int | None
    sentence: str
    since: int | None = None
    arrays: Sequence[str] = ()

    @property
    def when(self) -> str:
        """Where it lies, such as "between steps 25 and 50"; empty if the sentence says it."""
        if self.step is None or self.kind in ("damaged", "missing"):
            return ""
        return f"step {self.step}" if self.since is None else f"between steps {self.since} and {self.step}"


@dataclass(frozen=True)
class RoleLoss:
    """What the arrays of a role lost together: means over the steps, and the error at each."""

    error: float | None
    bias: float | None
    steps: Series = ()


@dataclass(frozen=True)
class Loss:
    """What was lost, where originals are at hand. Each list has one row for each array.

    Parameters
    ----------
    against
        Which originals, in words.
    steps
        The steps that have an original.
    error
        Root mean square of ``decoded - original`` over that of the movement of the original since
        the step shown before; see :mod:`lccodec.inspect.loss`.
    bias
        Correlation of error and movement. Errors that point back in time have a negative one.
    largest
        Largest absolute error.
    bound
        The bound of absolute errors that the quantizer guarantees.
    roles
        Error and bias by role.
    """

    against: str
    steps: Sequence[int]
    error: Sequence[Series]
    bias: Sequence[Series]
    largest: Sequence[Series]
    bound: Series
    roles: Mapping[Role, RoleLoss]


@dataclass(frozen=True)
class Verdict:
    """What a run looks like: with an error among its flags "broken", with a warning "look"."""

    state: Literal["healthy", "look", "broken"] = "healthy"
    sentence: str = ""


@dataclass(frozen=True)
class Run:
    """A chain, a bundle or a file.

    Parameters
    ----------
    notes
        What was left out, or could not be read, in sentences.
    checkpoints
        By rising step.
    arrays
        In the order of the states.
    steps
        The shown steps. Figures and histograms are of these.
    figures
        For each of `FIGURES` one series for each array. They are of the run itself, as its saves
        measured it, and where nothing was lost of the decoded state. Where something was lost, and
        the save measured nothing, they are of the decoded state, and have no movement, zeros and
        rank. ``movement`` is in root mean squares of the values before, ``error`` in movements,
        ``lag`` in intervals between saves.
    histograms
        One for each array, of the steps at which all of its elements are known; ``None`` if there
        are none with a finite element.
    quantiles
        For each array, what its saves measured at the steps at which it lost something: the
        smallest value, those of the shares `lccodec.container.manifest.QUANTILES`, and the largest;
        of other steps nothing. ``None`` if there is no such step.
    streams
        Bytes of all files by where they go (`STREAMS`).
    scalars
        Numbers that were saved beside the arrays, as metadata or in the state: by name, one for
        each of `checkpoints`. Those that never change are left out.
    verdict
        Whether the run is healthy, and what stands out first.
    pictures
        Of the largest arrays that are stored as fields, at the newest shown step, or at the newest
        that has an original.
    """

    path: str
    kind: Literal["chain", "bundle", "file"]
    notes: Sequence[str]
    checkpoints: Sequence[Checkpoint]
    arrays: Sequence[ArrayRow]
    steps: Sequence[int]
    figures: Mapping[str, Sequence[Series]]
    histograms: Sequence[Histogram | None]
    streams: Mapping[str, int]
    flags: Sequence[Flag] = ()
    loss: Loss | None = None
    scalars: Mapping[str, Series] = field(default_factory=dict)
    verdict: Verdict = Verdict()
    pictures: Sequence[Picture] = ()
    quantiles: Sequence[Sequence[Sequence[float]] | None] = ()


@dataclass(frozen=True)
class Compared:
    """How one array differs between two states: see :mod:`lccodec.inspect.difference`."""

    name: str
    role: Role
    relative: float | None
    largest: float | None
    cosine: float | None
    share: float


@dataclass(frozen=True)
class Comparison:
    """Two states side by side. `rows` has the arrays that differ, the most moved one first."""

    left: str
    right: str
    rows: Sequence[Compared]
    unchanged: int
    appeared: Sequence[str]
    disappeared: Sequence[str]
    replaced: Sequence[Replacement]
    scalars: Sequence[Replacement]


@dataclass(frozen=True)
class Report:
    """One run, or two beside each other."""

    lccodec: str
    notes: Sequence[str]
    runs: Sequence[Run]
    comparison: Comparison | None = None


def document(report: Report) -> dict[str, Any]:
    """Return a report as a JSON document: dicts, lists, strings, integers and finite floats.

    Floats are rounded to five significant digits.

    Examples
    --------
    >>> run = Run("run", "chain", [], [], [], [0], {"rms": [[1.23456789, float("inf")]]}, [], {})
    >>> document(Report("1.0", [], [run]))["runs"][0]["figures"]
    {'rms': [[1.2346, None]]}
    """
    plain: dict[str, Any] = _plain(report)
    return plain


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, int | str):  # the most by far, with floats
        return value
    if isinstance(value, float):
        near = float(f"{value:.{_DIGITS}g}")
        number = near if math.isfinite(near) else value  # the largest are rounded to infinity
        return number if math.isfinite(number) else None
    if isinstance(value, list | tuple):
        return list(map(_plain, value))
    if isinstance(value, Mapping):
        return {key: _plain(child) for key, child in value.items()}
    if isinstance(value, Figures):
        return _plain(value.numbers())
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


#: The first ones are shown: a state may have a counter for each of its arrays.
MAX_SERIES: Final = 24


def series_of(
    numbers: Sequence[Mapping[str, float]], steps: Sequence[int | None]
) -> dict[str, list[float | None]]:
    """Return numbers over checkpoints, by name; ``None`` where a checkpoint does not have it.

    A number that never changes is not among them, nor is the step. Of names that always have the
    same number, the first one stands for all.

    Examples
    --------
    >>> numbers = [{"loss": 2.0, "lr": 0.1, "step": 5}, {"loss": 1.5, "lr": 0.1, "step": 10}]
    >>> series_of(numbers, [5, 10])
    {'loss': [2.0, 1.5]}
    """
    by_name: dict[str, list[float | None]] = {}
    seen = {repr([None if step is None else float(step) for step in steps])}
    for name in dict.fromkeys(name for each in numbers for name in each):
        series = [each.get(name) for each in numbers]
        text = repr([None if number is None else float(number) for number in series])  # NaN is NaN
        if len(set(map(repr, series)) - {"None"}) < 2 or text in seen:
            continue
        seen.add(text)
        by_name[name] = series
        if len(by_name) == MAX_SERIES:
            break
    return by_name


MAX_ARRAYS: Final = 300
#: Arrays times steps: 300 arrays at 200 steps.
MAX_CELLS: Final = 60_000
MAX_STEPS: Final = 1000
#: Checkpoints that are listed.
MAX_CHECKPOINTS: Final = 5000


def largest(rows: Sequence[ArrayRow], count: int = MAX_ARRAYS) -> list[ArrayRow]:
    """Return the largest arrays in their order; of equal ones the first."""
    chosen = sorted(range(len(rows)), key=lambda i: (-rows[i].size, i))[:count]
    return [rows[i] for i in sorted(chosen)]


def step_limit(arrays: int) -> int:
    """Return how many steps of so many arrays are shown."""
    return min(MAX_STEPS, max(2, MAX_CELLS // max(arrays, 1)))
