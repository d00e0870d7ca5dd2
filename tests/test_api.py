"""The public surface, pinned: a name that comes or goes is a decision."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

import lccodec
from lccodec import exchange

PUBLIC = {
    *("__version__", "Adapter", "ArgumentError", "ArrayInfo", "ArrayPlan", "Arrivals", "Assignment"),
    *("Balanced", "BFLOAT16_BITS", "bundle", "Chain", "ChainError", "Checked", "CheckpointFile"),
    *("CheckpointInfo", "ChecksumError", "Compaction", "DataError", "decode", "DependencyError"),
    *("encode", "Estimate", "ExponentBuckets", "fields", "Figures", "follow", "Follower", "FormatError"),
    *("Keep", "kernels", "KeyframeSteps", "Lag", "LccodecError", "LccodecWarning", "LimitError", "load"),
    *("load_file", "LogSteps", "Lossless", "MirrorState", "open", "Patch", "Plan", "POLICIES", "Policy"),
    *("Problem", "Protection", "Pruning", "Quantizer", "Repair", "Rewriting", "ROLES", "RolledBack"),
    *("Salvage", "Smooth", "save", "save_file", "StorageError", "Triggered", "TruncatedError"),
    *("unbundle", "UniformDeadzone", "UnsupportedError", "Update", "validate", "WorkerError"),
}


def test_public_names() -> None:
    assert set(lccodec.__all__) == PUBLIC
    assert all(hasattr(lccodec, name) for name in PUBLIC)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lccodec.nothing  # noqa: B018


def test_a_public_name_is_loaded_from_where_types_say() -> None:
    tree = ast.parse(Path(lccodec.__file__).read_text())
    (guarded,) = (node for node in tree.body if isinstance(node, ast.If))
    places = {}
    for node in guarded.body:
        assert isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names:
            places[alias.asname or alias.name] = getattr(
                importlib.import_module(f"lccodec.{node.module}"), alias.name
            )
    assert set(places) == PUBLIC - {"__version__"}
    assert [name for name, found in places.items() if getattr(lccodec, name) is not found] == []


def test_public_names_of_the_exchange() -> None:
    names = {"LAYOUTS", "RULES", "Rule", "adam_to_flax", "adam_to_torch", "load_rules", "to_flax", "to_torch"}
    assert set(exchange.__all__) == names
    assert all(inspect.getdoc(getattr(exchange, name)) for name in names - {"LAYOUTS", "RULES"})


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (exchange.Rule, "torch flax layout size rank"),
        (exchange.to_flax, "state rules like"),
        (exchange.to_torch, "state rules like"),
        (exchange.adam_to_flax, "optimizer names rules like"),
        (exchange.adam_to_torch, "state names rules like"),
        (lccodec.encode, "array quantizer reference effort"),
        (lccodec.decode, "frame reference out dtype"),
        (lccodec.save, "state metadata policy roles reference"),
        (lccodec.save_file, "state path metadata progress"),
        (lccodec.load, "data dtype reference max_bytes"),
        (lccodec.load_file, "path dtype progress max_bytes max_deltas"),
        (lccodec.open, "path step exact mirror max_bytes max_deltas"),
        (lccodec.bundle, "directory path steps progress"),
        (lccodec.unbundle, "path directory progress"),
        (lccodec.validate, "path deep max_bytes max_deltas"),
        (lccodec.follow, "path step keys exact poll timeout start max_bytes max_deltas workers"),
        (lccodec.Follower.prepare, "self timeout"),
        (lccodec.Follower.state, "self dtype"),
        (lccodec.Follower.get, "self name dtype"),
        (lccodec.Update.apply_to, "self arrays"),
        (lccodec.Update.patches, "self dtype"),
        (
            lccodec.Chain,
            "directory policy roles keyframe_every workers adapter newest exact_every keep hindsight"
            " max_concurrent_saves worker_timeout parity mirror mirror_keep mirror_timeout reference",
        ),
        (lccodec.Keep, "latest every best steps newer_than"),
        (lccodec.Chain.save, "self step state metadata metrics roles progress following only exact"),
        (lccodec.Chain.save_async, "self step state metadata metrics roles progress when_busy only exact"),
        (lccodec.Chain.wait, "self timeout"),
        (lccodec.Chain.plan, "self state roles only"),
        (lccodec.Chain.restore, "self step keys dtype exact fallback progress max_bytes max_deltas"),
        (lccodec.Chain.restore_iter, "self step keys dtype exact progress max_bytes max_deltas"),
        (
            lccodec.Chain.average,
            "self steps last weights decay roles keys dtype progress max_bytes max_deltas",
        ),
        (lccodec.Chain.info, "self step"),
        (lccodec.Chain.rollback, "self step delete"),
        (lccodec.Chain.undo_rollback, "self name"),
        (lccodec.Chain.delete_rolled_back, "self name pinned"),
        (lccodec.Chain.fork, "self directory step"),
        (lccodec.Chain.prune, "self keep rewrite dry_run progress"),
        (lccodec.Chain.compact, "self policy keyframe_every directory hindsight dry_run progress"),
        (lccodec.Chain.protect, "self redundancy"),
        (lccodec.Chain.unprotect, "self"),
        (lccodec.Chain.repair, "self dry_run max_bytes max_deltas"),
        (lccodec.Chain.salvage, "self directory"),
        (lccodec.Chain.pin, "self step exact"),
        (lccodec.Chain.unpin, "self step"),
    ],
)
def test_parameters(function: object, parameters: str) -> None:
    assert " ".join(inspect.signature(function).parameters) == parameters


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
    assert (error.rule, error.where, error.message) == ("LCC-XYZ-01", "here", "wrong")
    assert str(error) == "here: wrong [LCC-XYZ-01]"
    assert str(error.inside("file")) == "file: here: wrong [LCC-XYZ-01]"


def types_in(annotation: Any) -> set[type]:
    """The classes of this package that an annotation names, in whatever they stand."""
    if get_origin(annotation) is not None:
        arguments = get_args(annotation)
        return set().union(*(types_in(p) for a in arguments for p in (a if isinstance(a, list) else [a])))
    ours = isinstance(annotation, type) and annotation.__module__.startswith("lccodec")
    return {annotation} if ours else set()


def signatures(thing: Any) -> Iterator[Any]:
    """The functions that users of a public name call, and the properties that they read."""
    if inspect.isfunction(thing):
        yield thing
    elif inspect.isclass(thing):
        yield from [] if thing in RETURNED else [thing.__init__]
        for name, member in inspect.getmembers(thing):
            function = member.fget if isinstance(member, property) else member
            if not name.startswith("_") and inspect.isfunction(function):
                yield function


#: Classes whose objects users get from a call and do not make.
RETURNED = {lccodec.Arrivals, lccodec.CheckpointFile, lccodec.Follower, lccodec.Update}
#: What only a quantizer, a policy or an adapter of one's own meets (docs/quantizers.md).
HOOKS = {"Candidate", "ElementType", "Room"}


def unexported(thing: Any) -> set[str]:
    """The types of the signatures of a public name that are not public themselves."""
    found: set[type] = set()
    for function in signatures(thing):
        with suppress(NameError):  # what is imported for the type checker only
            found = found.union(*map(types_in, get_type_hints(function).values()))
    own = {each.__name__ for each in found if not each.__module__.startswith("lccodec.quantizers")}
    return own - PUBLIC - HOOKS


@pytest.mark.parametrize("name", sorted(PUBLIC - {"__version__"}))
def test_types_of_public_signatures_are_public(name: str) -> None:
    assert unexported(getattr(lccodec, name)) == set()


def test_a_type_that_is_not_public_is_found() -> None:
    class Hidden: ...

    def public() -> None: ...

    Hidden.__module__ = "lccodec.somewhere"
    public.__annotations__ = {"one": dict[str, list[Hidden]], "return": lccodec.Plan}
    assert unexported(public) == {"Hidden"}


def test_the_citation_names_this_version():
    citation = (Path(lccodec.__file__).parents[1] / "CITATION.cff").read_text()
    assert f"version: {lccodec.__version__}" in citation.splitlines()
