import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import (
    POLICIES,
    ROLES,
    ArgumentError,
    Balanced,
    Chain,
    ExponentBuckets,
    LogSteps,
    Lossless,
    Policy,
    UniformDeadzone,
)
from lccodec.element_types import element_type
from lccodec.policy.presets import resolve_policy
from lccodec.quantizers.uniform import KeyframeSteps

FLOAT = element_type(np.dtype("float32"))
MINE = Policy(
    "mine",
    {"second_moment": UniformDeadzone(max_error=0.1), "weight": ExponentBuckets(1)},
    {"*/step": Lossless(), "*head*": ExponentBuckets(8, "mean")},
    smallest=100,
)


def test_presets() -> None:
    assert set(POLICIES) == {"lossless", "lc-2", "lc-3", "balanced", "small"}
    for bits in (2, 3):
        for role in ("weight", "first_moment"):
            assert POLICIES[f"lc-{bits}"].choose("w", role, FLOAT, 1) == ExponentBuckets(bits=bits)
    assert POLICIES["lossless"].choose("w", "weight", FLOAT, 10**6) == Lossless()


@pytest.mark.parametrize("name", POLICIES)
def test_presets_leave_what_an_update_divides_by_positive(name: str) -> None:
    assert isinstance(POLICIES[name].choose("w", "second_moment", FLOAT, 10**6), LogSteps | Lossless)
    assert POLICIES[name].choose("w", "other", FLOAT, 10**6) == Lossless()


def test_choice() -> None:
    assert MINE.choose("w", "weight", FLOAT, 100) == ExponentBuckets(1)
    assert MINE.choose("w", "weight", FLOAT, 99) == Lossless()
    assert MINE.choose("w", "second_moment", FLOAT, 100) == UniformDeadzone(max_error=0.1)
    assert MINE.choose("w", "first_moment", FLOAT, 100) == Lossless()
    assert MINE.choose("optimizer/step", "weight", FLOAT, 1000) == Lossless()
    assert MINE.choose("head/w", "other", FLOAT, 1) == ExponentBuckets(8, "mean")
    assert MINE.choose("head/w", "weight", element_type(np.dtype("int32")), 1000) == Lossless()


def test_text() -> None:
    assert str(MINE).splitlines() == [
        "mine",
        "  */step            Lossless()",
        "  *head*            ExponentBuckets(bits=8, representative='mean')",
        "  below 100 values  Lossless()",
        "  weight            ExponentBuckets(bits=1)",
        "  second_moment     UniformDeadzone(max_error=0.1)",
        "  all else          Lossless()",
    ]


def test_json() -> None:
    assert Policy.from_json(json.loads(json.dumps(MINE.to_json()))) == MINE
    for policy in POLICIES.values():
        assert resolve_policy(policy.to_json()) == policy


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"roles": {"weights": {"quantizer": "Lossless"}}}, "a role must be one of weight"),
        ({"roles": {"weight": {"quantizer": "Huffman"}}}, "unknown quantizer .*; there are Clusters"),
        ({"roles": {"weight": {"quantizer": ["Lossless"]}}}, "unknown quantizer"),
        ({"roles": {"weight": "Lossless"}}, "unknown quantizer"),
        ({"roles": {"weight": {"quantizer": "Lossless", "x": 1}}}, "Lossless.*unexpected"),
        ({"patterns": {"*": {"quantizer": "ExponentBuckets", "bits": 0}}}, "bits must be"),
        ({"roles": []}, "must be objects"),
        ({"smallest": -1}, "smallest"),
        ({"smallest": None}, "smallest"),
        ({"name": 1}, "the name must be a string"),
        ({"more": 1}, "unexpected"),
        ({"keyframes": 3}, "keyframes must be 'exact' or a mapping"),
        ({"keyframes": {"weight": 3}}, "unknown quantizer"),
    ],
)
def test_json_that_is_no_policy(change: dict[str, Any], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        Policy.from_json(MINE.to_json() | change)


@given(st.permutations(["name", "roles", "patterns", "smallest", "effort"]))
def test_the_order_of_keys_in_json_does_not_matter(keys: list[str]) -> None:
    document = Policy("mine", MINE.roles, MINE.patterns, 7, effort="high").to_json()
    assert Policy.from_json({key: document[key] for key in keys}) == Policy.from_json(document)


def test_what_is_no_policy() -> None:
    for roles in ({"weight": "lossless"}, {"weight": None}, Lossless(), {"w": Lossless()}):
        with pytest.raises(ArgumentError, match="policy 'x'"):
            Policy("x", roles)
    for patterns in ({1: Lossless()}, {"*": Lossless}, ("*",)):
        with pytest.raises(ArgumentError, match="policy 'x'"):
            Policy("x", patterns=patterns)


def test_keyframes() -> None:
    policy = Policy(
        "mine",
        patterns={"*head*": UniformDeadzone(step=1.0)},
        smallest=100,
        keyframes={"second_moment": LogSteps(2.0), "weight": KeyframeSteps()},
    )
    assert Policy.from_json(json.loads(json.dumps(policy.to_json()))) == policy
    assert str(policy).splitlines()[-2:] == [
        "  keyframes: weight         KeyframeSteps()",
        "  keyframes: second_moment  LogSteps(step=2.0)",
    ]
    assert policy.choose_keyframe("w", "weight", FLOAT, 100) == KeyframeSteps()
    assert policy.choose_keyframe("v", "second_moment", FLOAT, 100) == LogSteps(2.0)
    for name, role, kind, size in (
        ("w", "weight", FLOAT, 99),
        ("head", "weight", FLOAT, 100),
        ("w", "first_moment", FLOAT, 100),
        ("w", "other", FLOAT, 100),
        ("w", "weight", element_type(np.dtype("int64")), 100),
    ):
        assert policy.choose_keyframe(name, role, kind, size) == Lossless()
        assert MINE.choose_keyframe(name, role, kind, size) == Lossless()
    assert Policy("x", keyframes={}) == Policy("x", keyframes="exact") == Policy("x")
    assert "keyframes" not in MINE.to_json()


@pytest.mark.parametrize(
    ("keyframes", "match"),
    [
        ("lossy", "keyframes must be 'exact' or a mapping to quantizers; got 'lossy'"),
        (None, "got None"),
        (KeyframeSteps(), r"got KeyframeSteps\("),
        ({"weights": KeyframeSteps()}, "a role must be one of weight"),
        ({"weight": "lossless"}, "keyframes: 'weight': 'lossless' is not a quantizer"),
        ({"weight": KeyframeSteps}, "is not a quantizer"),
        ({"second_moment": UniformDeadzone(step=1.0)}, "second moments 0 or negative; use LogSteps"),
        ({"second_moment": KeyframeSteps()}, "second moments 0 or negative; use LogSteps"),
        ({"second_moment": ExponentBuckets(3)}, "second moments 0 or negative; use LogSteps"),
    ],
)
def test_keyframes_that_are_refused(keyframes: Any, match: str) -> None:
    for make in (Policy, Balanced):
        with pytest.raises(ArgumentError, match=f"policy 'x': keyframes.*{match}|policy 'x'.*{match}"):
            make("x", keyframes=keyframes)


def test_unknown_names_are_refused(tmp_path: object) -> None:
    for name in ("lc-9", "", 3, ["lc-3"]):
        with pytest.raises(ArgumentError, match=r"policy must be a Policy or one of lossless"):
            Chain(str(tmp_path), policy=name)
    assert resolve_policy(POLICIES["lc-2"]) is POLICIES["lc-2"]
    assert set(ROLES) >= set(MINE.roles)
