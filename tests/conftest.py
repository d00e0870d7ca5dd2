from __future__ import annotations

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from .support import jax_processes, requirements
from .support.strategies import installed

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile(
    "ci", max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", max_examples=3000, deadline=None)
settings.register_profile(  # .ci/big-endian: some fifty times as slow
    "emulated", max_examples=5, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("core", parent=settings.get_profile("ci"), max_examples=6)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--left-out", action="store_true", help="only what README's second command leaves out")


def pytest_configure(config: pytest.Config) -> None:
    """Set what frameworks read when they are imported; programs that tests start get it too.

    What needs a framework that is not installed is left out, beyond this folder too.
    """
    if config.option.left_out:
        config.option.markexpr = ""
    config.pluginmanager.register(requirements)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # most of jax's time is compiling
    os.environ["XLA_FLAGS"] = jax_processes.with_quick_flags(os.environ.get("XLA_FLAGS", ""))
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
    """Mark what needs a browser.

    Leave out what is about arrays of bfloat16 where NumPy has none: they come with ml_dtypes.
    """
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
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
