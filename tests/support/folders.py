"""The folders of the package and of its tests, and their order."""

import ast
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "lccodec"

#: From the bottom up, ``""`` for the ground floor: what lies in no folder. A folder imports from
#: those above its own line, and from itself without a circle.
FOLDERS = [
    "",
    "loops",
    "parity",
    "entropy",
    "quantizers",
    "frame",
    "policy",
    "container",
    "workers",
    "chain",
    "inspect",
    "exchange",
    "adapters",
    "report",
    "cli",
]

#: What lies in a folder that has rooms, from the bottom up: rooms, and modules beside them. Those
#: of one line do not import each other.
ROOMS = {
    "container": [
        {"system", "tree"},
        {"source"},
        {"folder", "piece_table"},
        {"scratch", "manifest"},
        {"checkpoint", "parity"},
        {"bundle"},
    ],
    "chain": [
        {"behind", "store"},
        {"overview"},
        {"read"},
        {"save"},
        {"mend"},
        {"life"},
        {"chain", "checkpoint_file"},
        {"tuning"},
    ],
}


@cache
def modules() -> dict[str, ast.Module]:
    """The syntax trees of the package, by the paths of its modules without ``.py``."""
    return {
        path.relative_to(PACKAGE).with_suffix("").as_posix(): ast.parse(path.read_text())
        for path in sorted(PACKAGE.rglob("*.py"))
    }
