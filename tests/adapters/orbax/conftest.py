"""A checkpoint of a manager that a test may damage."""

import jax
import jax.numpy as jnp
import pytest

from lccodec.adapters.orbax import LCSave

from ...support.orbax_states import manager


@pytest.fixture
def saved(tmp_path):
    with manager(tmp_path) as steps:
        steps.save(0, args=LCSave({"w": jnp.ones((3, 2)), "n": 1, "k": jax.random.key(0)}))
        steps.wait_until_finished()
        yield steps, tmp_path / "0" / "default" / "process-0.lcc.h5"
