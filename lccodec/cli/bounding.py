"""Options of verbs that read files of strangers: how much a checkpoint may ask for; and sizes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click

from ..chain.bounds import Bounds

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


def bounds_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--max-bytes`` and ``--max-deltas``; it is called with `bounds`."""

    @wraps(command)
    def called(*args: Any, max_bytes: int | None, max_deltas: int | None, **named: Any) -> Any:
        return command(*args, bounds=Bounds(max_bytes, max_deltas), **named)

    for option in (
        click.option(
            "--max-deltas", type=click.IntRange(0), help="Refuse a checkpoint that needs more others."
        ),
        click.option(
            "--max-bytes", type=Size(), metavar="SIZE", help="Refuse a state of more decoded bytes."
        ),
    ):
        called = option(called)
    return called
