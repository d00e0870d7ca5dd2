"""The verb that shows what a save would do: plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ...adapters.files.formats import check_suffix, load_with_roles
from ...chain.chain import Chain
from ...chain.overview import figures_words, plan_table, role_words
from ...chain.read.info import CheckpointInfo
from ...chain.save.plan import Estimate, Plan
from ...chain.store.directory import DirectoryStore
from ...errors import LccodecError
from ...policy.policy import Policy
from ...policy.presets import POLICIES
from ...printable import printable
from ...table import ratio, size_text
from ..program import say_result, verb
from ..quality import quality_document
from ..saving import only_option, policy_option
from ..table import fitted
from .parameters import FILE, NEW


@verb
@click.argument("directory", metavar="DIR", type=NEW)
@click.argument("file", metavar="STATE", type=FILE)
@policy_option
@only_option
def plan(directory: Path, file: Path, policy: Policy | None, only: tuple[str, ...], as_json: bool) -> None:
    """Show what a save of STATE into the chain DIR would do with each array. Nothing is written.

    STATE is a file as for save. For each array: its role and why, the quantizer in deltas, about
    how many bytes it would take, and with which error. Large arrays are estimated by a sample.
    Then what the last save lost, by role.
    """
    check_suffix(file)
    state, _, known = load_with_roles(file)
    is_chain = directory.is_dir() and DirectoryStore(directory).checkpoints()
    with Chain(directory, policy or (None if is_chain else POLICIES["lossless"])) as chain:
        found = chain.plan(state, roles=known, only=only or None)
        estimates = found.estimates()
        last = _last(chain)
    document = {"directory": str(directory), "file": str(file), **plan_document(found, estimates, last)}
    say_result(as_json, document, plan_text(found, estimates, last))


def _last(chain: Chain) -> CheckpointInfo | None:
    """Return what is known of the newest checkpoint; ``None`` if there is none that can be read."""
    try:
        return None if chain.latest is None else chain.info()
    except LccodecError:  # the save would begin with a keyframe
        return None


def plan_document(
    plan: Plan, estimates: Sequence[Estimate], last: CheckpointInfo | None = None
) -> dict[str, Any]:
    """Return a plan with its estimates, and what the last save lost, for JSON."""
    arrays = [
        {
            **asdict(array),
            "estimated_bytes": found.stored_bytes,
            "estimated_error": found.error,
            "sampled": found.sampled,
        }
        for array, found in zip(plan, estimates, strict=True)
    ]
    stored, nbytes = sum(each.stored_bytes for each in estimates), sum(array.nbytes for array in plan)
    totals = {
        "arrays": len(plan),
        "estimated_bytes": stored,
        "nbytes": nbytes,
        "ratio": ratio(nbytes, stored),
    }
    before = None if last is None else {"step": last.step, **quality_document(last)}
    return {
        "parent": plan.parent,
        "arrays": arrays,
        "totals": totals,
        "shortfall": plan.shortfall,
        "last": before,
    }


def plan_text(plan: Plan, estimates: Sequence[Estimate], last: CheckpointInfo | None = None) -> str:
    """Return a table of a plan, with estimated bytes and errors, and what the last save lost."""
    stored, nbytes = sum(each.stored_bytes for each in estimates), sum(array.nbytes for array in plan)
    kind = "a keyframe" if plan.parent is None else f"a delta to step {plan.parent}"
    sampled = sum(each.sampled for each in estimates)
    how = f"; {sampled} large arrays estimated from a sample" if sampled else ""
    lines = [
        f"This would be {kind}: about {size_text(nbytes, stored)} in frames{how}.",
        "Errors are multiples of the movement since the last checkpoint; without one, of the values.",
        *([plan.shortfall] if plan.shortfall else []),
    ]
    if last is not None and last.figures:
        lines.append(f"The last save, of step {last.step}, lost:")
        lines += [f"  {role_words(role)}: {figures_words(each)}" for role, each in last.figures.items()]
    shown = [fitted(plan_table(plan, estimates))] if len(plan) else []
    return "\n\n".join([*shown, "\n".join(map(printable, lines))])
