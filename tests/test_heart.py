"""What README's second command runs, and that no temporary file stays."""

import re
import shutil
import tempfile
from pathlib import Path

import pytest

CONFTEST = """
import pytest, tempfile
from tests.support import heart, temporary

def pytest_addoption(parser):
    parser.addoption("--left-out", action="store_true")
    parser.addoption("--further-of", type=int, default=1)

def pytest_configure(config):
    config.pluginmanager.register(heart)
    config.pluginmanager.register(temporary)
"""
SETTINGS = """
[pytest]
testpaths = .
tmp_path_retention_policy = failed
addopts = -p no:cacheprovider --doctest-modules -m "not slow and not browser and not further"
markers =
    slow
    browser
    further
"""
CASES = """
import pytest

@pytest.mark.parametrize("case", [*range(9), pytest.param(9, marks=pytest.mark.slow)])
def test_many(case):
    pass

class TestOther:
    @pytest.mark.parametrize("case", range(9))
    def test_many(self, case):
        pass

def test_one():
    pass

@pytest.mark.slow
def test_slow():
    pass
"""
ALL = 21


@pytest.fixture
def folder(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder of tests that are looked after as those of this repository."""
    pytester.makeconftest(CONFTEST)
    (pytester.path / "pytest.ini").write_text(SETTINGS)
    return pytester


def in_temporary() -> set[Path]:
    return set(Path(tempfile.gettempdir()).iterdir())


def passed(folder: pytest.Pytester, *words: str) -> set[str]:
    """The tests that a call of pytest runs; all of them pass."""
    found = folder.runpytest_inprocess("-v", *words)
    assert found.ret == 0
    return set(re.findall(r"^(\S+::\S+) PASSED", found.stdout.str(), re.MULTILINE))


@pytest.mark.slow
def test_of_many_cases_a_few_are_drawn(folder: pytest.Pytester) -> None:
    path = folder.makepyfile(CASES)
    drawn = passed(folder)
    kinds = [name.partition("[")[0].partition("::")[2] for name in drawn]
    assert sorted(kinds) == [*["TestOther::test_many"] * 3, *["test_many"] * 3, "test_one"]
    assert passed(folder) == drawn
    others = passed(folder, "-m", "further or slow")
    assert drawn.isdisjoint(others)
    assert passed(folder, "-m", "") == drawn | others
    assert len(drawn | others) == ALL
    assert len(passed(folder, path.name)) == ALL - 2  # where a path is given: all but the slow ones
    assert passed(folder, "--left-out", "-m", "further or slow", path.name) == others
    some = passed(folder, "--left-out", "-m", "further or slow", "--further-of=2", path.name)
    assert set[str]() < some < others


@pytest.mark.slow
def test_a_case_more_takes_the_place_of_one_at_most(folder: pytest.Pytester) -> None:
    folder.makepyfile(test_some=CASES)
    few = passed(folder)
    folder.makepyfile(test_some=CASES.replace("*range(9)", "*range(10)").replace("param(9", "param(10"))
    assert len(few - passed(folder)) <= 1


LEAVES = """
import tempfile
from pathlib import Path

def test_leaves():
    Path(tempfile.mkdtemp(prefix="left-"), "file").write_text("x")

def test_goes_on(tmp_path):
    tmp_path.joinpath("file").write_text("x")
"""


def test_a_test_that_leaves_something_fails_and_it_is_removed(folder: pytest.Pytester) -> None:
    before = in_temporary()
    folder.makepyfile(LEAVES)
    found = folder.runpytest_inprocess()
    found.assert_outcomes(passed=2, errors=1)
    found.stdout.fnmatch_lines("left behind in the temporary directory: left-*")
    folder.makepyfile(LEAVES.replace("mkdtemp(", "mkdtemp(dir=Path(__file__).parent, "))
    assert folder.runpytest_inprocess().ret == 0
    assert in_temporary() - before == set()


def test_what_an_example_leaves_is_removed(folder: pytest.Pytester) -> None:
    before = in_temporary()
    folder.makepyfile(example='"""\n>>> import tempfile\n>>> place = tempfile.mkdtemp()\n"""\n')
    folder.runpytest_inprocess().assert_outcomes(passed=1)
    assert in_temporary() - before == set()


def test_what_outlives_its_test_fails_the_run(folder: pytest.Pytester) -> None:
    folder.makeconftest(CONFTEST + "\ndef pytest_sessionfinish():\n    tempfile.mkdtemp(prefix='late-')\n")
    folder.makepyfile("def test_one(): pass")
    found = folder.runpytest_inprocess()
    assert found.ret == 1
    found.stdout.fnmatch_lines("left behind in the temporary directory: temporary/late-*")


def test_files_of_a_test_that_failed_are_kept_and_told(folder: pytest.Pytester) -> None:
    before = in_temporary()
    folder.makepyfile("def test_one(tmp_path):\n    (tmp_path / 'file').write_text('x')\n    assert not 1\n")
    found = folder.runpytest_inprocess()
    [told] = re.findall("^files of tests that failed: (.*)$", found.stdout.str(), re.MULTILINE)
    assert [path.name for path in Path(told).rglob("file")] == ["file"]
    assert [Path(told).parent] == list(in_temporary() - before)
    shutil.rmtree(Path(told).parent)
