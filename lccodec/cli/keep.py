"""The verbs of a chain's life: rollback, rolled-back, fork, prune, compact, pin, unpin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from ..adapters.ranks import prune_named, prune_together
from ..chain.chain import Chain
from ..chain.life.compact import Compaction, Rewriting
from ..chain.life.prune import Keep, Pruning, pin_exact
from ..chain.life.prune import pin as pin_step
from ..chain.life.prune import unpin as unpin_step
from ..chain.life.rollback import RolledBack, delete_rolled_back, list_rolled_back, undo_rollback
from ..chain.life.rollback import rollback as roll_back
from ..chain.life.transfer import fork as fork_chain
from ..chain.save.plan import KEYFRAME_EVERY
from ..chain.store.directory import as_directory, writable_store
from ..chain.store.store import WritableStore
from ..container.system import Place
from ..errors import ArgumentError
from ..policy.hindsight import GROUP
from ..policy.presets import POLICIES
from ..table import printable, ranges_text
from . import render
from .program import FILE_OR_FOLDER, PLACE, STEP, chain_argument, hindsight_option, say, say_result, verb


def pruning_text(pruning: Pruning, dry_run: bool) -> str:
    """Return what a prune removes, and what stays why."""
    steps = sorted({*pruning.removed, *pruning.kept, *pruning.needed})
    verb = "would remove" if dry_run else "removed"
    lines = [f"{verb} {len(pruning.removed)} of {len(steps)} checkpoints, {pruning.freed:,} bytes"]
    if pruning.removed:
        lines.append(f"  {ranges_text(pruning.removed, steps)}")
    for why in dict.fromkeys(pruning.kept.values()):
        kept = [step for step, reason in pruning.kept.items() if reason == why]
        lines.append(f"kept ({printable(why)}): {ranges_text(kept, steps)}")
    for child in dict.fromkeys(pruning.needed.values()):
        needed = [step for step, by in pruning.needed.items() if by == child]
        lines.append(f"needed by {child}: {ranges_text(needed, steps)}")
    lines += map(_rewriting_text, pruning.rewritten)
    if pruning.rewritten:
        net = f"; {net_text(pruning.net)}" if dry_run else ""  # which is printed before anything is done
        lines.append(f"that takes {pruning.cost:,} more bytes{net}")
    if not pruning.removed:
        lines += _why_nothing_goes(pruning, steps)
    return "\n".join(lines)


def net_text(net: int) -> str:
    """Return what a prune with rewriting comes to.

    >>> net_text(-1200)
    'the chain takes 1,200 fewer bytes than before'
    """
    return f"the chain takes {abs(net):,} {'more' if net > 0 else 'fewer'} bytes than before"


def _why_nothing_goes(pruning: Pruning, steps: Sequence[int]) -> list[str]:
    if not pruning.needed:
        return ["nothing to remove: every step is kept"]
    children = sorted(set(pruning.needed.values()))
    lines = [
        f"nothing to remove: all steps back to a keyframe are needed by {ranges_text(children, steps)}",
        "they can be removed after more saves, when the kept steps begin with a keyframe",
    ]
    if not pruning.rewritten:
        lines.append("or now, with --rewrite; --rewrite --dry-run shows the cost")
    return lines


def compaction_text(compaction: Compaction) -> str:
    """Return what a compaction wrote anew, or would, and what it brings and loses."""
    lines = [*map(_rewriting_text, compaction.rewritten)]
    lines.append(f"{compaction.steps} checkpoints: {compaction.after:,} bytes, before {compaction.before:,}")
    lines += (
        f"additional loss, {role}: {error:.3g} of the values (rms)"
        for role, error in compaction.errors.items()
    )
    told = Counter(str(guarantee) for guarantee in compaction.guarantees.values())
    lines += (f"against what was saved first, {n} arrays: {words}" for words, n in told.items() if words)
    return "\n".join(lines)


def _rewriting_text(rewriting: Rewriting) -> str:
    kind = "keyframe" if rewriting.parent is None else f"delta to {rewriting.parent}"
    return f"rewritten: {rewriting.step}, {kind}, {rewriting.after:,} bytes for {rewriting.before:,}"


_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

_steps_argument = click.argument("steps", metavar="STEP...", type=STEP, nargs=-1)


@verb
@chain_argument
@click.argument("step", metavar="STEP", type=STEP)
@click.option("--delete", is_flag=True, help="Delete the later steps instead of setting them aside.")
def rollback(directory: Place, step: int, delete: bool, as_json: bool) -> None:
    """Roll a chain back to STEP, from which it then continues.

    All later steps are set aside in DIR/.rolled-back, with the exact file: see rolled-back.
    """
    gone = roll_back(writable_store(directory), step, delete=delete)
    done = (
        "there are no later steps" if not gone.bytes else "removed" if delete else f"set aside as {gone.name}"
    )
    document = {"directory": str(directory), "deleted": delete, **asdict(gone)}
    say_result(as_json, document, f"step {step} is the newest; {done}{_content(gone)}")


@verb
@chain_argument
@click.option("--name", help="Which rollback.  [default: the last; with --delete, all]")
@click.option("--undo", is_flag=True, help="Put the steps back into the chain.")
@click.option("--delete", is_flag=True, help="Delete the steps for good.")
@click.option("--pinned", is_flag=True, help="With --delete: also pinned steps.")
def rolled_back(  # one parameter for each option
    directory: Place, name: str | None, undo: bool, delete: bool, pinned: bool, as_json: bool
) -> None:
    """List the steps that rollbacks have set aside, put them back, or delete them for good."""
    if undo and delete:
        raise click.UsageError("give --undo or --delete, not both")
    if pinned and not delete:
        raise click.UsageError("--pinned needs --delete")
    store = writable_store(directory)
    if undo:
        asides = [undo_rollback(store, name)]
    elif delete:
        asides = delete_rolled_back(store, name, pinned=pinned)
    else:
        asides = [aside for aside in list_rolled_back(store) if name in (None, aside.name)]
    done, did = ("undone", "put back ") if undo else ("deleted", "removed ") if delete else (None, "")
    lines = [f"{did}{aside.name}{_content(aside)}" for aside in asides] or ["no steps are set aside"]
    document = {"directory": str(directory), "done": done, "rolled_back": asides}
    say_result(as_json, document, "\n".join(lines))


def _content(gone: RolledBack) -> str:
    """Return what was set aside, in a few words."""
    if not gone.bytes:
        return ""
    steps = f"steps {gone.steps[0]} to {gone.steps[-1]}" if gone.steps else "no steps"
    exact = ", the exact file" if gone.exact else ""
    exact += f", pinned: {', '.join(map(str, gone.pins))}" if gone.pins else ""
    return f": {len(gone.steps)} checkpoints, {steps}{exact}, {gone.bytes:,} bytes"


@verb
@chain_argument
@click.argument("step", metavar="STEP", type=STEP)
@click.argument("target", metavar="NEW", type=PLACE)
def fork(directory: Place, step: int, target: Place, as_json: bool) -> None:
    """Start a new chain in the directory or bucket NEW from a step of DIR, which stays as it is.

    NEW gets the step and its parents, as hard links where the file system supports them.
    """
    with closing(writable_store(directory)) as store, closing(writable_store(target)) as new:
        steps = fork_chain(store, new, step)
    document = {"directory": str(directory), "fork": str(target), "steps": steps}
    say_result(as_json, document, f"{printable(target)}: {len(steps)} checkpoints, the newest is step {step}")


def _age(_context: click.Context, _parameter: click.Parameter, text: str | None) -> timedelta | None:
    """Return a time span that is given as a number and a unit, such as ``7d``."""
    try:
        return None if text is None else timedelta(**{_UNITS[text[-1:]]: float(text[:-1])})
    except (KeyError, ValueError, OverflowError):
        raise click.BadParameter(
            f"must be a number and one of {', '.join(_UNITS)}, as in 7d; got {text!r}"
        ) from None


@verb
@chain_argument
@click.option("--latest", type=click.IntRange(1), help="Keep that many of the newest steps.")
@click.option("--every", type=click.IntRange(1), help="Keep steps that are a multiple of this number.")
@click.option(
    "--best",
    type=(click.IntRange(1), str, click.Choice(["min", "max"])),
    help="Keep the best by a number of the metrics, metadata or state: --best 3 loss min",
)
@click.option("--step", "steps", type=STEP, multiple=True, help="Keep this step; repeatable.")
@click.option("--newer-than", callback=_age, help="Keep what was written since then, as in: 90m, 12h, 7d")
@click.option(
    "--named-by",
    "places",
    metavar="PATH",
    type=FILE_OR_FOLDER,
    multiple=True,
    help="Keep only what links and DCP records at or below PATH name; repeatable.",
)
@click.option(
    "--rewrite",
    is_flag=True,
    help="Rewrite kept checkpoints, with the same state, so that more can be removed.",
)
@click.option("--grow", is_flag=True, help="With --rewrite: even if the chain grows.")
@click.option(
    "--dry-run", is_flag=True, help="Only show what would be removed, and what that frees and costs."
)
def prune(  # one parameter for each option: click passes them by name
    directory: Place,
    places: tuple[Path, ...],
    rewrite: bool,
    grow: bool,
    dry_run: bool,
    as_json: bool,
    **rule: Any,  # of `Keep`
) -> None:
    """Remove the checkpoints that no option keeps, and that nothing kept needs.

    The newest step and pinned steps are always kept. With --rewrite, nothing is done if the chain
    would grow. With --named-by, DIR may hold the chains of several ranks.
    """
    chosen = any(value not in (None, ()) for value in rule.values())
    if places and chosen:
        raise click.UsageError("--named-by cannot be combined with other options that say what to keep")
    if not places and not chosen:
        raise click.UsageError(
            "say what to keep: --latest, --every, --best, --step, --newer-than or --named-by"
        )
    if grow and not rewrite:
        raise click.UsageError("--grow needs --rewrite")
    keep = None if places else Keep(**rule)

    def pruned_chains(only_say: bool) -> dict[Place, Pruning]:
        with render.progress("pruning") as update:
            options: dict[str, Any] = {"rewrite": rewrite, "dry_run": only_say, "tell": update}
            if keep is None:
                chains = as_directory(writable_store(directory), "--named-by").path
                return prune_named(chains, places, **options)
            return prune_together(directory, keep, **options)

    if rewrite and not dry_run:
        net = sum(pruning.net for pruning in pruned_chains(True).values())
        if net > 0 and not grow:
            raise ArgumentError(
                f"{directory}: nothing was pruned, because with --rewrite {net_text(net)};"
                " --dry-run shows what would change, --grow prunes anyway"
            )
        if not as_json:
            say(net_text(net))
    pruned = pruned_chains(dry_run)
    documents = [
        {
            "directory": str(chain),
            "dry_run": dry_run,
            **asdict(pruning),
            "cost": pruning.cost,
            "net": pruning.net,
        }
        for chain, pruning in pruned.items()
    ]
    several = bool(places) or len(pruned) > 1
    texts = (
        (f"{printable(chain)}: " if several else "") + pruning_text(pruning, dry_run)
        for chain, pruning in pruned.items()
    )
    say_result(as_json, {"chains": documents} if several else documents[0], "\n".join(texts))


@verb
@chain_argument
@click.option(
    "-o", "--output", "target", metavar="NEW", type=PLACE, help="A new directory.  [default: in place]"
)
@click.option("--policy", type=click.Choice(list(POLICIES)), help="Encode the states again; needs -o.")
@click.option(
    "--keyframe-every",
    type=click.IntRange(0),
    default=KEYFRAME_EVERY,
    show_default=True,
    help="Maximum number of deltas that a restore replays.",
)
@hindsight_option("Encode the states again in groups of N, each from both of its ends; needs -o.", GROUP)
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
def compact(
    directory: Place,
    target: Place | None,
    policy: str | None,
    keyframe_every: int,
    hindsight: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Rewrite the checkpoints of a finished run, for fewer bytes or faster restores.

    Without --policy and --hindsight every state stays as it is, bit for bit.
    """
    options: dict[str, Any] = {"keyframe_every": keyframe_every, "directory": target, "dry_run": dry_run}
    with render.progress("compacting") as update:
        compaction = Chain(directory).compact(policy, hindsight=hindsight or 0, progress=update, **options)
    document = {"directory": str(target or directory), "dry_run": dry_run, **asdict(compaction)}
    document["guarantees"] = {name: str(guarantee) for name, guarantee in compaction.guarantees.items()}
    say_result(as_json, document, compaction_text(compaction))


@verb
@chain_argument
@_steps_argument
@click.option(
    "--exact", is_flag=True, help="Also keep them bit for bit. Of lossy steps, only the newest can be."
)
def pin(directory: Place, steps: tuple[int, ...], exact: bool, as_json: bool) -> None:
    """Pin steps, so that no prune removes them; without a STEP, list the pins."""
    store = writable_store(directory)
    for step in steps:
        (pin_exact if exact else pin_step)(store, step)
    _tell_pins(store, as_json)


@verb
@chain_argument
@_steps_argument
def unpin(directory: Place, steps: tuple[int, ...], as_json: bool) -> None:
    """Remove the pins of steps."""
    store = writable_store(directory)
    for step in steps:
        unpin_step(store, step)
    _tell_pins(store, as_json)


def _tell_pins(store: WritableStore, as_json: bool) -> None:
    pins = store.pins()
    text = f"pinned: {', '.join(map(str, pins))}" if pins else "no pins"
    say_result(as_json, {"directory": str(store.path), "pins": pins}, text)
