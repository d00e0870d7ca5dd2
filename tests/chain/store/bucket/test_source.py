"""How many requests reads take, and how many bytes.

What is kept of what was read: bounded, and never wrong.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec.chain.store.bucket.backend import PatientBackend
from lccodec.chain.store.bucket.source import FOLDER, Disk, Memory
from lccodec.chain.store.bucket.store import connect
from lccodec.container.system import Address

from ....support.buckets import Proxy
from ....support.interrupts import interrupted
from ....support.tuning import tune
from ....support.walks import assert_same, save_all, walk


@pytest.fixture
def deep(run: str) -> list[dict[str, np.ndarray]]:
    """The states of a chain of a keyframe and 32 deltas, of one array of 1 MiB among others."""
    rng = np.random.default_rng(0)
    state = {"large": rng.standard_normal(1 << 18).astype(np.float32), "other": rng.standard_normal(1 << 16)}
    states = []
    with lccodec.Chain(run, "lossless", keyframe_every=40, newest="history") as chain:
        for step in range(33):
            state = {name: value.copy() for name, value in state.items()}
            for value in state.values():
                value[rng.integers(0, value.size, value.size // 100)] += 1
            chain.save(step, state)
            states.append(state)
    return states


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ranges each round of requests has."""
    found: list[int] = []
    read_many = PatientBackend.read_many

    def counted(self: PatientBackend, wanted: Sequence[tuple[str, int, int]]) -> list[bytes]:
        found.append(len(wanted))
        return read_many(self, wanted)

    monkeypatch.setattr(PatientBackend, "read_many", counted)
    return found


def cached() -> Iterator[Path]:
    """The files of the cache on the disk."""
    return (Path(os.environ["LCCODEC_CACHE"]) / FOLDER).iterdir()


def stored(run: str, name: str) -> int:
    """The bytes of the frames of an array in all files."""
    total = 0
    for step in lccodec.Chain(run).steps:
        with lccodec.open(run, step=step) as file:
            total += sum(array.stored_bytes for array in file.info().arrays if array.name == name)
    return total


def test_one_array_of_a_deep_chain_takes_two_rounds(
    run: str, deep: list[dict[str, np.ndarray]], proxy: Proxy, rounds: list[int]
) -> None:
    """The ends of all files, then the frames; the bytes are little more than the frames'."""
    with lccodec.open(run) as file:
        found = file.get("large")
    np.testing.assert_array_equal(found, deep[-1]["large"])
    assert len(proxy.listings) == 1
    assert rounds == [66, 33]
    received = sum(each.received for each in proxy.reads)
    assert received <= 1.2 * stored(run, "large")


def test_a_copy_brings_what_it_is_made_of(run: str, rounds: list[int]) -> None:
    """Weights in mixed precision: the rounded array has no frame of its own."""
    import ml_dtypes

    with lccodec.Chain(run, "lossless", newest="history") as chain:
        for step, weight in enumerate(np.random.default_rng(0).standard_normal((3, 90, 90)).astype("f4")):
            chain.save(step, {"master": weight, "model": weight.astype(ml_dtypes.bfloat16)})
    rounds.clear()
    with lccodec.open(run) as file:
        assert [array.method for array in file.info().arrays if array.name == "model"] == ["copy"]
        rounds.clear()
        np.testing.assert_array_equal(file.get("model"), weight.astype(ml_dtypes.bfloat16))
    assert rounds == [3]


def test_what_was_read_is_not_read_again(
    run: str, deep: list[dict[str, np.ndarray]], proxy: Proxy, rounds: list[int]
) -> None:
    for _ in range(2):
        assert_same(lccodec.Chain(run).restore(), deep[-1])
    assert len(rounds) == 2
    assert len(proxy.listings) == 2
    assert len(list(cached())) == sum(rounds)


def test_a_damaged_cache_does_no_harm(run: str, deep: list[dict[str, np.ndarray]]) -> None:
    lccodec.Chain(run).restore()
    for path in cached():
        path.write_bytes(bytes(path.stat().st_size))
    assert_same(lccodec.Chain(run).restore(), deep[-1])


def test_large_states_come_in_rounds_that_fit_in_memory(
    run: str, deep: list[dict[str, np.ndarray]], rounds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(monkeypatch, bucket_round_bytes=200_000)
    assert_same(lccodec.Chain(run).restore(), deep[-1])
    assert 2 < len(rounds) < 12


def test_the_steps_are_in_the_listing(run: str, proxy: Proxy, rounds: list[int]) -> None:
    with lccodec.Chain(run, "lossless", keyframe_every=2, newest="exact") as chain:
        save_all(chain, walk(5))
    proxy.clear()
    rounds.clear()
    chain = lccodec.Chain(run)
    assert chain.steps == [0, 1, 2, 3, 4]
    assert [each.is_listing for each in proxy.seen] == [True]
    assert chain.latest == chain.exact_step == 4
    store = connect(Address.of(run)).snapshot()
    assert [store.parents_of(name) for name in store.checkpoints().values()] == [(), (0,), (1,), (), (3,)]
    assert rounds == []
    assert all(each.is_listing for each in proxy.seen)


ROOT = bytes(range(32))


def test_parts_of_what_is_in_memory_are_found() -> None:
    memory = Memory(100)
    memory.put("a", 10, b"0123456789")
    assert memory.get("a", 12, 3) == b"234"
    assert memory.get("a", 10, 10) == b"0123456789"
    assert memory.get("a", 9, 2) is None
    assert memory.get("a", 19, 2) is None
    assert memory.get("b", 12, 3) is None


def test_memory_forgets_what_was_used_longest_ago() -> None:
    memory = Memory(10)
    memory.put("a", 0, bytes(4))
    memory.put("b", 0, bytes(4))
    assert memory.get("a", 0, 4) is not None
    memory.put("c", 0, bytes(4))
    assert memory.get("b", 0, 4) is None
    assert memory.get("a", 0, 4) is not None
    memory.put("a", 0, bytes(1))  # in its own place
    memory.put("d", 0, bytes(5))
    assert memory.get("c", 0, 4) is not None


def test_what_overlaps_is_forgotten() -> None:
    memory = Memory(100)
    memory.put("a", 0, bytes(10))
    memory.put("a", 10, bytes(10), verified=True)
    memory.put("a", 30, bytes(10))
    memory.put("b", 0, bytes(10))
    assert memory.unverified("a", 0, 10) == bytes(10)
    assert memory.unverified("a", 10, 10) is None
    assert memory.unverified("a", 30, 9) is None
    assert sorted(memory.drop("a", 9, 2)) == [(0, 10), (10, 10)]
    assert memory.get("a", 0, 1) is None
    assert memory.get("a", 30, 10) == memory.get("b", 0, 10) == bytes(10)
    assert memory.drop("a", 20, 10) == []


def test_what_was_verified_takes_the_place_of_what_was_not() -> None:
    memory = Memory(100)
    memory.put("a", 10, b"garbled")
    memory.put("a", 15, b"over the end")
    memory.put("a", 8, b"..original..", verified=True)
    assert memory.get("a", 10, 7) == b"origina"
    assert memory.get("a", 20, 7) == b"the end"
    memory.put("a", 10, b"garbled")
    assert memory.get("a", 8, 12) == b"..original.."


def test_what_an_error_has_left_of_a_call_is_no_error_later() -> None:
    """A signal handler may raise one between any two lines."""
    calls: dict[str, Callable[[Memory], object]] = {
        "put": lambda memory: memory.put("a", 5, bytes(20), verified=True),
        "get": lambda memory: memory.get("a", 0, 5),
        "drop": lambda memory: memory.drop("a", 0, 50),
    }
    for call in calls.values():
        memory = Memory(40)
        memory.put("a", 0, bytes(10))
        for number in range(len(interrupted(partial(call, memory)))):
            memory = Memory(40)
            memory.put("b", 0, bytes(10))
            memory.put("a", 0, bytes(10))
            interrupted(partial(call, memory), number)
            for start in range(0, 100, 10):
                memory.put("a", start, bytes(10))
                assert memory.get("a", start, 10) == bytes(10)


def test_a_range_on_the_disk_is_found_again(tmp_path: Path) -> None:
    Disk(tmp_path / "cache").put(ROOT, 5, b"some bytes")
    assert Disk(tmp_path / "cache").get(ROOT, 5, 10) == b"some bytes"
    assert Disk(tmp_path / "cache").get(ROOT, 5, 9) is None


@pytest.mark.parametrize("damage", [b"", b"some", b"other bytes....................."])
def test_a_damaged_range_is_removed(tmp_path: Path, damage: bytes) -> None:
    disk = Disk(tmp_path)
    disk.put(ROOT, 5, b"some bytes")
    (path,) = (tmp_path / FOLDER).iterdir()
    path.write_bytes(damage)
    assert disk.get(ROOT, 5, 10) is None
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_range_that_turned_out_wrong_is_removed(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.put(ROOT, 5, b"some bytes")
    disk.put(ROOT, 6, b"some bytes")
    disk.drop(ROOT, 5, 10)
    disk.drop(ROOT, 7, 10)
    assert disk.get(ROOT, 5, 10) is None
    assert disk.get(ROOT, 6, 10) == b"some bytes"


def test_the_disk_keeps_to_its_limit(tmp_path: Path) -> None:
    disk = Disk(tmp_path, limit=5000)
    for number in range(40):
        disk.put(ROOT, number, bytes(500))
        os.utime(tmp_path / FOLDER / f"{ROOT.hex()}-{number}-500.range", (number, number))
    kept = sorted(int(path.name.split("-")[1]) for path in (tmp_path / FOLDER).iterdir())
    assert sum(path.stat().st_size for path in (tmp_path / FOLDER).iterdir()) <= 5500
    assert kept == list(range(40 - len(kept), 40))  # the newest
    disk.put(ROOT, 99, bytes(2000))  # too large to be worth it
    assert disk.get(ROOT, 99, 2000) is None


def test_a_disk_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    disk = Disk(tmp_path / "file" / "cache")
    disk.put(ROOT, 0, b"bytes")
    assert disk.get(ROOT, 0, 5) is None


def test_the_environment_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LCCODEC_CACHE", "")
    disk = Disk.of_user()
    disk.put(ROOT, 0, b"bytes")
    assert disk.get(ROOT, 0, 5) is None
    monkeypatch.delenv("LCCODEC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    Disk.of_user().put(ROOT, 0, b"bytes")
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == [f"{ROOT.hex()}-0-5.range"]
    monkeypatch.setenv("LCCODEC_CACHE_BYTES", "0")
    monkeypatch.setenv("LCCODEC_CACHE", str(tmp_path / "other"))
    Disk.of_user().put(ROOT, 0, b"bytes")
    assert not (tmp_path / "other").exists()


def named(start: int) -> str:
    return f"{ROOT.hex()}-{start}-500.range"


#: Names near to those of the cache, and of earlier drafts of it.
FOREIGN = ["thesis.tex", f"{ROOT.hex()}-0-500", f"{ROOT.hex()}-0-500.range~", ".tmp-notes", ".tmp-0123"]


def test_files_of_others_are_neither_counted_nor_removed(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    others = [place / name for place in (tmp_path, tmp_path / FOLDER) for name in [*FOREIGN, "folder"]]
    for path in others:
        if path.name == "folder":
            path.mkdir()
        else:
            path.write_bytes(bytes(10_000))
            os.utime(path, (0, 0))
    before = {path: path.stat() for path in others}
    disk = Disk(tmp_path, limit=5000)
    for number in range(40):
        disk.put(ROOT, number, bytes(500))
    assert {path: path.stat() for path in others} == before
    assert disk.get(ROOT, 39, 500) == bytes(500)
    assert sum((path.name.endswith(".range")) for path in (tmp_path / FOLDER).iterdir()) > 5


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "fifo"])
def test_what_is_not_a_file_is_left_alone(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "elsewhere"
    Disk(tmp_path).put(ROOT, 0, bytes(500))
    (tmp_path / FOLDER / named(0)).rename(target)  # what is behind the link could be of the cache
    os.utime(target, (0, 0))
    path = tmp_path / FOLDER / named(0)
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(target if kind == "link" else tmp_path / "nowhere")
    status = path.lstat()
    disk = Disk(tmp_path, limit=5000)
    assert disk.get(ROOT, 0, 500) is None
    disk.put(ROOT, 0, bytes(500))
    disk.drop(ROOT, 0, 500)
    for number in range(1, 40):
        disk.put(ROOT, number, bytes(500))
    assert path.lstat().st_ino == status.st_ino
    assert target.stat().st_mtime == 0
    assert len(target.read_bytes()) == 516
    assert not (tmp_path / "nowhere").exists()


def test_a_link_in_the_place_of_the_folder_is_not_used(tmp_path: Path) -> None:
    Disk(tmp_path / "other").put(ROOT, 0, bytes(500))
    kept = tmp_path / "other" / FOLDER
    (tmp_path / FOLDER).symlink_to(kept)
    disk = Disk(tmp_path, limit=4000)
    assert disk.get(ROOT, 0, 500) is None
    for number in range(1, 40):
        disk.put(ROOT, number, bytes(500))
    disk.drop(ROOT, 0, 500)
    assert [path.name for path in kept.iterdir()] == [named(0)]


def test_the_folder_that_the_user_names_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "large")
    Disk(tmp_path / "cache").put(ROOT, 0, bytes(500))
    assert Disk(tmp_path / "large").get(ROOT, 0, 500) == bytes(500)


def test_what_a_kill_left_is_removed(tmp_path: Path) -> None:
    """But not what a writer that is there has just begun."""
    folder = tmp_path / FOLDER
    folder.mkdir()
    left, held = (folder / f".tmp-{digit * 16}" for digit in "ab")
    left.write_bytes(b"half")
    code = f"import fcntl, sys; f = open({str(held)!r}, 'wb'); fcntl.flock(f, 2); print(); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-u", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        Disk(tmp_path).put(ROOT, 0, bytes(500))
        assert sorted(path.name for path in folder.iterdir()) == [held.name, named(0)]
        assert other.stdin is not None
        other.stdin.close()
    Disk(tmp_path).put(ROOT, 1, bytes(500))
    assert sorted(path.name for path in folder.iterdir()) == [named(0), named(1)]
