"""Programs of a test, each in a process of its own."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any


def run_program(
    text: str, *words: object, code: int = 0, flags: Sequence[str] = (), **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program, which ends as it should; return what it printed."""
    command = [sys.executable, *flags, "-c", text, *map(str, words)]
    options = {"timeout": 200, **options}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == code, done.stdout + done.stderr
    return done
