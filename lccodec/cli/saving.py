"""The options of verbs that save or plan: of policies, and of what is saved."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click

from ..policy.policy import Policy
from ..policy.presets import FIELDS, POLICIES, fields

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
