"""Settings of a framework, for one test."""

from __future__ import annotations

import pytest


@pytest.fixture
def x64():
    import jax  # here, as some tests beside run without it

    with jax.enable_x64(True):
        yield
