"""The temporary files of a run of the tests: gone after each test, and no folder of them stays.

All lie in one folder of the run. ``TMPDIR`` names a part of it, so programs that are started use it
too, and those of others that use the system's temporary directory meanwhile are not met. A test
that leaves something behind fails. What examples of the guide and of docstrings leave is removed:
they show how the package is used, not how to clean up. Where a test failed, its ``tmp_path`` is
kept, and the folder is told.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

#: What frameworks and browsers keep while their process runs; the end of the run removes it.
_OF_OTHERS: Final = (
    *("torchinductor_*", "torchelastic_*", "pymp-*", "*wandb[-_]*"),
    *("playwright*", "org.chromium.*", ".org.chromium.*"),
)

_RUN: Final = pytest.StashKey[Path]()  # the folder of the run, in the process that was called
_OWN: Final = pytest.StashKey[Path]()  # the temporary directory of each process of pytest
_LEFT: Final = pytest.StashKey[list[str]]()  # what was there at the end


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder of the run; each process of pytest has a temporary directory in it."""
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None:
        run = config.stash[_RUN] = Path(tempfile.mkdtemp(prefix="lccodec-tests-"))
        if config.option.basetemp is None:
            config.option.basetemp = str(run / "pytest")
    else:
        run = Path(tempfile.gettempdir()).parent
    own = config.stash[_OWN] = (
        run / "temporary" if worker is None else run / f"temporary-{worker['workerid']}"
    )
    own.mkdir()
    changed = pytest.MonkeyPatch()
    changed.setenv("TMPDIR", str(own))
    changed.setenv("LCCODEC_CACHE", str(run / "cache"))
    changed.setattr(tempfile, "tempdir", None)
    config.add_cleanup(changed.undo)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Remove what a test has left, and let the test fail for it."""
    try:
        result = yield
    finally:
        left = _left_in(item.config.stash[_OWN])
        for path in left:
            _remove(path)
    if left and not isinstance(item, pytest.DoctestItem):
        names = ", ".join(path.name for path in left)
        pytest.fail(f"left behind in the temporary directory: {names}", pytrace=False)
    return result


@pytest.hookimpl(trylast=True)  # all processes of pytest have ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let the run fail for what a program has left that outlived its test. Remove the folder."""
    if _RUN not in session.config.stash:
        return
    run = session.config.stash[_RUN]
    session.config.stash[_LEFT] = [
        str(path.relative_to(run)) for folder in run.glob("temporary*") for path in _left_in(folder)
    ]
    if session.config.stash[_LEFT] and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    for path in _entries(run):
        is_kept = path.name == "pytest" and session.testsfailed and any(map(Path.is_file, path.rglob("*")))
        if not is_kept:
            _remove(path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left, and where the files of tests that failed are."""
    if left := config.stash.get(_LEFT, []):
        terminalreporter.write_line(f"left behind in the temporary directory: {', '.join(left)}", red=True)
    if (kept := config.stash[_RUN] / "pytest").exists():
        terminalreporter.write_line(f"files of tests that failed: {kept}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder of a run, but for what is kept."""
    run = config.stash.get(_RUN, None)
    if run is not None and not (run / "pytest").exists():
        _remove(run)


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def _left_in(folder: Path) -> list[Path]:
    """What is in a folder, but for what others keep there."""
    return [path for path in _entries(folder) if not any(map(path.match, _OF_OTHERS))]


def _remove(path: Path) -> None:
    """Remove a file or a folder, also one with folders that a test made unreadable."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path)
    except OSError:  # or a program that was interrupted still writes there
        for folder, inner, _ in os.walk(path):
            for name in inner:
                with suppress(OSError):
                    Path(folder, name).chmod(stat.S_IRWXU)
        shutil.rmtree(path, ignore_errors=True)
