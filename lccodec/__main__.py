"""The command ``lccodec``, also ``python -m lccodec``."""

from __future__ import annotations

import io
import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command line and exit: 0 fine, 1 problems found, 2 wrong usage or a missing extra."""
    if missing := [package for package in ("click", "rich") if find_spec(package) is None]:
        needed = " and ".join(missing)
        print(f"lccodec: error: the command line needs {needed}: pip install 'lccodec[cli]'", file=sys.stderr)
        sys.exit(2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name must not fail on a narrow encoding
    from .cli.program import program

    program(prog_name="lccodec")


if __name__ == "__main__":
    main()
