from __future__ import annotations

import numpy as np
import pytest

from lccodec import POLICIES, ArgumentError, Chain, ExponentBuckets, Lossless, Policy
from lccodec.floats import element_type
from lccodec.policy import resolve_policy

FLOAT = element_type(np.dtype("float32"))


def test_presets() -> None:
    assert set(POLICIES) == {"lossless", "lc-2", "lc-3", "balanced"}
    for bits in (2, 3):
        assert POLICIES[f"lc-{bits}"].choose("w", FLOAT, 1) == ExponentBuckets(bits=bits)
    assert POLICIES["lossless"].choose("w", FLOAT, 10**6) == Lossless()


def test_integers_small_arrays_and_named_ones_are_exact() -> None:
    policy = Policy("mine", ExponentBuckets(1), smallest=100, exact=("*/step",))
    assert policy.choose("w", FLOAT, 100) == ExponentBuckets(1)
    assert policy.choose("w", FLOAT, 99) == Lossless()
    assert policy.choose("optimizer/step", FLOAT, 1000) == Lossless()
    assert policy.choose("w", element_type(np.dtype("int32")), 1000) == Lossless()


@pytest.mark.parametrize("name", ["state/0/exp_avg_sq", "opt/nu/layer", "bn.running_var"])
def test_balanced_keeps_second_moments(name: str) -> None:
    assert POLICIES["balanced"].choose(name, FLOAT, 10**6) == Lossless()


def test_unknown_names_are_refused(tmp_path: object) -> None:
    with pytest.raises(ArgumentError, match="unknown policy 'lc-9'; there are lossless"):
        Chain(str(tmp_path), policy="lc-9")
    assert resolve_policy(POLICIES["lc-2"]) is POLICIES["lc-2"]
