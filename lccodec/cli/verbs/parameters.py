"""Parameters that several verbs have: paths, steps, workers; and opening the named checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from ...chain.store.opening import open_store
from ...container.bundle.bundle import is_bundle
from ...container.disk.system import checked_path
from ...policy.presets import POLICIES


class _Path(click.Path):
    """A path. The address of a remote store is refused as an address, not as a missing file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        return super().convert(checked_path(value), param, ctx)


FILE: Final = _Path(exists=True, dir_okay=False)
CHAIN_OR_FILE: Final = _Path(exists=True)
NEW: Final = _Path()
STEP: Final = click.IntRange(min=0)


class _Chain(_Path):
    """A directory, or a bundle."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        path = super().convert(value, param, ctx)
        if not path.is_dir() and not is_bundle(path):
            self.fail(f"must be a directory or a bundle; got {value!r}", param, ctx)
        return path


chain_argument = click.argument("directory", metavar="DIR", type=_Path(exists=True, file_okay=False))
place_argument = click.argument("place", metavar="DIR|BUNDLE", type=_Chain(exists=True))
step_option = click.option("--step", type=STEP, help="The step.  [default: the latest]")
policy_option = click.option(
    "--policy",
    type=click.Choice(list(POLICIES)),
    help="How lossy checkpoints may be.  [default: the policy of the chain, or lossless for a new one]",
)
workers_option = click.option(
    "-j", "--workers", type=click.IntRange(0), help="Worker processes; 0 for one per core, minus one."
)

history_option = click.option(
    "--history", is_flag=True, help="Take the newest state from the history, not from the exact file."
)


def steps_of(place: Path) -> list[int]:
    """Return the steps of a chain or a bundle, with that of the exact file."""
    with open_store(place) as store:
        return list(store.steps())
