"""Parameters that several verbs have: paths, steps, workers; and opening the named checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click

from ...chain.store.opening import is_chain, open_store
from ...container.disk.address import Address, Place, checked_place
from ...container.disk.system import checked_path
from ...policy.policy import Policy
from ...policy.presets import FIELDS, POLICIES, fields


class _Path(click.Path):
    """A path. The address of a remote store is refused as an address, not as a missing file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        return super().convert(checked_path(value), param, ctx)


class _Place(_Path):
    """A path, or the address of a chain in a bucket."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path or the address."""
        place = checked_place(value)
        return place if isinstance(place, Address) else super().convert(value, param, ctx)


FILE: Final = _Path(exists=True, dir_okay=False)
FILE_OR_FOLDER: Final = _Path(exists=True)
CHAIN_OR_FILE: Final = _Place(exists=True)
NEW: Final = _Path()
PLACE: Final = _Place()
STEP: Final = click.IntRange(min=0)


class _Chain(_Place):
    """A directory, a bundle, or the address of a chain."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path or the address."""
        place = super().convert(value, param, ctx)
        if not is_chain(place):
            self.fail(f"must be a directory or a bundle; got {value!r}", param, ctx)
        return place


chain_argument = click.argument("directory", metavar="DIR", type=_Place(exists=True, file_okay=False))
place_argument = click.argument("place", metavar="DIR|BUNDLE", type=_Chain(exists=True))
step_option = click.option("--step", type=STEP, help="The step.  [default: the latest]")
_BOUND: Final = click.FloatRange(0, min_open=True)
_POLICY_OPTIONS: Final = (
    click.option(
        "--policy",
        type=click.Choice([*POLICIES, FIELDS]),
        help="How lossy checkpoints may be.  [default: the policy of the chain, or lossless for a new one]",
    ),
    click.option(
        "--max-error", type=_BOUND, help="With fields: no element of a smooth array is off by more."
    ),
    click.option(
        "--relative-error", type=_BOUND, help="The same as a share of the range of each array: 1e-5."
    ),
)
only_option = click.option(
    "--only",
    metavar="NAME",
    multiple=True,
    help="Save only arrays of this name or pattern; all others stay as in the latest step; repeatable.",
)


def policy_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of policies; it is called with a `policy`, which may be None."""

    @wraps(command)
    def called(
        *args: Any, policy: str | None, max_error: float | None, relative_error: float | None, **named: Any
    ) -> None:
        command(*args, policy=_chosen(policy, max_error, relative_error), **named)

    for option in reversed(_POLICY_OPTIONS):
        called = option(called)
    return called


def _chosen(policy: str | None, max_error: float | None, relative_error: float | None) -> Policy | None:
    """Return the policy of a name; a bound alone means fields."""
    is_bounded = (max_error, relative_error) != (None, None)
    if policy not in (None, FIELDS) and is_bounded:
        raise click.UsageError(f"--max-error and --relative-error are for --policy {FIELDS}")
    if policy == FIELDS and not is_bounded:
        raise click.UsageError(f"--policy {FIELDS} needs --relative-error, as in 1e-5, or --max-error")
    if is_bounded:
        return fields(max_error, relative_error)
    return None if policy is None else POLICIES[policy]


workers_option = click.option(
    "-j", "--workers", type=click.IntRange(0), help="Worker processes; 0 for one per core, minus one."
)
threads_option = click.option(
    "-j", "--threads", type=click.IntRange(0), default=1, help="Files hashed at a time; 0 for one per core."
)

history_option = click.option(
    "--history", is_flag=True, help="Take the newest state from the history, not from the exact file."
)


def _rows(_: click.Context, __: click.Parameter, text: str | None) -> slice | None:
    """Return rows as a slice of Python: ``0:1000``, ``-5:`` or ``:10``."""
    if text is None:
        return None
    try:
        first, last = map(_end, text.split(":"))
        return slice(first, last)
    except ValueError:
        raise click.BadParameter(f"must be START:STOP, such as 0:1000; got {text!r}") from None


def _end(text: str) -> int | None:
    return int(text) if text else None


rows_option = click.option(
    "--rows", metavar="START:STOP", callback=_rows, help="Only these rows; no more are decoded."
)


def steps_of(place: Place) -> list[int]:
    """Return the steps of a chain or a bundle, with that of the exact file."""
    with open_store(place) as store:
        return list(store.steps())
