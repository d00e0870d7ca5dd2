"""An adapter whose framework is not installed says which extra brings it."""

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

#: Each in a fork of its own of one program, which has what all of them load.
PROGRAM = """
import importlib, os, sys
import lccodec.chain.chain
for module, package in zip(sys.argv[1::2], sys.argv[2::2]):
    if os.fork():
        os.wait()
        continue
    sys.modules[package] = None
    try:
        importlib.import_module("lccodec.adapters." + module)
        print("nothing is missing", flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
"""


def test_a_missing_framework_is_named_with_its_extra():
    lines = run_program(PROGRAM, *(word for row in NEEDS for word in row[:2])).stdout.splitlines()
    for (module, _, extra), line in zip(NEEDS, lines, strict=True):
        assert line.startswith("DependencyError "), module
        assert f"lccodec[{extra}]" in line, module
