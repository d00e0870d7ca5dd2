"""What a history with hindsight codes: ends in steps of the movement, and next to nothing between.

A checkpoint between two known ones is close to their interpolation. A random walk is off by half a
movement for each root of an interval in the gap, at most, and by what its ends lost. Nothing lags.
So weights and moments between two ends take no bytes, unless something happened there: a restart,
a jump of the learning rate, a run that diverges.

What an error costs is counted in intervals. So it is compared with the movement of the step's own
interval, too: before a restart of the rate, weights hardly move, and what is small beside the whole
group is many of those intervals.

Weights that turn, as those of two players do, are farther from a line than a walk is, and no point
of the line is as good as theirs. So groups of them stay as they are saved. So do those in which the
rate is restarted.

A first moment that is much like that of the step before carries the run on for intervals. Another
one sends it elsewhere, so it is coded. Mostly it has forgotten its past by then, and is not.

The ends carry all of it. Their steps are counted in movements of one interval, so that the error
stays in a proportion to that of the walk itself.

What a quantizer guarantees is asked for each array, in the ends and between them: a bound is never
used twice, and second moments are coded wherever the line is too far off.

So whoever codes again what has lost something, here or as a whole by `compact`, gives a second loss
what the guarantee leaves: nothing of a bound that is used up, and steps of its own where steps of
the logarithm add up. What is known then of an array is what it decodes to, and what that may have
lost. What a guarantee says is the business of :mod:`lccodec.quantizers.base`.

Source: the measurements in ``spec/decisions/0017-hindsight.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from ..element_types import Array, has_negative, octaves, subtract, work, zero
from ..errors import ArgumentError
from ..parallel import slices
from ..quantizers.base import DEAD_ZONE, AsReference, Guarantee, Lossless, Quantizer, guarantee_of, spoiled
from ..quantizers.logarithmic import LogSteps
from ..quantizers.uniform import UniformDeadzone
from .centered import CenteredMean, CenteredSquare, centered
from .declared import obeying
from .policy import Candidate, Policy

#: Checkpoints from one end to the next.
GROUP: Final = 8

#: The steps of weights at the ends, in movements of one interval.
_END_STEP: Final = 2.25

#: A last movement of less than this share of the typical one counts at an end in its place.
_SLOWER: Final = 0.75

#: What weights may be off between two ends, in movements. A walk between two ends is off by less.
_MOST_MOVEMENTS: Final = 3.0
_MOST_OWN_MOVEMENTS: Final = 2.5  # of the step's own interval

#: The same, over what a walk of the same movements is off. What turns is off by more.
_MOST_WALKS: Final = 1.35
_MOST_TURNED: Final = 1.35  # of the middle half of a whole group
_RESTART: Final = 2.0  # of one movement to that before

#: Small arrays, when they tell of a young run: how straight they go (a walk has 1), how far they
#: are ahead of the others, in parts of the whole way, and of how many elements that is known.
_SMALL: Final = 256  # elements
_STRAIGHT: Final = 1.5
_AHEAD: Final = 0.08
_ENOUGH: Final = 64

_LOST: Final = 0.75  # movements: what the step and both ends have lost already

#: What a first moment may be off, in its root mean squares. Another one is off by the root of 2.
_MOST_MOMENTS: Final = 2.0
_MOST_PERSISTENT_MOMENTS: Final = 0.5  # where it is like that of the step before
_PERSISTENT: Final = 0.5  # from this correlation with the step before on
_FORGOTTEN_STEP: Final = 2.0  # of a first moment that is not: over that of its role

#: What second moments may be off in the mean, in octaves.
_MOST_OCTAVES: Final = 1.0


def end_quantizers(
    policy: Policy, arrays: Sequence[Candidate], movements: Mapping[str, Sequence[float]]
) -> dict[str, Quantizer]:
    """Return the quantizers of weights at the end of a group, by name.

    `movements` has, for each array that moved, how far it did in each interval of the group but the
    last: root mean squares. Only arrays whose policy has steps that can be scaled are among the
    result.
    """
    steps, finest = dict[str, float](), dict[object, float]()  # the least of weights of one form
    weights = [c for c in arrays if c.role == "weight" and _is_scalable(policy, c)]
    for c in sorted(weights, key=lambda c: c.step is not None):
        moved = [*movements.get(c.name, ()), _own_movement(c)]
        typical, form = _typical(moved), (c.kind, c.shape)
        if c.step is not None:
            # That of a copy is the movement since the end before. In one interval it has to rest.
            steps[c.name] = min(c.step, finest.get(form, c.step))
        elif typical > 0:
            length = moved[-1] if 0 < moved[-1] < _SLOWER * typical else typical
            steps[c.name] = _END_STEP * policy.width * length
            finest[form] = min(length, finest.get(form, length))
    return {name: UniformDeadzone(step=step) for name, step in steps.items()}


def gains(policy: Policy) -> bool:
    """Return whether anything that a policy loses may be lost between two ends."""
    coders = (*policy.roles.values(), *policy.patterns.values())
    return any(coder.lossy and not guarantee_of(coder).is_strict for coder in coders)


def strays(paths: Iterable[Sequence[Array]]) -> bool:
    """Return whether no line between two ends does for the weights of a group.

    They turn: they are farther from a line than a walk of the same movements is. Or their rate was
    restarted: what had calmed down before is not what lies between two ends. Or small arrays, such
    as biases, go straight and are ahead of all others: a young run learns faster than its weights
    show, most of whose way is a walk.

    `paths` has samples of each array at each step of a group: float64, of one shape, not empty.
    """
    walk, products, moved = 0.0, [], np.zeros(0)
    ways: dict[bool, list[Array]] = {True: [], False: []}  # of small arrays, and of all others
    for path in paths:
        x = np.stack(path[1:]) - path[0]
        own = np.square(np.diff(x, axis=0, prepend=0)).sum(axis=1)
        walked, whole = np.cumsum(own)[:-1], own.sum()
        middle = slice(len(own) // 4, len(own) - len(own) // 4 - 1)
        if len(own) > 2 and 0 < whole < math.inf:
            ways[x[0].size < _SMALL].append(np.array([*(x @ x[-1]), whole, x[0].size]))
            inner = x[:-1][middle]
            products.append((inner @ x[-1], np.square(inner).sum(), x[-1] @ x[-1]))
            walk += float((walked * (whole - walked) / whole)[middle].sum())
            moved = own + (moved if moved.size else 0)
    if not products:
        return False
    along, squares, across = (sum(column) for column in zip(*products, strict=True))
    off = float(squares - np.square(along).sum() / across) if across > 0 else float(squares)
    if all(ways.values()):
        small, others = (np.sum(ways[is_small], axis=0) for is_small in (True, False))
        is_straight = small[-3] > _STRAIGHT * small[-2] and small[-1] >= _ENOUGH
        if is_straight and (small[:-2] / small[-3] - others[:-2] / others[-3]).max() > _AHEAD:
            return True
    before, after = moved[:-1], moved[1:]
    return off > _MOST_TURNED**2 * walk or bool(((before > 0) & (after > _RESTART**2 * before)).any())


def between_quantizers(
    policy: Policy,
    arrays: Sequence[Candidate],
    movements: Mapping[str, Sequence[float]],
    number: int,
    before: Mapping[str, Array] = MappingProxyType({}),
) -> dict[str, Quantizer | None]:
    """Return the quantizers of arrays between two ends, by name; ``None`` if the reference will do.

    Arrays that are up to the policy are not among them, nor are those that must be exact. Both
    means of a centered optimizer are coded as they were saved: on a line, their difference may be
    negative.

    Parameters
    ----------
    policy
        The one they were saved with: they have lost what it guarantees.
    arrays
        Against what the ends make of them. Both means of a centered optimizer are among them.
    movements
        How far each array moved in each interval of the group; NaN where it is not known.
    number
        The intervals up to the step.
    before
        Components of first moments at the step before, by name.
    """
    policy = centered(obeying(policy, arrays), arrays, alone=False)
    found: dict[str, Quantizer | None] = {}
    for c in arrays:
        quantizer = policy.choose(c.name, c.role, c.kind, c.elements)
        if isinstance(quantizer, CenteredMean | CenteredSquare):
            found[c.name] = quantizer
            continue
        if not quantizer.lossy:
            continue
        guarantee = promised(policy, c)
        if coder := between_quantizer(guarantee):
            found[c.name] = None if _is_near(c, coder) else coder
            continue
        if c.reference is None:
            continue
        if c.role == "second_moment":
            fits = not _far(c, c.reference)
        else:
            length, most = _lengths(movements.get(c.name, ()), number)
            most *= min(policy.width, 1.0)  # a narrow valley that a loss has found
            if c.role == "first_moment":
                persists = _correlation(c, before.get(c.name)) >= _PERSISTENT
                most = (_MOST_PERSISTENT_MOMENTS if persists else _MOST_MOMENTS) * distance(c, None)
            off = distance(c, c.reference)
            fits = off <= most and math.isfinite(off)
            if not fits and _is_scalable(policy, c):
                if c.role == "weight" and length > 0:
                    found[c.name] = UniformDeadzone(step=_END_STEP * policy.width * length)
                elif c.role == "first_moment" and not persists:
                    found[c.name] = quantizer.scaled(_FORGOTTEN_STEP)
                continue
        if fits:
            found[c.name] = AsReference() if _is_spoiled(c, c.reference) else None
    return found


def _is_near(c: Candidate, coder: Quantizer) -> bool:
    """Return whether all elements lie inside the dead zone of steps of the logarithm."""
    if c.reference is None or not isinstance(coder, LogSteps):
        return False
    most = DEAD_ZONE * coder.step * (1 - 2.0 ** (1 - c.kind.mantissa))
    parts = slices(c.bits.size)
    return all(bool((np.abs(octaves(c.bits[p], c.reference[p], c.kind)) < most).all()) for p in parts)


def _is_spoiled(c: Candidate, reference: Array) -> bool:
    """Return whether an array without negative numbers would have some, or other zeros."""
    if has_negative(c.bits, c.kind):
        return False
    return any(bool(spoiled(reference[p], c.bits[p], c.kind).any()) for p in slices(c.bits.size))


def _typical(movements: Sequence[float]) -> float:
    """Return the median of movements, which one jump does not change; 0 if none is known."""
    known = sorted(m for m in movements if math.isfinite(m))
    return known[len(known) // 2] if known else 0.0


def _lengths(movements: Sequence[float], number: int) -> tuple[float, float]:
    """Return the movement that counts at a step of a group, and how far off weights may be.

    That is the typical movement, or that of an interval beside the step if it is smaller. A walk
    that is known at both ends varies by the part of all squares that was walked before the step,
    times the rest.
    """
    typical = _typical(movements)
    length = min([typical, *(own for own in movements[number - 1 : number + 1] if own > 0)])
    most = min(_MOST_MOVEMENTS * typical, _MOST_OWN_MOVEMENTS * length)
    walked, whole = (sum(m * m for m in row) for row in (movements[:number], movements))
    if whole > 0:  # not NaN
        walk = walked * (whole - walked) / whole
        most = min(most, math.sqrt(_MOST_WALKS**2 * walk + (_LOST * length) ** 2))
    return length, most


def _is_scalable(policy: Policy, c: Candidate) -> bool:
    quantizer = policy.choose(c.name, c.role, c.kind, c.elements)
    is_scalable = quantizer.lossy and quantizer.scaled(2.0) is not quantizer
    return is_scalable and between_quantizer(promised(policy, c)) is None


def distance(c: Candidate, reference: Array | None) -> float:
    """Return the root mean square of an array, or of its distance from a reference; NaN spreads."""
    total = 0.0
    with np.errstate(all="ignore"):
        for part in slices(c.bits.size):
            d = subtract(c.bits[part], None if reference is None else reference[part], c.kind)
            total += float(np.add.reduce(np.square(d, dtype=np.float64)))
    return math.sqrt(total / c.bits.size) if c.bits.size else 0.0


def _own_movement(c: Candidate) -> float:
    """Return how far an array moved since the save before; NaN if that is not known."""
    if c.past is None or not c.kind.is_float:
        return math.nan
    with np.errstate(all="ignore"):
        d = work(c.past.of(c.bits), c.kind).astype(np.float64) - work(c.past.bits, c.kind)
        d = d[np.isfinite(d)]
        return math.sqrt(float(np.square(d).mean())) if d.size else math.nan


def _correlation(c: Candidate, before: Array | None) -> float:
    """Return the correlation of an array with what it was, about 0; 0 if that is not known."""
    if before is None or before.shape != c.bits.shape:
        return 0.0
    product = squares = others = 0.0
    with np.errstate(all="ignore"):
        for part in slices(c.bits.size):
            x, y = (work(each[part], c.kind).astype(np.float64) for each in (c.bits, before))
            product, squares, others = product + float(x @ y), squares + float(x @ x), others + float(y @ y)
    scale = math.sqrt(squares * others)
    return product / scale if 0 < scale < math.inf else 0.0


def _far(c: Candidate, whole: Array) -> bool:
    """Return whether second moments are far from their reference, or would become 0 or negative."""
    total, count = 0.0, 0
    for part in slices(c.bits.size):
        bits, reference = c.bits[part], whole[part]
        finite = np.isfinite(work(bits, c.kind)) & np.isfinite(work(reference, c.kind))
        lost = zero(reference) & ~zero(bits)  # a step divided by its root would be huge
        if not finite.all() or (lost | spoiled(reference, bits, c.kind)).any():
            return True
        d = np.abs(octaves(bits, reference, c.kind))
        known = np.isfinite(d)
        total += float(d[known].sum(dtype=np.float64))
        count += int(known.sum())
    return total > _MOST_OCTAVES * count


#: Steps of the logarithm between two ends, in those of the policy. Fewer would code many elements
#: that differ by the noise of three codings, the two ends and the step itself.
_STEPS_BETWEEN: Final = 2.0

_ROUNDING: Final = 1 - 2.0**-20  # of what a bound leaves, which is computed in binary64


def promised(policy: Policy, c: Candidate) -> Guarantee:
    """Return what a policy guarantees of an array, in deltas and in keyframes."""
    told = c.name, c.role, c.kind, c.elements
    return guarantee_of(policy.choose(*told)).either(guarantee_of(policy.choose_keyframe(*told)))


def kept_between(guarantee: Guarantee) -> Guarantee:
    """Return what holds of a history with hindsight, if a guarantee holds of what is saved.

    Bounds stay as they are. Steps of the logarithm become larger. The sign of a value that is coded
    without its reference is that of a line between two others, so nothing is said of it.
    """
    if guarantee.is_strict:
        return guarantee
    octaves = guarantee.max_octaves
    return Guarantee(max_octaves=None if octaves is None else octaves * (1 + _STEPS_BETWEEN))


def between_quantizer(guarantee: Guarantee) -> Quantizer | None:
    """Return what codes an array between two ends, so that `kept_between` holds.

    The array has lost what the guarantee permits. ``None`` if nothing has to hold.
    """
    if guarantee.is_strict:
        return Lossless()
    octaves = guarantee.max_octaves
    return None if octaves is None else LogSteps(min(max(_STEPS_BETWEEN * octaves / DEAD_ZONE, 1e-3), 64))


def quantizer_again(c: Candidate, policy: Policy, lost: Guarantee) -> tuple[Quantizer | None, Guarantee]:
    """Return what codes an array that has lost something, and what holds of the result.

    The quantizer is ``None`` if that of the policy does.

    Raises
    ------
    ArgumentError
        If the bound of the policy cannot hold, because more has been lost.
    """
    own = promised(policy, c)
    if lost.exact or not own.is_strict or own.exact:
        return None, own.after(lost)
    if not (own.max_error is None and own.range_share is None):
        coder = policy.choose(c.name, c.role, c.kind, c.elements)
        extent = coder.extent(c.bits, c.kind) if c.kind.kind == "f" else None
        wide = 0.0 if extent is None else extent.share(1.0)
        allowed, used = _bound(own, lost, c, wide, least=True), _bound(lost, lost, c, wide, least=False)
        if allowed - used > 0:
            finer = coder.finer((allowed - used) * _ROUNDING)
            if finer is not None:
                both = own.after(lost)
                return finer, Guarantee(
                    max_error=own.max_error, range_share=own.range_share, further=both.further
                )
        elif not own.follows_from(lost):
            raise ArgumentError(
                f"array {c.name!r} was saved with {str(lost) or 'no guarantee'}, so the policy cannot keep:"
                f" {own}; a wider bound can be kept, and compact() without a policy loses nothing"
            )
    return Lossless(), lost


def _bound(guarantee: Guarantee, lost: Guarantee, c: Candidate, wide: float, *, least: bool) -> float:
    """Return a bound in the units of an array, at least or at most as large as it really is.

    The array has lost what `lost` says, so its range, `wide`, is known to within twice that.
    """
    share = guarantee.range_share
    bounds = [] if guarantee.max_error is None else [guarantee.max_error]
    if share is not None and c.kind.kind == "f":
        if least:
            wide = max(wide - 2 * _bound(lost, lost, c, wide, least=False), 0.0) if lost.is_strict else 0.0
        else:
            wide = wide / (1 - 2 * share) if share < 1 / 2 else math.inf
        bounds.append(share * wide)
    return min(bounds, default=math.inf)
