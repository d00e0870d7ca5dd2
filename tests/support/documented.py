"""The commands that pages show: in blocks of code, and in prose and tables."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: All pages of the repository but the history of changes, whose commands were those of their time.
PAGES = [
    *(page for page in sorted(ROOT.glob("*.md")) if page.name != "CHANGELOG.md"),
    *sorted((ROOT / "docs").glob("*.md")),
    *(
        page
        for name in ("lccodec", "benchmarks", "fuzz", "spec")
        for page in sorted((ROOT / name).rglob("*.md"))
    ),
]
_FENCE = re.compile(r"^ *```[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"(?:^|&& )(?:\.venv/bin/)?lccodec (?P<words>[a-z].*)")
_INLINE = re.compile(r"`lccodec (?!checkpoint:)([a-z][^`]*)`")


@dataclass(frozen=True)
class Command:
    """A command as a page shows it."""

    words: tuple[str, ...]  # what follows the name of the program
    comment: str  # behind a number sign
    output: tuple[str, ...] = ()  # the lines that the page shows below it

    @property
    def verb(self) -> str:
        """The verb of the command."""
        return self.words[0]

    @property
    def text(self) -> str:
        """The command in one line."""
        return shlex.join(self.words)


@dataclass(frozen=True)
class Shown:
    """Commands that a page shows together, to be run one after the other."""

    page: str
    commands: tuple[Command, ...]

    def __str__(self) -> str:
        return f"{Path(self.page).name}: {self.commands[0].text}"


def all_shown() -> list[Shown]:
    """What all pages show, each once."""
    found = {shown.commands: shown for page in reversed(PAGES) for shown in reversed([*shown_on(page)])}
    return [*reversed(found.values())]


def named() -> list[Command]:
    """Verbs that the prose of pages names without an argument, some with options."""
    texts = "".join(_FENCE.sub("", page.read_text()) for page in PAGES)
    found = (_command(" ".join(words.split())) for words in _INLINE.findall(texts))
    return list(dict.fromkeys(command for command in found if not _has_argument(command)))


def shown_on(page: Path) -> Iterator[Shown]:
    """The commands of a page: those of each block, and each of its prose that has an argument."""
    text, name = page.read_text(), page.relative_to(ROOT).as_posix()
    for block in _FENCE.findall(text):
        prompt = "$ " if block.startswith("$ ") else ""  # lines without one are output
        lines = re.sub(r"\\\n *", "", block).splitlines()
        starts = [place for place, line in enumerate(lines) if line.startswith(prompt)]
        commands = []
        for start, end in zip(starts, [*starts[1:], None], strict=True):
            if match := _LINE.search(lines[start].removeprefix(prompt)):
                commands.append(_command(match["words"], lines[start + 1 : end]))
        if commands:
            yield Shown(name, tuple(commands))
    for words in _INLINE.findall(_FENCE.sub("", text)):
        command = _command(" ".join(words.split()))
        if _has_argument(command):
            yield Shown(name, (command,))


def _has_argument(command: Command) -> bool:
    return any(not word.startswith("-") for word in command.words[1:])


def _command(line: str, output: Sequence[str] = ()) -> Command:
    words, _, comment = line.partition(" #")
    return Command(tuple(shlex.split(words)), comment, tuple(output))
