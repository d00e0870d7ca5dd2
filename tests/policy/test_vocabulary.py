"""What one part of a name tells; `test_roles` tests what whole names do."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.policy import vocabulary
from lccodec.policy.vocabulary import ENTRIES, EXACT, FAMILIES, MODELS, OPTIMIZERS, WEIGHTS, meaning


@pytest.mark.parametrize("part", ["weight", "bias", "w", "w_1", "kernel:0", "weight_hh_l1_reverse", "lora_B"])
def test_parts_that_are_weights(part: str) -> None:
    assert meaning(part).weight


@pytest.mark.parametrize("part", ["weights_mean", "bias_correction", "wx", "kernels:x", "weight_v", "lora"])
def test_parts_that_only_look_like_weights(part: str) -> None:
    assert not meaning(part).weight


@pytest.mark.parametrize("part", ["exp_avg", "Exp_Avg_SQ", "mu", "nu", "momentum_buffer", "m", "grad_avg"])
def test_parts_that_are_entries_of_optimizers(part: str) -> None:
    assert meaning(part).entry
    assert not meaning(part).exact


@pytest.mark.parametrize("part", ["exp_avgs", "fc_momentum", "velocity_", "mm", "weight", "hessian"])
def test_parts_that_are_no_entries(part: str) -> None:
    assert not meaning(part).entry


def test_families_differ() -> None:
    places = [(frozenset(family.roles), family.named, family.counted) for family in FAMILIES]
    assert len(set(places)) == len(places)
    assert set(ENTRIES) == {entry for family in FAMILIES for entry in family.roles}


def test_a_family_fits_all_of_its_entries_in_its_place() -> None:
    adam = next(family for family in FAMILIES if family.roles.keys() == {"mu", "nu"} and family.counted)
    assert adam.fits({"mu", "nu"}, named=True, counted=True)
    assert not adam.fits({"mu", "nu"}, named=True, counted=False)
    assert not adam.fits({"mu"}, named=True, counted=True)
    assert not adam.fits({"mu", "nu", "m"}, named=True, counted=True)


@pytest.mark.parametrize(("part", "beside"), [("b", "w"), ("b_2", "w_2"), ("gamma", "beta"), ("bx", None)])
def test_partners_that_tell_a_weight(part: str, beside: str | None) -> None:
    assert meaning(part).weight_beside == beside


@pytest.mark.parametrize("part", ["optimizer_G", "g_optim", "opt_state", "optG", "AdamW", "my-sgd", "lion2"])
def test_parts_that_begin_an_optimizer(part: str) -> None:
    assert meaning(part).optimizer


@pytest.mark.parametrize("part", ["option", "adopt_me", "lioness", "sgdx", "model"])
def test_parts_that_begin_no_optimizer(part: str) -> None:
    assert not meaning(part).optimizer


@pytest.mark.parametrize(
    "part",
    [
        *("running_mean", "modelEMA", "ema_cluster_size", "lr_scheduler", "VQ", "criterion", "teacher_net"),
        *("AveragedModel", "avg_params", "target_params", "momentum_encoder", "error_feedback", "sampler"),
    ],
)
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
    assert not (found.entry and found.exact)
