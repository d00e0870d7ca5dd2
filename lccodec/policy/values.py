"""What the values of a state say of its arrays: which are copies, follow weights, or are trained.

**Copies** are arrays of which a checkpoint only says what they are a copy of.

*Equal* arrays have the type, the shape and every bit of another array of the state. A target
network, an average of weights and the slow weights of an optimizer begin as copies of the weights,
and experts as copies of one layer. One array that is one object in several places is stored once
anyway; these are objects of their own. Constants are left out: any constant of the shape would do,
and it takes no more bytes.

*Rounded* arrays are the rounding of a float32 array. Runs in mixed precision have each weight
twice: in float32, which the optimizer changes, and rounded to bfloat16 or float16, which the model
computes with.

Values decide. A sample finds the arrays that may be copies, and then every value is compared: an
array of which one value differs is coded as any other. Names are asked for two things only, of
roundings:

- Of two arrays with the same values, the one whose name ends as that of the copy is its source.
- If one of the two is known to be a weight, the other one is too, if a name says what they are to
  each other (``master``, ``fp32``; ``bf16``, ``half``) and neither name nor user says anything else
  of it. So the float32 weights that an optimizer keeps are coded as weights are. At the moment of
  the save, both are one set of numbers; what an error does to the one, it does to the other.

Without such names, a weight that the policy may lose something of has no exact copy: that is coded
on its own.

**Followers.** A name does not always say that an array is a copy or an average of a weight:
averages are kept in lists, and the copy that a network is trained towards is a ``target``. But such
an array moves towards its weight, or it was a copy of it at some moment since the save before.
Errors do to it what errors of the weight do. So it is a weight, too, if all of this holds:

- It has the type and shape of a weight, and is near it: closer than half of the spread of its
  values.
- It has moved since the parent, towards the weight as it is now. What it moved otherwise is less
  than the weight itself has moved. Or it rests: it differs from the parent by what that has lost.
- Nothing says what it is, or its name calls it an average or a target. A teacher is exact, and so
  is all that is named as something else.
- It has about as many different values as the weight. Of weights that are quantized or pruned, many
  are equal, and would no longer be.

What was copied as a whole rests until the next copy. Then a share of its differences would be one
of errors alone. So a copy has steps by the movement of its weight: what it has lost is inside the
dead zone until it moves again.

An array that does not move takes no bytes in a delta. So it is exact in the next keyframe, too.

**Moments by name alone** (``exp_avg``, ``m`` and ``v`` beside a weight), where no name says that
there is an optimizer, may be something else: a mean of weights, mean and variance of a posterior,
keys and values. Coded as moments, little would be left of them. So their values must fit, and all
those of one place are exact if they do not:

- A mean of gradients is not like its weight, and a mean of weights is.
- Means of squares are not negative. A mean of gradients is hardly ever above their root, and is not
  zero where they are not.
- Of single letters: a mean of gradients changes from save to save by about its size, a parameter
  by little. So at the first save nobody knows, and all are exact.

The state of ``optax.ema``, which is a mean of updates in a chain, and of weights elsewhere, is
compared with the weights alone.

**Trained weights of a partly frozen model.** An optimizer that was given the trained parameters
alone, without names, keeps moments of so many arrays of a shape, and the model has more of that
shape. Then the values tell: if as many of them have moved since the parent, these are its
parameters. What is frozen does not move. If others move, too, such as an average of the weights,
those count that are called weights, or those of them below a model. If that leaves more than one
way, all stay exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from ..constants import ElementType
from ..element_types import Array, rounded_copy, scattered, work
from ..parallel import slices
from ..quantizers.base import Quantizer
from ..quantizers.uniform import UniformDeadzone
from .optimizer import Path, as_many, name_parts, path_of
from .policy import Candidate, Policy
from .roles import (
    BY_NAME,
    EXACT_NAME,
    FOLLOWER,
    MASTER,
    MEAN_OF_OPTAX,
    NO_MOMENT,
    OUTSIDE,
    PARAMETER,
    PERHAPS,
    ROUNDED,
    UNNAMED,
    UNSAFE,
    UNTRAINED,
    called_weight,
    find_moments,
)
from .vocabulary import meaning, says_follower


def mark_copies(arrays: Sequence[Candidate]) -> None:
    """Set the `source` of each array that is a copy of another one, and the roles that follow.

    Arrays that a save leaves out are neither copies nor sources.
    """
    mark_named(arrays)
    mark_equal(arrays, mark_rounded(arrays))


#: An array of fewer bytes takes about as many as to say what it is a copy of.
_MIN_BYTES: Final = 64

#: Values that are compared before all are.
_SAMPLE: Final = 64

#: Different arrays with one sample that an array is compared with, whole.
_MAX_COMPARED: Final = 4


def mark_equal(arrays: Sequence[Candidate], rounded: Collection[str] = ()) -> None:
    """Set the `source` of each array that is equal to another one.

    A source is no copy, and has one equal copy at most (LCC-CPY-01). `rounded` are the sources of
    roundings, which are no copies for that. Of equal arrays, the source is the one that changed
    least: a delta has it in the fewest bytes.
    """
    likely: dict[object, list[Candidate]] = {}
    for c in arrays:
        if c.source is None and not c.inherited and c.bits.nbytes >= _MIN_BYTES:
            # Looking at two values is ten times as fast as taking a sample.
            key = c.kind, c.shape, c.bits.item(0), c.bits.item(c.bits.size // 2)
            likely.setdefault(key, []).append(c)
    groups: list[list[Candidate]] = []  # of one type and shape, equal in a few values
    for found in likely.values():
        if len(found) > 1:
            sampled: dict[object, list[Candidate]] = {}
            for c in found:
                sample = _sample(c.bits)
                if (sample != sample[0]).any():
                    sampled.setdefault(tuple(sample.tolist()), []).append(c)
            groups += sampled.values()
    for group in groups:
        group.sort(key=lambda c: (c.name not in rounded, changed_share(c), _changed_bits(c)))
        sources: list[list[Candidate]] = []
        for c in group:
            equal = next((equal for equal in sources if is_equal(c.bits, equal[0].bits)), None)
            if equal is not None and c.name not in rounded:
                equal.append(c)
            elif equal is None and len(sources) < _MAX_COMPARED:
                sources.append([c])
        for equal in sources:
            half = -(-len(equal) // 2)
            for source, copy in zip(equal, equal[half:], strict=False):
                copy.source = source.name


def changed_share(c: Candidate) -> float:
    """Return about how much of an array differs from its reference: 1 if that is not at hand."""
    if c.changed is not None:
        return c.changed
    if not isinstance(c.reference, np.ndarray):
        return 1.0
    return float((_sample(c.bits) != _sample(c.reference)).mean())


def _changed_bits(c: Candidate) -> float:
    """Return about how many low bits of a component differ from the reference; all without one."""
    if not isinstance(c.reference, np.ndarray):
        return 8.0 * c.bits.itemsize
    one, other = _sample(c.bits), _sample(c.reference)
    return float(np.log2(1.0 + np.where(one > other, one - other, other - one)).mean())


def is_equal(left: Array, right: Array) -> bool:
    """Return whether all components of two arrays of one size and type are equal."""
    return all(bool((left[part] == right[part]).all()) for part in slices(left.size))


def _sample(bits: Array) -> Array:
    return bits.take(scattered(bits.size, _SAMPLE))


#: An array of fewer elements takes about as many bytes as to say what it is a copy of.
_MIN_ELEMENTS: Final = 16


#: Why an array is exact, if nothing says what it is.
_SILENT: Final = frozenset([UNNAMED, NO_MOMENT, UNTRAINED, PERHAPS, UNSAFE, OUTSIDE])


def mark_rounded(arrays: Sequence[Candidate]) -> set[str]:
    """Set the `source` of each array that is a rounding, and the roles; return all sources.

    A source is float32, is no copy, and has one rounding. Arrays that a save leaves out are
    neither.
    """
    used = set[str]()
    small: list[Candidate] = []
    for c in arrays:
        if c.kind.name in ("float16", "bfloat16") and c.bits.size >= _MIN_ELEMENTS and not c.inherited:
            small.append(c)
    if not small:
        return used
    shapes = {c.shape for c in small}
    kinds = {c.kind.name: c.kind for c in small}
    sampled: dict[object, list[Candidate]] = {}
    for c in arrays:
        if c.kind.name == "float32" and c.shape in shapes and not c.inherited:
            sample = _sample(c.bits)
            for kind in kinds.values():
                sampled.setdefault((kind.name, c.shape, tuple(_rounded(sample, kind).tolist())), []).append(c)
    for c in small:
        sample = _sample(c.bits)
        if (sample == sample[0]).all():  # of a constant: any constant of the shape would do
            continue
        found = sampled.get((c.kind.name, c.shape, tuple(sample.tolist())), ())
        own = path_of(c.name)
        for source in sorted(found, key=lambda other: -_common_end(own, path_of(other.name))):
            if source.name not in used and _is_rounding(c, source):
                c.source = source.name
                used.add(source.name)
                _share_role(c, source)
                break
    return used


def _rounded(bits: Array, kind: ElementType) -> Array:
    out = np.empty(bits.size, kind.bits)
    rounded_copy(bits, kind, out)
    return out


def _is_rounding(c: Candidate, source: Candidate) -> bool:
    """Return whether all values of an array are those of a float32 array, rounded."""
    return all(bool((_rounded(source.bits[p], c.kind) == c.bits[p]).all()) for p in slices(c.bits.size))


def _common_end(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many parts two names have in common at their ends."""
    pairs = enumerate(zip(reversed(one), reversed(other), strict=False))
    return next((count for count, (left, right) in pairs if left != right), min(len(one), len(other)))


def _share_role(c: Candidate, source: Candidate) -> None:
    """Make a weight of an array whose copy or source is one, if names say what they are."""
    masters = any(meaning(part).master for part in name_parts(source.name))
    if masters or any(meaning(part).rounded for part in name_parts(c.name)):
        if c.role == "weight" and source.role == "other" and source.why in _SILENT:
            source.role, source.why = "weight", MASTER
        elif source.role == "weight" and c.role == "other" and c.why in _SILENT:
            c.role, c.why = "weight", ROUNDED


_MAY_FOLLOW: Final = frozenset([UNNAMED, NO_MOMENT, UNTRAINED, PERHAPS, OUTSIDE])
_MIN_FOLLOWING: Final = 256  # of an array: the correlations of fewer say little
_FOLLOWED_SAMPLE: Final = 1 << 12  # about how many elements are compared
_MAX_WEIGHTS: Final = 256  # weights of one shape

_NEAR: Final = 0.5  # of its spread: how far an array may lie from its weight
_LEAST_CORRELATION: Final = 0.7  # of its movement with the way to its weight
_MOST_OF_WAY: Final = 0.5  # as far goes a copy, from that before to its weight now
_STEP: Final = 1.0  # of a copy, in movements of its weight
_RESTS: Final = 0.9  # movements of the weight: a copy rests if it has moved by less
_LOST: Final = 1.1  # of what it had lost: nor has it moved by more
_LEAST_VALUES: Final = 0.75  # different ones, over those of the weight


def mark_followers(arrays: Sequence[Candidate], errors: Mapping[str, float] = MappingProxyType({})) -> None:
    """Give the role of a weight to arrays that follow one, and a step to copies.

    Equal arrays and roundings are known by then. `errors` says by name what the reference has lost:
    what differs from it by that rests.
    """
    perhaps: list[Candidate] = []
    for c in arrays:
        if c.role == "other" and _is_known(c) and c.elements >= _MIN_FOLLOWING:
            named = c.why.endswith(EXACT_NAME) and all(map(says_follower, name_parts(c.name)))
            if named or c.why in _MAY_FOLLOW:
                perhaps.append(c)
    if not perhaps:
        return
    shapes = {c.shape for c in perhaps}
    weights: dict[object, list[Candidate]] = {}
    for c in arrays:
        if c.role == "weight" and c.shape in shapes and _is_known(c):
            weights.setdefault((c.kind, c.shape), []).append(c)
    for c in perhaps:
        own = weights.get((c.kind, c.shape), [])[:_MAX_WEIGHTS]
        if not own:
            continue
        with np.errstate(all="ignore"):
            x, before = _values(c, c.bits), _values(c, c.reference)
            distances = [float(np.square(x - _values(w, w.bits)).mean()) for w in own]
            nearest = own[int(np.argmin(distances))]
            w, w_before = _values(nearest, nearest.bits), _values(nearest, nearest.reference)
            _mark(c, x, before, w, _rms(w - w_before), errors.get(c.name, 0.0))


def following(policy: Policy, arrays: Sequence[Candidate]) -> Policy:
    """Return the policy in which copies of weights have the steps of `mark_followers`."""
    found: dict[str, Quantizer] = {}
    for c in arrays:
        if c.step is not None and policy.choose(c.name, c.role, c.kind, c.elements).lossy:
            found[c.name] = UniformDeadzone(step=c.step)
    return policy.with_arrays(found) if found else policy


def _is_known(c: Candidate) -> bool:
    return c.kind.kind == "f" and not c.inherited and isinstance(c.reference, np.ndarray)


def _mark(c: Candidate, x: Array, before: Array, weight: Array, movement: float, lost: float) -> None:
    """Mark an array that follows a weight, given samples of both."""
    moved, way = x - before, weight - before
    if not (0 < _rms(moved) < np.inf and _rms(x - weight) <= _NEAR * float(np.std(x))):
        return
    if not 0 < movement < np.inf:  # of a weight that rests, or was not finite, nothing can be followed
        return
    share = float(moved @ way) / (float(way @ way) or 1.0)
    aside = _rms(moved - share * way)
    towards = share > 0 and aside <= movement and aside**2 <= (1 - _LEAST_CORRELATION**2) * _rms(moved) ** 2
    if np.unique(x).size < _LEAST_VALUES * np.unique(weight).size:
        return
    rests = _rms(moved) <= _RESTS * movement and _rms(moved) <= _LOST * lost  # neither, if it is NaN
    if towards or rests:
        c.role, c.why = "weight", FOLLOWER
        # One that is equal to a weight is stored as its copy, and needs no step.
        if c.source is None and not (towards and share < _MOST_OF_WAY):
            c.step = _STEP * movement


def _values(c: Candidate, bits: Array | None) -> Array:
    """Return a sample of an array: the same elements of all that have its shape."""
    places = scattered(c.bits.size, _FOLLOWED_SAMPLE)
    return work((c.bits if bits is None else bits).take(places), c.kind).astype(np.float64)


def _rms(values: Array) -> float:
    return float(np.sqrt(np.square(values).mean()))


_MOMENTS: Final = ("first_moment", "second_moment")
_MEAN_CORRELATION: Final = 0.7  # of a mean of weights with the weight
_LEAST_CHANGE: Final = 0.3  # of a mean of gradients between two saves, over its size
_MOST_SQUARED: Final = 64.0  # of the square of such a mean, over that of squares: Adam's are below 53
_MOST_ABOVE: Final = 0.01  # of the elements


def mark_named(arrays: Sequence[Candidate]) -> None:
    """Take the roles of moments from arrays that only names give one, if values say no."""
    places: dict[Path, list[tuple[Path, Candidate]]] = {}
    for c in arrays:
        is_moment = c.role in _MOMENTS and c.kind.kind == "f" and c.elements and not c.inherited
        if is_moment and (found := _named_place(c)) is not None:
            places.setdefault(found[0], []).append((found[1], c))
    if not places:
        return
    by_name = {c.name: c for moments in places.values() for _, c in moments}
    by_name |= {c.name: c for c in arrays if c.role == "weight"}
    roles = {name: c.role for name, c in by_name.items()}
    shapes = {name: c.shape for name, c in by_name.items()}
    pairs = find_moments(roles, shapes, "first_moment").items()
    with np.errstate(all="ignore"):
        means = {name for weight, name in pairs if _is_like(by_name[name], by_name[weight])}
        for moments in places.values():
            typed = moments[0][1].why == MEAN_OF_OPTAX
            if any(c.name in means for _, c in moments) or not (typed or _may_be_moments(moments)):
                for _, c in moments:
                    c.role, c.why = "other", NO_MOMENT


def _named_place(c: Candidate) -> tuple[Path, Path] | None:
    """Return the path to the entry that makes an array a moment, and what follows; None if none."""
    path, entry = path_of(c.name), _entry(c)
    if c.why == MEAN_OF_OPTAX:
        entry = "ema"
    elif not c.why.endswith(BY_NAME) or any(meaning(part).optimizer for part in name_parts(c.name)):
        return None
    places = (at for at, part in enumerate(path) if part == entry or part.endswith(f"_{entry}"))
    depth = next(places, None)
    if depth is None:  # as of an array that was called otherwise when it was saved
        return None
    return path[:depth], (path[depth].removesuffix(entry), *path[depth + 1 :])


def _entry(c: Candidate) -> str:
    """Return the entry of an optimizer that makes an array a moment, by its name alone."""
    return c.why.removesuffix(BY_NAME).strip("'")


def _is_like(c: Candidate, weight: Candidate) -> bool:
    """Return whether an array is a mean of a weight, and no mean of its gradients."""
    if c.kind is not weight.kind or c.elements < _MIN_FOLLOWING:
        return False
    return float(np.corrcoef(_values(weight, None), _values(c, None))[0, 1]) > _MEAN_CORRELATION


def _may_be_moments(moments: Sequence[tuple[Path, Candidate]]) -> bool:
    """Return whether all arrays of one place may be moments, by their values."""
    firsts = {end: c for end, c in moments if c.role == "first_moment"}
    must_change = any(len(_entry(c)) == 1 for _, c in moments)
    if must_change and any(not isinstance(c.reference, np.ndarray) for c in firsts.values()):
        return False
    above, compared, squared_before = 0, 0, 0.0
    for end, c in moments:
        if c.role == "second_moment":
            squares = _values(c, None)
            if (squares < 0).any():
                return False
            if end in firsts and isinstance(c.reference, np.ndarray):
                above += int(
                    np.count_nonzero(np.square(_values(firsts[end], None)) > _MOST_SQUARED * squares)
                )
                compared += squares.size
                squared_before += _rms(_values(c, c.reference))
    size, change, before = 0.0, 0.0, 0.0
    for c in firsts.values() if must_change else ():
        now, was = _values(c, None), _values(c, c.reference)
        size += c.elements * _rms(now) ** 2
        change += c.elements * _rms(now - was) ** 2
        before += _rms(was)
    if must_change and squared_before and not before:
        return False
    return change >= _LEAST_CHANGE**2 * size and above <= _MOST_ABOVE * compared


def mark_trained(arrays: Sequence[Candidate]) -> None:
    """Give the role of a weight to arrays that may be parameters, where their movement tells."""
    perhaps: dict[tuple[int, ...], list[Candidate]] = {}
    for array in arrays:
        if array.why == PERHAPS:
            perhaps.setdefault(array.shape, []).append(array)
    for shape, found in perhaps.items():
        roles = Counter(array.role for array in arrays if array.shape == shape)  # none of them is here
        count = max(roles["first_moment"], roles["second_moment"]) - roles["weight"]
        moved = []
        for array in found:
            before = array.reference
            if before is not None and not array.inherited and not np.array_equal(array.bits, before):
                moved.append(array)
        chosen = as_many([array.name for array in moved], count, called_weight) if count > 0 else []
        for array in moved:
            if array.name in chosen:
                array.role, array.why = "weight", PARAMETER
