"""The run of all vectors through a program: ours are right, and what is wrong is told."""

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ..support.vectors import SPEC, VECTORS, beside, entries

PLACE = SPEC / "conformance"
ENTRIES = entries()
OURS = ["with_decoder", "with_lccodec"]

#: Makes of spec/decoder a Reader of the level in its first argument, which knows no more.
LIMITED = f"""
import json, sys
sys.path.insert(0, {str(PLACE)!r})
import with_decoder
from with_decoder import decoder
LEVEL = int(sys.argv[1])
class Beyond(Exception): ...
def beyond(level):
    if level > LEVEL:
        raise Beyond
def classed(*_):
    raise Beyond
header_of, load = decoder.frames.frame_header, decoder.files.load
def frame_header(data):
    if len(data) >= 8:
        beyond(2 if data[5] & 1 else 1)
        beyond(3 if data[3] == 3 else 1)
    return header_of(data)
def loaded(place):
    found = load(place)
    beyond(2 if {{"replaces", "exact"}} & found.manifest.keys() or found.parents else 1)
    beyond(3 if {{"later", "copies"}} & found.manifest.keys() else 1)
    return found
decoder.frames.frame_header, decoder.files.load = frame_header, loaded
if LEVEL < 3:
    decoder.streams.classed_stream = classed
for line in sys.stdin:
    asked = json.loads(line)
    try:
        beyond(3 if "bundle" in asked else 4 if "parity" in asked or "mend" in asked else 1)
        answer = with_decoder.answer(asked)
    except Beyond:
        answer = {{"unsupported": "beyond the level"}}
    print(json.dumps({{"id": asked["id"], **answer}}), flush=True)
"""


def run(*words: object, code: int = 0) -> list[str]:
    """Run the program; return the lines that it prints."""
    command = [sys.executable, str(PLACE / "run.py"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.fixture(name="wrong", scope="module")
def _wrong(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., list[str]]]:
    """The program in this process, given answers that are wrong: the questions are made once."""
    with beside("run", PLACE) as program, pytest.MonkeyPatch.context() as patch:
        questions = list(program.cases(tmp_path_factory.mktemp("questions")))
        patch.setattr(program, "cases", lambda _: questions)

        def wrong(*words: object) -> list[str]:
            patch.setattr(sys, "argv", ["run.py", *map(str, words)])
            with redirect_stdout(io.StringIO()) as told:
                assert program.main() == 1
            return told.getvalue().splitlines()

        yield wrong


def answering(text: str) -> list[str]:
    """A program that gives the same answer to all questions, with the right id."""
    program = (
        "import json, sys\n"
        "for line in sys.stdin:\n"
        f"    print(json.dumps({{'id': json.loads(line)['id'], **{text}}}), flush=True)"
    )
    return [sys.executable, "-c", program]


@pytest.fixture(name="corpus")
def _corpus() -> Iterator[ModuleType]:
    with beside("corpus", PLACE) as corpus:
        yield corpus


@pytest.mark.slow
@pytest.mark.parametrize("ours", OURS)
def test_our_decoders_are_right(ours: str) -> None:
    *lines, last = run("--level", 4, "--", sys.executable, PLACE / f"{ours}.py")
    count = int(last.split()[3])
    assert last == f"level 4 (mend): {count} of {count} answers are right"
    assert count >= len(ENTRIES)
    assert lines[0].split() == ["section", "rule", "right", "of"]
    assert sum(int(line.split()[-1]) for line in lines[1:]) == count
    rows = {line[9:35].strip() for line in lines[1:]}
    assert {entry["rule"] for entry in ENTRIES if "rule" in entry} <= rows
    sections = [line[:8].strip() for line in lines[1:] if line[:8].strip()]
    numbers = [[int(part) for part in section.split(".")] for section in sections]
    assert numbers == sorted(numbers)


@pytest.mark.slow
def test_what_is_too_large_to_store() -> None:
    command = ["--level", 4, "--large", "--only", "large.", "--", sys.executable, PLACE / "with_lccodec.py"]
    assert run(*command)[-1] == "level 4 (mend): 3 of 3 answers are right"


@pytest.mark.slow
def test_our_writer_is_right() -> None:
    count = sum(entry["kind"] == "checkpoint" and "rule" not in entry for entry in ENTRIES)
    (last,) = run("--writer", "--", sys.executable, PLACE / "with_lccodec.py")
    assert last == f"{count} of {count} files hold the states that were to be written"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "beyond"), [(1, "planes-int8-relative"), (2, "smooth-sum"), (3, "@mended")]
)
def test_a_level_needs_nothing_beyond_it(level: int, beyond: str, tmp_path: Path) -> None:
    program = tmp_path / "limited.py"
    program.write_text(LIMITED)
    *_, last = run("--level", level, "--", sys.executable, program, level)
    assert int(last.split()[-4]) >= sum(entry["level"] > level for entry in ENTRIES)
    lines = run("--level", level + 1, "--only", beyond, "--", sys.executable, program, level, code=1)
    assert lines[-1].endswith(f": 0 of {len(lines) - 3} answers are right")


def test_every_vector_has_a_level() -> None:
    levels = {entry["level"] for entry in ENTRIES}
    assert levels == {1, 2, 3, 4}
    for level in levels:  # of each some that are valid, and some that are not
        assert {"rule" in entry for entry in ENTRIES if entry["level"] == level} == {True, False}
    first = [entry for entry in ENTRIES if entry["level"] == 1 and entry.get("method")]
    assert {entry["method"] for entry in first} == {"raw", "planes", "codebook"}
    needed = [entry for entry in first if entry["reference"] and "needless" not in entry["name"]]
    assert not needed
    assert not [entry for entry in first if "classed" in entry["forms"]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{'rule': 'LCC-FRM-08'}", "refused by LCC-FRM-08; it is valid"),
        ("{'unsupported': 'no'}", "of level 1, and said to be unsupported: no"),
        ("{}", 'dtype is null, not "bool"'),
        ("{'dtype': 'bool', 'shapes': [[7]], 'sha256': ''}", 'sha256 is "", not "860c'),
        (
            "{'dtype': 'bool', 'shapes': [[7]], 'sha256': '', 'values': '0001010500'}",
            "the values (5 bytes of 7) differ from byte 3 on",
        ),
        (
            "{'dtype': 'bool', 'shapes': [[7]], 'sha256': '', 'values': '00'}",
            "the values (1 bytes of 7) are as far as they go",
        ),
        ("{'dtype': 'bool', 'shapes': [[True]], 'sha256': ''}", "shapes is [true], not [7]"),
    ],
)
def test_what_is_wrong_with_a_frame_is_told(wrong: Callable[..., list[str]], text: str, told: str) -> None:
    lines = wrong("--only", "raw-bool", "--", *answering(text))
    assert any(line.startswith(f"raw-bool: {told}") for line in lines), lines
    assert any(line.endswith("<--") for line in lines)
    assert lines[-1] == "level 3 (full): 0 of 2 answers are right"  # it is frozen, too


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{'rule': 'LCC-FRM-07'}", "refused by LCC-FRM-07; it breaks LCC-FRM-08"),
        ("{}", "read, but it breaks"),
    ],
)
def test_what_is_wrong_with_a_refusal_is_told(wrong: Callable[..., list[str]], text: str, told: str) -> None:
    lines = wrong("--only", "LCC-FRM-08", "--", *answering(text))
    assert sum(told in line for line in lines) == sum("LCC-FRM-08" in entry["name"] for entry in ENTRIES)


@pytest.mark.parametrize(
    ("program", "seconds", "told"),
    [
        ("pass", 60, "the program ended"),
        ("input(); print('no JSON')", 60, "not an answer to raw-bool: 'no JSON"),
        ("input(); print('{\"id\": 1}')", 60, "not an answer to raw-bool"),
        ("input(); print('[]')", 60, "not an answer to raw-bool"),
        ("import sys; input(); sys.stdout.buffer.write(b'\\xff\\n')", 60, "the program ended"),
        ("import time; time.sleep(1000)", 0.5, "no answer within 0.5 s"),
    ],
)
def test_a_program_that_does_not_answer(
    wrong: Callable[..., list[str]], program: str, seconds: float, told: str
) -> None:
    command = [sys.executable, "-c", program]
    lines = wrong("--only", "raw-bool", "--timeout", seconds, "--", *command)
    assert any(line.startswith(f"raw-bool: {told}") for line in lines), lines


@pytest.mark.slow
def test_what_is_wrong_with_a_written_file_is_told() -> None:
    lines = run("--writer", "--", *answering("{}"), code=1)
    assert lines[0] == "nested: no file was written"
    assert run("--writer", "--", *answering("{'unsupported': 'x'}"), code=1)[0] == "nested: not written: x"
    for name, told in [("array", "the file has another tree"), ("LCC-TRL-01", "the file breaks LCC-")]:
        path = next(VECTORS.glob(f"*/{name}*.lcc.h5"))
        program = (
            "import json, shutil, sys\n"
            "for line in sys.stdin:\n"
            "    asked = json.loads(line)\n"
            f"    shutil.copy({str(path)!r}, asked['write'])\n"
            "    print(json.dumps({'id': asked['id']}), flush=True)"
        )
        lines = run("--writer", "--", sys.executable, "-c", program, code=1)
        assert lines[0].startswith(f"nested: {told}"), lines


def test_the_corpus_is_asked_with_absolute_paths(corpus: ModuleType, tmp_path: Path) -> None:
    asked: list[Any] = list(corpus.cases(tmp_path))
    assert len({case.name for case in asked}) == len(asked)
    kinds = {next(iter(case.question)) for case in asked}
    assert kinds == {"frame", "file", "chain", "bundle", "parity", "mend"}
    for case in asked:
        assert Path(next(iter(case.question.values()))).is_absolute()
        assert (case.rule is None) != (case.expected is None)
