"""Parameters that several verbs have: paths, steps, workers, bounds of files of strangers."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, Final, TypeAlias

import click

from ..chain.bounds import Bounds
from ..chain.store.opening import is_chain, open_store
from ..container.system import Address, Place, checked_path, checked_place

_Command: TypeAlias = Callable[..., Any]


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


_SIZE: Final = re.compile(r"([0-9]{1,18}) *([kKMGT]?)(i?)B?")
_POWERS: Final = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


class Size(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes, such as 5GB or 512MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value))
        if match is None or not int(match[1]):
            self.fail(f"must be a size such as 5GB or 512MiB; got {value!r}", param, ctx)
        unit: int = (1024 if match[3] else 1000) ** _POWERS[match[2]]
        return int(match[1]) * unit


def grouped(
    name: str, make: Callable[..., Any], *options: Callable[[_Command], _Command]
) -> Callable[[_Command], _Command]:
    """Return a decorator that gives a command several options, which are one parameter of it.

    `make` is called with the options, and returns the parameter `name`.
    """
    keys = tuple(signature(make).parameters)

    def decorate(command: _Command) -> _Command:
        @wraps(command)
        def called(*args: Any, **named: Any) -> Any:
            made = make(**{key: named.pop(key) for key in keys})
            return command(*args, **{name: made}, **named)

        decorated: _Command = called
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


bounds_options = grouped(
    "bounds",
    Bounds,
    click.option("--max-bytes", type=Size(), metavar="SIZE", help="Refuse a state of more decoded bytes."),
    click.option("--max-deltas", type=click.IntRange(0), help="Refuse a checkpoint that needs more others."),
)


def hindsight_option(what: str, usual: int) -> Callable[[_Command], _Command]:
    """Return the option ``--hindsight``; groups without a number have the usual size."""
    return click.option(
        "--hindsight",
        type=click.IntRange(2),
        is_flag=False,
        flag_value=usual,
        metavar="[N]",
        help=f"{what}  [{usual}]",
    )
