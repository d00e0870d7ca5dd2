"""A bucket as the store of a chain: saves, reads, removals, and who comes first.

What rollbacks set aside in a bucket, and what one that was cut short leaves.

The verbs of the shell, and what else takes a directory, with an address.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import lccodec
from lccodec.chain.store.bucket import store as module
from lccodec.chain.store.bucket.store import BucketStore, connect
from lccodec.chain.store.claim import Use
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.store import Store, checkpoint_name
from lccodec.cli.program import program
from lccodec.constants import EXACT_NAME
from lccodec.container.checkpoint import open_bytes
from lccodec.container.system import Address
from lccodec.errors import ArgumentError, ChainError, StorageError

from ....support.buckets import BUCKET, environment, moto
from ....support.tuning import tune
from ....support.walks import NAMES, assert_same, save_all, walk


def store_of(place: str) -> BucketStore:
    return connect(Address.of(place))


def keys(place: str) -> list[str]:
    return sorted(each.key for each in store_of(place)._backend.objects())


def test_a_chain_is_saved_and_restored(place: str) -> None:
    states = walk(5)
    with lccodec.Chain(place, policy="balanced", keyframe_every=2) as chain:
        assert chain.latest is None
        save_all(chain, states)
        assert_same(chain.restore(), states[-1])
    chain = lccodec.Chain(place)
    assert chain.steps == [0, 1, 2, 3, 4]
    assert chain.exact_step == 4
    assert_same(chain.restore(), states[-1])
    assert lccodec.validate(place, deep=True) == []
    with lccodec.open(place, step=1) as file:
        assert file.info().parent == 0
        assert_same(file.get("fixed"), states[1]["fixed"])


def test_another_server_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the protocol leaves open differs from server to server: pages, order, answers."""
    with moto() as endpoint:
        for name, value in environment(endpoint).items():
            monkeypatch.setenv(name, value)
        test_a_chain_is_saved_and_restored(f"s3://{BUCKET}/a")
        test_of_two_writers_of_a_step_one_wins(f"s3://{BUCKET}/b")
        test_who_commits_the_same_file_has_won(f"s3://{BUCKET}/c")
        test_what_is_pruned_leaves_the_listing_first(f"s3://{BUCKET}/d", monkeypatch)


def test_the_files_are_those_of_a_directory(place: str, tmp_path: Path) -> None:
    for where in (place, tmp_path / "run"):
        with lccodec.Chain(where, policy="lc-3", keyframe_every=2) as chain:
            save_all(chain, walk(4))
    remote, local = store_of(place).snapshot(), DirectoryStore(tmp_path / "run")
    assert remote.steps() == local.steps()
    for name in [*local.steps().values(), "exact.lcc.h5"]:
        with remote.open(name) as ours, local.open(name) as theirs:
            size = theirs.file_size
            assert ours.source.read(0, size) == theirs.source.read(0, size)
        assert remote.root(name) == local.root(name)
        assert remote.size([name]) == local.size([name])
        assert remote.parents_of(name) == local.parents_of(name)
    assert remote.exact_step() == local.exact_step() == 3


def test_saves_in_the_background_arrive_in_order(place: str) -> None:
    states = walk(4)
    with lccodec.Chain(place, policy="lc-3", max_concurrent_saves=2) as chain:
        futures = [chain.save_async(step, state) for step, state in enumerate(states)]
        assert all(future.result() for future in futures)
        assert chain.steps == [0, 1, 2, 3]
    assert_same(lccodec.Chain(place).restore(), states[-1])


def test_an_overwritten_file_keeps_one_commit(place: str) -> None:
    with lccodec.Chain(place, policy="lc-3") as chain:
        save_all(chain, walk(3))
    commits = [key for key in keys(place) if key.startswith("exact") and key.count(".") == 2]
    assert commits == ["exact.lcc.h5/2"]


def put(place: str, data: bytes, check: Callable[[Path], object] | None = None) -> bytes:
    """Write a checkpoint file to a store as a save does; return its root."""
    with open_bytes(data) as reader, store_of(place).writer(NAMES[0]) as writer:
        for number in range(len(reader.manifest.frames)):
            writer.write_frame(reader.frame(number)[:])
        return writer.commit(reader.manifest, check)


def test_of_two_writers_of_a_step_one_wins(place: str) -> None:
    """Both have seen an empty chain, and uploaded, before one of them commits."""
    mine, other = (lccodec.save(state) for state in walk(2))
    with pytest.raises(ChainError, match="another process is saving to this chain, which has one writer"):
        put(place, mine, lambda _: put(place, other))
    with store_of(place).open(NAMES[0]) as reader, open_bytes(other) as won:
        assert reader.root == won.root
    data = [key for key in keys(place) if key.startswith(f"{NAMES[0]}/0.")]
    assert len(data) == 2  # that of the loser is removed later


def test_who_commits_the_same_file_has_won(place: str) -> None:
    """As after an answer that was lost: the commit is there, and names what this writer has put."""
    data = lccodec.save(walk(1)[0])
    assert put(place, data) == put(place, data)


def test_data_without_a_commit_goes_when_it_is_old(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = (lccodec.save(state) for state in walk(2))
    with pytest.raises(ChainError):
        put(place, mine, lambda _: put(place, other))
    before = keys(place)
    store_of(place).remove_stale()
    assert keys(place) == before
    monkeypatch.setattr(module, "MIN_AGE_SECONDS", -60.0)
    store_of(place).remove_stale()
    assert len(keys(place)) == len(before) - 1
    with store_of(place).open(NAMES[0]) as reader, open_bytes(other) as won:
        assert reader.root == won.root


def test_what_is_pruned_leaves_the_listing_first(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with lccodec.Chain(place, policy="lossless", keyframe_every=0) as chain:
        save_all(chain, walk(4))
        gone = chain.prune(lccodec.Keep(latest=2))
        assert gone.removed == (0, 1)
        assert chain.steps == [2, 3]
        assert [key for key in keys(place) if key.startswith(NAMES[0])] != []  # young data stays
        with pytest.raises(ChainError, match="has no step 1"):
            chain.restore(1)
        monkeypatch.setattr(module, "MIN_AGE_SECONDS", -60.0)
        chain.prune(lccodec.Keep(latest=1))
        assert {key.partition("/")[0] for key in keys(place)} == {NAMES[3], ".writer"}


def test_a_reader_of_a_pruned_step_gets_the_usual_error(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_AGE_SECONDS", -60.0)
    with lccodec.Chain(place, policy="lossless", keyframe_every=0) as chain:
        save_all(chain, walk(3, shape=(99, 99)))
        with lccodec.open(place, step=0) as file:
            chain.prune(lccodec.Keep(latest=1))
            with pytest.raises(ChainError, match="was pruned while it was read"):
                file.get("layer/weight")


def test_pins_keep_steps(place: str) -> None:
    with lccodec.Chain(place, policy="lossless", keyframe_every=0) as chain:
        save_all(chain, walk(4))
        chain.pin(1)
        assert lccodec.Chain(place).pins == [1]
        assert chain.prune(lccodec.Keep(latest=1)).removed == (0, 2)
        assert chain.unpin(1)
        assert not chain.unpin(1)
        assert chain.pins == []


def test_a_second_writer_is_refused(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chains of one process are told apart while one of them saves."""
    tune(monkeypatch, bucket_claim_seconds_for_others=0.0)
    claim, use = store_of(place).claim(), Use()
    claim.take(use)
    with pytest.raises(ChainError, match="another Chain of this process is saving"):
        lccodec.Chain(place).save(0, walk(1)[0])
    use.end()
    claim.release()
    with lccodec.Chain(place) as chain:
        chain.save(0, walk(1)[0])


def test_a_step_that_exists_is_refused(place: str) -> None:
    with lccodec.Chain(place) as chain:
        chain.save(3, walk(1)[0])
        with pytest.raises(ArgumentError, match="step 3 exists already"):
            chain.save(3, walk(1)[0])
        with pytest.raises(ArgumentError, match="must be above the latest"):
            chain.save(2, walk(1)[0])


def test_missing_data_is_told(place: str) -> None:
    with lccodec.Chain(place, policy="lossless", keyframe_every=0) as chain:
        save_all(chain, walk(2))
    store = store_of(place)
    store._backend.delete(key for key in keys(place) if key.startswith(f"{NAMES[0]}/0."))
    with pytest.raises(StorageError, match="its data is missing in the bucket"):
        store.open(NAMES[0])
    assert [problem.rule for problem in lccodec.validate(place)] == ["storage"]
    assert lccodec.Chain(place).restore(1)["epoch"] == 1


def content(store: Store) -> dict[str, bytes]:
    listed = store.snapshot()
    return {name: (source := listed.source(name)).read(0, source.size) for name in listed.names()}


def test_a_fork_into_a_bucket_within_one_and_back(place: str, tmp_path: Path) -> None:
    states = walk(5)
    with lccodec.Chain(tmp_path / "run", "lc-3", keyframe_every=2) as chain:
        save_all(chain, states)
        assert chain.fork(place, 4) == [3, 4]
        assert chain.fork(place, 4) == [3, 4]  # the same once more
        with pytest.raises(ArgumentError, match="holds a chain"):
            chain.fork(place, 2)
        store_of(place).remove([checkpoint_name(4)])  # as if it was cut short
        assert chain.fork(place, 4) == [3, 4]
    assert content(store_of(place)) == {
        name: path.read_bytes()
        for name in ("000000000003.lcc.h5", "000000000004.lcc.h5", EXACT_NAME)
        for path in [tmp_path / "run" / name]
    }
    with lccodec.Chain(place) as chain:
        assert_same(chain.restore(), states[4])
        assert chain.fork(f"{place}-of-it", 3) == [3]
        assert chain.fork(tmp_path / "back", 4) == [3, 4]
        chain.save(5, states[0])
    assert lccodec.validate(f"{place}-of-it", deep=True) == []
    assert (
        content(DirectoryStore(tmp_path / "back")).items()
        <= content(DirectoryStore(tmp_path / "run")).items()
    )


def test_what_is_copied_into_a_bucket_is_verified_there(tmp_path: Path) -> None:
    place = f"memory://{tmp_path.name}/fork"
    with lccodec.Chain(tmp_path / "run", "lossless") as chain:
        chain.save(0, {"w": np.random.default_rng(0).standard_normal(1000)})
        path = tmp_path / "run" / checkpoint_name(0)
        data = bytearray(path.read_bytes())
        data[4000] ^= 1  # in the frame, which nothing reads before it is copied
        path.write_bytes(data)
        with pytest.raises(lccodec.DataError, match="LCC-MAN-08"):
            chain.fork(place, 0)
    assert store_of(place).names() == []


def test_a_fork_of_an_interpolated_step(tmp_path: Path) -> None:
    states = walk(9)
    with lccodec.Chain(tmp_path / "run", "lc-3", hindsight=4) as chain:
        save_all(chain, states)
        before = chain.restore(2)
        place = f"memory://{tmp_path.name}/fork"
        assert chain.fork(place, 2)[-1] == 2
        assert chain.fork(place, 2)[-1] == 2
    other = lccodec.Chain(place)
    assert other.steps[-1] == 2
    assert_same(other.restore(2, exact=False), before)


def test_a_bundle_is_taken_apart_into_a_bucket(place: str, tmp_path: Path) -> None:
    with lccodec.Chain(tmp_path / "run", "lc-3", keyframe_every=2) as chain:
        save_all(chain, walk(4))
    lccodec.bundle(tmp_path / "run", tmp_path / "run.lcc")
    assert lccodec.unbundle(tmp_path / "run.lcc", place) == [0, 1, 2, 3]
    store_of(place).remove([checkpoint_name(3)])
    assert lccodec.unbundle(tmp_path / "run.lcc", place) == [0, 1, 2, 3]  # goes on where it stopped
    there = content(store_of(place))
    assert there == {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*.lcc.h5")}
    with lccodec.Chain(f"{place}-other") as other:
        other.save(0, {"x": 1})
    with pytest.raises(ArgumentError, match="is not of this bundle"):
        lccodec.unbundle(tmp_path / "run.lcc", f"{place}-other")


@pytest.mark.parametrize("options", [{}, {"policy": "lc-3"}, {"hindsight": 2, "policy": "lc-3"}])
def test_a_run_is_compacted_into_a_bucket(place: str, tmp_path: Path, options: dict[str, Any]) -> None:
    states = walk(4)
    with lccodec.Chain(tmp_path / "run", keyframe_every=0) as chain:
        save_all(chain, states)
        found = chain.compact(directory=place, keyframe_every=9, **options)
        assert found.after < found.before
    assert lccodec.validate(place, deep=True) == []
    if not options:
        assert_same(lccodec.Chain(place).restore(3), states[3])


#: Objects that lccodec has not named, in all of its folders.
FOREIGN = (
    *("notes.txt", "mine/notes.txt", f"mine/0.0.{'0' * 64}.none.5.lcc.h5", "000000000000.lcc.h5/notes"),
    *("000000000001.lcc.h5/00", ".rolled-back/notes", ".rolled-back/mine/notes", ".lock/notes"),
    *(".rolled-back/0001-to-2/notes", ".rolled-back/0001-to-2/mine/0", ".rolled-back/mine/complete"),
    *(".writer/mine/5", ".writer/05", ".lock/" + 30 * "9", "mine/000000000000.lcc.h5/0"),
)


def test_objects_of_others_stay(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_AGE_SECONDS", -1e9)  # data that no commit names goes at once
    tune(monkeypatch, bucket_seconds_between_sweeps=0.0)
    backend = connect(Address.of(place))._backend
    for key in FOREIGN:
        backend.put_if_absent(key, key.encode())
    with lccodec.Chain(place, "lc-3", keyframe_every=2) as chain:
        save_all(chain, walk(5))
        chain.pin(1)
        chain.rollback(2)
        chain.undo_rollback()
        chain.rollback(2)
        chain.save(3, walk(5)[3])
        chain.prune(keep=lccodec.Keep(latest=1))
        chain.delete_rolled_back(pinned=True)
        chain.unpin(1)
        chain.repair()
    assert backend.read_small(FOREIGN, 1000) == [key.encode() for key in FOREIGN]


@pytest.mark.slow
def test_a_killed_save_leaves_nothing_outside(tmp_path: Path) -> None:
    """The next process removes it, whatever it does with a bucket; what a save has now stays."""
    code = """
import time
import numpy as np, lccodec
from lccodec.chain.store.bucket.backend import FsspecBackend

def upload(*_):
    print("in the middle", flush=True)
    time.sleep(600)

FsspecBackend.upload = upload
with lccodec.Chain("memory://run", "lossless") as chain:
    chain.save(0, {"w": np.arange(9.0)})
"""
    look = "import lccodec; lccodec.Chain('memory://other').steps"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}

    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == b"in the middle\n"
    subprocess.run([sys.executable, "-c", look], check=True, env=environment)
    assert len(list(tmp_path.glob("lccodec-*/*.lcc.h5"))) == 1
    process.kill()
    process.communicate()
    assert len(list(tmp_path.glob("lccodec-*/*.lcc.h5"))) == 1
    subprocess.run([sys.executable, "-c", look], check=True, env=environment)
    assert list(tmp_path.iterdir()) == []


def test_what_was_cut_short_is_not_there_and_goes_later(place: str) -> None:
    with lccodec.Chain(place, "lossless") as chain:
        save_all(chain, walk(4))
        store = connect(Address.of(place))
        backend, shelf = store._backend, store.shelf()
        name = shelf.add(1, [*store.checkpoints().values()][2:], [3])
        assert [each.steps for each in chain.rolled_back] == [(2, 3)]
        backend.delete([f".rolled-back/{name}/complete"])
        assert chain.rolled_back == []
        gone = chain.rollback(1)
        assert gone.name == "0002-to-1"
        kept = {each.key.split("/")[1] for each in backend.objects(".rolled-back")}
        assert kept == {gone.name}
        chain.undo_rollback()
        assert_same(chain.restore(3), walk(4)[3])
        assert backend.objects(".rolled-back") == []


def test_a_rollback_that_was_cut_short_is_finished(place: str) -> None:
    with lccodec.Chain(place, "lossless") as chain:
        save_all(chain, walk(4))
        store = connect(Address.of(place))
        name = store.shelf().add(1, [*store.checkpoints().values()][2:], [])
        with store.locked() as held:
            held.remove(["000000000003.lcc.h5"])
        assert chain.rollback(1).name == name  # what was set aside stays together
        assert [each.steps for each in chain.rolled_back] == [(2, 3)]
        assert chain.steps == [0, 1]


@pytest.fixture
def chain(place: str) -> str:
    """The address of a chain of six steps."""
    with lccodec.Chain(place, "lc-3", keyframe_every=3) as saved:
        for step, state in enumerate(walk(6)):
            saved.save(10 * step, state, metrics={"loss": 1 / (step + 1)})
    return place


def ask(words: str, code: int = 0) -> str:
    result = CliRunner().invoke(program, words.split())
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def answer(words: str) -> Any:
    return json.loads(ask(f"{words} --json"))


def test_verbs_that_show(chain: str, tmp_path: Path) -> None:
    found = answer(f"ls {chain}")
    assert found["directory"] == chain
    assert [each["step"] for each in found["checkpoints"]] == [0, 10, 20, 30, 40, 50]
    assert found["exact"]["step"] == 50
    assert found["exact"]["problem"] is None
    assert answer(f"info {chain} --step 20")["deltas"] == 2
    assert answer(f"info {chain}")["exact"]
    assert answer(f"show {chain} layer/weight --over-time")["over_time"]["steps"] == [0, 10, 20, 30, 40, 50]
    assert [each["name"] for each in answer(f"diff {chain} 10 20")["changed"]] == [
        "layer/weight",
        "layer/bias",
    ]
    assert answer(f"check {chain} --deep")["sound"]
    (run,) = answer(f"report {chain} --against {chain}")["runs"]
    assert run["path"] == chain
    assert [each["sound"] for each in run["checkpoints"]] == [True] * 6
    ask(f"restore {chain} -o {tmp_path / 'a.npz'} --key layer --step 10")
    with np.load(tmp_path / "a.npz") as file:
        assert_same(file["layer/bias"], lccodec.Chain(chain).restore(10)["layer"]["bias"])
    assert answer(f"average {chain} --last 2 -o {tmp_path / 'b.npz'}")["steps"] == [40, 50]


def test_verbs_that_change(chain: str) -> None:
    assert answer(f"pin {chain} 20")["pins"] == [20]
    pruned = answer(f"prune {chain} --latest 1")
    assert pruned["removed"] == [30]
    assert answer(f"unpin {chain} 20")["pins"] == []
    rewritten = answer(f"prune {chain} --latest 1 --step 10 --rewrite --grow")
    assert rewritten["removed"] == [0, 20, 40]
    assert lccodec.Chain(chain).steps == [10, 50]
    assert lccodec.validate(chain, deep=True) == []
    assert answer(f"compact {chain}")["rewritten"] != []
    assert lccodec.validate(chain, deep=True) == []


def test_a_bundle_of_a_bucket_is_a_chain(chain: str, tmp_path: Path) -> None:
    target = tmp_path / "run.lcc"
    assert answer(f"bundle {chain} -o {target}")["steps"] == [0, 10, 20, 30, 40, 50]
    assert_same(lccodec.Chain(chain).restore(), lccodec.open(target).state())
    assert lccodec.unbundle(target, tmp_path / "run") == [0, 10, 20, 30, 40, 50]
    assert lccodec.validate(tmp_path / "run", deep=True) == []
    lccodec.bundle(chain, target, steps=[30, 40])
    with lccodec.open(target, step=40) as file:
        assert_same(file.state(), lccodec.Chain(chain).restore(40))


def test_an_empty_place_is_told(place: str) -> None:
    assert f"{place} holds no checkpoint" in ask(f"ls {place}", code=1)
    with pytest.raises(ChainError, match="holds no checkpoint"):
        lccodec.open(place)
    assert [problem.message for problem in lccodec.validate(place)] == ["holds no checkpoint"]


def test_what_needs_a_directory_says_so(chain: str) -> None:
    assert "a path must be local" in ask(f"restore {chain} -o {chain}/a.npz", code=2)


def test_averages_of_a_bucket(chain: str) -> None:
    found = lccodec.Chain(chain).average(last=2)
    assert found["epoch"] == 5


def test_a_group_is_settled_in_a_bucket(place: str) -> None:
    states = walk(9)
    with lccodec.Chain(place, "lc-3", hindsight=4) as saved:
        save_all(saved, states)
    kinds = [lccodec.Chain(place).info(step).kind for step in range(9)]
    assert kinds.count("interpolated") == 6
    assert lccodec.validate(place, deep=True) == []
    assert_same(lccodec.Chain(place).restore(), states[-1])


def test_a_chain_thins_itself_out(place: str) -> None:
    with lccodec.Chain(place, "lossless", keyframe_every=0, keep=lccodec.Keep(latest=2)) as saved:
        save_all(saved, walk(5))
        assert saved.steps == [3, 4]


def test_a_rollback_sets_aside_and_is_undone(chain: str) -> None:
    before = {step: lccodec.Chain(chain).restore(step, exact=False) for step in range(0, 60, 10)}
    with lccodec.Chain(chain) as saved:
        saved.pin(40)
        gone = saved.rollback(20)
        assert (gone.name, gone.steps, gone.exact, gone.pins) == ("0001-to-20", (30, 40, 50), True, (40,))
        assert saved.steps == [0, 10, 20]
        assert saved.pins == []
        assert saved.exact_step is None
        assert saved.rolled_back == [gone]
        assert lccodec.validate(chain, deep=True) == []
        undone = saved.undo_rollback()
        assert undone == gone
        assert saved.rolled_back == []
        assert saved.steps == [0, 10, 20, 30, 40, 50]
        assert saved.pins == [40]
        assert saved.exact_step == 50
        assert lccodec.validate(chain, deep=True) == []
        for step, state in before.items():
            assert_same(saved.restore(step, exact=False), state)
        saved.save(60, walk(7)[6])
        assert saved.info(60).parent == 50


def test_what_was_rolled_back_outlasts_other_steps_of_the_same_number(
    chain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lccodec.chain.store.bucket.store.MIN_AGE_SECONDS", -60.0)
    before = lccodec.Chain(chain).restore(40, exact=False)
    other = walk(6, seed=7)
    with lccodec.Chain(chain) as saved:
        saved.rollback(20)
        saved.save(30, other[3])
        saved.save(40, other[4])
        assert_same(saved.restore(), other[4])
        with pytest.raises(ArgumentError, match="has other steps now"):
            saved.undo_rollback()
        saved.rollback(20)
        assert [each.name for each in saved.rolled_back] == ["0001-to-20", "0002-to-20"]
        saved.undo_rollback("0001-to-20")
        assert_same(saved.restore(40, exact=False), before)
        assert [each.name for each in saved.delete_rolled_back()] == ["0002-to-20"]
        assert saved.rolled_back == []
        assert lccodec.validate(chain, deep=True) == []


def test_a_rollback_that_deletes(chain: str) -> None:
    assert answer(f"rollback {chain} 30 --delete")["steps"] == [40, 50]
    assert lccodec.Chain(chain).steps == [0, 10, 20, 30]
    assert answer(f"rolled-back {chain}")["rolled_back"] == []
    assert answer(f"rollback {chain} 0")["name"] == "0001-to-0"
    assert answer(f"rolled-back {chain} --undo")["done"] == "undone"
    assert lccodec.Chain(chain).steps == [0, 10, 20, 30]


def test_the_runs_below_an_address(place: str) -> None:
    """Whatever their depth; not what a rollback has set aside."""
    above, _, name = place.rpartition("/")
    for below, steps in ((place, (0, 1)), (f"{above}/deep/er", (5,))):
        with lccodec.Chain(below, "lossless") as chain:
            for step in steps:
                chain.save(step, {"a": np.ones(4)})
            if len(steps) > 1:
                chain.rollback(0)
    assert f"  {above}/deep/er: 1 checkpoint, step 5\n  {above}/{name}: " in ask(f"ls {above}")
    assert answer(f"ls {above}")["chains"] == sorted([f"{above}/deep/er", place])
    assert f"holds no checkpoint, but these chains: deep/er, {name}" in ask(f"info {above}", 1)
    if place.startswith("s3://"):
        bucket = place.removeprefix("s3://").partition("/")[0]
        assert {f"{above}/deep/er", place} <= {*answer(f"ls s3://{bucket}")["chains"]}
        assert "there is no such bucket; make it first" in ask("ls s3://nobody-has-this", 1)
