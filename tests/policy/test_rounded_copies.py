"""Copies: arrays that are the rounding of another are found by their values, all of them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.element_types import BFLOAT16_BITS, narrow
from lccodec.policy.copies import mark_rounded
from lccodec.policy.optimizer import find_optimizers
from lccodec.policy.policy import Candidate
from lccodec.policy.roles import MASTER, ROUNDED, UNNAMED, UNTRAINED, Role

from ..support.candidates import candidate

SINGLE = np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)


def half(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16)


def brain(values: np.ndarray) -> np.ndarray:
    return narrow(values).view(BFLOAT16_BITS)


def sources(*arrays: Candidate) -> dict[str, str]:
    mark_rounded(arrays)
    return {c.name: c.source for c in arrays if c.source is not None}


@pytest.mark.parametrize("rounded", [half, brain])
def test_a_rounding_is_a_copy(rounded: Any) -> None:
    found = sources(candidate("w", rounded(SINGLE)), candidate("master", SINGLE))
    assert found == {"w": "master"}


@given(st.sampled_from([half, brain]), st.integers(0, SINGLE.size - 1))
def test_one_other_bit_makes_it_none(rounded: Any, place: int) -> None:
    array = rounded(SINGLE)
    array.view(np.uint16).reshape(-1)[place] ^= 1
    assert sources(candidate("w", array), candidate("master", SINGLE)) == {}


def test_what_else_is_none() -> None:
    rounded = brain(SINGLE)
    for name, copy, source in (
        ("another shape", rounded.reshape(30, 20), SINGLE),
        ("float64", rounded, SINGLE.astype(np.float64)),
        ("integers", rounded.view(np.uint16), SINGLE),
        ("float32", SINGLE.copy(), SINGLE),
        ("few values", rounded[0, :5].copy(), SINGLE[0, :5].copy()),
        ("a constant", brain(np.ones_like(SINGLE)), np.ones_like(SINGLE)),
        ("nothing", rounded[:0], SINGLE[:0]),
    ):
        assert sources(candidate("w", copy), candidate("master", source)) == {}, name


def test_a_source_has_one_copy() -> None:
    arrays = candidate("w", brain(SINGLE)), candidate("again", brain(SINGLE)), candidate("half", half(SINGLE))
    assert sources(*arrays, candidate("master", SINGLE)) == {"w": "master"}
    assert sources(*arrays, candidate("master", SINGLE), candidate("ema", SINGLE)) == {
        "w": "master",
        "again": "ema",
    }


def test_names_decide_between_equal_arrays() -> None:
    names = ["a.weight", "b.weight", "c.weight"]
    arrays = [candidate(f"model/{name}", brain(SINGLE)) for name in names]
    masters = [candidate(f"master/{name}", SINGLE) for name in reversed(names)]
    assert sources(*arrays, *masters) == {f"model/{name}": f"master/{name}" for name in names}


@pytest.mark.parametrize(
    ("copy", "source", "expected"),
    [
        ("model/w", "optimizer/master/w", MASTER),
        ("model/w", "fp32_params/w", MASTER),
        ("model/w", "shadow/w", UNNAMED),
        ("params_bf16/w", "shadow/w", MASTER),
    ],
)
def test_the_float32_of_a_weight_is_one_if_a_name_says_so(copy: str, source: str, expected: str) -> None:
    weight = candidate(copy, brain(SINGLE), "weight", "a parameter")
    other = candidate(source, SINGLE)
    assert sources(weight, other) == {copy: source}
    assert (other.role == "weight", other.why) == (expected == MASTER, expected)
    assert weight.why == "a parameter"


@pytest.mark.parametrize(("copy", "role"), [("half/w", "weight"), ("w_bf16", "weight"), ("best/w", "other")])
def test_a_rounded_weight_is_one_if_a_name_says_so(copy: str, role: str) -> None:
    other = candidate(copy, half(SINGLE), why=UNTRAINED)
    assert sources(other, candidate("params/w", SINGLE, "weight", "a parameter")) == {copy: "params/w"}
    assert (other.role, other.why) == (role, ROUNDED if role == "weight" else UNTRAINED)


@pytest.mark.parametrize(
    ("role", "why"), [("other", "'teacher' is exact"), ("other", "given as '*'"), ("first_moment", "given")]
)
def test_what_is_known_of_an_array_stays(role: Role, why: str) -> None:
    other = candidate("master/w", SINGLE, role, why)
    assert sources(candidate("w", brain(SINGLE), "weight", "given"), other) == {"w": "master/w"}
    assert (other.role, other.why) == (role, why)


def test_an_optimizer_may_keep_the_float32_of_its_parameters() -> None:
    shapes = {"model/fc.weight": (9, 9), "model/fc.bias": (9,)}
    entries = ("exp_avg", "exp_avg_sq", "master_param")
    kept = {f"optimizer/state/{i}/{entry}": s for i, s in enumerate(shapes.values()) for entry in entries}

    def find(names: dict[str, tuple[int, ...]]) -> Any:
        return find_optimizers(names, lambda name: name in shapes, lambda _: False)

    found = find({**shapes, **kept})
    assert found.known
    assert found.parameters == set(shapes)
    assert found.moments.keys() == {name for name in kept if "exp_avg" in name}
    assert found.inside == set(kept)
    other = {name.replace("master_param", "second_copy"): s for name, s in kept.items()}
    assert not find({**shapes, **other}).known
