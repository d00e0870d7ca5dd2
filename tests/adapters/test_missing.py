"""An adapter whose framework is not installed says which extra brings it."""

import pytest

from ..support.programs import run_program

#: Module of the adapter, package it needs, extra that brings it.
NEEDS = [
    ("torch", "torch", "torch"),
    ("jax", "jax", "jax"),
    ("jax", "ml_dtypes", "jax"),
    ("safetensors", "safetensors", "safetensors"),
    ("dcp", "torch", "torch"),
    ("orbax", "orbax", "orbax"),
    ("lightning", "lightning", "lightning"),
    ("transformers", "transformers", "transformers"),
    ("accelerate", "accelerate", "accelerate"),
    ("zarr", "zarr", "zarr"),
    ("numcodecs", "numcodecs", "numcodecs"),
]

PROGRAM = """
import importlib, sys
module, package = sys.argv[1:]
sys.modules[package] = None
try:
    importlib.import_module("lccodec.adapters." + module)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(("module", "package", "extra"), NEEDS)
def test_a_missing_framework_is_named_with_its_extra(module, package, extra):
    done = run_program(PROGRAM, module, package)
    assert done.stdout.startswith("DependencyError ")
    assert f"lccodec[{extra}]" in done.stdout
