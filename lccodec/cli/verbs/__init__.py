"""The verbs of the command ``lccodec``: thin functions, one module for each kind of verb.

Exit codes: 0 fine, 1 problems found (in data, a chain or storage), 2 usage.
"""

from ..program import program
from .bundling import bundle, unbundle
from .conversion import convert
from .demonstration import demo
from .inspection import check, diff, info, ls, show
from .transfer import average, restore, save

__all__ = [
    "average",
    "bundle",
    "check",
    "convert",
    "demo",
    "diff",
    "info",
    "ls",
    "program",
    "restore",
    "save",
    "show",
    "unbundle",
]
