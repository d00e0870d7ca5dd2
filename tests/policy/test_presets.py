"""Policies by their names."""

from typing import Any

import pytest

from lccodec import (
    POLICIES,
    ROLES,
    ArgumentError,
    Balanced,
    ExponentBuckets,
    Lossless,
    Policy,
    Smooth,
    UniformDeadzone,
    fields,
)
from lccodec.constants import ELEMENT_TYPES
from lccodec.policy.presets import resolve_policy

FLOAT64, INT64 = (next(kind for kind in ELEMENT_TYPES if kind.name == name) for name in ("float64", "int64"))


@pytest.mark.parametrize("name", POLICIES)
def test_a_preset_is_found_by_its_name_and_by_itself(name: str) -> None:
    assert POLICIES[name].name == name
    assert resolve_policy(name) is resolve_policy(POLICIES[name]) is POLICIES[name]


@pytest.mark.parametrize(
    "policy",
    [Policy("mine", {"weight": ExponentBuckets(2)}), Balanced("mine", ratio=50.0), Balanced(error=1.0)],
)
def test_the_kind_of_a_policy_is_told_by_its_json(policy: Policy) -> None:
    found = resolve_policy(policy.to_json())
    assert type(found) is type(policy)
    assert found == policy


@pytest.mark.parametrize("name", ["LC-3", "lc-4", "", None, 3, ["lc-3"], Policy])
def test_a_name_that_no_policy_has(name: Any) -> None:
    with pytest.raises(ArgumentError, match=f"one of {', '.join(POLICIES)}; got"):
        resolve_policy(name)


def test_nobody_can_change_the_presets() -> None:
    with pytest.raises(TypeError, match="does not support item assignment"):
        POLICIES["lc-2"] = POLICIES["lc-3"]


def test_fields_need_a_bound() -> None:
    with pytest.raises(ArgumentError, match="max_error, relative_error or both"):
        fields()
    with pytest.raises(ArgumentError, match="needs a bound, as in"):
        resolve_policy("fields")


def test_fields_in_json_are_the_same_policy() -> None:
    policy = fields(0.5, 1e-3, conserve="sum", patterns={"p": Smooth(2.0), "t": Lossless()}, smallest=7)
    assert resolve_policy(policy.to_json()) == policy


def test_fields_never_lose_what_an_optimizer_keeps() -> None:
    policy = fields(0.5)
    for role in ROLES:
        is_lossy = role in ("weight", "other")
        assert policy.may_lose("x", role, FLOAT64, 5000) is is_lossy
        assert policy.choose("x", role, FLOAT64, 1023) == Lossless()
        assert not policy.may_lose("x", role, INT64, 5000)


def test_the_bound_of_a_pattern_holds_in_keyframes() -> None:
    policy = fields(0.5, patterns={"p": Smooth(2.0), "t": Lossless(), "d": UniformDeadzone(max_error=1.0)})
    for name, coder in {"p": Smooth(2.0), "t": Lossless(), "d": Lossless(), "q": None}.items():
        found = policy.choose_keyframe(name, "other", FLOAT64, 5000)
        assert found == (coder or policy.roles["other"])
