"""The verb ls. It has a module of its own, which loads little: people wait for it."""

from __future__ import annotations

import click

from ..chain.read.info import CheckpointInfo, CheckpointSummary
from ..chain.read.links import pointer_text
from ..chain.read.survey import survey
from ..chain.store.directory import describe_exact, open_store
from ..container.system import Place
from ..errors import ChainError, LccodecError
from ..table import printable
from . import render
from .program import error_document, error_text, place_argument, say, tell, verb
from .render import quality_document, quality_text


@verb
@place_argument
@click.option(
    "--quality", is_flag=True, help="What the saves lost: error and lag of weights and first moments."
)
def ls(place: Place, quality: bool, as_json: bool) -> int:
    """List the checkpoints of a chain or a bundle, and the chains below DIR or an address."""
    with open_store(place) as store:
        listed = store.snapshot()
        steps, exact, pins = listed.steps(), describe_exact(listed), listed.pins()
        chains = listed.chains()
        if not steps and exact is None and not chains:
            raise ChainError(store.nothing())
        by_step: dict[int, CheckpointInfo | CheckpointSummary | LccodecError] = {}
        with render.progress("reading") as update:
            for done, visit in enumerate(survey(store, steps), 1):
                try:
                    visit.check()
                    by_step[visit.step] = visit.info() if quality else visit.summary()
                except LccodecError as problem:  # the other checkpoints are still listed
                    by_step[visit.step] = problem
                update(done, len(steps))
        read = [(step, by_step[step]) for step in steps if step in by_step]
        infos = [info for _, info in read if not isinstance(info, LccodecError)]
        errors = [(step, error) for step, error in read if isinstance(error, LccodecError)]
        if as_json:
            document = {
                "directory": str(store.path),
                "checkpoints": [
                    {
                        **render.checkpoint_document(info),
                        **(quality_document(info) if isinstance(info, CheckpointInfo) else {}),
                    }
                    for info in infos
                ],
                "totals": render.totals(infos),
                "exact": exact,
                "pins": pins,
                "chains": [str(chain) for chain in chains],
                "errors": [
                    {"step": step, **error_document(error, error_text(error))} for step, error in errors
                ],
            }
            say(render.dump_json(document))
        else:
            with_arrays = [info for info in infos if isinstance(info, CheckpointInfo)]
            say(quality_text(with_arrays) if quality else render.checkpoints_text(infos))
            if infos and (text := pointer_text(infos[-1].metadata)):
                say(f"the last is {text}")
            if exact is not None:
                there = "" if exact["step"] is None else f"step {exact['step']}, {exact['bytes']:,} bytes"
                say(printable(": ".join(filter(None, ["exact file", there, exact["problem"]]))))
            if chains:
                say("there are chains below; give one of them to ls and the other commands:")
            for chain, steps_there in chains.items():
                say(f"  {printable(chain)}: {render.steps_text(steps_there)}")
            if pins:
                say(f"pinned: {', '.join(map(str, pins))}")
        for _, error in errors:
            tell("error", error_text(error))
        return 1 if errors else 0
