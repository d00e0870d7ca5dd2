"""What a quantizer guarantees holds for every value of a history, whatever becomes of that."""

import shutil
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import (
    ROLES,
    ArgumentError,
    Chain,
    Checked,
    ExponentBuckets,
    Keep,
    KeyframeSteps,
    LccodecWarning,
    LogSteps,
    Lossless,
    Policy,
    Smooth,
    Triggered,
    UniformDeadzone,
)
from lccodec.element_types import components
from lccodec.policy.hindsight import kept_between
from lccodec.quantizers import QUANTIZERS, Quantizer
from lccodec.quantizers.base import EXACT, Guarantee, guarantee_of
from lccodec.quantizers.clusters import Clusters

from ..support.profiles import examples
from ..support.walks import save_all

STEPS: Final = 9
GROUP: Final = 4
CODERS: Final[list[Quantizer]] = [
    Lossless(),
    UniformDeadzone(max_error=1e-3),
    UniformDeadzone(max_error=0.1),
    UniformDeadzone(share=0.3),
    UniformDeadzone(relative_step=1.6, absolute=True),
    UniformDeadzone(relative_step=2.8, absolute=True, dead_zone=0.39),
    UniformDeadzone(step=1e-3),
    Smooth(max_error=1e-3),
    Smooth(relative_error=1e-3),
    Smooth(max_error=0.02, minimum=1 / 3, maximum=2 / 3),
    Smooth(max_error=1e-3, conserve="sum"),
    Checked(Smooth(max_error=0.01), lambda decoded, original: bool(decoded.size == original.size)),
    LogSteps(0.25),
    LogSteps(1.0),
    ExponentBuckets(2),
    KeyframeSteps(),
    Clusters(),
    Triggered(UniformDeadzone(max_error=1e-3), threshold=0.01),
]


def test_every_quantizer_is_among_them() -> None:
    own = {name for name, made in QUANTIZERS.items() if made.__module__.startswith("lccodec.")}
    assert {type(coder).__name__ for coder in CODERS} == own


def rows(seed: int, size: int, dtype: str, *, positive: bool, shrinks: bool) -> list[np.ndarray]:
    """The states of an array of hard rows: each behaves in another way from step to step."""
    rng = np.random.default_rng(seed)
    kind = np.arange(size) % 10
    walk, found = rng.standard_normal(size), []
    late, jump = rng.integers(0, STEPS, size), rng.integers(0, STEPS)
    for step in range(STEPS):
        walk = walk + 0.01 * rng.standard_normal(size)
        x = 0.5 + 0.4 * np.sin(np.linspace(0, 9, size) + 0.1 * step)
        x[kind == 0] = walk[kind == 0]
        x[kind == 1] = np.where(late <= step, 1e-3 * 0.9 ** (step - late), 1e-10 * 0.9**step)[kind == 1]
        x[kind == 2] = np.where(late <= step, 1e-4, 0.0)[kind == 2]
        x[kind == 3] = ((-1) ** step * 1e-3 * rng.random(size))[kind == 3]
        x[kind == 4] = (rng.integers(0, 3, size) * float(np.finfo(dtype).smallest_subnormal))[kind == 4]
        x[kind == 5] = np.where(step >= jump, 5.0, 1e-6)
        x[0] = 1e4 if step == jump else 1.0
        if seed % 3 == 0:
            x[1], x[2] = (np.nan, np.inf) if step % 2 else (0.5, -1.0)
        x = np.abs(x) if positive else x
        found.append(x[: size // 2 if shrinks and step >= jump else size].astype(dtype))
    return found


@dataclass
class Case:
    """A chain, and what was saved to it."""

    directory: Path
    policy: Policy
    states: list[dict[str, Any]]
    told: Guarantee

    def check(self, place: Any, told: Guarantee, steps: set[int] | None = None) -> None:
        """Compare all that a place has of the history with what was saved."""
        for step in steps or set(range(STEPS)):
            with lccodec.open(place, step=step, exact=False) as file:
                now, was = (components(each) for each in (file.get("a"), self.states[step]["a"]))
            broken = told.broken(now[1], was[1], was[0])
            assert not broken.any(), (step, str(told), now[1][broken][:3], was[1][broken][:3])


Form = Callable[[Case, Path], None]


def as_saved(case: Case, _: Path) -> None:
    case.check(case.directory, case.told)


def thinned_out(case: Case, target: Path) -> None:
    Chain(shutil.copytree(case.directory, target)).prune(Keep(steps=[0, 2, 3, 6]), rewrite=True)
    case.check(target, case.told, {0, 2, 3, 6, STEPS - 1})


def compacted(case: Case, target: Path) -> None:
    Chain(shutil.copytree(case.directory, target)).compact(keyframe_every=3)
    case.check(target, case.told)


def rolled_back(case: Case, target: Path) -> None:
    with Chain(shutil.copytree(case.directory, target)) as chain:
        chain.rollback(6)
        for step in (7, 8):
            chain.save(step, case.states[step])
    case.check(target, case.told)


def forked(case: Case, target: Path) -> None:
    Chain(case.directory).fork(target, 6)
    case.check(target, case.told, {6})


def bundled(case: Case, target: Path) -> None:
    lccodec.bundle(case.directory, target)
    case.check(target, case.told)


def mirrored(case: Case, target: Path) -> None:
    with Chain(shutil.copytree(case.directory, target.with_suffix(".own")), mirror=target) as chain:
        chain.save(STEPS, case.states[-1])
    case.check(target, case.told)


def repaired(case: Case, target: Path) -> None:
    chain = Chain(shutil.copytree(case.directory, target))
    chain.protect(1)
    (target / "000000000005.lcc.h5").unlink()
    chain.repair()
    case.check(target, case.told)


def lost_and_found(case: Case, target: Path) -> None:
    """The newest checkpoint is gone: the next save makes it anew of the exact file.

    If it ends a group, that is lost with it, and the save says so.
    """
    shutil.copytree(case.directory, target)
    ends_group = Chain(target).info(STEPS - 2).kind == "interpolated"
    (target / f"{STEPS - 1:012}.lcc.h5").unlink()
    warned = pytest.warns(LccodecWarning, match="step 7 cannot be restored") if ends_group else nullcontext()
    with warned, Chain(target, case.policy) as chain:
        chain.save(STEPS, case.states[-1])
    case.check(target, case.told, {0, STEPS - 1})  # a lost end takes the steps before it along


def coded_anew(case: Case, target: Path, hindsight: int = 0) -> None:
    found = Chain(case.directory).compact(case.policy, directory=target, hindsight=hindsight)
    told = found.guarantees["a"]
    case.check(target, told)
    assert not case.told.is_strict or told == case.told
    own = guarantee_of(case.policy.choose("a", "other", components(case.states[0]["a"])[0], 1))
    case.check(target, own if not hindsight else kept_between(own), {STEPS - 1})  # its exact state is known


def coded_anew_with_hindsight(case: Case, target: Path) -> None:
    coded_anew(case, target, GROUP if case.policy.lossy else 0)


def averaged(case: Case, _: Path) -> None:
    """A mean keeps what holds of each step: the mean bound, factors, limits, signs and zeros."""
    told, last = case.told, case.states[-1]["a"]
    steps = [step for step in range(STEPS) if case.states[step]["a"].shape == last.shape][-5:]
    found = Chain(case.directory).average(steps, roles=ROLES)["a"]
    each = np.stack([case.states[step]["a"] for step in steps]).astype(np.longdouble)
    known = np.isfinite(each).all(axis=0)
    assert (np.isfinite(found) == known).all()
    now, each = found[known].astype(np.longdouble), each[:, known]
    mean, limits = each.mean(axis=0), np.finfo(last.dtype)
    rounding = 2 * limits.eps * np.abs(each).mean(axis=0) + len(each) * limits.smallest_subnormal
    ranges = np.nanmean([np.ptp(row[np.isfinite(row)]) for row in each]) if each.size else 0.0
    bounds = [told.max_error, None if told.range_share is None else told.range_share * ranges]
    for bound in [0.0] if told.exact else bounds:
        assert bound is None or (np.abs(now - mean) <= bound + rounding).all()
    if told.max_ratio is not None and not told.exact:
        assert ((now <= mean * told.max_ratio + rounding) & (mean <= now * told.max_ratio + rounding)).all()
    same_sign = (each >= 0).all(axis=0) | (each <= 0).all(axis=0)
    if told.max_growth is not None and not told.exact:
        assert ((np.abs(now) <= told.max_growth * np.abs(mean) + rounding) | ~same_sign).all()
    for limit, sign in ((told.minimum, 1), (told.maximum, -1)):
        inside = (sign * each >= sign * (limit or 0)).all(axis=0)
        assert limit is None or told.exact or (sign * now >= sign * limit - rounding)[inside].all()
    if (each >= 0).all() and known.all():
        assert (now >= 0).all()
        assert not told.keeps_zeros or not now[(each == 0).all(axis=0)].any()


FORMS: Final[list[Form]] = [
    averaged,
    as_saved,
    thinned_out,
    compacted,
    rolled_back,
    forked,
    bundled,
    mirrored,
    repaired,
    lost_and_found,
    coded_anew,
    coded_anew_with_hindsight,
]


def saved(
    place: Path, coder: Quantizer, states: list[dict[str, Any]], hindsight: int, *, named: bool
) -> Case:
    """A chain of these states, whose plan must say what `Case.told` is."""
    policy = Policy("own", {"other": coder}, keyframes={"other": coder})
    if named:
        policy = Policy("own", {"weight": UniformDeadzone(share=0.3)}, patterns={"a": coder})
    hindsight = hindsight if policy.lossy else 0
    told = guarantee_of(coder)
    with Chain(place, policy, newest="exact", hindsight=hindsight, keyframe_every=6) as chain:
        plan = chain.plan(states[0])
        save_all(chain, states)
    told = kept_between(told) if hindsight else told
    (array,) = (each for each in plan if each.name == "a")
    assert array.guarantee in (str(told), "exact")
    return Case(place, policy, states, EXACT if array.guarantee == "exact" else told)


@given(
    st.sampled_from(CODERS),
    st.sampled_from(FORMS),
    st.integers(0, 2**32),
    st.sampled_from(["f2", "f4", "f8"]),
    st.sampled_from([0, GROUP, GROUP]),
    st.booleans(),
    st.booleans(),
)
@pytest.mark.slow
@examples(0.7)
def test_a_guarantee_holds_in_every_form_of_a_history(
    coder: Quantizer, form: Form, seed: int, dtype: str, hindsight: int, shrinks: bool, named: bool
) -> None:
    states = rows(seed, 300, dtype, positive=isinstance(coder, LogSteps) or bool(seed % 2), shrinks=shrinks)
    weights = np.cumsum(np.random.default_rng(seed).standard_normal((STEPS, 400)), axis=0).astype(np.float32)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        whole = [{"a": a, "weight": w} for a, w in zip(states, weights, strict=True)]
        form(saved(place / "run", coder, whole, hindsight, named=named), place / "other")


def late(step: int) -> np.ndarray:
    """Second moments of a table: each row sees its first gradient at another step."""
    first = np.arange(2000) % 40
    moment = np.where(first <= step, 1e-4 * 0.9 ** (step - np.minimum(first, step)), 1e-10 * 0.9**step)
    return moment.astype(np.float32)


@pytest.mark.parametrize(("hindsight", "told"), [(0, 1.61), (8, 3.7)])
def test_second_moments_whose_gradients_come_late(tmp_path: Path, hindsight: int, told: float) -> None:
    with Chain(tmp_path, "balanced", roles={"v": "second_moment"}, hindsight=hindsight) as chain:
        for step in range(17):
            (array,) = chain.plan({"v": late(step)})
            assert array.guarantee == f"at most {told:g} times too large or too small"
            chain.save(step, {"v": late(step)})
    assert ("interpolated" in {chain.info(step).kind for step in chain.steps}) == bool(hindsight)
    for step in chain.steps:
        ratio = chain.restore(step)["v"].astype(float) / late(step)
        assert max(ratio.max(), 1 / ratio.min()) <= told


def wave(step: int, size: int = 1500) -> np.ndarray:
    return np.sin(np.linspace(0, 9, size) + 0.1 * step)


def test_a_bound_leaves_nothing_to_lose_between_two_ends(tmp_path: Path) -> None:
    """A history of fields takes the bytes that it takes without hindsight."""
    sizes = []
    for hindsight in (0, GROUP):
        policy = lccodec.fields(max_error=1e-3)
        with Chain(tmp_path / str(hindsight), policy, newest="exact", hindsight=hindsight) as chain:
            for step in range(STEPS):
                chain.save(step, {"u": wave(step, 1500 if step < 6 else 1900)})
            told = chain.plan({"u": wave(0)}).group
        sizes.append(sum(chain.info(step).file_bytes for step in chain.steps))
    assert told is not None
    assert "stays as it is saved" in told
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("hindsight", [0, GROUP])
def test_the_newest_state_is_coded_from_its_exact_file(tmp_path: Path, hindsight: int) -> None:
    bounded = UniformDeadzone(max_error=1e-3)
    roles = {"weight": bounded, "first_moment": ExponentBuckets(2)}
    policy = Policy("bounded", roles, keyframes={"weight": bounded})
    states = [{"weight": wave(step)} for step in range(7)]
    with Chain(tmp_path / "run", policy, newest="exact") as chain:
        save_all(chain, states)
    found = chain.compact(policy, directory=tmp_path / "other", hindsight=hindsight)
    assert str(found.guarantees["weight"]) == "error at most 0.001"
    other = Chain(tmp_path / "other")
    for step, state in enumerate(states):
        assert abs(other.restore(step)["weight"] - state["weight"]).max() <= 1e-3
    kinds = {other.info(step).arrays[0].method for step in (2, 6)}
    assert kinds == {"planes", "codebook"}  # what has lost its bound loses no more


def test_what_is_lost_already_is_a_part_of_a_wider_bound(tmp_path: Path) -> None:
    with Chain(tmp_path / "run", lccodec.fields(max_error=1e-3), newest="history") as chain:
        for step in range(4):
            chain.save(step, {"u": wave(step)})
    found = chain.compact(lccodec.fields(max_error=3e-3), directory=tmp_path / "wider")
    assert str(found.guarantees["u"]) == "error at most 0.003"
    assert found.after < found.before
    wider = Chain(tmp_path / "wider")
    for step in range(4):
        assert abs(wider.restore(step)["u"] - wave(step)).max() <= 3e-3
    with pytest.raises(ArgumentError, match=r"array 'u' was saved with error at most 0\.001, so the policy"):
        chain.compact(lccodec.fields(max_error=1e-4), directory=tmp_path / "finer")


def test_a_keyframe_keeps_what_deltas_guarantee(tmp_path: Path) -> None:
    policy = lccodec.Balanced(roles={"weight": UniformDeadzone(max_error=1e-3)}, smallest=0)
    with Chain(tmp_path, policy, keyframe_every=2, newest="history") as chain:
        for step in range(7):
            assert chain.plan({"weight": wave(step)})[0].guarantee == "error at most 0.001"
            chain.save(step, {"weight": wave(step)})
    assert [chain.info(step).kind for step in (0, 3, 6)] == ["keyframe"] * 3
    for step in chain.steps:
        assert abs(chain.restore(step)["weight"] - wave(step)).max() <= 1e-3


def test_what_is_rounded_to_zero_is_no_copy(tmp_path: Path) -> None:
    """The rounding of what a tiny number decodes to may not be 0, which the copy must be."""
    rng = np.random.default_rng(0)
    policy = Policy("steps", {"weight": UniformDeadzone(step=1e-6)}, smallest=0)
    master = rng.random(1000).astype(np.float32)
    with Chain(tmp_path, policy, newest="history") as chain:
        for step in range(3):
            tiny = np.float32(1e-8 if step else 5e-7)  # from the second step on, float16 has a 0 for it
            master = np.where(np.arange(1000) % 2 == 0, tiny, master)
            half = master.astype(np.float16)
            chain.save(step, {"model": {"weight": half}, "master": {"weight": master}})
            restored = chain.restore(step)["model"]["weight"]
            assert not restored[half == 0].any()


@pytest.mark.parametrize("spoiled", [0, -1])
def test_no_zero_is_lost_between_two_ends(tmp_path: Path, spoiled: int) -> None:
    """In an array without negative numbers; both of its ends have other numbers in its place."""
    rng = np.random.default_rng(0)
    states = np.cumsum(1 + 0.01 * rng.random((STEPS, 500)), axis=0).astype(np.float32)
    states[2:4, 7] = 0
    states[:, 9] = np.where(np.arange(STEPS) % GROUP == 0, 0.1, 0)
    states[0, 11] = spoiled
    with Chain(tmp_path, "balanced", hindsight=GROUP, keyframe_every=100) as chain:
        for step, weight in enumerate(states):
            chain.save(step, {"weight": weight})
    assert chain.info(2).kind == "interpolated"
    for step in range(1, STEPS):
        weight = chain.restore(step, exact=False)["weight"]
        assert not (weight < 0).any()
        assert not weight[states[step] == 0].any()
