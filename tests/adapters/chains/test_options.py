"""The options of an adapter's chain are checked when they are given, and used at the first save."""

import ntpath
import os

import numpy as np
import pytest

from lccodec import Keep
from lccodec.adapters import torch as adapter
from lccodec.adapters.chains import ChainOptions
from lccodec.errors import ArgumentError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, "lc-2", 10, 1), "policy 'lc-2' codes deltas, which need chain="),
        ((None, "balanced", 10, 1), "which need chain="),
        ((None, "lc-9", 10, 1), "policy must be .* got 'lc-9'"),
        (("s3://bucket/run", "lossless", 10, 1), "the address"),
        (("", "lossless", 10, 1), "a path must be"),
        ((None, "lossless", 10, 1, "exact"), "newest='exact' needs chain="),
        (
            ("run", "lossless", 10, 1, "oldest"),
            "newest must be 'exact', 'history' or None; got",
        ),
        ((None, "lossless", 10, 1, None, True), "background=True needs chain="),
        (("run", "lossless", 10, 1, None, "yes"), "background must be True or False; got 'yes'"),
        ((None, "lossless", 10, 1, None, False, Keep(latest=1)), "keep= needs chain="),
        (("run", "lossless", 10, 1, None, False, 3), "keep must be an lccodec.Keep; got 3"),
        ((None, "lossless", 10, 1, None, False, None, 8), "hindsight= needs chain="),
        (("run", "balanced", 10, 1, None, False, None, 1), "hindsight must be 0 or an integer"),
        ((None, "lossless", 10, 1, None, False, None, 0, ["w"]), "only= needs chain="),
        (("run", "balanced", 10, 1, None, False, None, 8, ["w"]), "only= needs chain="),
        (("run", "lossless", 10, 1, None, False, None, 0, "w"), "only must be a list of names"),
    ],
)
def test_options_are_checked_before_there_is_anything_to_save(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        ChainOptions(*arguments)


def test_nothing_is_made_before_the_first_save(tmp_path):
    options = ChainOptions(tmp_path / "run", "lc-2", keyframe_every=5, workers=2)
    chain = options.open()
    assert not (tmp_path / "run").exists()
    assert (chain.directory, chain.policy.name) == (tmp_path / "run", "lc-2")
    assert (chain.keyframe_every, chain.workers, chain.newest) == (5, 2, "exact")
    assert ChainOptions(tmp_path / "run", newest="history").open().newest == "history"
    chain.save(0, {"x": np.ones(3)})
    assert (tmp_path / "run").is_dir()
    chain.close()


def test_processes_have_chains_of_their_own(tmp_path):
    options = ChainOptions(tmp_path / "run", keyframe_every=5)
    directory = tmp_path / "run" / "process-1"
    for chain in (options.open("process-1", adapter), options.open_in(directory, adapter)):
        assert chain.directory == directory
        assert (chain.policy.name, chain.keyframe_every) == ("lossless", 5)
    assert chain.adapter is adapter


def test_a_pattern_may_fit_no_array_of_one_process_of_many():
    options = ChainOptions("run", only=["*lora*", "head"])
    assert options.only_of(lambda: ["a/lora/w", "a/w"], alone=False, has_all=True) == ["*lora*"]
    assert options.only_of(lambda: ["head"], alone=False, has_all=True) == ["head"]
    assert options.only_of(lambda: ["a/w"], alone=False, has_all=True) is None  # all that it has
    assert options.only_of(lambda: ["a/w"], alone=True, has_all=True) == (
        "*lora*",
        "head",
    )  # which is an error of the save
    assert ChainOptions("run").only_of(lambda: ["a/w"], alone=True, has_all=True) is None


def test_the_case_of_names_counts_on_every_system(monkeypatch):
    options = ChainOptions("run", only=["*lora*"])
    with monkeypatch.context() as windows:
        windows.setattr(os, "path", ntpath)
        found = options.only_of(lambda: ["a/LoRA/w"], alone=False, has_all=True)
    assert found is None
