"""Verbs in processes that kill themselves (SIGKILL) at one operation after another.

``python -m tests.support.killed_verb VERB FOLDER EVERY``: for the first operation and every so many
more of a verb on the chain in ``FOLDER/run``, it copies ``FOLDER`` to ``FOLDER-0``, ``-1`` and so
on, and a child does the verb there until that operation. The copies are printed, one a line. The
child of the last one came to its end.
"""

import os
import shutil
import signal
import sys
import warnings
from functools import partial
from pathlib import Path

from lccodec.chain.mend.protect import Redundancy, protect
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.system import System

from .mirrors import mirror_of
from .systems import Faulty


def die(_: str, number: int, last: int) -> bool:
    """Kill this process at the operation of some number, which is not done."""
    if number == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return False


def do(verb: str, folder: Path, system: System) -> None:
    """Do a verb to the chain in a folder, by a system."""
    run, mirror = DirectoryStore(folder / "run", system), folder / "m"
    if verb == "protect":
        protect(run, Redundancy(files=1))
    elif verb == "repair":
        repair(run)
    elif verb == "repair from a mirror":
        repair(run, mirrors=[DirectoryStore(mirror)])
    elif verb == "mirror":
        mirror_of(folder / "run", mirror, system).bring()


def main(verb: str, folder: str, every: str) -> None:
    """Kill children at one operation after the other."""
    warnings.simplefilter("ignore")
    number, is_killed = 0, True
    while is_killed:
        place = Path(shutil.copytree(folder, f"{folder}-{number}"))
        child = os.fork()
        if not child:
            do(verb, place, Faulty(fails=partial(die, last=number)))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        is_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if not is_killed and status:
            sys.exit(f"the child of operation {number} failed: {status}")
        print(place, flush=True)
        number += int(every)


if __name__ == "__main__":
    main(*sys.argv[1:])
