"""Imports point down: the layers of the package, held over its syntax trees."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "lccodec"

#: From the bottom up; a module imports only from lines above its own.
LAYERS = [
    ["_version", "constants", "errors"],
    ["floats", "arguments"],
    ["byteorder"],
    ["bits", "parallel"],
    ["huffman", "classes"],
    ["lanes", "forms"],
    ["symbols", "streams"],
    ["promote"],
    ["residual"],
    ["signs"],
    ["runs"],
    ["quantize", "buckets"],
    ["moments", "clusters"],
    ["balance", "trigger", "weighted"],
    ["planes", "codebook"],
    ["checksum"],
    ["header"],
    ["encoder"],
    ["frame"],
    ["vocabulary"],
    ["roles"],
    ["scalars"],
    ["policy", "jobs", "state", "hdf5"],
    ["balanced", "chain"],
    ["presets"],
    ["record"],
    ["choices"],
    ["manifest", "trailer", "system"],
    ["source"],
    ["container"],
    ["commit"],
    ["links"],
    ["checkpoint"],
    ["tail", "adapter"],
    ["draft"],
    ["survey"],
    ["store"],
    ["tuning"],
    ["files", "validate", "arrays"],
    ["__init__"],
    ["summary", "digits"],
    ["demo"],
    ["difference"],
    ["exchange/layouts", "exchange/patterns", "exchange/trees"],
    ["exchange/rules"],
    ["exchange/mapping"],
    ["exchange/adam"],
    ["exchange/__init__"],
    ["adapters/__init__", "adapters/formats"],
    ["adapters/shards", "adapters/values"],
    ["adapters/plain"],
    ["adapters/structure"],
    ["adapters/npz", "adapters/safetensors"],
    ["adapters/files"],
    ["adapters/jax_tree"],
    ["adapters/jax_roles"],
    ["adapters/jax"],
    ["adapters/torch_optimizer"],
    ["adapters/torch_target", "adapters/torch_roles"],
    ["adapters/torch"],
    ["adapters/record", "adapters/link"],
    ["adapters/dcp"],
    ["adapters/numcodecs"],
    ["adapters/zarr"],
    ["adapters/parts"],
    ["adapters/pytree"],
    ["adapters/orbax"],
    ["adapters/folder"],
    ["adapters/lightning", "adapters/transformers", "adapters/accelerate"],
    ["adapters/conversion"],
    ["tables"],
    ["program"],
    ["cli"],
    ["__main__"],
]
RANK = {module: rank for rank, layer in enumerate(LAYERS) for module in layer}
#: No file access below the container: arrays in, bytes out.
WITHOUT_IO = [m for layer in LAYERS[: RANK["hdf5"]] for m in layer] + [
    "policy",
    "jobs",
    "balanced",
    "presets",
    "chain",
    "state",
]
WITHOUT_IO.remove("parallel")  # asks the system for its number of cores
CORE_DEPENDENCIES = {"numpy", "h5py"}
OPTIONAL = {
    "ml_dtypes": {"floats", "adapters/jax", "adapters/parts"},
    "jax": {
        *("adapters/jax", "adapters/jax_roles", "adapters/jax_tree"),
        *("adapters/parts", "adapters/pytree", "adapters/orbax"),
    },
    "safetensors": {"adapters/safetensors", "adapters/folder"},
    "torch": {
        *("adapters/torch", "adapters/torch_optimizer", "adapters/torch_roles", "adapters/torch_target"),
        *("adapters/dcp", "adapters/record", "adapters/folder", "adapters/lightning"),
    },
    "orbax": {"adapters/orbax"},
    "lightning": {"adapters/lightning"},
    "transformers": {"adapters/transformers"},
    "accelerate": {"adapters/accelerate"},
    "numcodecs": {"adapters/numcodecs"},
    "zarr": {"adapters/zarr"},
    "click": {"program", "cli"},
    "rich": {"cli", "tables"},
}


@cache
def modules() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(PACKAGE).with_suffix("")): ast.parse(path.read_text())
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def imports(module: str, tree: ast.Module) -> tuple[set[str], set[str]]:
    """The package's own modules and the other top-level packages that a module imports."""
    inside, outside = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first, _, rest = alias.name.partition(".")
                if first == "lccodec":
                    inside.add(rest.replace(".", "/") or "__init__")
                else:
                    outside.add(first)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = [*module.split("/")[: -node.level], *filter(None, base.split("."))]
                name = "/".join(parts)
                names = [name] if name and name in RANK else []
                inside |= set(names) or {"/".join([*parts, alias.name]) for alias in node.names}
            elif base.split(".")[0] == "lccodec":
                rest = base.partition(".")[2].replace(".", "/")
                inside |= {rest} if rest in RANK else {f"{rest}/{a.name}".strip("/") for a in node.names}
            else:
                outside.add(base.split(".")[0])
    packages = {name: f"{name.rpartition('/')[0]}/__init__" for name in inside - RANK.keys()}
    return {package if package in RANK else "__init__" for package in packages.values()} | (
        inside & RANK.keys()
    ), outside


def test_every_module_has_a_layer() -> None:
    assert set(modules()) == set(RANK)


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports_point_down(module: str) -> None:
    inside, _ = imports(module, modules()[module])
    upward = {name for name in inside if RANK[name] >= RANK[module] and name != "_version"}
    assert not upward, f"{module} imports {upward}, which lie above it or beside it"


def test_only_hdf5_imports_h5py() -> None:
    assert [m for m, tree in modules().items() if "h5py" in imports(m, tree)[1]] == ["hdf5"]


@pytest.mark.parametrize("module", sorted(modules()))
def test_dependencies(module: str) -> None:
    import sys

    _, outside = imports(module, modules()[module])
    third_party = outside - set(sys.stdlib_module_names) - CORE_DEPENDENCIES
    assert {name for name in third_party if module not in OPTIONAL.get(name, set())} == set()


@pytest.mark.parametrize("module", sorted(WITHOUT_IO))
def test_no_input_or_output_below_the_container(module: str) -> None:
    tree = modules()[module]
    _, outside = imports(module, tree)
    assert not outside & {"os", "io", "pathlib", "shutil", "tempfile", "mmap", "socket", "pickle"}
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "open"]


def test_optional_packages_are_imported_where_they_are_used() -> None:
    """Importing the core pulls in numpy and h5py at most."""
    import subprocess
    import sys

    program = "import sys, lccodec; print(*sorted(m for m in sys.modules if '.' not in m))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not set(run.stdout.split()) & {*OPTIONAL, "jaxlib", "flax", "optax"}


@pytest.mark.parametrize("module", sorted(modules()))
def test_no_assert_guards_input(module: str) -> None:
    assert not [n.lineno for n in ast.walk(modules()[module]) if isinstance(n, ast.Assert)]
