"""What one part of a name tells; `test_roles` tests what whole names do."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.policy import vocabulary
from lccodec.policy.vocabulary import ENTRIES, EXACT, FAMILIES, MODELS, OPTIMIZERS, WEIGHTS, meaning

#: Parts of names for which a word is a weight, and so on, and parts that only look like them.
PARTS: dict[str, tuple[list[str], list[str]]] = {
    "weight": (
        ["weight", "bias", "w", "w_1", "kernel:0", "weight_hh_l1_reverse", "lora_B"],
        ["weights_mean", "bias_correction", "wx", "kernels:x", "weight_v", "lora"],
    ),
    "entry": (
        ["exp_avg", "Exp_Avg_SQ", "mu", "nu", "momentum_buffer", "m", "grad_avg"],
        ["exp_avgs", "fc_momentum", "velocity_", "mm", "weight", "hessian"],
    ),
    "optimizer": (
        ["optimizer_G", "g_optim", "opt_state", "optG", "AdamW", "my-sgd", "lion2"],
        ["option", "adopt_me", "lioness", "sgdx", "model"],
    ),
    "exact": (
        [
            *("running_mean", "modelEMA", "ema_cluster_size", "lr_scheduler", "VQ", "criterion"),
            *("teacher_net", "AveragedModel", "avg_params", "target_params", "momentum_encoder"),
            *("error_feedback", "sampler"),
        ],
        ["mask_token", "embedding", "schema", "fishers", "cachet"],
    ),
}


@pytest.mark.parametrize(
    ("part", "told", "is_so"),
    [(part, told, not i) for told, both in PARTS.items() for i in range(2) for part in both[i]],
)
def test_what_a_part_tells(part: str, told: str, is_so: bool) -> None:
    found = meaning(part)
    assert bool(getattr(found, told)) == is_so
    assert not (told == "entry" and is_so and found.exact)


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
