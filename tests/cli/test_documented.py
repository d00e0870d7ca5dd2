"""Every command that a page shows is run as it stands, on files like those that it names.

Commands of one block are run one after the other, in one directory, as a reader would. Each starts
with the files of `_workplace`. What is not run is listed here with a reason, and read by click.
"""

import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click
import h5py
import numpy as np
import pytest
import tensorboard  # noqa: F401 - for what --tensorboard writes
import torch

import lccodec
import lccodec.adapters.torch as torch_adapter
from lccodec import exchange
from lccodec.adapters import npz, safetensors
from lccodec.adapters.chains import save_linked
from lccodec.cli.program import program
from lccodec.report import drawing_library

from ..support.commands import run

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


ALL = all_shown()
VERBS = {name: program.get_command(None, name) for name in program.list_commands(None)}
COMMANDS = list(dict.fromkeys(command for shown in ALL for command in shown.commands))

#: Commands that are not run, and why.
_FOLLOWS = "goes on until it is interrupted; tests/cli/test_share.py runs it"
_BUCKET = "needs a bucket; tests/chain/store/bucket/test_store.py runs it"
ONLY_READ = {
    "demo": "trains a network for 10 s; .ci/run runs it on a fresh machine",
    "pull run/ model/ --model model --start 0 --follow": _FOLLOWS,
    "publish run/ published/ --as weight-versions --model model --start 0 --follow": _FOLLOWS,
    "ls s3://bucket/run": _BUCKET,
    "bundle s3://bucket/run -o run.lcc": _BUCKET,
}

#: Bundling the library for charts takes a second.
library = cache(drawing_library)

#: An option in a text.
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def state(step: int) -> dict[str, object]:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((30, 20), np.float32)
    for _ in range(0, step, 100):
        weight += 0.01 * rng.standard_normal(weight.shape, np.float32)
    return {"model": {"layer.weight": weight, "layer.bias": np.full(20, step, np.float32)}, "step": step}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with all that commands name."""
    place = tmp_path_factory.mktemp("documented")
    for name, policy in [
        ("run", "balanced"),
        ("run-a", "balanced"),
        ("run-b", "small"),
        ("states", "lossless"),
    ]:
        with lccodec.Chain(place / name, policy=policy) as chain:
            for step in range(100, 1000, 100):
                chain.save(step, state(step), metrics={"loss": 1 / step})
    lccodec.bundle(place / "run", place / "run.lcc")
    for step in (100, 200, 300, 1000):
        safetensors.save_file(state(step), place / f"step{step}.safetensors")
        npz.save_file(state(step), place / f"step{step}.npz")
    shutil.copytree(
        place, place / "folder", ignore=lambda _, names: [n for n in names if "step" not in n or "npz" in n]
    )
    for step in (500, 1000, 1500):
        folder = place / "hf" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        safetensors.save_file(state(step), folder / "model.safetensors")
    with h5py.File(place / "step1000.nc", "w") as file:
        file["model/layer.weight"] = np.zeros((30, 20), "f4")
        file["names"] = np.array([b"a"])
        file["height"] = np.zeros(9, "f4")
    npz.save_file(state(1000), place / "state.npz")
    safetensors.save_file(state(1000), place / "state.safetensors")
    safetensors.save_file(state(1000), place / "model.safetensors")
    safetensors.save_file(state(1000), place / "model.safetensors.index.json")
    tensors = {name: torch.from_numpy(array) for name, array in state(400)["model"].items()}
    torch.save({"model": tensors, "step": 400}, place / "epoch=3-step=400.ckpt")
    (place / "paths").mkdir()
    with lccodec.Chain(place / "chain", "lossless", keyframe_every=0, newest="exact") as chain:
        for epoch in range(3):
            save_linked(state(epoch), place / "paths" / f"{epoch}.ckpt", {}, chain)
    (place / "paths" / "1.ckpt").unlink()
    _make_modules(place)
    return place


def _make_modules(place: Path) -> None:
    """The states of a module in both frameworks, alone and with Adam, and the rules of the page."""
    (rules,) = re.findall(
        r"^```toml\n(.*?)^```$", (ROOT / "docs" / "exchange.md").read_text(), re.DOTALL | re.MULTILINE
    )
    (place / "rules.toml").write_text(rules)
    linear = torch.nn.Linear(400, 12)
    module = torch.nn.ModuleDict({"fc1": linear})
    adam = torch.optim.Adam(module.named_parameters())
    linear(torch.ones(1, 400)).sum().backward()
    adam.step()
    torch_state = torch_adapter.to_numpy({"model": module.state_dict(), "optimizer": adam.state_dict()})[0]
    own = exchange.load_rules(place / "rules.toml")
    model = exchange.to_flax(torch_state["model"], own)
    moments = exchange.adam_to_flax(torch_state["optimizer"], None, own)
    torch.save(
        {"model": module.state_dict(), "optimizer": adam.state_dict(), "epoch": 3}, place / "epoch3.pt"
    )
    lccodec.save_file(torch_state["model"], place / "torch.lcc.h5")
    lccodec.save_file(model, place / "flax.lcc.h5")
    lccodec.save_file({"model": model, "optimizer": moments}, place / "flax-run.lcc.h5")


@pytest.fixture
def workplace(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = shutil.copytree(made, tmp_path / "place")
    monkeypatch.chdir(place)
    monkeypatch.setattr("lccodec.report.drawing_library", library)
    return place


@pytest.mark.parametrize("shown", ALL, ids=str)
def test_the_commands_of_a_page(shown: Shown, workplace: Path) -> None:
    if shown.commands[0].verb == "save":  # begins a chain
        shutil.rmtree(workplace / "run")
    for command in shown.commands:
        if command.text not in ONLY_READ:
            stdout, _ = run(*_expanded(command))
            assert stdout, command.text
            printed = stdout.replace(f"{workplace}/", "")  # pages leave out where a directory lies
            assert _alike(command.output) <= {"..."} | _alike(printed.splitlines()), command.text


def _alike(lines: Iterable[str]) -> set[str]:
    """Lines of output without what differs from run to run: figures, bars and widths of columns."""
    plain = (re.sub(r"[▁-█]+", "▁", re.sub(r"\d[\d,.]*", "0", line)) for line in lines)
    return {" ".join(line.split()) for line in plain}


def _expanded(command: Command) -> list[str]:
    """The words of a command as a shell passes them: names of files for patterns."""
    words: list[str] = []
    for word in command.words:
        words += sorted(map(str, Path().glob(word))) if "*" in word else [word]
    return words


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.text)
def test_a_command_can_be_read(command: Command) -> None:
    """By click itself, and what a comment behind it says of other options."""
    verb = VERBS[command.verb]
    with click.Context(program) as context:
        parser = verb.make_parser(click.Context(verb, parent=context))
        parser.parse_args(list(command.words[1:]))
    assert set(OPTION.findall(command.comment)) <= _options(verb), command


@pytest.mark.parametrize("name", VERBS)
def test_a_help_names_options_that_there_are(name: str) -> None:
    verb = VERBS[name]
    texts = [verb.help or "", *(getattr(parameter, "help", None) or "" for parameter in verb.params)]
    assert set(OPTION.findall(" ".join(texts))) <= _options(verb)


def _options(verb: click.Command) -> set[str]:
    return {option for parameter in verb.params for option in parameter.opts} | {"--help"}


@pytest.mark.parametrize("command", named(), ids=lambda command: command.text)
def test_what_prose_names_is_there(command: Command) -> None:
    assert set(command.words[1:]) <= _options(VERBS[command.verb])


def test_the_page_of_the_command_line_has_every_verb() -> None:
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "shell.md").read_text(), re.MULTILINE)
    verbs = [verb for row in rows for verb in re.findall(r"`([a-z][a-z-]*)`", row)]
    assert sorted(verbs) == sorted(VERBS)


def test_its_table_has_the_verbs_of_each_option() -> None:
    text = (ROOT / "docs" / "shell.md").read_text()
    rows = re.findall(r"^\| ((?:`-.*?)?) ?\| (.*?) \| .* \|$", text.partition("## Options")[2], re.MULTILINE)
    found: dict[str, set[str]] = {}
    options: list[str] = []
    for first, verbs in rows:
        options = re.findall(r"`(--?[a-z-]+)", first) or options  # an empty cell repeats the one above
        for option in options:
            found.setdefault(option, set()).update(re.findall(r"`([a-z-]+)`", verbs))
    assert len(found) > 10
    for option, verbs in found.items():
        wanted = {name for name, verb in VERBS.items() if option in _options(verb)}
        assert verbs == (set() if option == "--json" else wanted), option
    assert all("--json" in _options(verb) for verb in VERBS.values())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_tab_completion(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line of the page prints a script, and the script asks for completions like these."""
    lines = re.findall(r"_LCCODEC_COMPLETE=(\w+) lccodec", (ROOT / "docs" / "shell.md").read_text())
    assert f"{shell}_source" in lines
    monkeypatch.setattr("click.shell_completion.BashComplete._check_version", lambda *_: None)
    monkeypatch.setenv("_LCCODEC_COMPLETE", f"{shell}_source")
    assert "_lccodec_completion" in run()[0]
    monkeypatch.setenv("_LCCODEC_COMPLETE", f"{shell}_complete")
    for words, wanted in [("rest", "restore"), ("save --pol", "--policy"), ("save --policy bal", "balanced")]:
        *before, last = words.split()
        monkeypatch.setenv("COMP_WORDS", f"lccodec {words}")
        monkeypatch.setenv("COMP_CWORD", last if shell == "fish" else str(len(before) + 1))
        assert wanted in re.split(r"[\s,]", run()[0])


def test_what_is_only_read_is_shown_somewhere() -> None:
    assert set(ONLY_READ) <= {command.text for command in COMMANDS}
    assert all(ONLY_READ.values())
    assert len(COMMANDS) > 60


def test_a_command_that_there_is_not_is_found(workplace: Path) -> None:
    """As pages once had them."""
    for line in ("restore run/ -j 0 -o a.npz", "diff run-a 79 run-b 79"):
        with pytest.raises(AssertionError):
            run(*line.split())
    with pytest.raises(AssertionError):
        test_a_command_can_be_read(Command(("ls", "run/"), "-j 0: with all cores"))
    shown = Shown("", (Command(("ls", "run"), "", ("step  kind  parent",)),))
    with pytest.raises(AssertionError):
        test_the_commands_of_a_page(shown, workplace)
