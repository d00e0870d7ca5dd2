"""Policies by their names."""

from __future__ import annotations

from typing import Any

import pytest

from lccodec import POLICIES, ArgumentError, Balanced, ExponentBuckets, Policy
from lccodec.policy.presets import resolve_policy


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
        POLICIES["lc-2"] = POLICIES["lc-3"]  # type: ignore[index]
