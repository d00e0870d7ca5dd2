"""The verbs of the command ``lccodec``: thin functions, one module for each kind of verb.

Exit codes: 0 fine, 1 problems found (in data, a chain or storage), 2 usage.
"""

from ..program import program
from . import (  # noqa: F401 - each adds its verbs to the program
    bundling,
    conversion,
    demonstration,
    inspection,
    life,
    mending,
    planning,
    reporting,
    transfer,
    weights,
)

__all__ = ["program"]
