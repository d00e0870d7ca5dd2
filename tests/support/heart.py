"""What README's second command runs: of each test that has many cases, a few.

A call of pytest that names a folder or a file runs all cases there, and ``-m ''`` runs all of all.
With ``--further-of``, by which `.ci/run` keeps its time, the rest is thinned out in the same way.
The cases are drawn by a checksum of their names. So every process of pytest draws the same, a case
that is added changes one at most, and an environment that has further cases draws no others of
those that both have.
"""

import zlib
from collections import defaultdict
from typing import Final

import pytest

from .folders import TESTS

_CASES: Final = 3
_SLOW_OF: Final = 2  # slow tests, one case of one of them, where the rest is thinned out
_BENCHMARKS_OF: Final = 4  # the same of benchmarks: they measure the package, and are not part of it
#: Files, or folders of them: the format, and both forms of each loop, which `.ci/run` compiles.
_WHOLE: Final = {TESTS / "spec" / "test_vectors.py", TESTS / "loops"}


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a browser, and the cases that are not drawn."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS and not config.option.left_out:
        return
    cases: dict[tuple[pytest.Collector | None, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        whole = not _WHOLE.isdisjoint([item.path, item.path.parent])
        if isinstance(item, pytest.Function) and not is_apart(item) and not whole:
            cases[item.parent, item.originalname].append(item)
    for each in cases.values():
        for item in sorted(each, key=_place)[_CASES:]:
            item.add_marker("further")
    if config.option.further_of > 1:
        _thin_out(config, items)


def _thin_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out most further cases, all cases of a slow test but one, and every other slow test."""
    slow: dict[tuple[pytest.Collector | None, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("slow"):
            slow[item.parent, item.originalname].append(item)
    gone = {
        item
        for item in items
        if item.get_closest_marker("further") and _place(item)[0] % config.option.further_of
    }
    for each in slow.values():
        first, *rest = sorted(each, key=_place)
        share = _BENCHMARKS_OF if TESTS / "benchmarks" in first.path.parents else _SLOW_OF
        gone.update(each if zlib.crc32(first.originalname.encode()) % share else rest)
    if gone:
        config.hook.pytest_deselected(items=list(gone))
        items[:] = [item for item in items if item not in gone]


def is_apart(item: pytest.Item) -> bool:
    """Whether a test is for those who ask for it."""
    return any(item.get_closest_marker(name) for name in ("slow", "browser", "further"))


def _place(item: pytest.Item) -> tuple[int, str]:
    return zlib.crc32(item.nodeid.encode()), item.nodeid
