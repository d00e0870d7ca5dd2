"""Measure what hostile files cost: ``python fuzz/budget.py [--bytes N] [--only PATTERN]``.

For each structure it makes the heaviest files of N bytes (65,536 by default) in ``fuzz/work/``.
It runs each verb that reads untrusted files in a process of its own, and prints a table: CPU
seconds, the peak of the resident memory, and how the verb ended. The exit status is 1 where a verb
took more than `CPU_SECONDS` or `MEMORY_BYTES` for each 64 KiB. An import of PyTorch is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

# The files are made by another process: the peak of a process counts what its parent had.
CPU_SECONDS = 2.0  # for each 64 KiB
MEMORY_BYTES = 512 << 20
WALL_SECONDS = 120  # then a verb is killed
HERE = Path(__file__).parent

#: Verbs that are no commands of the shell.
_PROGRAMS = {
    "follow": "import sys, lccodec; next(iter(lccodec.follow(sys.argv[1], timeout=0)))",
    "versions": "import sys; from lccodec.adapters.weights import follow;"
    " next(iter(follow(sys.argv[1], timeout=0)))",
}

_PUBLISH = ("publish", "FILE", "OUT", "--as", "weight-versions")

#: Arguments of the verbs, by what they are given. FILE, OUT and DIR stand for paths.
_OF_FILES = (
    ("info", "FILE"),
    ("check", "FILE"),
    ("check", "--deep", "FILE"),
    ("show", "FILE", "NAME"),
    ("convert", "FILE", "OUT.npz"),
    ("convert", "FILE", "OUT.safetensors"),
)
_OF_CHAINS = (
    ("ls", "FILE"),
    ("info", "FILE"),
    ("check", "FILE"),
    ("check", "--deep", "FILE"),
    ("show", "FILE", "NAME"),
    ("restore", "FILE", "-o", "OUT.npz"),
    ("restore", "FILE", "-o", "OUT.h5"),
    ("diff", "FILE", "1", "2"),
    ("average", "FILE", "--last", "9", "-o", "OUT.npz"),
    ("repair", "FILE"),
    ("follow", "FILE"),
    _PUBLISH,
    ("pull", "FILE", "OUT/weight_v000001"),
)
_FOREIGN = (("info", "FILE"), ("convert", "FILE", "OUT.lcc.h5"))
_OF_BUNDLES = (
    *(verb for verb in _OF_CHAINS if verb[0] not in ("average", "repair", "publish", "pull")),
    ("unbundle", "FILE", "OUT"),
)
_PROTECTED = tuple(verb for verb in _OF_CHAINS if verb[0] in ("ls", "check", "repair"))
_SEALED = (*_FOREIGN, ("check", "FILE"))
_VERBS = {
    **{"file": _OF_FILES, "chain": _OF_CHAINS, "bundle": _OF_BUNDLES, "protected": _PROTECTED},
    **{"foreign": _FOREIGN, "sealed": _SEALED, "versions": (("versions", "FILE"),)},
}


def measured(verb: Sequence[str], path: Path) -> tuple[float, int, str]:
    """Run a verb; return CPU seconds, bytes of memory, and how it ended."""
    with tempfile.TemporaryDirectory(dir=path.parent) as out:
        words = {"FILE": str(path), "NAME": "0"}

        def command_of(verb: Sequence[str]) -> list[str]:
            arguments = [words.get(word, word.replace("OUT", f"{out}/out")) for word in verb]
            return [sys.executable, "-m", "lccodec", *arguments]

        command = command_of(verb)
        if verb[0] == "pull":  # into a model, which is made first
            subprocess.run(command_of(_PUBLISH), capture_output=True, check=False)
        if verb[0] in _PROGRAMS:
            command = [sys.executable, "-c", _PROGRAMS[verb[0]], str(path)]
        seconds, memory, end = _run(command)
    if path.suffix == ".pt" and verb[0] == "convert":
        seconds -= _importing_torch()
    return seconds, memory, end


@cache
def _importing_torch() -> float:
    """Return the CPU seconds that an import of PyTorch takes, whatever file is read then."""
    return _run([sys.executable, "-c", "import torch"])[0]


def _run(command: Sequence[str]) -> tuple[float, int, str]:
    """Run a command; return what `measured` does."""
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=told)
        status, ended = 0, time.monotonic() + WALL_SECONDS
        while not status:
            pid, code, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > ended:
                process.kill()
            time.sleep(0.02)
        process.returncode = os.waitstatus_to_exitcode(code)
        told.seek(0)
        lines = told.read().decode(errors="replace").strip().splitlines()
    seconds, memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10
    return seconds, memory, f"{process.returncode} {lines[-1][-90:] if lines else ''}"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=1 << 16)
    parser.add_argument("--only", default="", help="a pattern in the names of inputs")
    parser.add_argument("--verb", default="", help="one verb")
    arguments = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join((str(HERE.parent), os.environ.get("PYTHONPATH", "")))
    folder = HERE / "work" / "budget"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    over, rows = 0, []
    command = [sys.executable, HERE / "heavy_files.py", folder, str(arguments.bytes)]
    subprocess.run(command, check=True)
    for name, path, nbytes, kind in json.loads((folder / "index.json").read_text()):
        if not re.search(arguments.only, name):
            continue
        for verb in _VERBS[kind]:
            if arguments.verb and verb[0] != arguments.verb:
                continue
            seconds, memory, end = measured(verb, Path(path))
            share = max(nbytes / 65536, 1)
            broken = seconds > CPU_SECONDS * share or memory > MEMORY_BYTES * share or "-9" in end[:2]
            over += broken
            text = " ".join(word for word in verb if word != "FILE").replace("OUT", "")
            row = f"{seconds:6.2f} s {memory >> 20:5d} MiB  {name:44} {nbytes:7d}  {text:16} {end}"
            rows.append((broken, seconds, row))
            print("OVER" if broken else "    ", row, flush=True)
    print(f"\n{len(rows)} runs, {over} over the budget; the longest:")
    for _, _, row in sorted(rows, reverse=True)[:10]:
        print("    ", row)
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
