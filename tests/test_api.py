"""The public surface, pinned: a name that comes or goes is a decision."""

from __future__ import annotations

import inspect

import pytest

import lccodec
from lccodec import exchange

PUBLIC = {
    "ArgumentError",
    "ArrayInfo",
    "ArrayPlan",
    "Balanced",
    "BFLOAT16_BITS",
    "Chain",
    "ChainError",
    "CheckpointFile",
    "CheckpointInfo",
    "ChecksumError",
    "Clusters",
    "DataError",
    "DependencyError",
    "ExponentBuckets",
    "Figures",
    "FormatError",
    "Keep",
    "KeyframeSteps",
    "LccodecError",
    "LccodecWarning",
    "LimitError",
    "LogSteps",
    "Lossless",
    "POLICIES",
    "Plan",
    "Policy",
    "Problem",
    "Pruning",
    "ROLES",
    "StorageError",
    "Trial",
    "Triggered",
    "TruncatedError",
    "UniformDeadzone",
    "UnsupportedError",
    "WorkerError",
    "__version__",
    "bundle",
    "decode",
    "encode",
    "load",
    "load_file",
    "open",
    "save",
    "save_file",
    "tune",
    "unbundle",
    "validate",
}


def test_public_names() -> None:
    assert set(lccodec.__all__) == PUBLIC
    assert all(hasattr(lccodec, name) for name in PUBLIC)


def test_public_names_of_the_exchange() -> None:
    names = {"LAYOUTS", "RULES", "Rule", "adam_to_flax", "adam_to_torch", "load_rules", "to_flax", "to_torch"}
    assert set(exchange.__all__) == names
    assert all(inspect.getdoc(getattr(exchange, name)) for name in names - {"LAYOUTS", "RULES"})


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (exchange.Rule, ["torch", "flax", "layout", "size", "rank"]),
        (exchange.to_flax, ["state", "rules", "like"]),
        (exchange.to_torch, ["state", "rules", "like"]),
        (exchange.adam_to_flax, ["optimizer", "names", "rules", "like"]),
        (exchange.adam_to_torch, ["state", "names", "rules", "like"]),
        (lccodec.encode, ["array", "quantizer", "reference", "effort"]),
        (lccodec.decode, ["frame", "reference", "out", "dtype"]),
        (lccodec.save, ["state", "metadata"]),
        (lccodec.save_file, ["state", "path", "metadata"]),
        (lccodec.load, ["data", "dtype"]),
        (lccodec.load_file, ["path", "dtype"]),
        (lccodec.open, ["path", "step", "exact"]),
        (lccodec.bundle, ["directory", "path", "steps"]),
        (lccodec.unbundle, ["path", "directory"]),
        (lccodec.validate, ["path", "deep"]),
        (
            lccodec.Chain,
            [
                *("directory", "policy", "roles", "keyframe_every", "workers", "adapter", "newest"),
                *("exact_every", "keep", "in_flight", "patience"),
            ],
        ),
        (lccodec.Keep, ["latest", "every", "best", "steps", "newer_than"]),
        (
            lccodec.Chain.save,
            ["self", "step", "state", "metadata", "metrics", "known", "progress", "following"],
        ),
        (
            lccodec.Chain.save_async,
            ["self", "step", "state", "metadata", "metrics", "known", "progress", "when_busy"],
        ),
        (lccodec.Chain.wait, ["self", "timeout"]),
        (lccodec.Chain.plan, ["self", "state", "known"]),
        (lccodec.Chain.restore, ["self", "step", "keys", "dtype", "exact", "fallback", "progress"]),
        (lccodec.Chain.restore_iter, ["self", "step", "keys", "dtype", "exact", "progress"]),
        (lccodec.Chain.average, ["self", "steps", "last", "weights", "decay", "roles", "keys", "dtype"]),
        (lccodec.Chain.info, ["self", "step"]),
        (lccodec.Chain.rollback, ["self", "step", "purge"]),
        (lccodec.Chain.bring_back, ["self", "name"]),
        (lccodec.Chain.purge, ["self", "name", "pinned"]),
        (lccodec.Chain.fork, ["self", "directory", "step"]),
        (lccodec.Chain.prune, ["self", "keep", "rewrite", "dry_run"]),
        (lccodec.Chain.compact, ["self", "policy", "keyframe_every", "directory", "dry_run"]),
        (lccodec.Chain.pin, ["self", "step"]),
        (lccodec.Chain.unpin, ["self", "step"]),
    ],
)
def test_parameters(function: object, parameters: list[str]) -> None:
    assert list(inspect.signature(function).parameters) == parameters  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(PUBLIC - {"__version__", "POLICIES", "BFLOAT16_BITS"}))
def test_everything_public_is_documented(name: str) -> None:
    thing = getattr(lccodec, name)
    assert inspect.getdoc(thing)
    if inspect.isclass(thing):
        for attribute, value in vars(thing).items():
            if not attribute.startswith("_") and callable(value):
                assert inspect.getdoc(value), f"{name}.{attribute}"


def test_errors_say_whose_fault_it_is() -> None:
    assert issubclass(lccodec.ArgumentError, ValueError)
    assert issubclass(lccodec.DataError, ValueError)
    assert issubclass(lccodec.ChainError, LookupError)
    assert issubclass(lccodec.StorageError, OSError)
    error = lccodec.FormatError("LCC-XYZ-01", "here", "wrong")
    assert (error.rule, error.where, error.message, str(error)) == (
        "LCC-XYZ-01",
        "here",
        "wrong",
        "here: wrong [LCC-XYZ-01]",
    )
    assert str(error.inside("file")) == "file: here: wrong [LCC-XYZ-01]"
