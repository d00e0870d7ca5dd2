"""An adapter whose framework is not installed says which extra brings it."""

import subprocess
import sys

#: Module of the adapter, package it needs, extra that brings it.
NEEDS = [
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
for module, package, extra in {needs}:
    sys.modules[package] = None
    try:
        importlib.import_module("lccodec.adapters." + module)
    except Exception as error:
        print(module, type(error).__name__, f"lccodec[{{extra}}]" in str(error), error)
"""


def test_a_missing_framework_is_named_with_its_extra():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(needs=NEEDS)], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert [line.split()[:3] for line in lines] == [
        [name, "DependencyError", "True"] for name, _, _ in NEEDS
    ], lines
