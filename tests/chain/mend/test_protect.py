"""How much parity there is, and that it is no more.

Which files are protected, in which groups, by how many bytes.

What is protected is kept up to date: after saves, prunes, rollbacks and compaction.

Parity behind the saves: all of them are protected in the end, and none waits or fails.
"""

import errno
import shutil
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import (
    ArgumentError,
    Chain,
    ChainError,
    Keep,
    LccodecWarning,
    StorageError,
    bundle,
    unbundle,
    validate,
)
from lccodec.chain.behind import Change
from lccodec.chain.life.prune import prune
from lccodec.chain.mend import protect as behind
from lccodec.chain.mend.parity_folder import ParityFolder
from lccodec.chain.mend.protect import (
    ParityBehind,
    Redundancy,
    parse_redundancy,
    protect,
    recorded,
    redundancy_of,
    unprotect,
)
from lccodec.chain.mend.protect import damage as damage_of
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.parity import Member, parse_layout
from lccodec.container.system import System

from ...support.crashes import hold
from ...support.damage import files_in, flip, is_true, protected_names, protected_run, without_parity
from ...support.mirrors import mirror_of
from ...support.programs import run_program
from ...support.segments import STATES, all_restore, run_of
from ...support.systems import attempts
from ...support.walks import save_all


@pytest.mark.parametrize("wrong", ["5", "0.5%", "101%", "x%", "nan%", "inf%", 0, 65, -1, 2.5, True, None])
def test_redundancies_that_cannot_be(wrong: object) -> None:
    with pytest.raises(ArgumentError, match="a redundancy is a number of files from 1 to 64, or 1% to 100%"):
        parse_redundancy(wrong)


@pytest.mark.parametrize("percent", [1, 2.5, 5, 7.3, 10, 33, 50, 100])
@pytest.mark.parametrize("count", [1, 5, 64])
def test_bytes_of_parity_are_those_of_the_redundancy(percent: float, count: int) -> None:
    lengths = np.random.default_rng(count).integers(1 << 25, 1 << 27, count)
    members = [Member(f"{i:012d}.lcc.h5", int(n), bytes(32)) for i, n in enumerate(lengths)]
    layout = parse_redundancy(f"{percent}%").layout(members)
    size = layout.parity * (layout.rows * layout.block + 2 * (64 + layout.index_length))
    asked = percent / 100 * sum(map(int, lengths))
    assert asked <= size <= (1.02 if asked > 32 << 20 else 1.1) * asked
    layout = Redundancy(files=2).layout(members)
    size = layout.parity * (layout.rows * layout.block + 2 * (64 + layout.index_length))
    assert 2 * max(lengths) <= size <= 1.02 * 2 * int(max(lengths))


@pytest.mark.parametrize("redundancy", ["1%", "2.5%", "33%", "100%", 1, 3, 64])
@pytest.mark.parametrize("sizes", [[1], [700] * 64, [1, 1 << 20], [1 << 27]])
def test_layouts_are_valid_and_say_what_they_are_for(redundancy: object, sizes: list[int]) -> None:
    members = [Member(f"{i:012d}.lcc.h5", size, bytes(32)) for i, size in enumerate(sizes)]
    asked = parse_redundancy(redundancy)
    layout = asked.layout(members)
    assert parse_layout(layout.to_bytes(), "") == layout
    assert redundancy_of(layout) == asked


# --- groups ---------------------------------------------------------------------------------------


def test_nothing_else_changes(tmp_path: Path) -> None:
    run_of(tmp_path, 3, newest="exact").close()
    before = files_in(tmp_path)
    found = protect(DirectoryStore(tmp_path), Redundancy(files=1))
    assert (found.groups, found.made, len(found.files)) == (2, 2, 4)
    assert without_parity(tmp_path) == before
    assert found.parity_bytes == sum(len(d) for n, d in files_in(tmp_path).items() if n not in before)
    assert validate(tmp_path, deep=True) == []
    again = protect(DirectoryStore(tmp_path), Redundancy(files=1))
    assert (again.groups, again.made, again.files) == (2, 0, found.files)
    assert unprotect(DirectoryStore(tmp_path)) == found.parity_bytes
    assert files_in(tmp_path) == before
    assert not (tmp_path / ".parity").exists()


@pytest.mark.slow
def test_a_full_group_stays(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "lossless", newest="history")
    state = {"w": np.ones(9, np.float32)}
    for step in range(66):
        chain.save(step, {"w": state["w"] * step})
    protect(DirectoryStore(tmp_path), Redundancy(files=1))
    names = set(files_in(tmp_path / ".parity"))
    chain.save(66, state)
    found = chain.protect(1)
    assert (found.groups, found.made, len(found.files)) == (2, 1, 67)
    assert len(names & set(files_in(tmp_path / ".parity"))) == 1
    assert is_true(tmp_path)


def test_damaged_files_are_not_protected(tmp_path: Path) -> None:
    chain = run_of(tmp_path, 4)
    path = tmp_path / "000000000002.lcc.h5"
    flip(path, 400)
    (tmp_path / "000000000001.lcc.h5").write_bytes(b"")
    found = chain.protect(2)
    assert list(found.unprotected) == ["000000000001.lcc.h5", "000000000002.lcc.h5"]
    assert protected_names(tmp_path) == list(found.files)
    assert len(found.files) == 2


def parity_of(directory: Path) -> dict[str, bytes]:
    return files_in(directory / ".parity")


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("sizes", [[5, 5, 5, 5], [5, 9000, 70, 90_000, 3], [90_000, 3, 3]])
def test_a_group_grows_by_its_new_files(tmp_path: Path, files: int, sizes: list[int]) -> None:
    """What is there is byte for byte what all files together give."""
    run, anew = tmp_path / "run", tmp_path / "anew"
    chain = Chain(run, "lossless", keyframe_every=0, newest="history")
    rng = np.random.default_rng(files)
    for step, size in enumerate(sizes):
        chain.save(step, {"w": rng.standard_normal(size)})
        found = protect(store := DirectoryStore(run), Redundancy(files=files))
        assert (found.groups, found.made, len(found.files)) == (1, 1, step + 1)
        assert is_true(run)
        shutil.rmtree(anew, ignore_errors=True)
        shutil.copytree(run, anew, ignore=shutil.ignore_patterns(".parity"))
        [group] = ParityFolder(store).groups()[0]
        fresh = Redundancy(files=files).layout(group.index.layout.members)
        protect(DirectoryStore(anew), Redundancy(files=files))
        if fresh == group.index.layout:
            assert parity_of(run) == parity_of(anew)
    chain.close()
    before = files_in(run)
    for name in list(without_parity(run))[:files]:
        (run / name).unlink()
    assert repair(DirectoryStore(run)).lost == {}
    assert files_in(run) == before


def test_old_files_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = run_of(tmp_path, 5)
    chain.protect(2)
    chain.save(5, STATES[5])
    read = list[str]()
    made = damage_of.__globals__  # the module

    def verified(store: DirectoryStore, member: Any) -> str | None:
        read.append(member.name)
        return damage_of(store, member)

    monkeypatch.setitem(made, "damage", verified)
    bands = made["read_band"]
    columns = set[int]()

    def noted(layout: Any, files: Any, column: int, *rows: int) -> Any:
        columns.add(column)
        return bands(layout, files, column, *rows)

    monkeypatch.setitem(made, "read_band", noted)
    chain.protect(2)
    assert (read, columns) == (["000000000005.lcc.h5"], {5})
    assert is_true(tmp_path)


@pytest.mark.parametrize("place", [100, -200, 3000])
def test_damaged_parity_does_not_go_on(tmp_path: Path, place: int) -> None:
    """Then all files are read, and the parity is that of a chain that was never damaged."""
    for run in (tmp_path / "a", tmp_path / "b"):
        chain = run_of(run, 4)
        chain.protect(1)
        chain.save(4, STATES[4])
    [path] = (tmp_path / "a/.parity").iterdir()
    flip(path, place)
    for run in (tmp_path / "a", tmp_path / "b"):
        Chain(run).protect(1)
    assert is_true(tmp_path / "a")
    assert parity_of(tmp_path / "a") == parity_of(tmp_path / "b")


@pytest.mark.parametrize("redundancy", [1, "40%"])
@pytest.mark.parametrize("how", ["damaged", "gone", "cut"])
def test_a_file_that_is_lost_stays_protected(tmp_path: Path, redundancy: Any, how: str) -> None:
    """Also by a run that goes on and protects each save."""
    run_of(tmp_path, 4).close()
    protect(DirectoryStore(tmp_path), parse_redundancy(redundancy))
    path = tmp_path / "000000000001.lcc.h5"
    before = path.read_bytes()
    path.unlink()
    if how != "gone":
        path.write_bytes(before if how == "damaged" else before[:-1])
    if how == "damaged":
        flip(path, -30)
    with Chain(tmp_path, parity=redundancy) as chain:
        save_all(chain, STATES, (4, 5))
    found = repair(DirectoryStore(tmp_path))
    assert (found.mended, found.lost, found.protected) == ((path.name,), {}, 6)
    assert path.read_bytes() == before
    protect(DirectoryStore(tmp_path), parse_redundancy(redundancy))
    assert is_true(tmp_path)
    assert len(ParityFolder(DirectoryStore(tmp_path)).groups()[0]) == 1


def test_no_chain(tmp_path: Path) -> None:
    with pytest.raises(ChainError, match="holds no checkpoint"):
        protect(DirectoryStore(tmp_path), Redundancy(files=1))
    assert not list(tmp_path.iterdir())


def test_a_link_in_the_place_of_the_parity(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 2)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run/.parity").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="it is a link"):
        protect(DirectoryStore(tmp_path / "run"), Redundancy(files=1))
    assert not list((tmp_path / "elsewhere").iterdir())


# --- crashes and faults ---------------------------------------------------------------------------


@pytest.mark.slow
def test_no_crash_of_a_protect_harms(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 4, newest="exact").close()
    before = without_parity(tmp_path / "run")

    def check(done: bool, place: Path) -> bool:
        if without_parity(place) != before:
            return False
        found = repair(DirectoryStore(place))  # never makes it worse
        return without_parity(place) == before and not found.mended and (not done or is_true(place))

    def work(system: Any) -> None:
        protect(DirectoryStore(tmp_path / "run", system), Redundancy(files=1))

    hold(tmp_path / "run", work, check, above=4)


@pytest.mark.slow
def test_no_crash_leaves_less_protected(tmp_path: Path) -> None:
    """The group that takes the place of another is there before that one goes."""
    protected_run(tmp_path / "run", 1, 3)
    Chain(tmp_path / "run").save(3, STATES[3])
    lost = "000000000001.lcc.h5"
    before = (tmp_path / "run" / lost).read_bytes()

    def check(_: bool, place: Path) -> bool:
        (place / lost).unlink()
        return repair(DirectoryStore(place)).mended == (lost,) and (place / lost).read_bytes() == before

    def work(system: Any) -> None:
        protect(DirectoryStore(tmp_path / "run", system), Redundancy(files=1))

    hold(tmp_path / "run", work, check, above=4)


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_faults_at_every_operation_of_a_protect(tmp_path: Path, code: int) -> None:
    run_of(tmp_path / "run", 3).close()
    before = without_parity(tmp_path / "run")

    def act(place: Path, system: System) -> None:
        protect(DirectoryStore(place, system), Redundancy(files=1))

    told = 0
    for place, error in attempts(tmp_path / "run", act, code):
        told += error is not None
        assert without_parity(place) == before
        protect(DirectoryStore(place), Redundancy(files=1))
        assert is_true(place)
    assert told > 10


@pytest.mark.parametrize("redundancy", [2, "20%"])
def test_parity_stays_true(tmp_path: Path, redundancy: object) -> None:
    protected_run(tmp_path / "run", redundancy, 9, newest="exact")
    chain = Chain(tmp_path / "run")
    asked = recorded(DirectoryStore(tmp_path / "run"))
    assert asked == parse_redundancy(redundancy)
    assert is_true(tmp_path / "run")
    chain.prune(Keep(latest=1, steps=[4]))
    assert chain.steps == [3, 4, 6, 7, 8]
    assert is_true(tmp_path / "run")
    chain.prune(Keep(latest=1, steps=[4, 7]), rewrite=True)
    assert chain.steps == [4, 7, 8]
    assert is_true(tmp_path / "run")
    chain.rollback(7)
    assert chain.steps == [4, 7]
    assert is_true(tmp_path / "run")
    chain.undo_rollback()
    assert chain.steps == [4, 7, 8]
    assert is_true(tmp_path / "run")
    chain.compact(keyframe_every=0)
    assert is_true(tmp_path / "run")
    assert recorded(DirectoryStore(tmp_path / "run")) == asked
    assert all_restore(tmp_path / "run")
    bundle(tmp_path / "run", tmp_path / "run.lcc")
    assert is_true(tmp_path / "run")
    unbundle(tmp_path / "run.lcc", tmp_path / "other")
    assert not (tmp_path / "other/.parity").exists()


def test_what_was_removed_does_not_come_back(tmp_path: Path) -> None:
    protected_run(tmp_path, 64, 6)
    chain = Chain(tmp_path)
    chain.rollback(3, delete=True)
    assert repair(DirectoryStore(tmp_path)).mended == ()
    assert chain.steps == [0, 1, 2, 3]


def test_while_a_chain_prunes_after_saves_it_is_not_worse_off(tmp_path: Path) -> None:
    protected_run(tmp_path, 64, 6)
    chain = Chain(tmp_path, keep=Keep(latest=1))
    chain.save(6, STATES[6])
    steps = chain.steps
    assert steps[0] > 0
    assert repair(DirectoryStore(tmp_path)).mended == ()
    assert chain.steps == steps


@pytest.mark.parametrize("newest", ["history", "exact"])
@pytest.mark.parametrize("parity", [None, 2])
def test_pruning_after_saves_keeps_parity_true(tmp_path: Path, newest: Any, parity: int | None) -> None:
    """Also where it was made by hand: what goes is forgotten, the rest is protected again."""
    protected_run(tmp_path, 2, 6, newest=newest)
    with Chain(tmp_path, keep=Keep(latest=2), parity=parity) as chain:
        save_all(chain, STATES, (6, 7, 8))
    assert chain.steps[0] > 0
    assert recorded(DirectoryStore(tmp_path)) == Redundancy(files=2)
    found = repair(DirectoryStore(tmp_path), dry_run=True)
    assert (found.mended, found.lost) == ((), {})
    assert "000000000006.lcc.h5" in protected_names(tmp_path)  # from the last prune on: by hand
    assert is_true(tmp_path) or parity is None


def test_a_mirror_that_thins_out_keeps_its_parity_true(tmp_path: Path) -> None:
    with Chain(tmp_path / "run", "lossless", keyframe_every=0) as chain:
        save_all(chain, STATES, range(4))
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    protect(DirectoryStore(tmp_path / "m"), Redundancy(files=1))
    thin = partial(prune, keep=Keep(latest=2), wait=False)
    mirror_of(tmp_path / "run", tmp_path / "m", thin_out=thin).bring()
    assert Chain(tmp_path / "m").steps == [2, 3]
    assert is_true(tmp_path / "m")


@pytest.mark.parametrize("parity", [1, "50%"])
def test_saves_are_protected_when_the_chain_is_closed(tmp_path: Path, parity: Any) -> None:
    with Chain(tmp_path, "lossless", newest="exact", parity=parity) as chain:
        save_all(chain, STATES)
    files = files_in(tmp_path)
    (tmp_path / "000000000003.lcc.h5").unlink()
    found = repair(DirectoryStore(tmp_path))
    assert (found.mended, found.protected) == (("000000000003.lcc.h5",), 11)
    assert files_in(tmp_path) == files


@pytest.mark.slow
def test_saves_in_the_background(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless", newest="history", parity=1) as chain:
        chain.save_async(0, STATES[0]).result()
        chain.save_async(1, STATES[1]).result()
    assert repair(DirectoryStore(tmp_path), dry_run=True).protected == 2


def test_no_save_waits_and_calls_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, begun, go_on = [], threading.Event(), threading.Event()

    def slow(*arguments: Any) -> None:
        calls.append(arguments)
        begun.set()
        go_on.wait(60)

    monkeypatch.setattr(behind, "protect", slow)
    protect = ParityBehind(DirectoryStore(tmp_path), Redundancy(files=1))
    protect.after(Change())
    assert begun.wait(60)
    for _ in range(9):
        protect.after(Change())
    go_on.set()
    protect.close()
    assert len(calls) == 2


FORK = """
import os, sys, threading
import numpy as np
from lccodec import Chain

chain = Chain(sys.argv[1], "lossless", newest="history", parity=1)
chain.save(0, {"w": np.zeros(9)})
is_held, may_end, is_closed = threading.Event(), threading.Event(), os.pipe()

def hold():
    is_held.set()
    may_end.wait()

chain._parity._rounds.line.add(hold)
is_held.wait()
process = os.fork()
if process == 0:
    os.close(is_closed[1])
    os.read(is_closed[0], 1)
    chain.save(1, {"w": np.ones(9)})
    chain.close()
    os._exit(7)
may_end.set()
chain.close()
os.close(is_closed[1])
assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="forks of POSIX")
def test_a_fork_has_not_the_thread(tmp_path: Path) -> None:
    """It protects what it saves itself, whatever a thread of its parent does at that moment."""
    run_program(FORK, tmp_path, flags=("-W", "ignore"))
    assert repair(DirectoryStore(tmp_path), dry_run=True).protected == 2


def test_an_error_is_a_warning_of_the_next_call(tmp_path: Path) -> None:
    protect = ParityBehind(DirectoryStore(tmp_path / "none"), Redundancy(files=1))
    protect.after(Change())
    with pytest.warns(LccodecWarning, match="saves are not protected: .* holds no checkpoint"):
        protect.close()


def test_without_parity_nothing_is_done(tmp_path: Path) -> None:
    protect = ParityBehind(DirectoryStore(tmp_path), None)
    protect.after(Change())
    protect.close()
    with pytest.raises(ArgumentError, match="a redundancy is"):
        Chain(tmp_path, parity=0)


def test_parity_that_went_is_made_again_whatever_goes_after_it(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    with Chain(tmp_path, "lossless", newest="history") as chain:
        chain.save(0, STATES[0])
    protect = ParityBehind(store, None)
    held, go_on = threading.Event(), threading.Event()
    protect._rounds.line.add(lambda: (held.set(), go_on.wait(60)))
    assert held.wait(60)
    for redundancy in (Redundancy(files=1), None):
        protect.went(redundancy)
        protect.after(Change())
    go_on.set()
    protect.close()
    assert repair(store, dry_run=True).protected == 1
