"""The documentation: its programs run, crash and go on with every bit; its lists are complete."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import lccodec
from lccodec import errors, exchange

from .support.pages import DOCS, ROOT, programs, run

START = DOCS / "start.md"
CRASH_STEP = 140
LAST_STEP = 480

#: Runs the program in a file. When it reports the step of the crash and what was saved before is on
#: the disk, the process is killed, as by a loss of power.
KILLED = """
import os, signal, sys
def report(step, loss):
    if step == int(sys.argv[2]):
        names["chain"].wait()
        os.kill(os.getpid(), signal.SIGKILL)
names = {"__name__": "__main__", "print": report}
exec(open(sys.argv[1]).read(), names)
"""


def headings(text: str) -> set[str]:
    """Where links inside a page lead to."""
    return {name.lower().replace(" ", "-") for name in re.findall(r"^### (.*)$", text, re.MULTILINE)}


def loaded(path: Path) -> ModuleType:
    """Return the module of a file that no package has."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hooks = loaded(DOCS / "hooks.py")
defaults = loaded(DOCS / "defaults.py")


def newest_state() -> bytes:
    """Return the newest state of the chain that programs save to, as bytes."""
    with lccodec.Chain("run") as chain:
        assert chain.steps[-1] == LAST_STEP
        assert chain.info().exact
    return lccodec.save(lccodec.load_file("run/exact.lcc.h5"))


def program_of(framework: str) -> str:
    (program,) = [program for program in programs(START) if program.startswith(f"import {framework}")]
    return program


def assert_as_shown(directory: Path) -> None:
    """The page shows about as many bytes as a run of its program has; initial weights differ."""
    shown = re.search(r"keyframes: ([\d,]+) bytes for ([\d,]+) \(([\d.]+)x\)", START.read_text())
    assert shown is not None
    stored, whole = (int(number.replace(",", "")) for number in shown.groups()[:2])
    chain = lccodec.Chain(directory)
    infos = [chain.info(step) for step in chain.steps]
    assert sum(info.nbytes for info in infos) == whole
    assert abs(sum(info.file_bytes for info in infos) / stored - 1) < 0.1
    assert f"{whole / stored:.1f}" == shown[3]


def begin_equally() -> None:
    """Let a new model begin with the same weights in every run."""
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bytes]:
    """The newest state after a run of a framework's program that nothing interrupts."""

    @functools.cache
    def of_framework(framework: str) -> bytes:
        with contextlib.chdir(tmp_path_factory.mktemp("whole")):
            begin_equally()
            run(program_of(framework), lambda *_: None)
            if framework == "torch":
                assert_as_shown(Path("run"))
            return newest_state()

    return of_framework


def test_readme_begins_with_the_loop_of_the_page() -> None:
    assert programs(ROOT / "README.md") == [program_of("torch")]
    assert programs(DOCS / "README.md") == [program_of("torch")]


def test_the_index_begins_with_the_program() -> None:
    """What it does in a sentence, the picture, the loop, the commands; then all pages."""
    text = (DOCS / "README.md").read_text()
    _, sentence, picture, *_ = text.split("\n\n")
    assert sentence.count(".") == 1
    assert picture.startswith("![") and picture.endswith("](images/report.png)")
    assert text.index("```python\n") < text.index("\nlccodec ls ") < text.index("| section | question |")
    linked = set(re.findall(r"^\| .*\[.*\]\(([\w-]+\.md)\)", text, re.MULTILINE))
    pages = {page.name for page in DOCS.glob("*.md")} - {"README.md"}
    assert linked == {page for page in pages if not page.startswith("api-")}


def test_the_loop_has_fifteen_lines() -> None:
    assert len([line for line in program_of("torch").splitlines() if line]) <= 15


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_run_that_was_stopped_ends_with_the_same_bits(
    framework: str, whole: Callable[[str], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = program_of(framework)
    reported: list[int] = []

    def report(step: int, _: Any) -> None:
        reported.append(step)
        if step == CRASH_STEP and reported.count(step) == 1:
            raise KeyboardInterrupt

    expected = whole(framework)
    monkeypatch.chdir(tmp_path)
    begin_equally()
    with pytest.raises(KeyboardInterrupt):
        run(program, report)
    assert reported == list(range(0, CRASH_STEP + 1, 20))
    run(program, report)
    assert reported[-1] == LAST_STEP
    assert reported.count(CRASH_STEP) == 2, "the step of the crash was not saved, and is done again"
    assert reported.count(CRASH_STEP - 20) == 1, "what was saved is not done again"
    assert newest_state() == expected


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs a signal that cannot be caught")
def test_a_run_that_was_killed_ends_with_the_same_bits(
    whole: Callable[[str], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = whole("torch")
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(program_of("torch"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    begin = "import torch; torch.manual_seed(0)\n"
    command = [sys.executable, "-c", begin + KILLED, "train.py", str(CRASH_STEP)]
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    reported: list[int] = []
    run(program_of("torch"), lambda step, _: reported.append(step))
    assert reported[0] == CRASH_STEP
    assert newest_state() == expected


@pytest.mark.slow
def test_ranks_save_and_load_with_the_program_of_the_page(tmp_path: Path) -> None:
    (program,) = programs(DOCS / "frameworks.md")
    (tmp_path / "ranks.py").write_text(program)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["ranks.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        with lccodec.Chain(tmp_path / "run" / "chain" / f"rank-{rank}") as chain:
            assert chain.steps[-1] == 2


def test_every_program_of_a_page_is_run_here() -> None:
    pages = [page.name for page in sorted(DOCS.glob("*.md")) if programs(page)]
    others = ["notebook.md", "tracking.md", "weightsync.md"]  # which have tests of their own
    assert pages == sorted(["README.md", "frameworks.md", "start.md", *others])


def test_every_rule_has_a_cause_and_a_cure() -> None:
    """The tables have each rule once, with its text and errors as in the table of the format."""
    text = (DOCS / "errors.md").read_text()
    rules = json.loads((ROOT / "spec" / "tables" / "rules.json").read_bytes())
    rows = re.findall(r"^\| (LCC-\S+) \| (.*) \|(.*)\| \[.*\]\(#(.*)\) \|$", text, re.MULTILINE)
    assert sorted(name for name, *_ in rows) == sorted(rules)
    for name, what, kinds, anchor in rows:
        assert (what, kinds.strip()) == (rules[name]["rule"], ", ".join(rules[name]["errors"])), name
        assert anchor in headings(text), name
        assert (anchor == "not-reported") == (not kinds.strip()), name


#: What is called with a rule.
OF_A_RULE = {"Problem"} | {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.DataError)
}


def words_for_rules() -> set[str]:
    """What the code gives as a rule that is none of the format: in a call, or as a constant."""
    given: list[ast.expr] = []
    for path in (ROOT / "lccodec").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in OF_A_RULE:
                given += node.args[:1]
            elif isinstance(node, ast.AnnAssign) and ast.unparse(node.target).endswith("RULE"):
                given += [node.value] if node.value else []
    texts = {each.value for node in given for each in ast.walk(node) if isinstance(each, ast.Constant)}
    return {text for text in texts if isinstance(text, str) and not text.startswith("LCC-")}


def test_every_word_in_the_place_of_a_rule_has_a_cause_and_a_cure() -> None:
    text = (DOCS / "errors.md").read_text()
    rows = dict(re.findall(r"^\| `(\S+)` \| .* \| \[.*\]\(#(.*)\) \|$", text, re.MULTILINE))
    assert rows.keys() == words_for_rules()
    assert set(rows.values()) <= headings(text)


def test_every_class_of_error_is_explained() -> None:
    text = (DOCS / "errors.md").read_text()
    own = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    kinds = {name for name, kind in own.items() if kind.__module__ == errors.__name__}
    assert {name for name in kinds if f"`{name}`" not in text} == set()


def test_the_reference_has_every_public_name() -> None:
    pages = "".join(page.read_text() for page in DOCS.glob("api-*.md"))
    names = re.findall(r"^::: lccodec\.(\w+)$", pages, re.MULTILINE)
    assert sorted(names) == sorted(set(lccodec.__all__) - {"__version__"})
    names = re.findall(r"^::: lccodec\.exchange\.(\w+)$", pages, re.MULTILINE)
    assert sorted(names) == sorted(set(exchange.__all__) - {"LAYOUTS", "RULES"})


def test_the_reference_lists_its_pages() -> None:
    listed = re.findall(r"^\| \[.*\]\((api-\w+\.md)\)", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in DOCS.glob("api-*.md"))


class Expression:
    """An expression as griffe has it, of one name."""

    def __init__(self, text: str, path: str) -> None:
        self.text, self.canonical_path = text, path

    def __str__(self) -> str:
        return self.text

    def iterate(self, *, flat: bool) -> list[Expression]:
        assert flat
        return [self]


@pytest.mark.parametrize(
    ("name", "path", "module", "wanted"),
    [
        ("KEYFRAME_EVERY", "chain.save.plan.KEYFRAME_EVERY", "chain.chain", "32"),
        ("KEYFRAME_EVERY", "chain.save.plan.KEYFRAME_EVERY", "not_installed", "32"),
        ("dict(STEPS)['second_moment']", "policy.balanced.STEPS", "policy.balanced", "LogSteps()"),
        ("UNKNOWN", "container.manifest.UNKNOWN", "chain.read.info", "Figures()"),
    ],
)
def test_defaults_are_shown_as_values(name: str, path: str, module: str, wanted: str) -> None:
    assert defaults.shown(Expression(name, f"lccodec.{path}"), f"lccodec.{module}") == wanted


def test_other_defaults_are_shown_as_they_are() -> None:
    of_python = Expression("dict()", "dict")
    assert defaults.shown(of_python, "lccodec.chain.chain") is of_python
    of_a_call = Expression("Lossless()", "lccodec.quantizers.base.Lossless")
    assert defaults.shown(of_a_call, "lccodec.not_installed") is of_a_call
    assert defaults.shown(None, "lccodec.chain.chain") is None


def test_the_name_of_a_constant_in_a_signature_is_found() -> None:
    assert hooks.CONSTANT.search("Chain(keyframe_every: int = KEYFRAME_EVERY)")
    assert hooks.CONSTANT.search("Balanced(roles: Mapping = (lambda: dict(STEPS))())")
    assert not hooks.CONSTANT.search("LCSave(every: int = 32, a: LCSave = Lossless(), best: X = None)")


def test_the_site_has_every_page() -> None:
    named = set(re.findall(r"(?:: |- )([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert named == {page.name for page in DOCS.glob("*.md")}


def test_the_site_has_every_decision() -> None:
    named = re.findall(r"- spec/decisions/([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert named == sorted(page.name for page in (ROOT / "spec" / "decisions").glob("*.md"))


def test_each_version_has_a_folder_of_the_site_and_the_newest_comes_first(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.10.0", "0.1.0", "assets"):
        (tmp_path / name).mkdir()
    hooks.list_versions(tmp_path)
    listed = json.loads((tmp_path / "versions.json").read_text())
    assert [entry["version"] for entry in listed] == ["0.10.0", "0.9.0", "0.1.0"]
    assert 'href="0.10.0/index.html"' in (tmp_path / "index.html").read_text()
    assert hooks.version() == lccodec.__version__


def test_pictures_have_a_text_for_those_who_do_not_see_them() -> None:
    for page in DOCS.glob("*.md"):
        for text, _ in re.findall(r"!\[([^]]*)\]\(([^)]*)\)", page.read_text()):
            assert len(text.split()) > 4, page
    drawn = {picture.name for picture in (DOCS / "pictures").glob("*.svg")}
    assert drawn == set(re.findall(r"pictures/(\w+\.svg)", (DOCS / "works.md").read_text()))


def test_examples_in_docstrings_are_set_as_code() -> None:
    text = "What it does.\n\n>>> 1 + 1\n2\n\nSee :mod:`lccodec`.\n```python\n>>> 2\n```\n>>> 3"
    wanted = "What it does.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nSee `lccodec`.\n```python\n>>> 2\n```\n"
    assert "\n".join(hooks._fenced(text.splitlines())) == wanted + "```pycon\n>>> 3\n```"


@pytest.mark.parametrize(
    ("uri", "link", "wanted"),
    [
        ("bundles.md", "[bytes](../spec/SPEC.md#9-chains)", "[bytes](spec/SPEC.md#9-chains)"),
        ("bundles.md", "[saving](saving.md)", "[saving](saving.md)"),
        ("spec/SPEC.md", "[a folder](vectors)", "a folder"),
        (
            "spec/SPEC.md",
            "[why](decisions/0007-classed-streams.md)",
            "[why](decisions/0007-classed-streams.md)",
        ),
        ("project.md", "[start](docs/start.md#pytorch)", "[start](start.md#pytorch)"),
        ("benchmarks/README.md", "[first](../README.md)", "[first](../project.md)"),
        ("works.md", "![a loop](pictures/loop.svg)", "![a loop](pictures/loop.svg)"),
        ("works.md", "[elsewhere](https://example.org/a)", "[elsewhere](https://example.org/a)"),
        ("works.md", "[below](#bias)", "[below](#bias)"),
        ("works.md", "```\n[code](../README.md)\n```", "```\n[code](../README.md)\n```"),
    ],
)
def test_links_of_the_repository_lead_to_pages_of_the_site(uri: str, link: str, wanted: str) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri=uri))
    assert hooks.on_page_markdown(link, page) == wanted


def test_what_a_page_would_load_is_found() -> None:
    assert hooks.OUTSIDE.search('<p><script async src="https://example.org/x.js"></script>')
    assert hooks.OUTSIDE.search('<link rel="preconnect" href=//fonts.example.org>')
    assert not hooks.OUTSIDE.search('<a href="https://example.org">there</a> <img src="x.png">')
