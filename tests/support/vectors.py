"""The vectors of the specification by their entries, and the programs beside them."""

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SPEC = Path(__file__).parents[2] / "spec"
VECTORS = SPEC / "vectors"

Entry = dict[str, Any]


def entries(folder: str = "") -> list[Entry]:
    """The entries of all vectors, or of those of a folder of frozen ones."""
    found: list[Entry] = json.loads((VECTORS / folder / "manifest.json").read_bytes())
    return found


def by_kind(some: list[Entry]) -> tuple[list[Entry], list[Entry], list[Entry], list[Entry]]:
    """Entries of frames, of checkpoints, of bundles and of parity files."""
    frames, checkpoints, bundles, parity = (
        [entry for entry in some if entry["kind"] == kind]
        for kind in ("frame", "checkpoint", "bundle", "parity")
    )
    return frames, checkpoints, bundles, parity


def each(some: list[Entry]) -> pytest.MarkDecorator:
    """Let a test have a case for each entry."""
    return pytest.mark.parametrize("entry", some, ids=lambda entry: entry["name"])


@contextmanager
def beside(name: str, folder: Path) -> Iterator[ModuleType]:
    """Import a module of a folder; it is forgotten afterwards, as what else is imported there.

    What others have imported under such a name stands aside meanwhile: PyTables is ``tables``, too.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        for path in folder.glob("*.py"):
            patch.delitem(sys.modules, path.stem, raising=False)
        yield importlib.import_module(name)
    for own, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and folder in Path(vars(module).get("__file__") or "").parents:
            del sys.modules[own]
