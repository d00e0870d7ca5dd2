"""The command ``lccodec``: how a verb is made and found, and how its errors are reported.

A module is loaded for its verbs, or to show what they do: what all of them need takes longer than
most of them. An error is one line on standard error. With ``--json`` it is also a document
``{"error": ...}`` on standard output.

Exit codes: 0 fine, 1 problems found (in data, a chain or storage), 2 usage.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any, Final, TypeVar

import click

import lccodec

from ..errors import ArgumentError, DataError, LccodecError, LccodecWarning
from ..printable import printable
from . import render

_INTERRUPTED: Final = 130  # exit code of a shell for a process ended by a signal: 128 + 2 (SIGINT)
_PIPE_CLOSED: Final = 141  # the same: 128 + 13 (SIGPIPE)

_LONGEST_SENTENCE: Final = 400  # of the help

_STYLES: Final = re.compile("(\x1b\\[[01]m)")  # of the headers of a table

#: The verbs of each module.
_MODULES: Final = {
    "convert": ("convert",),
    "demonstration": ("demo",),
    "keep": ("rollback", "rolled-back", "fork", "prune", "compact", "pin", "unpin"),
    "listing": ("ls",),
    "look": ("info", "show", "diff", "check", "report"),
    "mend": ("protect", "repair", "mirror", "seal"),
    "save": ("save", "plan", "restore", "average"),
    "share": ("bundle", "unbundle", "publish", "pull"),
}

Function = TypeVar("Function", bound=Callable[..., Any])


class _Verbs(MutableMapping[str, click.Command]):
    """The verbs by name. Each is loaded when it is first asked for, and adds itself."""

    def __init__(self) -> None:
        self._modules = {name: module for module, names in _MODULES.items() for name in names}
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name in self._modules and name not in self._loaded:
            importlib.import_module(f".{self._modules[name]}", __package__)
        return self._loaded[name]

    def __setitem__(self, name: str, verb: click.Command) -> None:
        self._loaded[name] = verb

    def __delitem__(self, name: str) -> None:
        del self._modules[name], self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class _Program(click.Group):
    """A group of verbs that turns every error into one line and an exit code."""

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
        verbs = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.get_short_help_str(_LONGEST_SENTENCE)) for name, verb in verbs])

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
    """Print text: all that verbs print. No character of it drives a terminal, but for bold headers.

    The ends of lines stay: what may have one of others is made `printable` before it is put in.
    """
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


program.commands = _Verbs()


def verb(function: Function) -> click.Command:
    """Make a function a verb; the option ``--json`` becomes its parameter `as_json`."""
    option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
    return program.command()(option(function))
