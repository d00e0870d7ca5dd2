"""What was lost: decoded arrays beside their originals, and beside how far these have moved.

The error of an element is ``decoded - original``. Its movement is how far the original has moved
since the previous shown step. If there is no original of that step, it is the movement that the
save measured. The bias is the sum of their products, over the root of the product of their sums of
squares: the correlation about 0. A codec whose errors point back in time has a negative one, and
training that resumes from it is set back. The arrays of a role are taken together as one, as a save
does: sums of squares are over the elements of all.

Originals are the states as they were before anything was lost. They come from another chain, such
as a lossless one of the same run, or from the exact file of the chain itself. Files of other
formats are read by :mod:`lccodec.adapters.files.states`. After an import, every step is compared
with its file; the movement of the first step is how far the original moves until the next.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from ..chain.read.checkpoint import OpenCheckpoint
from ..chain.read.replay import DecodedArray
from ..chain.store.store import Store
from ..constants import ELEMENT_TYPES, EXACT_NAME, ElementType
from ..container.manifest import UNKNOWN, Figures
from ..element_types import Array, components
from ..errors import ArgumentError, LccodecError
from ..policy.policy import Policy
from ..policy.record import read_record
from ..quantizers.base import Quantizer
from .difference import Leaves, numbers
from .inventory import Source, open_source
from .report import ArrayRow, Loss, RoleLoss, Series


class Originals(Protocol):
    """States by step. They are asked for by rising step, and each is valid until the next."""

    @property
    def label(self) -> str:
        """Which originals they are, in words."""

    @property
    def steps(self) -> Collection[int]:
        """The steps that have an original."""

    def state(self, step: int) -> Mapping[str, Any]:
        """Return the leaves of a step by name; raise `LccodecError` if it cannot be read."""


class ChainOriginals:
    """The states of another chain, each delta decoded once."""

    def __init__(self, source: Source) -> None:
        self.label = f"the states in {source.path}"
        self.steps: Collection[int] = source.steps.keys()
        self._visits = source.visits(decode=True)

    def state(self, step: int) -> Mapping[str, Any]:
        """Return the arrays of a step by name."""
        for number, visit in self._visits:
            if number == step:
                visit.check()
                arrays = visit.arrays()
                return {n: a.array("bits") for n, a in arrays.items() if isinstance(a, DecodedArray)}
        return {}  # it is gone


class ExactOriginals:
    """The newest state, from the exact file of the chain or the bundle."""

    def __init__(self, file: OpenCheckpoint, step: int) -> None:
        self.label = f"the exact file of step {step}"
        self.steps: Collection[int] = (step,)
        self._file = file

    def state(self, step: int) -> Mapping[str, Any]:  # noqa: ARG002 - it has only one
        """Return the leaves of the state; each array is decoded when it is asked for."""
        return Leaves(self._file)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @classmethod
    def of(cls, store: Store, named: bytes | None) -> Self | None:
        """Open the exact file of a store; ``None`` unless it has the root that the newest names."""
        try:
            reader = store.open(EXACT_NAME)
        except LccodecError:
            return None
        if reader.root != named:
            reader.close()
            return None
        return cls(OpenCheckpoint(reader, None), reader.manifest.step or 0)


def original_bits(state: Mapping[str, Any], name: str, like: DecodedArray) -> Array | None:
    """Return the components of an original that has the type and shape of an array, or ``None``."""
    try:
        leaf = state.get(name)
        if not isinstance(leaf, np.ndarray) or leaf.shape != like.shape:
            return None
        kind, bits = components(leaf)
    except LccodecError:  # it is damaged, or of a type that no checkpoint has
        return None
    return bits if kind is like.kind else None


@dataclass(frozen=True)
class Lost:
    """What an array lost at one step; ``None`` where that is not defined."""

    error: float | None  # rms of the error over rms of the movement
    bias: float | None
    largest: float | None
    squares: float = 0.0  # the sum of squares of the errors
    moved: float = 0.0  # the same of the movements


NOTHING_KNOWN = Lost(None, None, None)


def role_loss(steps: Sequence[Sequence[Lost]]) -> RoleLoss:
    """Return what the arrays of a role lost together: at each step, and the mean over the steps.

    >>> one, other = Lost(0.5, -1.0, None, 1.0, 4.0), Lost(0.0, None, None, 0.0, 12.0)
    >>> role_loss([[one, other], [NOTHING_KNOWN] * 2])
    RoleLoss(error=0.25, bias=-0.5, steps=[0.25, None])
    """
    errors, biases = [], []
    for row in steps:
        measured = [lost for lost in row if lost.error is not None]
        squares, moved = sum(lost.squares for lost in measured), sum(lost.moved for lost in measured)
        products = sum((lost.bias or 0.0) * math.sqrt(lost.squares * lost.moved) for lost in measured)
        errors.append(math.sqrt(squares / moved) if 0 < moved < math.inf else None)
        has_bias = any(lost.bias is not None for lost in measured) and 0 < squares * moved < math.inf
        biases.append(products / math.sqrt(squares * moved) if has_bias else None)
    return RoleLoss(_mean(errors), _mean(biases), errors)


def _mean(series: Series) -> float | None:
    known = [x for x in series if x is not None]
    return sum(known) / len(known) if known else None


def measure_loss(
    bits: Array, original: Array, before: Array | None, kind: ElementType, measured: Figures = UNKNOWN
) -> Lost:
    """Return what an array lost, given by its components; `before` is what it has moved from.

    Without that, movement and bias are those that the save `measured`.

    >>> from lccodec.element_types import components
    >>> kind, original = components(np.array([1.0, 2.0]))
    >>> decoded = components(np.array([1.5, 2.0]))[1]
    >>> measure_loss(decoded, original, np.zeros_like(original), kind).largest
    0.5
    """
    largest, count, sums = 0.0, 0, np.zeros(3)
    earlier: Iterable[Array | None] = itertools.repeat(None) if before is None else _wide(before, kind)
    with np.errstate(all="ignore"):
        for decoded, exact, old in zip(_wide(bits, kind), _wide(original, kind), earlier, strict=False):
            errors = decoded - exact
            moves = errors if old is None else exact - old
            kept = np.isfinite(errors) & np.isfinite(moves)
            if not kept.all():
                errors, moves = errors[kept], moves[kept]
            largest = max(largest, float(np.abs(errors).max(initial=0.0)))
            count += errors.size
            sums += [_product(errors, errors), _product(moves, moves), _product(errors, moves)]
    squares, moved, products = sums.tolist()
    has_bias = before is not None and 0 < squares * moved < math.inf
    if before is None:
        moved = count * (measured.movement or 0.0) ** 2
    return Lost(
        error=math.sqrt(squares / moved) if 0 < moved < math.inf else None,
        bias=products / math.sqrt(squares * moved) if has_bias else measured.bias,
        largest=largest if count else None,
        squares=squares,
        moved=moved,
    )


def _wide(bits: Array, kind: ElementType) -> Iterable[Array]:
    for values in numbers(bits, kind):
        yield values.astype(np.float64) if values.dtype.kind in "iu" else values


def _product(left: Array, right: Array) -> float:
    return float(np.einsum("i,i->", left.conj(), right).real)


class LossTable:
    """Collects what the shown arrays of a run lose; `against` says which originals, in words."""

    def __init__(self, against: str, rows: Sequence[ArrayRow]) -> None:
        self._against = against
        self._rows = rows
        self._steps: list[int] = []
        self._found: list[list[Lost]] = []

    def add(self, step: int, lost: Sequence[Lost]) -> None:
        """Add what each array lost at a step."""
        self._steps.append(step)
        self._found.append(list(lost))

    def loss(self, policies: Iterable[Any]) -> Loss | None:
        """Return the table; ``None`` if no step has an original. `policies` are those recorded."""
        if not self._steps:
            return None
        columns = list(zip(*self._found, strict=True))
        error, bias, largest = (
            [[getattr(lost, name) for lost in column] for column in columns]
            for name in ("error", "bias", "largest")
        )
        roles = {}
        for role in dict.fromkeys(row.role for row in self._rows):
            own = [index for index, row in enumerate(self._rows) if row.role == role]
            roles[role] = role_loss([[lost[index] for index in own] for lost in self._found])
        try:
            known = [read_record(record).policy for record in policies]
            bounds = [_bound(row, known) for row in self._rows]
        except ArgumentError:  # of another version or program
            bounds = [None] * len(self._rows)
        return Loss(self._against, self._steps, error, bias, largest, bounds, roles)


def _bound(row: ArrayRow, policies: Sequence[Policy]) -> float | None:
    """Return the bound of an array that holds under all policies."""
    kind = next(kind for kind in ELEMENT_TYPES if kind.name == row.dtype)
    bounds = [
        guaranteed_error(choose(row.name, row.role, kind, row.size))
        for policy in policies
        for choose in (policy.choose, policy.choose_keyframe)
    ]
    known = [bound for bound in bounds if bound is not None]
    return max(known) if len(known) == len(bounds) and known else None


def guaranteed_error(quantizer: Quantizer) -> float | None:
    """Return the largest absolute error that a quantizer allows; ``None`` if it has no bound."""
    if quantizer.trigger is not None:  # what waits may be off by more
        return None
    if not quantizer.lossy:
        return 0.0
    return quantizer.max_error


@dataclass(frozen=True)
class ImportLoss:
    """What the lossy arrays of imported steps have lost: errors (rms) over movements (rms)."""

    typical: float | None  # the median error; `None` if no array moved
    worst: float | None  # the largest
    name: str = ""
    step: int = 0  # where the largest is, with `name`
    unmoved: int = 0  # arrays that lost something at a step at which they did not move
    unmeasured: int = 0  # arrays that lost something at a step whose movement is not known


def import_loss(
    directory: Path, originals: Originals, update: Callable[[int, int], object] | None = None
) -> ImportLoss:
    """Return what the steps of a chain that have an original have lost, each decoded once."""
    errors: list[tuple[float, str, int]] = []
    unmoved = unmeasured = 0
    steps = sorted(originals.steps)
    with closing(open_source(directory)) as source:
        before: Mapping[str, Any] = originals.state(steps[1]) if len(steps) > 1 else {}
        for done, (step, visit) in enumerate(source.visits(decode=True), 1):
            if step in originals.steps:
                exact = originals.state(step)
                visit.check()
                for name, array in visit.arrays().items():
                    if not isinstance(array, DecodedArray):
                        continue
                    original, earlier = (original_bits(state, name, array) for state in (exact, before))
                    if original is None:
                        continue
                    lost = measure_loss(array.bits, original, earlier, array.kind)
                    if lost.error is not None and lost.error > 0:
                        errors.append((lost.error, name, step))
                    if lost.error is None and lost.largest:
                        unmoved += earlier is not None
                        unmeasured += earlier is None
                before = exact
            if update is not None:
                update(done, len(source.steps))
    if not errors:
        return ImportLoss(None, None, unmoved=unmoved, unmeasured=unmeasured)
    worst, name, step = max(errors)
    typical = statistics.median(error for error, *_ in errors)
    return ImportLoss(typical, worst, name, step, unmoved, unmeasured)
