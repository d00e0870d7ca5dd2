"""Imports point down: held over the syntax trees of the package and of its tests."""

import ast
import graphlib
import re
import sys
from pathlib import Path

import pytest

from .support.folders import FOLDERS, ROOMS, TESTS, modules
from .support.programs import run_program

#: What lies in no folder and above all: the public names, and the program.
PUBLIC = {"__init__", "__main__"}
#: The ground floor.
GROUND = {
    *("constants", "cursor", "element_types"),
    *("errors", "parallel", "table"),
}
#: Folders in which only arrays go in and bytes come out.
WITHOUT_IO = {"parity", "entropy", "quantizers", "frame", "policy"}
FILES = {"os", "io", "pathlib", "shutil", "tempfile", "mmap", "socket", "pickle"}
CORE_DEPENDENCIES = {"numpy", "h5py"}
#: Where a package that is not needed by the core may be imported: modules, or folders of them.
OPTIONAL = {
    "ml_dtypes": {"constants", "adapters/jax", "adapters/orbax"},
    "jax": {"adapters/jax", "adapters/orbax"},
    "safetensors": {"adapters/safetensors", "adapters/huggingface"},
    "torch": {"adapters/torch", "adapters/dcp", "adapters/rank_parity"}
    | {"adapters/huggingface", "adapters/lightning"},
    "orbax": {"adapters/orbax"},
    "lightning": {"adapters/lightning"},
    "transformers": {"adapters/transformers"},
    "accelerate": {"adapters/accelerate"},
    "numcodecs": {"adapters/numcodecs"},
    "zarr": {"adapters/zarr"},
    "vl_convert": {"report"},
    "tensorboard": {"adapters/tensorboard"},
    "obstore": {"chain/store/bucket/backend"},
    "fsspec": {"chain/store/bucket/backend"},
    "aiohttp": {"chain/store/bucket/backend"},
    "numba": {"loops"},
    "zstandard": {"adapters/weights"},
    "xxhash": {"adapters/weights"},
    "blake3": {"adapters/weights"},
    "click": {"cli"},
    "rich": {"cli"},
    "tqdm": {"chain/overview"},
}


def folder(module: str) -> str:
    """The folder in `FOLDERS` that a module lies in."""
    return module.split("/", maxsplit=1)[0] if "/" in module else ""


def imports(module: str, *, lazy: bool = True) -> tuple[set[str], set[str]]:
    """The package's own modules, and the other top-level packages, that a module imports.

    Without `lazy`, only those that are imported with it, and not where they are used.
    """
    tree = modules()[module]
    inside, outside = set(), set()
    for node in ast.walk(tree) if lazy else tree.body:
        if isinstance(node, ast.Import):
            named = [alias.name.split(".") for alias in node.names]
            own = {"/".join(parts[1:]) for parts in named if parts[0] == "lccodec"}
            outside |= {parts[0] for parts in named} - {"lccodec"}
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").split(".") if node.module else []
            if node.level:
                base = [*module.split("/")[: -node.level], *base]
            elif base[0] == "lccodec":
                base = base[1:]
            else:
                outside.add(base[0])
                continue
            own = {"/".join([*base, alias.name]) for alias in node.names}
            own = {name if is_module(name) else "/".join(base) for name in own}
        else:
            continue
        inside |= {name if name in modules() else f"{name}/__init__".lstrip("/") for name in own}
    return inside, outside


def is_module(name: str) -> bool:
    return name in modules() or f"{name}/__init__" in modules()


def test_every_module_has_a_place() -> None:
    assert {folder(module) for module in modules()} == set(FOLDERS)
    assert {module for module in modules() if not folder(module)} == GROUND | PUBLIC
    assert len(GROUND | PUBLIC) == 8


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports_point_down(module: str) -> None:
    if module in PUBLIC:
        return
    inside, _ = imports(module)
    below = FOLDERS[: FOLDERS.index(folder(module)) + 1]
    allowed = {name for name in modules() if folder(name) in below and name not in PUBLIC}
    if folder(module) == "cli":
        allowed.add("__init__")  # the program is a user of the package
    assert not inside - allowed, f"{module} imports {inside - allowed}, which lie above it"


@pytest.mark.parametrize("name", ROOMS)
def test_rooms_import_those_below(name: str) -> None:
    """Also late imports, where they are used."""
    floors = {room: floor for floor, rooms in enumerate(ROOMS[name]) for room in rooms}
    inner = {module: room_of(module, name) for module in modules() if module.startswith(f"{name}/")}
    assert set(inner.values()) - {"__init__"} == set(floors)
    for module, room in inner.items():
        if room != "__init__":
            others = {other for other in imports(module)[0] & inner.keys() if inner[other] != room}
            above = {other for other in others if floors[inner[other]] >= floors[room]}
            assert not above, f"{module} imports {above}, which lie beside or above it"


def room_of(module: str, name: str) -> str:
    """What a module is a part of in a folder: a room, or itself."""
    return module.removeprefix(f"{name}/").split("/", maxsplit=1)[0]


def test_no_circle() -> None:
    """Modules can be put in an order; a folder's face comes after what it shows."""
    graph = {module: imports(module)[0] - ({"__init__"} if folder(module) else set()) for module in modules()}
    list(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("name", FOLDERS[1:])
def test_a_folder_says_what_lives_in_it(name: str) -> None:
    assert len((ast.get_docstring(modules()[f"{name}/__init__"]) or "").splitlines()) >= 3


def test_only_plain_hdf5_goes_through_h5py() -> None:
    assert [m for m in modules() if "h5py" in imports(m)[1]] == ["adapters/hdf5"]


def test_one_function_of_the_program_prints() -> None:
    """It escapes what drives a terminal. Before the program there is only what it lacks."""
    printing = []
    for module, tree in modules().items():
        for node in ast.walk(tree):
            words = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if re.fullmatch(r"click\.s?echo|print|.*(stdout|stderr)\.write", words, re.DOTALL):
                printing.append(module)
    assert sorted(printing) == ["__main__", "adapters/chains", "chain/save/background", "cli/program"]


@pytest.mark.parametrize("module", sorted(modules()))
def test_dependencies(module: str) -> None:
    _, outside = imports(module)
    third_party = outside - set(sys.stdlib_module_names) - CORE_DEPENDENCIES
    places = {module, *("/".join(module.split("/")[:depth]) for depth in (1, 2))}
    assert {name for name in third_party if not places & OPTIONAL.get(name, set())} == set()


@pytest.mark.parametrize("module", sorted(m for m in modules() if folder(m) in WITHOUT_IO))
def test_no_input_or_output_below_the_container(module: str) -> None:
    in_memory = {"io"} if "from io import BytesIO\n" in ast.unparse(modules()[module]) else set()
    assert not imports(module)[1] & FILES - in_memory
    assert not [n for n in ast.walk(modules()[module]) if isinstance(n, ast.Name) and n.id == "open"]


def test_optional_packages_are_imported_where_they_are_used() -> None:
    """Importing the core pulls in numpy and h5py at most."""
    program = "import sys; from lccodec import *; print(*sorted(m for m in sys.modules if '.' not in m))"
    assert not set(run_program(program).stdout.split()) & {*OPTIONAL, "jaxlib", "flax", "optax"}


#: What a chain does only when it is asked to: saving, saving in the background, and its verbs.
LATE = {
    *("chain/life/compact", "chain/life/transfer"),
    *("chain/mend/repair", "chain/read/crew", "chain/read/survey"),
    *("chain/save/background", "chain/save/encode", "chain/save/hash_reference"),
    *("chain/save/hindsight", "chain/save/saver"),
    *("workers/crew", "workers/process"),
}


def test_a_chain_loads_what_it_needs_to_be_read(tmp_path: Path) -> None:
    """With the rest, its import takes a third more; nothing was saved, so `close` loads nothing."""
    program = "import sys, lccodec\nwith lccodec.Chain(sys.argv[1]) as c: c.steps\nprint(*sys.modules)"
    loaded = set(run_program(program, tmp_path).stdout.split())
    assert set(modules()) >= LATE
    assert {module for module in LATE if f"lccodec.{module.replace('/', '.')}" in loaded} == set()
    assert not loaded & {"h5py", "multiprocessing", "socket", "subprocess", "tempfile"}


@pytest.mark.parametrize("module", sorted(modules()))
def test_no_assert_guards_input(module: str) -> None:
    assert not [n.lineno for n in ast.walk(modules()[module]) if isinstance(n, ast.Assert)]


# --- the tests ------------------------------------------------------------------------------------


def test_what_tests_share_lies_in_support() -> None:
    """No test module imports another one, by a statement or in a program that it starts."""
    texts = {path: path.read_text() for path in TESTS.rglob("*.py")}
    found = {
        f"{path.relative_to(TESTS)}: {name}"
        for path, text in texts.items()
        if re.search(r"\b(?:import|from)\b[^=:'\"]*\btest_", text)  # most are not looked at
        for node in ast.walk(ast.parse(text))
        for name in imported(node)
        if any(part.startswith("test_") for part in name.split("."))
    }
    assert found == set()


def test_profiles_say_how_many_examples_are_tried() -> None:
    """A number beside a test would hold under every profile."""
    word = "max_" + "examples"
    found = {str(path.relative_to(TESTS)) for path in TESTS.rglob("*.py") if word in path.read_text()}
    assert found == {"support/profiles.py"}


def imported(node: ast.AST) -> list[str]:
    """The names of modules, and of what is taken of them, that a node of a syntax tree imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module or ''}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.findall(r"(?:from|import) (tests\.\S+)", node.value)
    return []
