"""The verb ls. It has a module of its own, which loads little: people wait for it."""

from __future__ import annotations

import click

from ...chain.read.info import CheckpointInfo
from ...chain.read.newest import describe_exact
from ...chain.read.surveying.survey import survey
from ...chain.store.directory import DirectoryStore, readable_chains_in
from ...chain.store.opening import open_store
from ...chain.store.store import Store
from ...container.disk.address import Place
from ...errors import ChainError, LccodecError
from .. import render
from ..program import error_document, error_text, say, tell, verb
from ..quality import quality_document, quality_text
from .parameters import place_argument


@verb
@place_argument
@click.option(
    "--quality", is_flag=True, help="What the saves lost: error and lag of weights and first moments."
)
def ls(place: Place, quality: bool, as_json: bool) -> int:
    """List the checkpoints of a chain or a bundle, and the chains in the folders of DIR."""
    with open_store(place) as store:
        return _list(store, quality, as_json)


def _list(store: Store, quality: bool, as_json: bool) -> int:
    listed = store.snapshot()
    steps, exact, pins = listed.steps(), describe_exact(listed), listed.pins()
    chains = readable_chains_in(store.path) if isinstance(store, DirectoryStore) else []
    if not steps and exact is None and not chains:
        raise ChainError(store.nothing())
    found: dict[int, CheckpointInfo | LccodecError] = {}
    with render.progress("reading") as update:
        for done, visit in enumerate(survey(store, steps), 1):
            try:
                visit.check()
                found[visit.step] = visit.info(figures=quality)
            except LccodecError as problem:  # the other checkpoints are still listed
                found[visit.step] = problem
            update(done, len(steps))
    read = [(step, found[step]) for step in steps if step in found]
    infos = [info for _, info in read if isinstance(info, CheckpointInfo)]
    errors = [(step, error) for step, error in read if isinstance(error, LccodecError)]
    document = {
        "directory": str(store.path),
        "checkpoints": [
            {**render.checkpoint_document(info), **(quality_document(info) if quality else {})}
            for info in infos
        ],
        "totals": render.totals(infos),
        "exact": exact,
        "pins": pins,
        "chains": [str(chain) for chain in chains],
        "errors": [{"step": step, **error_document(error, error_text(error))} for step, error in errors],
    }
    text = quality_text if quality else render.checkpoints_text
    say(render.dump_json(document) if as_json else text(infos))
    if exact is not None and not as_json:
        say(render.exact_text(exact))
    if chains and not as_json:
        say(render.chains_text(chains))
    if pins and not as_json:
        say(f"pinned: {', '.join(map(str, pins))}")
    for _, error in errors:
        tell("error", error_text(error))
    return 1 if errors else 0
