"""What holds for every call of pytest: of tests, of doctests, of the guide."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# Tests are of the NumPy forms, also where the extra `fast` is installed. Programs inherit it.
os.environ.setdefault("LCCODEC_KERNELS", "numpy")

from tests.support import heart, jax_processes, requirements, temporary
from tests.support.strategies import installed

pytest_plugins = ["pytester"]  # tests/test_heart.py runs pytest

SLOW = [HealthCheck.too_slow]  # a machine that is busy is no fault of a test
settings.register_profile(
    "ci", max_examples=15, deadline=None, derandomize=True, suppress_health_check=SLOW
)  # and of README's command: the same examples every time
settings.register_profile("nightly", max_examples=3000, deadline=None, suppress_health_check=SLOW)
settings.register_profile(  # .ci/big-endian: some fifty times as slow
    "emulated", parent=settings.get_profile("ci"), max_examples=5
)
settings.register_profile("core", parent=settings.get_profile("ci"), max_examples=6)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `.ci/run` asks for after README's second command."""
    parser.addoption("--left-out", action="store_true", help="only what README's second command leaves out")
    parser.addoption("--further-of", type=int, default=1, help="of the further cases, only one of so many")


def pytest_configure(config: pytest.Config) -> None:
    """Set what frameworks read when they are imported; programs that tests start get it too.

    What needs a framework that is not installed is left out, some cases are drawn of many, and
    temporary files are looked after.
    """
    if config.option.left_out:
        config.option.markexpr = ""
    for plugin in (requirements, heart, temporary):
        config.pluginmanager.register(plugin)
    jax_processes.be_quick()
    os.environ["OMP_NUM_THREADS"] = "1"  # torch: the cores are taken by pytest-xdist


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Hide what is imported from the garbage collector: to look at all of it takes it a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is about arrays of bfloat16 where NumPy has none: they come with ml_dtypes."""
    if installed(["bfloat16"]):
        return
    needed = {
        item for item in items if item.get_closest_marker("bfloat16") or "bfloat16" in _parameters(item)
    }
    config.hook.pytest_deselected(items=list(needed))
    items[:] = [item for item in items if item not in needed]


def _parameters(item: pytest.Item) -> list[str]:
    callspec = getattr(item, "callspec", None)
    return [] if callspec is None else [value for value in callspec.params.values() if isinstance(value, str)]
