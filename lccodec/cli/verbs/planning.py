"""The verb that shows what a save would do: plan."""

from __future__ import annotations

from pathlib import Path

import click

from ...adapters.files.formats import check_suffix, load_with_roles
from ...chain.chain import Chain
from ...chain.read.info import CheckpointInfo
from ...chain.store.directory import DirectoryStore
from ...errors import LccodecError
from ...policy.presets import POLICIES
from .. import render
from ..planning import plan_document, plan_text
from ..program import say, verb
from .parameters import FILE, NEW


@verb
@click.argument("directory", metavar="DIR", type=NEW)
@click.argument("file", metavar="STATE", type=FILE)
@click.option(
    "--policy",
    type=click.Choice(list(POLICIES)),
    help="How lossy checkpoints may be.  [default: the policy of the chain, or lossless for a new one]",
)
def plan(directory: Path, file: Path, policy: str | None, as_json: bool) -> None:
    """Show what a save of STATE into the chain DIR would do with each array. Nothing is written.

    STATE is a file as for save. For each array: its role and why, the quantizer in deltas, about
    how many bytes it would take, and with which error. Large arrays are estimated by a sample.
    Then what the last save lost, by role.
    """
    check_suffix(file)
    state, _, known = load_with_roles(file)
    is_chain = directory.is_dir() and DirectoryStore(directory).checkpoints()
    with Chain(directory, policy or (None if is_chain else "lossless")) as chain:
        found = chain.plan(state, roles=known)
        estimates = found.estimates()
        last = _last(chain)
    if as_json:
        document = {"directory": str(directory), "file": str(file), **plan_document(found, estimates, last)}
        say(render.dump_json(document))
    else:
        say(plan_text(found, estimates, last))


def _last(chain: Chain) -> CheckpointInfo | None:
    """Return what is known of the newest checkpoint; ``None`` if there is none that can be read."""
    try:
        return None if chain.latest is None else chain.info()
    except LccodecError:  # the save would begin with a keyframe
        return None
