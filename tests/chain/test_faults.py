"""Systems that refuse: every verb of a chain's life, at every operation, once or from then on.

Whatever fails, the error is one of ours, what was kept restores bit for bit, the next save works,
and the verb can be finished.
"""

import errno
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lccodec import Chain, Keep, LccodecWarning, StorageError, validate
from lccodec.chain.life.compact import compact, rewrite
from lccodec.chain.life.prune import pin, prune, unpin
from lccodec.chain.life.rollback import delete_rolled_back, rollback, undo_rollback
from lccodec.chain.life.transfer import fork, take_apart, write_bundle
from lccodec.chain.store.directory import BundleStore, DirectoryStore
from lccodec.constants import TEMPORARY_PREFIX
from lccodec.container.system import SYSTEM, System

from ..support.profiles import LONG
from ..support.systems import Faulty, failing_at
from ..support.walks import assert_restores, assert_same, save_all, walk

STATES = walk(9)
STEPS = range(7)
CODES = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EMFILE)


@dataclass(frozen=True)
class Verb:
    """A verb of a chain in the directory `run` below a root.

    Parameters
    ----------
    act
        Does it, given the root and the system.
    before
        What is done before, on a healthy system.
    kept
        The steps of the chain that it must not remove.
    """

    act: Callable[[Path, System], object]
    before: Callable[[Path], object] = lambda _: None
    kept: range | tuple[int, ...] = STEPS


def run_in(root: Path, system: System = SYSTEM) -> DirectoryStore:
    return DirectoryStore(root / "run", system)


def taken_apart(root: Path, system: System) -> None:
    with BundleStore(root / "run.lcc") as store:
        take_apart(store, DirectoryStore(root / "out", system))


VERBS = {
    "rollback": Verb(lambda root, s: rollback(run_in(root, s), 4), kept=range(5)),
    "rollback, delete": Verb(lambda root, s: rollback(run_in(root, s), 4, delete=True), kept=range(5)),
    "bring back": Verb(
        lambda root, s: undo_rollback(run_in(root, s)),
        lambda root: rollback(run_in(root), 4),
        range(5),
    ),
    "delete_rolled_back": Verb(
        lambda root, s: delete_rolled_back(run_in(root, s)),
        lambda root: rollback(run_in(root), 4),
        range(5),
    ),
    "prune": Verb(lambda root, s: prune(run_in(root, s), Keep(steps=[2])), kept=(0, 1, 2, 6)),
    "prune, rewrite": Verb(
        lambda root, s: prune(run_in(root, s), Keep(steps=[2]), rewrite=True), kept=(2, 6)
    ),
    "rewrite": Verb(lambda root, s: rewrite(run_in(root, s), 5, None)),
    "compact": Verb(lambda root, s: compact(run_in(root, s), 1)),
    "fork": Verb(lambda root, s: fork(run_in(root), DirectoryStore(root / "new" / "fork", s), 6)),
    "pin": Verb(lambda root, s: pin(run_in(root, s), 3)),
    "unpin": Verb(
        lambda root, s: unpin(run_in(root, s), 3),
        lambda root: pin(run_in(root), 3),
    ),
    "bundle": Verb(lambda root, s: write_bundle(run_in(root, s), root / "run.lcc")),
    "bundle, again": Verb(
        lambda root, s: write_bundle(run_in(root, s), root / "run.lcc"),
        lambda root: write_bundle(run_in(root), root / "run.lcc", [0]),
    ),
    "unbundle": Verb(
        taken_apart,
        lambda root: write_bundle(run_in(root), root / "run.lcc"),
    ),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a chain of seven steps: keyframes 0 and 4, and an exact file."""
    directory = tmp_path_factory.mktemp("built") / "run"
    with Chain(directory, "lossless", keyframe_every=3, newest="exact") as chain:
        save_all(chain, STATES, STEPS)
    return directory


def copy_of(built: Path, root: Path, verb: Verb) -> Path:
    """A root with second names of the files of the chain: nothing may write into a file."""
    shutil.copytree(built, root / "run", copy_function=os.link)
    verb.before(root)
    return root


def check_chain(directory: Path, kept: range | tuple[int, ...] = ()) -> list[int]:
    """Hold all steps of a chain against what was saved."""
    chain = Chain(directory)
    assert set(kept) <= set(chain.steps)
    assert STEPS[-1] not in kept or chain.info(STEPS[-1]).exact
    assert_restores(chain, STATES, exact=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LccodecWarning)  # the exact file may be of a step that is gone
        assert_same(chain.restore(), STATES[chain.steps[-1]])
    return chain.steps


def temporaries(root: Path) -> list[str]:
    return [path.name for path in root.rglob(f"{TEMPORARY_PREFIX}*")]


@pytest.mark.slow
@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("name", VERBS)
def test_faults_at_every_operation(tmp_path: Path, built: Path, name: str, sticky: bool) -> None:
    verb, healthy = VERBS[name], Faulty()
    contents = {path.name: path.read_bytes() for path in built.iterdir()}
    verb.act(copy_of(built, tmp_path / "healthy", verb), healthy)
    after = check_chain(tmp_path / "healthy" / "run", verb.kept)
    assert not temporaries(tmp_path / "healthy")
    told = 0
    positions = range(0 if LONG else sticky, len(healthy.log), 1 if LONG else 4)
    for position, code in [(p, c) for p in positions for c in (CODES if LONG else [CODES[p // 4 % 4]])]:
        root = copy_of(built, tmp_path / f"{position}", verb)

        fails = failing_at(position, sticky=sticky)
        system = Faulty(code, fails)
        try:
            verb.act(root, system)
        except StorageError as error:  # some faults do not matter
            told += 1
            assert error.errno == code
            assert str(root) in str(error)
        assert not system.descriptors
        check_chain(root / "run", verb.kept)
        if name == "bring back" and not Chain(root / "run").rolled_back:
            # All are back, and a part of what was set aside was left.
            Chain(root / "run").delete_rolled_back()
        else:
            verb.act(root, System())
        assert check_chain(root / "run", verb.kept) == after
        for other in ("new/fork", "out"):
            if (root / other).exists():
                check_chain(root / other)
        if (root / "run.lcc").exists():
            assert validate(root / "run.lcc", deep=True) == []
        with Chain(root / "run", newest="exact") as chain:
            newest = chain.steps[-1]
            chain.save(newest + 1, STATES[newest + 1])
            assert chain.info().parent == newest
            assert_same(chain.restore(), STATES[newest + 1])
        assert not temporaries(root)
        shutil.rmtree(root)
    assert told > 0
    assert contents == {path.name: path.read_bytes() for path in built.iterdir()}


@pytest.mark.parametrize("name", ["bundle", "bundle, again", "rewrite"])
@pytest.mark.parametrize("sticky", [False, True])
def test_what_is_one_file_is_there_whole_or_as_before(
    tmp_path: Path, built: Path, name: str, sticky: bool
) -> None:
    """An error says which of the three outcomes it is."""
    verb, healthy = VERBS[name], Faulty()
    target = "run/000000000005.lcc.h5" if name == "rewrite" else "run.lcc"
    verb.act(copy_of(built, tmp_path / "healthy", verb), healthy)
    whole = (tmp_path / "healthy" / target).read_bytes()
    outcomes = set()
    for position in range(len(healthy.log)):
        root = copy_of(built, tmp_path / f"{position}", verb)
        before = (root / target).read_bytes() if (root / target).exists() else None

        fails = failing_at(position, sticky=sticky)
        outcome = "committed"
        try:
            verb.act(root, Faulty(errno.EIO, fails))
        except StorageError as error:
            outcome = "durability unknown" if "durability unknown" in str(error) else "not committed"
        outcomes.add(outcome)
        found = (root / target).read_bytes() if (root / target).exists() else None
        assert found == (before if outcome == "not committed" else whole)
    assert {"not committed", "durability unknown"} <= outcomes


# --- the real thing -------------------------------------------------------------------------------

#: Saves until that fails, tries each verb of a life, makes room and goes on.
SCRIPT = """
import errno, pathlib, resource, shutil, sys, warnings
import numpy as np
from lccodec import Chain, Keep, StorageError, bundle, validate
import lccodec

where, kind, call = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
CODE = {"tmpfs": errno.ENOSPC, "limit": errno.EFBIG}[kind]

def state(step, size):
    return {"weight": np.random.default_rng(step).standard_normal(size), "step": step}

def check(chain, sizes):
    for step in chain.steps:
        found = chain.restore(step)
        assert (found["weight"] == state(step, sizes[step])["weight"]).all(), step
    assert validate(chain.directory, deep=True) == []

if kind == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
run, sizes = where / "run", {}
chain = Chain(run, "lossless", keyframe_every=2)
save = (lambda *a: chain.save_async(*a).result()) if call == "async" else chain.save
for step in range(4):
    sizes[step] = 200
    save(step, state(step, 200))
big = 60_000 if kind == "tmpfs" else 4_000
failed = 0
for step in range(4, 8):
    try:
        sizes[step] = big
        save(step, state(step, big))
    except StorageError as error:
        assert error.errno == CODE, error
        assert "cannot write" in str(error)
        failed += 1
        if call == "async":
            try:
                chain.wait()
            except StorageError:
                pass
assert failed, "there is room for all"
if kind == "tmpfs":
    room = 1 << 16
    with open(where / "filler", "wb", buffering=0) as file:
        while room:
            try:
                file.write(bytes(room))
            except OSError:
                room //= 2
check(Chain(run), sizes)
for verb in (
    lambda: bundle(run, where / "run.lcc"),
    lambda: Chain(run).compact(keyframe_every=0),
    lambda: Chain(run).prune(Keep(steps=[3]), rewrite=True),
    lambda: chain.save(100, state(100, 200)),
):
    try:
        verb()
    except StorageError as error:
        assert error.errno == CODE, error
    check(Chain(run), {**sizes, 100: 200})
assert not (where / "run.lcc").exists() or validate(where / "run.lcc") == []
chain.rollback(chain.steps[-2], delete=True)  # which frees room
if kind == "tmpfs":
    (where / "filler").unlink()
else:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    chain.close()
    chain = Chain(run)
chain.save(101, state(101, 200))
check(chain, {**sizes, 100: 200, 101: 200})
chain.close()
assert [p.name for p in run.iterdir() if not p.name.endswith(".lcc.h5")] == []
print("done")
"""


#: A command in a namespace of its own, where file systems can be mounted that go with its process.
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def can_mount() -> bool:
    try:
        return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
@pytest.mark.parametrize("call", ["save", "async"])
@pytest.mark.parametrize("kind", ["limit", "tmpfs"] if can_mount() else ["limit"])
def test_a_disk_that_is_full(tmp_path: Path, kind: str, call: str) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), kind, call]
    if kind == "tmpfs":
        mount = f'mount -t tmpfs -o size=1m tmpfs "{tmp_path}" && exec "$@"'
        command = [*NAMESPACE, "sh", "-c", mount, "sh", *command]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    assert run.stdout == "done\n", run.stderr
