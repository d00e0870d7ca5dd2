"""The machine of mutation testing, on a small package; what is said to survive vectors."""

import hashlib
import importlib.util
import re
import shutil
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from .support.programs import run_program

ROOT = Path(__file__).parents[1]
FUZZ = ROOT / "fuzz"

READER = b'''"""A reader of one byte."""

LIMIT: int = 1 << 4


def read(data: bytes) -> int:
    """Return the byte."""
    if not data or len(data) > 1:
        raise ValueError("LCC-XYZ-01", f"{len(data)} bytes, not {1}")
    if not 0 < data[0] <= LIMIT:
        raise OverflowError
    return [value for value in data if value % 2][0]
'''

NAMES = """\
LIMIT: 2 for 1 in `1 << 4`
LIMIT: 5 for 4 in `1 << 4`
read: without `not data`
read: without `len(data) > 1`
read: `len(data) > 1` as `len(data) >= 1`
read: 2 for 1 in `len(data) > 1`
read: no raise LCC-XYZ-01
read: without `0 < data[0]`
read: without `data[0] <= LIMIT`
read: `0 < data[0] <= LIMIT` as `0 <= data[0] <= LIMIT`
read: `0 < data[0] <= LIMIT` as `0 < data[0] < LIMIT`
read: 1 for 0 in `0 < data[0] <= LIMIT`
read: 1 for 0 in `data[0]`
read: no raise OverflowError
read: without `if value % 2`
read: 3 for 2 in `value % 2`
read: 1 for 0 in `[value for value in data if value % 2][0]`
""".splitlines()

#: Asks a package with a fault, in a child, for what it makes of some bytes.
ASKED = """
import importlib, sys
from pathlib import Path
package = Path(sys.argv[1])
sys.path[:0] = [sys.argv[2], str(package.parent)]
import faulty
from sites import mutants
faulty.CPU_SECONDS = 1
wanted = {b"\\1": 1, b"\\3": 3, b"\\x0f": 15, b"\\1\\1": None, b"\\0": None, b"\\x11": None, b"": None}
def read(reader, value):
    try:
        return reader.read(value)
    except (ValueError, OverflowError):
        return None
def told(mutant):
    faulty.install(mutant, package)
    reader = importlib.import_module("tiny.reader")
    return next((value.hex() for value, right in wanted.items() if read(reader, value) != right), None)
importlib.import_module("tiny.reader")
for mutant in mutants(package, "reader.py"):
    print(mutant.what, faulty.in_a_child(lambda: told(mutant)), sep=": ")
def for_ever():
    while True: ...
print(faulty.in_a_child(for_ever))
"""


@pytest.fixture(autouse=True)
def _fuzz_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FUZZ))


@pytest.fixture(name="package")
def _package(tmp_path: Path) -> Path:
    package = tmp_path / "tiny"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "reader.py").write_bytes(READER)
    return package


def test_each_fault_has_a_name(package: Path) -> None:
    found = import_module("sites").mutants(package, "reader.py")
    assert [mutant.name for mutant in found] == [f"reader.py {name}" for name in NAMES]
    assert {mutant.function for mutant in found} == {"", "read"}


def test_a_name_tells_equal_faults_apart(package: Path) -> None:
    (package / "twice.py").write_text("def f(x):\n    return [0, 0, g(0)]\n")
    names = [mutant.name.partition(": ")[2] for mutant in import_module("sites").mutants(package, "twice.py")]
    assert names == ["1 for 0 in `[0, 0, g(0)]`", "1 for 0 in `[0, 0, g(0)]` (2)", "1 for 0 in `g(0)`"]


def test_a_mutant_is_the_source_with_one_fault(package: Path) -> None:
    for mutant in import_module("sites").mutants(package, "reader.py"):
        source = mutant.mutated(READER)
        compile(source, "reader.py", "exec")
        assert source != READER
        assert source[: mutant.start] == READER[: mutant.start]
        assert source.endswith(READER[mutant.end :])


@pytest.mark.slow
def test_mutants_are_noticed(package: Path) -> None:
    *lines, limited = run_program(ASKED, package, FUZZ).stdout.splitlines()
    told = dict(line.rsplit(": ", 1) for line in lines)
    assert len(told) == len(NAMES)
    survivors = {name for name, answer in told.items() if answer == "None"}
    # All bytes that are asked for are odd.
    assert survivors == {"without `if value % 2`", "`0 < data[0] <= LIMIT` as `0 < data[0] < LIMIT`"}
    assert told["no raise LCC-XYZ-01"] == "0101"
    assert told["1 for 0 in `data[0]`"] == "limits"  # an error that the reader does not have
    assert limited == "limits"


#: Asks which mutants some bytes reach.
REACHED = """
import importlib, sys
from pathlib import Path
package = Path(sys.argv[1])
sys.path[:0] = [sys.argv[2], str(package.parent)]
from reached import Reached
from sites import mutants
found = mutants(package, "reader.py")
reached = Reached(package, found)
reader = importlib.import_module("tiny.reader")
for value in (b"\\3", b""):
    reached.begin()
    try:
        reader.read(value)
    except ValueError:
        pass
    print(*(found[place].what for place in reached.places), sep="; ")
"""


def test_what_bytes_reach(package: Path) -> None:
    three, nothing = run_program(REACHED, package, FUZZ).stdout.splitlines()
    outside = ["2 for 1 in `1 << 4`", "5 for 4 in `1 << 4`"]  # of all functions: they may be
    within = ["`len(data) > 1` as `len(data) >= 1`"]
    first = ["1 for 0 in `data[0]`", "1 for 0 in `[value for value in data if value % 2][0]`"]
    assert three.split("; ") == [*outside, *within, first[0], "3 for 2 in `value % 2`", first[1]]
    assert nothing.split("; ") == [*outside, "without `not data`", "no raise LCC-XYZ-01"]


def test_the_page_names_mutants_that_there_are() -> None:
    """A name is wrong as soon as its function changes: run ``fuzz/mutants.py --only MODULE``."""
    mutation = import_module("mutants")
    text = mutation.TABLE.read_text(encoding="utf-8")
    table = mutation.table(text)
    assert len(table) == len(re.findall(r"^[a-z0-9_/]+\.py .*: ", text.partition("### Of")[0], re.MULTILINE))
    names = Counter(
        mutant.name
        for folder, own in mutation.READERS.items()
        for name in own
        for mutant in import_module("sites").mutants(mutation.PACKAGE, Path(folder, f"{name}.py").as_posix())
    )
    assert set(names.values()) == {1}
    assert table.keys() <= names.keys()
    for reason in table.values():
        test = mutation.test_in(reason)
        if test is None:
            assert reason.startswith(("Equivalent: ", "Equivalent where ", "Open: "))
        else:
            assert (ROOT / test).exists()


def test_the_page_names_mutants_of_the_decoders() -> None:
    mutation = import_module("mutants")
    text = mutation.TABLE.read_text(encoding="utf-8")
    for what in ("decoder", "wrong", "reader"):
        names = Counter(mutant.name for mutant in mutation.mutants_of(what, None))
        assert set(names.values()) == {1}
        assert mutation.table(text, what).keys() <= names.keys()


def test_wrong_decoders_are_patches_of_the_decoder() -> None:
    wrong = import_module("wrong")
    found = wrong.wrong_decoders()
    assert len(found) > 600
    for number, mutant in enumerate(found):
        source = (wrong.DECODER / mutant.path).read_bytes()
        assert mutant.mutated(source) != source, mutant.name
        if number % 20 == 0:
            compile(mutant.mutated(source), mutant.path, "exec")


def test_a_wrong_decoder_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the vectors of its kind: one of each group, with the frames that are named for it."""
    wrong = import_module("wrong")
    monkeypatch.syspath_prepend(str(ROOT / "spec" / "conformance"))
    cases = {case.name: case for case in importlib.import_module("corpus").cases(tmp_path)}
    for name, vector in (
        ("codebooks: adds +0.0 for symbol 0, float64", "codebook-float64-sums"),
        ("fields: limits before the reference", "smooth-float32-flags-7"),
        ("streams: counts values that are not 0 for a sparse stream", "LCC-LIM-14-gaps-of-zeros"),
    ):
        (mutant,) = (one for one in wrong.wrong_decoders() if one.what == name)
        package = tmp_path / name.partition(":")[0] / "decoder"
        shutil.copytree(wrong.DECODER, package, ignore=shutil.ignore_patterns("__pycache__"))
        path = package / mutant.path
        path.write_bytes(mutant.mutated(path.read_bytes()))
        spec = importlib.util.spec_from_file_location("decoder", package / "__init__.py")
        assert spec is not None
        assert spec.loader is not None
        with monkeypatch.context() as patch:
            for loaded in [own for own in sys.modules if own.partition(".")[0] == "decoder"]:
                patch.delitem(sys.modules, loaded)
            decoder = importlib.util.module_from_spec(spec)
            patch.setitem(sys.modules, "decoder", decoder)
            spec.loader.exec_module(decoder)
            question = cases[vector].question
            reference = question["reference"] and Path(question["reference"]).read_bytes()
            expected = cases[vector].expected
            try:
                *_, data = decoder.decode_frame(Path(question["frame"]).read_bytes(), reference)
                right = expected and hashlib.sha256(data).hexdigest() == expected["sha256"]
            except decoder.Refused as error:
                right = error.rule == cases[vector].rule
            for loaded in [own for own in sys.modules if own.startswith("decoder.")]:
                del sys.modules[loaded]
        assert not right, name


def test_faults_in_javascript() -> None:
    source = (
        "// throw new FormatError('x'); 1\n"
        "export function read(n) {\n"
        "  if (n < 2 || (n > 7 && n !== 'a < b')) throw new FormatError('LCC-XYZ-01', `${n} of 3`);\n"
        "  return n;\n"
        "}\n"
    )
    found = import_module("javascript").faults("x.js", source)
    whats = [mutant.what.partition(" in ")[0] for mutant in found]
    assert whats == [
        *("no throw LCC-XYZ-01", "`<=` for `<`", "`>=` for `>`", "3 for 2", "8 for 7", "without `n < 2`"),
        *("without `(n > 7 && n !== 'a < b')`", "without `n > 7`", "without `n !== 'a < b'`"),
    ]
    texts = [mutant.mutated(source.encode()).decode().splitlines()[2].strip() for mutant in found]
    assert texts[0] == "if (n < 2 || (n > 7 && n !== 'a < b')) ;"
    assert texts[5].startswith("if ((n > 7 && n !== 'a < b')) throw")
    assert texts[8].startswith("if (n < 2 || (n > 7)) throw")
