"""One checkpoint file is written: bytes, commits that fail, are killed or lose power."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lccodec.constants import ROOT_SIZE, TEMPORARY_PREFIX
from lccodec.container.disk.folder import temporary_name
from lccodec.container.disk.whole_file import remove_stale_temporaries
from lccodec.container.manifest import INHERITED, FrameEntry, Manifest
from lccodec.container.reader import check_skeleton, open_bytes, open_checkpoint
from lccodec.container.writer import CheckpointWriter, to_bytes
from lccodec.errors import ArgumentError, StorageError

from ..support.checkpoints import (
    DELTA,
    EMPTY,
    ENTRIES,
    FRAMES,
    KEYFRAME,
    RUN,
    Sized,
    frames_of,
    listing,
    read_all,
    write,
    write_sized,
)
from ..support.crashes import Replay
from ..support.systems import Faulty, failing_at

# --- the bytes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("manifest", [KEYFRAME, DELTA, RUN, EMPTY, replace(EMPTY, tree=None, scalars=["x"])])
def test_round_trip(tmp_path: Path, manifest: Manifest) -> None:
    frames = frames_of(manifest)
    path = tmp_path / "one.lcc.h5"
    root = write(path, frames, manifest)
    data = path.read_bytes()
    assert data == to_bytes(frames, manifest)
    assert listing(tmp_path) == [path.name]
    for reader in (open_checkpoint(path), open_bytes(data), open_bytes(memoryview(data))):
        assert reader.manifest == manifest
        assert reader.root == root == data[-ROOT_SIZE:]
        assert reader.file_size == len(data)
        assert check_skeleton(reader) is None
        assert read_all(reader) == frames


def test_two_processes_write_the_same_file(tmp_path: Path) -> None:
    program = (
        "import sys; from lccodec.container.writer import *; from lccodec.container.manifest import *\n"
        "frames = [bytes([i]) * i for i in range(1, 50)]\n"
        "with CheckpointWriter(sys.argv[1]) as writer:\n"
        "    entries = tuple(map(writer.write_frame, frames))\n"
        "    tree = {str(i): i for i in range(49)}\n"
        "    arrays = tuple(range(1, len(entries) + 1))\n"
        "    writer.commit(Manifest(1, None, {'bits': 3}, {'k': 'v'}, tree, [], arrays, entries))\n"
    )
    paths = [tmp_path / "a.lcc.h5", tmp_path / "b.lcc.h5"]
    for path in paths:
        subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize(
    "fields",
    [
        {"policy": float("nan")},
        {"policy": object()},
        {"metadata": {"a": 1}},
        {"metadata": {"a": "\ud800"}},
        {"step": -1},
        {"step": 1 << 53},
        {"tree": {"a": 0}},
        {"scalars": [1.5]},
        {"frames": ENTRIES[:2]},
        {"arrays": (1, 2, 0)},
        {"frames": ENTRIES[::-1]},
        {"tree": INHERITED},
    ],
)
def test_what_could_not_be_read_is_not_written(tmp_path: Path, fields: dict[str, Any]) -> None:
    manifest = replace(KEYFRAME, **fields)
    with pytest.raises(ArgumentError):
        to_bytes(FRAMES, manifest)
    with pytest.raises(ArgumentError):
        write(tmp_path / "one.lcc.h5", manifest=manifest)
    assert not listing(tmp_path)


@pytest.mark.parametrize("threads", [1, 3])
def test_frames_of_known_length_are_written_side_by_side(tmp_path: Path, threads: int) -> None:
    frames = (*(bytes([i]) * i for i in range(40, 60)), bytes(3 << 20), bytes(range(256)) * 40_000)
    entries = tuple(map(FrameEntry.of, frames))
    numbers = tuple(range(1, len(frames) + 1))
    manifest = replace(EMPTY, tree=["l", *range(len(frames))], arrays=numbers, frames=entries)
    path = tmp_path / "one.lcc.h5"
    with CheckpointWriter(path) as writer:
        sized = [Sized(frame, 1 << 16) for frame in frames]
        assert writer.write_frames(sized, threads) == entries
        writer.commit(manifest)
    assert path.read_bytes() == to_bytes(frames, manifest)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_of_one_of_them_leaves_nothing(tmp_path: Path, threads: int) -> None:
    class Broken(Sized):
        def chunks(self) -> Any:
            yield self.data
            raise MemoryError

    with pytest.raises(MemoryError), CheckpointWriter(tmp_path / "one.lcc.h5") as writer:
        writer.write_frames([Sized(b"a"), Broken(b"b"), *[Sized(bytes(9000))] * 20], threads)
    assert not listing(tmp_path)


# --- paths ----------------------------------------------------------------------------------------


def test_leaving_without_a_commit_leaves_nothing(tmp_path: Path) -> None:
    with CheckpointWriter(tmp_path / "one.lcc.h5") as writer:
        writer.write_frame(b"frame")
    with pytest.raises(KeyboardInterrupt), CheckpointWriter(tmp_path / "one.lcc.h5") as writer:
        raise KeyboardInterrupt
    assert not listing(tmp_path)
    with pytest.raises(ArgumentError, match="closed"):
        writer.write_frame(b"frame")


def test_stale_temporaries(tmp_path: Path) -> None:
    stale = tmp_path / temporary_name()
    stale.write_bytes(b"left by a kill")
    (tmp_path / "unrelated").write_bytes(b"")
    (tmp_path / f"{TEMPORARY_PREFIX}directory").mkdir()
    with CheckpointWriter(tmp_path / "one.lcc.h5") as writer:
        assert remove_stale_temporaries(tmp_path) == [stale.name]
        writer.commit(EMPTY)
    assert remove_stale_temporaries(tmp_path) == []
    assert listing(tmp_path) == [f"{TEMPORARY_PREFIX}directory", "one.lcc.h5", "unrelated"]


@pytest.mark.slow
def test_a_full_file_size_limit(tmp_path: Path) -> None:
    program = (
        "import resource, sys; from lccodec.container.writer import *\n"
        "from lccodec.errors import StorageError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n"
        "    with CheckpointWriter(sys.argv[1]) as writer:\n"
        "        writer.write_frame(bytes(200_000))\n"
        "except StorageError as error:\n"
        "    print(error.errno)\n"
    )
    path = tmp_path / "one.lcc.h5"
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{errno.EFBIG}\n"
    assert not listing(tmp_path)


# --- faults ---------------------------------------------------------------------------------------


def committed(path: Path) -> bool:
    if not path.exists():
        return False
    with open_checkpoint(path) as reader:
        return reader.manifest == KEYFRAME


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("sized", [False, True])
def test_faults_at_every_operation(
    tmp_path: Path, code: int, sticky: bool, overwrite: bool, sized: bool
) -> None:
    healthy = Faulty(code, lambda *_: False)
    (write_sized if sized else write)(tmp_path / "healthy", system=healthy, overwrite=overwrite)
    assert ("write_at" in healthy.log) == sized
    assert {"open", "seek", "write", "fsync", "close", "replace" if overwrite else "link"} <= set(healthy.log)
    for position, operation in enumerate(healthy.log):
        directory = tmp_path / f"{position}"
        directory.mkdir()
        path = directory / "one.lcc.h5"
        if overwrite:
            write(path, (), EMPTY)
        before = listing(directory)

        # A sticky fault lasts, but lets the temporary be removed: a full disk does.
        fails = failing_at(position, sticky=sticky, spared="unlink")
        system = Faulty(code, fails)
        writer = CheckpointWriter(path, system=system, overwrite=overwrite)
        error = None
        try:
            with writer:
                if sized:
                    writer.write_frames(list(map(Sized, FRAMES)), 1)
                for frame in () if sized else FRAMES:
                    writer.write_frame(frame)
                writer.commit(KEYFRAME)
        except StorageError as caught:
            error = caught
            assert caught.errno == code
            assert str(path) in str(caught)
        left = [name for name in listing(directory) if name.startswith(TEMPORARY_PREFIX)]
        assert not left or operation == "unlink"
        assert remove_stale_temporaries(directory) == left
        assert committed(path) == (writer.root is not None)
        if writer.root is None:
            assert error is not None
            assert listing(directory) == before
        else:
            assert (error is not None) == ("durability unknown" in str(error))


def test_only_failures_that_do_not_matter_are_passed_over(tmp_path: Path) -> None:
    healthy = Faulty()
    write(tmp_path / "healthy", system=healthy)
    passed = []
    for position, operation in enumerate(healthy.log):
        try:
            write(tmp_path / f"{position}", system=Faulty(errno.EIO, lambda _, i, at=position: i == at))
        except StorageError:
            continue
        passed.append(operation)
    assert passed == ["lock", "close", "unlink", "close"]  # the last is that of the directory


def test_a_system_that_sees_no_file_does_not_hang_the_writer(tmp_path: Path) -> None:
    """`lexists` is false where `lstat` fails, whatever for."""
    blind = Faulty()
    blind.exists = lambda _: False
    with pytest.raises(StorageError, match="cannot be seen"):
        write(tmp_path / "one.lcc.h5", system=blind)
    assert not listing(tmp_path)
    assert not blind.descriptors


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "one.lcc.h5"
    path.write_bytes(b"of another")
    path.chmod(mode)
    write(path, overwrite=True)
    assert committed(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_the_size_of_a_committed_file_is_known_without_asking_for_it(tmp_path: Path) -> None:
    for frames, manifest in ((FRAMES, KEYFRAME), ((), EMPTY)):
        path = tmp_path / f"{len(frames)}.lcc.h5"
        with CheckpointWriter(path) as writer:
            for frame in frames:
                writer.write_frame(frame)
            assert writer.size == 0
            writer.commit(manifest)
        assert writer.size == path.stat().st_size


def test_directories_that_cannot_be_synced_are_passed_over(tmp_path: Path) -> None:
    seen: list[str] = []

    def second_fsync(name: str, _: int) -> bool:
        seen.append(name)
        return name == "fsync" and seen.count("fsync") == 2

    write(tmp_path / "one.lcc.h5", system=Faulty(errno.EINVAL, second_fsync))
    assert committed(tmp_path / "one.lcc.h5")


# --- kill and power loss --------------------------------------------------------------------------


BIG = (bytes(range(256)) * 20, b"small")
BIG_MANIFEST = replace(EMPTY, step=2, tree=["l", 0, 1], arrays=(1, 2), frames=tuple(map(FrameEntry.of, BIG)))
OLD = to_bytes((), replace(EMPTY, step=1))
NEW = to_bytes(BIG, BIG_MANIFEST)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("ignore", ["", "sync", "sync directory"])
@pytest.mark.parametrize("writing", [write, write_sized])
def test_no_crash_breaks_or_loses_a_checkpoint(
    tmp_path: Path, overwrite: bool, ignore: str, writing: Any
) -> None:
    """Kills and losses of power leave the old file or the new one, once committed the new one."""
    path = tmp_path / "one.lcc.h5"
    before = OLD if overwrite else None
    if before:
        path.write_bytes(before)
    with Replay(tmp_path, ignore) as replay:
        writing(path, BIG, BIG_MANIFEST, overwrite=overwrite)
    replay.done()
    states = [(bool(done), found.get(path.name)) for done, found in replay.states()]
    assert len(states) > 4  # that differ
    bad = [found for done, found in states if found != NEW and (done or found != before)]
    assert bool(bad) == bool(ignore)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_kill_at_every_operation_leaves_a_whole_file_or_none(tmp_path: Path, overwrite: bool) -> None:
    """On the real file system: the process dies at an operation, before the clean-up can run."""

    class Killed(BaseException):
        pass

    for position in itertools.count():
        directory = tmp_path / f"{position}"
        directory.mkdir()
        path = directory / "one.lcc.h5"
        if overwrite:
            write(path, (), EMPTY)

        def dying(name: str, number: int, position: int = position) -> bool:
            if number >= position:
                raise Killed(name)
            return False

        system = Faulty(0, dying)
        writer = CheckpointWriter(path, system=system, overwrite=overwrite)
        try:
            with writer:
                for frame in FRAMES:
                    writer.write_frame(frame)
                writer.commit(KEYFRAME)
            break
        except Killed:
            for descriptor in system.descriptors:
                os.close(descriptor)  # as the end of the process does
        if path.exists():
            with open_checkpoint(path) as reader:
                assert reader.manifest in ((EMPTY, KEYFRAME) if overwrite else (KEYFRAME,))
        remove_stale_temporaries(directory)
        assert set(listing(directory)) <= {path.name}
    assert position > 10
