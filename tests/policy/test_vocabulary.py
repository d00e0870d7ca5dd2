"""What one part of a name tells; `test_roles` tests what whole names do."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.policy import vocabulary
from lccodec.policy.vocabulary import EXACT, MODELS, OPTIMIZERS, ROLES, WEIGHTS, meaning


@pytest.mark.parametrize("part", ["weight", "bias", "w", "w_1", "kernel:0", "weight_hh_l1_reverse", "lora_B"])
def test_parts_that_are_weights(part: str) -> None:
    assert meaning(part).weight


@pytest.mark.parametrize("part", ["weights_mean", "bias_correction", "wx", "kernels:x", "weight_v", "lora"])
def test_parts_that_only_look_like_weights(part: str) -> None:
    assert not meaning(part).weight


@pytest.mark.parametrize(
    ("part", "moment", "inside"),
    [
        ("exp_avg", "first_moment", None),
        ("exp_avgs", "first_moment", None),
        ("exp_avg_sq", "second_moment", None),
        ("mu", None, "first_moment"),
        ("nu", None, "second_moment"),
        ("fc_momentum", None, "first_moment"),
        ("momentum", None, "first_moment"),
        ("_momentum", None, None),
        ("variance", None, None),
    ],
)
def test_moments_anywhere_and_inside_optimizers(part: str, moment: str | None, inside: str | None) -> None:
    assert (meaning(part).moment, meaning(part).moment_in_optimizer) == (moment, inside)


@pytest.mark.parametrize(
    ("part", "partners"),
    [
        ("m", (("v", "first_moment"),)),
        ("fc_v", (("fc_m", "second_moment"),)),
        ("velocity", (("momentum", "second_moment"),)),
        ("exp_avg", (("exp_avg_sq", "first_moment"),)),
        ("exp_avg_sq", (("exp_avg", "second_moment"),)),
        ("mm", ()),
    ],
)
def test_partners_that_tell_a_moment(part: str, partners: tuple[tuple[str, str], ...]) -> None:
    assert meaning(part).partners == partners


@pytest.mark.parametrize(("part", "beside"), [("b", "w"), ("b_2", "w_2"), ("gamma", "beta"), ("bx", None)])
def test_partners_that_tell_a_weight(part: str, beside: str | None) -> None:
    assert meaning(part).weight_beside == beside


@pytest.mark.parametrize("part", ["optimizer_G", "g_optim", "opt_state", "optG", "AdamW", "my-sgd", "lion2"])
def test_parts_that_begin_an_optimizer(part: str) -> None:
    assert meaning(part).optimizer


@pytest.mark.parametrize("part", ["option", "adopt_me", "lioness", "sgdx", "model"])
def test_parts_that_begin_no_optimizer(part: str) -> None:
    assert not meaning(part).optimizer


@pytest.mark.parametrize("part", ["running_mean", "modelEMA", "ema_cluster_size", "lr_scheduler", "VQ"])
def test_parts_that_are_exact(part: str) -> None:
    assert meaning(part).exact


@pytest.mark.parametrize("part", ["mask_token", "embedding", "schema", "fishers", "cachet"])
def test_parts_that_are_not_exact(part: str) -> None:
    assert not meaning(part).exact


def test_capital_letters_do_not_count_in_words() -> None:
    for word in WEIGHTS | EXACT | OPTIMIZERS | MODELS:
        assert meaning(word.capitalize()) == meaning(word)


@pytest.mark.parametrize("words", ["WEIGHTS", "EXACT", "OPTIMIZERS", "MODELS"])
def test_words_are_written_in_small_letters(words: str) -> None:
    assert all(re.fullmatch(r"[a-z0-9_]+", word) for word in getattr(vocabulary, words))


@given(st.text(max_size=12))
def test_any_part_has_a_meaning(part: str) -> None:
    found = meaning(part)
    assert found.text == part.lower()
    assert {found.moment, found.moment_in_optimizer, *(role for _, role in found.partners)} <= {None, *ROLES}
