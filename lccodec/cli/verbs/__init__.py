"""The verbs of the command ``lccodec``: thin functions, one module for each kind of verb.

Exit codes: 0 fine, 1 problems found (in data, a chain or storage), 2 usage.
"""

from ..program import program
from .bundling import bundle, unbundle
from .conversion import convert
from .demonstration import demo
from .inspection import check, diff, info, ls, show
from .life import compact, fork, pin, prune, rollback, rolled_back, unpin
from .planning import plan
from .reporting import report
from .transfer import average, restore, save

__all__ = [
    "average",
    "bundle",
    "check",
    "compact",
    "convert",
    "demo",
    "diff",
    "fork",
    "info",
    "ls",
    "pin",
    "plan",
    "program",
    "prune",
    "report",
    "restore",
    "rollback",
    "rolled_back",
    "save",
    "show",
    "unbundle",
    "unpin",
]
