"""The command ``lccodec``: how a verb is made and found, and how its errors are reported.

A module is loaded for its verbs, or to show what they do: what all of them need takes longer than
most of them. Parameters of several verbs are paths, steps, workers, and bounds of files of
strangers. An error is one line on standard error. With ``--json`` it is also a document
``{"error": ...}`` on standard output.

Exit codes: 0 fine, 1 problems found (in data, a chain or storage), 2 usage.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any, Final, TypeAlias, TypeVar

import click

import lccodec

from ..chain.read.links import Bounds
from ..chain.store.directory import is_chain
from ..container.system import Address, checked_path, checked_place
from ..errors import ArgumentError, DataError, LccodecError, LccodecWarning
from ..table import printable
from . import render

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
        first, last = (int(end) if end else None for end in text.split(":"))
        return slice(first, last)
    except ValueError:
        raise click.BadParameter(f"must be START:STOP, such as 0:1000; got {text!r}") from None


rows_option = click.option(
    "--rows", metavar="START:STOP", callback=_rows, help="Only these rows; no more are decoded."
)


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
    """Return a decorator that gives a command options as one parameter, which `make` makes."""
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


_INTERRUPTED: Final = 130  # exit code of a shell for a process ended by a signal: 128 + 2 (SIGINT)
_PIPE_CLOSED: Final = 141  # the same: 128 + 13 (SIGPIPE)

_LONGEST_SENTENCE: Final = 400  # of the help

_STYLES: Final = re.compile("(\x1b\\[[01]m)")  # of the headers of a table

#: The module of each verb.
_MODULES: Final = {
    name: module
    for module, names in (
        ("convert", ("convert",)),
        ("demonstration", ("demo",)),
        ("keep", ("rollback", "rolled-back", "fork", "prune", "compact", "pin", "unpin")),
        ("listing", ("ls",)),
        ("look", ("info", "show", "diff", "check", "report")),
        ("mend", ("protect", "repair", "mirror", "seal")),
        ("save", ("save", "plan", "restore", "average")),
        ("share", ("bundle", "unbundle", "publish", "pull")),
    )
    for name in names
}

Function = TypeVar("Function", bound=Callable[..., Any])


class _Program(click.Group):
    """A group of verbs that turns every error into one line and an exit code.

    A verb is loaded when it is first asked for, and adds itself.
    """

    def list_commands(self, ctx: click.Context | None) -> list[str]:  # noqa: ARG002 - click passes it
        """Return the names of all verbs."""
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click passes it
        """Return a verb; ``None`` if there is none of this name."""
        if cmd_name in _MODULES and cmd_name not in self.commands:
            importlib.import_module(f".{_MODULES[cmd_name]}", __package__)
        return self.commands.get(cmd_name)

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Run a verb and exit; the parameters are click's."""
        words = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False  # otherwise click prints errors and exits in its own way
        try:
            code = super().main(words, **extra)
        except click.ClickException as error:
            context = getattr(error, "ctx", None)  # errors of usage have one
            command = context.command_path if context else "lccodec"
            message = f"{error.format_message().rstrip('.')}; see '{command} --help'"
            code = _fail(error, message, 2, words)
        except ArgumentError as error:
            code = _fail(error, str(error), 2, words)
        except (LccodecError, OSError, MemoryError) as error:
            code = _fail(error, error_text(error), 1, words)
        except click.Abort:
            say("lccodec: interrupted", err=True)
            code = _INTERRUPTED
        sys.exit(code or 0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first sentence of each verb, whole: click cuts it off at the end of a line."""
        verbs = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, verb.get_short_help_str(_LONGEST_SENTENCE)) for name, verb in verbs if verb]
            )

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb; print warnings as lines. A closed output pipe is not an error."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", LccodecWarning)
                warnings.showwarning = lambda message, *_, **__: tell("warning", message)
                result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Python flushes again when it exits, and needs an open file for that.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _PIPE_CLOSED
        return result


def say(text: str, *, err: bool = False) -> None:
    """Print text: all that verbs print. None of it drives a terminal, but for bold headers."""
    parts = _STYLES.split(text)  # each second part is a style
    parts[::2] = (printable(part, lines=True) for part in parts[::2])
    click.echo("".join(parts), err=err)


def say_result(as_json: bool, document: Any, text: str) -> None:
    """Print what a verb has found: as a JSON document, or as text."""
    say(render.dump_json(document) if as_json else text)


def tell(kind: str, message: object) -> None:
    """Print a line on standard error: an error, a warning or a note."""
    say(f"lccodec: {kind}: {printable(message)}", err=True)


def _fail(error: BaseException, message: str, code: int, words: Sequence[str]) -> int:
    if "--json" in words:
        say(render.dump_json({"error": error_document(error, message)}))
    tell("error", message)
    for note in getattr(error, "__notes__", ()):
        tell("note", note)
    return code


def error_document(error: BaseException, message: str) -> dict[str, str | None]:
    """Return an error for JSON; `message` is used if the error has no message of its own."""
    rule, where = getattr(error, "rule", None), getattr(error, "where", None)
    message = error.message if isinstance(error, DataError | click.ClickException) else message
    return {"type": type(error).__name__, "rule": rule, "where": where, "message": message}


def error_text(error: BaseException) -> str:
    """Return the text of an error, in one line."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


@click.group(cls=_Program, name="lccodec", no_args_is_help=False)
@click.version_option(lccodec.__version__, message="%(prog)s %(version)s")
def program() -> None:
    """Save training checkpoints as chains of small deltas; restore and inspect any step.

    A DIR is a chain: a directory of checkpoints, one file each. A BUNDLE has them in one file.

    Exit codes: 0 fine, 1 problems found, 2 usage.
    """


def verb(function: Function) -> click.Command:
    """Make a function a verb; the option ``--json`` becomes its parameter `as_json`."""
    option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
    return program.command()(option(function))
