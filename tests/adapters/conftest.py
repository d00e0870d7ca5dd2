"""Settings of a framework, for one test."""

import pytest


@pytest.fixture
def x64():
    import jax  # here, as some tests beside run without it

    with jax.enable_x64(True):
        yield
