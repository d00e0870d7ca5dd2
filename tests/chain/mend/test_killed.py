"""Processes that protect, repair and mirror are killed: nothing that was whole gets worse."""

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lccodec import Chain, validate
from lccodec.chain.mend.protect import Redundancy, protect
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.store import checkpoint_name

from ...support.damage import Files, files_in, protected_run
from ...support.killed_loop import state_of
from ...support.mirrors import chain_files, mirror_of
from ...support.profiles import LONG
from ...support.segments import STATES, all_restore, run_of
from ...support.walks import assert_same, save_all

pytestmark = [
    pytest.mark.slow,  # processes
    pytest.mark.skipif(sys.platform == "win32", reason="processes are killed by a signal"),
]

ROOT = Path(__file__).parents[3]
#: Of the operations of a verb, every so many are killed; all of them in the nightly profile.
EVERY = 1 if LONG else 7
KILLS = 50 if LONG else 3


def killed(verb: str, folder: Path) -> list[Path]:
    """What is left of a folder after a kill at each operation of a verb, and after its end."""
    command = [sys.executable, "-m", "tests.support.killed_verb", verb, str(folder), str(EVERY)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return list(map(Path, run.stdout.splitlines()))


def test_protect_is_killed(tmp_path: Path) -> None:
    """The files stay, and what was protected before still is."""
    folder = tmp_path / "case"
    protected_run(folder / "run", 1, 3)
    with run_of(folder / "run", 0) as chain:
        save_all(chain, STATES, (3, 4))
    files = chain_files(folder / "run")
    places = killed("protect", folder)
    assert len(places) > 20 // EVERY
    for number, place in enumerate(places):
        run = place / "run"
        assert chain_files(run) == files
        (run / f"00000000000{number % 3}.lcc.h5").unlink()
        assert repair(DirectoryStore(run)).lost == {}
        assert chain_files(run) == files
        found = protect(DirectoryStore(run), Redundancy(files=1))
        assert len(found.files) == 5
        assert not [name for name in files_in(run) if ".tmp" in name]


@pytest.mark.parametrize("verb", ["repair", "repair from a mirror"])
def test_repair_is_killed(tmp_path: Path, verb: str) -> None:
    """Each file is as it was, or mended; a second repair does the rest."""
    folder = tmp_path / "case"
    if verb == "repair":
        protected_run(folder / "run", 2, 5, newest="exact")
    else:
        run_of(folder / "run", 5, newest="exact").close()
        mirror_of(folder / "run", folder / "m").bring()
    files = chain_files(folder / "run")
    (folder / "run/000000000001.lcc.h5").unlink()
    path = folder / "run/000000000003.lcc.h5"
    path.write_bytes(path.read_bytes()[:900] + b"another end")
    broken = chain_files(folder / "run")
    places = killed(verb, folder)
    assert len(places) > 20 // EVERY
    for place in places:
        now = chain_files(place / "run")
        assert all(now.get(name) in (data, broken.get(name)) for name, data in files.items())
        mirrors = [] if verb == "repair" else [DirectoryStore(place / "m")]
        assert repair(DirectoryStore(place / "run"), mirrors=mirrors).lost == {}
        assert chain_files(place / "run") == files
    assert chain_files(places[-1] / "run") == files


def test_a_mirror_is_killed(tmp_path: Path) -> None:
    """It is a chain of its own at any moment, and the next process goes on."""
    folder = tmp_path / "case"
    with run_of(folder / "run", 4, newest="exact") as chain:
        mirror_of(folder / "run", folder / "m").bring()
        chain.rollback(2)
        save_all(chain, STATES, (3, 4))
    wanted = chain_files(folder / "run")
    places = killed("mirror", folder)
    assert len(places) > 20 // EVERY
    for place in places:
        assert all_restore(place / "m")
        assert validate(place / "m", deep=True) == []
        mirror_of(place / "run", place / "m").bring()
        assert chain_files(place / "m") == wanted
        assert chain_files(place / "run") == wanted


LOOP = """
import sys
from lccodec import Chain, Keep
from tests.support.killed_loop import state_of
run, mirror = sys.argv[1:]
chain = Chain(run, "lossless", keyframe_every=3, newest="exact", mirror=mirror, parity=1)
first = 0 if chain.latest is None else chain.latest + 1
for step in range(first, first + 10_000):
    chain.save(step, state_of(step))
    print(step, flush=True)
    if step % 7 == 6:
        chain.rollback(step - 2)
        break
"""


def test_kills_at_random_moments(tmp_path: Path) -> None:
    """Of a run that saves with parity and a mirror: the mirror follows, whatever was killed."""
    generator, run, mirror = random.Random(0), tmp_path / "run", tmp_path / "m"
    for _ in range(KILLS):
        with (tmp_path / "out").open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", LOOP, str(run), str(mirror)], stdout=out, cwd=ROOT
            )
            while not (tmp_path / "out").read_text() and process.poll() is None:
                time.sleep(0.01)
            time.sleep(generator.uniform(0, 0.3))
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert process.returncode in (0, -signal.SIGKILL)
        for place in (run, mirror):
            assert validate(place, deep=True) == []
        mirror_of(run, mirror).bring()
        assert chain_files(mirror) == chain_files(run)
    for step in Chain(mirror).steps:
        assert_same(Chain(mirror).restore(step), state_of(step))


VERB = """
import sys
from pathlib import Path
from lccodec.container.system import SYSTEM
from tests.support.killed_verb import do
print("ready", flush=True)
do(sys.argv[1], Path(sys.argv[2]), SYSTEM)
"""


def begun(verb: str, folder: Path) -> subprocess.Popen[str]:
    """A process that is about to do a verb."""
    command = [sys.executable, "-c", VERB, verb, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    with process.stdout as out:
        assert out.readline() == "ready\n"
    return process


def case_of(verb: str, folder: Path) -> tuple[Files, Files]:
    """A chain that a verb has work with: its files when they were whole, and as they are now."""
    rng, run = np.random.default_rng(0), folder / "run"
    with Chain(run, "lossless", newest="exact", keyframe_every=1) as chain:
        for step in range(7):
            chain.save(step, {"w": rng.standard_normal(1 << 16), "step": step})
            if (step, verb) == (4, "protect"):
                chain.protect(1)  # that group grows by two files
        if verb == "repair":
            chain.protect(2)
    if verb != "mirror":
        mirror_of(run, folder / "m").bring()
    files = chain_files(run)
    if verb.startswith("repair"):
        (run / checkpoint_name(2)).unlink()  # which step 3 needs
        path = run / checkpoint_name(5)
        path.write_bytes(path.read_bytes()[:9000] + b"another end")
    return files, chain_files(run)


def is_no_worse(verb: str, folder: Path, files: Files, before: Files) -> bool:
    """Whether all is as it was, or done, after a kill; and the next process does the rest."""
    run, mirror = DirectoryStore(folder / "run"), folder / "m"
    now = chain_files(run.path)
    if any(now.get(name) not in (data, before.get(name)) for name, data in files.items()):
        return False
    if verb == "protect":  # what was protected before still is
        (run.path / checkpoint_name(3)).unlink()
        return repair(run).lost == {} and chain_files(run.path) == files
    if verb == "mirror":
        whole = validate(mirror, deep=True) == [] if mirror.exists() and Chain(mirror).steps else True
        mirror_of(run.path, mirror).bring()
        return whole and chain_files(mirror) == files
    mirrors = [DirectoryStore(mirror)] if verb == "repair from a mirror" else []
    return repair(run, mirrors=mirrors).lost == {} and chain_files(run.path) == files


@pytest.mark.parametrize("verb", ["protect", "repair", "repair from a mirror", "mirror"])
def test_verbs_are_killed_at_random_moments(tmp_path: Path, verb: str) -> None:
    """Nothing that was whole is worse than before."""
    generator, case = random.Random(verb), tmp_path / "case"
    files, before = case_of(verb, case)
    shutil.copytree(case, tmp_path / "whole")
    process = begun(verb, tmp_path / "whole")
    start = time.perf_counter()
    assert process.wait() == 0
    seconds = time.perf_counter() - start
    assert is_no_worse(verb, tmp_path / "whole", files, before)
    killed = number = 0
    while number < KILLS or not killed:
        place = Path(shutil.copytree(case, tmp_path / f"{number}"))
        process = begun(verb, place)
        time.sleep((number % KILLS + generator.random()) / KILLS * seconds)  # once in each part of it
        process.kill()
        if process.wait() == -signal.SIGKILL:
            killed += 1
        else:  # it was measured beside more than runs beside it now
            seconds /= 2
        assert is_no_worse(verb, place, files, before)
        shutil.rmtree(place)
        number += 1
