"""The bytes around payload and manifest: those of the HDF5 library, and trailers.

One checkpoint file is read: bytes, damage, and paths that are not checkpoints.

One checkpoint file is written: bytes, commits that fail, are killed or lose power.
"""

import errno
import hashlib
import itertools
import os
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.constants import (
    FORMAT_MAJOR,
    FORMAT_MINOR,
    MANIFEST_DATASET,
    MAX_MANIFEST_BYTES,
    PAYLOAD_DATASET,
    PAYLOAD_OFFSET,
    ROOT_SIZE,
    TEMPORARY_PREFIX,
    TRAILER_MAGIC,
    TRAILER_SIZE,
)
from lccodec.container import checkpoint as envelope
from lccodec.container.checkpoint import (
    CheckpointWriter,
    Trailer,
    check_skeleton,
    first_steps,
    open_bytes,
    open_checkpoint,
    parse_trailer,
    skeleton,
    to_bytes,
)
from lccodec.container.folder import remove_stale_temporaries, temporary_name
from lccodec.container.manifest import INHERITED, Manifest, Parent
from lccodec.container.piece_table import hashed
from lccodec.container.source import BytesSource
from lccodec.errors import (
    ArgumentError,
    ChecksumError,
    DataError,
    FormatError,
    LimitError,
    StorageError,
    TruncatedError,
    UnsupportedError,
)

from ..support.checkpoints import (
    DELTA,
    EMPTY,
    ENTRIES,
    FILE,
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
from ..support.hdf5_library import ABOUT, library, written
from ..support.programs import run_program
from ..support.systems import Faulty, failing_at


def test_trailer_fields() -> None:
    trailer = Trailer(payload_length=0x1122334455, manifest_length=0x667788, root=bytes(range(32)))
    data = trailer.to_bytes()
    assert len(data) == TRAILER_SIZE
    assert data[:8] == TRAILER_MAGIC
    bounds = itertools.pairwise([8, 10, 12, *range(16, 57, 8)])
    numbers = [int.from_bytes(data[start:stop], "little") for start, stop in bounds]
    end = PAYLOAD_OFFSET + 0x1122334455
    assert numbers == [
        FORMAT_MAJOR,
        FORMAT_MINOR,
        1,
        PAYLOAD_OFFSET,
        0x1122334455,
        end,
        0x667788,
        end + 0x667788 + 88,
    ]
    assert data[56:] == bytes(range(32))
    assert parse_trailer(data, "here") == trailer


@pytest.mark.parametrize(
    ("offset", "value", "error", "rule"),
    [
        (0, b"LCCODEX\x1a", FormatError, "LCC-TRL-01"),
        (8, b"\2\0", UnsupportedError, "LCC-TRL-03"),
        (8, b"\0\0", UnsupportedError, "LCC-TRL-03"),
        (12, b"\0", UnsupportedError, "LCC-TRL-04"),
        (12, b"\2", UnsupportedError, "LCC-TRL-04"),
        (15, b"\1", UnsupportedError, "LCC-TRL-04"),
        (16, b"\0", FormatError, "LCC-TRL-06"),
        (24, b"\xff" * 8, FormatError, "LCC-TRL-06"),
        (32, b"\xff" * 8, FormatError, "LCC-TRL-06"),
        (40, (MAX_MANIFEST_BYTES + 1).to_bytes(8, "little"), LimitError, "LCC-LIM-04"),
        (48, b"\0", FormatError, "LCC-TRL-06"),
    ],
)
def test_hostile_trailers(offset: int, value: bytes, error: type[DataError], rule: str) -> None:
    data = bytearray(FILE[-TRAILER_SIZE:])
    data[offset : offset + len(value)] = value
    with pytest.raises(error) as caught:
        parse_trailer(bytes(data), "here")
    assert caught.value.rule == rule
    with pytest.raises(DataError):
        open_bytes(FILE[:-TRAILER_SIZE] + data)


def test_declared_sizes_do_not_become_allocations() -> None:
    huge = Trailer(payload_length=1 << 60, manifest_length=1 << 25).to_bytes()
    with pytest.raises(FormatError, match="says that the file has"):
        open_bytes(FILE[:-TRAILER_SIZE] + huge)


SPEC = Path(__file__).parents[2] / "spec" / "SPEC.md"
SIZES = [(0, 1), (0, 500), (1, 1), (3, 3000), (100_000, 500), (1072, 600)]
VAST = [(10**12, 500), (1 << 61, 1 << 26)]


@pytest.mark.skipif(library() is None, reason="two properties of HDF5 are not in h5py")
@pytest.mark.parametrize(("payload_size", "manifest_size"), [*SIZES, *VAST])
def test_the_library_writes_the_same_bytes(payload_size: int, manifest_size: int) -> None:
    trailer = Trailer(payload_size, manifest_size)
    assert written(payload_size, manifest_size) == (
        skeleton(trailer),
        trailer.spans[2] + manifest_size,
    )


@pytest.mark.parametrize(("payload_size", "manifest_size"), SIZES)
def test_the_library_reads_both_datasets(tmp_path: Path, payload_size: int, manifest_size: int) -> None:
    payload = bytes(i * 7 % 256 for i in range(payload_size))
    manifest = bytes(i * 5 % 256 for i in range(manifest_size))
    trailer = Trailer(payload_size, manifest_size)
    path = tmp_path / "whole.h5"
    path.write_bytes(skeleton(trailer) + payload + manifest + trailer.to_bytes())
    with h5py.File(path, "r") as file:
        assert sorted(file) == [MANIFEST_DATASET, PAYLOAD_DATASET]
        assert dict(file.attrs) == {"about": ABOUT}
        for name, expected, offset in (
            (PAYLOAD_DATASET, payload, PAYLOAD_OFFSET if payload_size else None),
            (MANIFEST_DATASET, manifest, trailer.spans[2]),
        ):
            dataset = file[name]
            assert (dataset.dtype.str, dataset.shape) == ("|u1", (len(expected),))
            assert dataset[()].tobytes() == expected
            assert dataset.id.get_offset() == offset
            assert not dataset.attrs


def test_the_text_lists_the_bytes() -> None:
    assert f"```{envelope._HEAD}```" in SPEC.read_text()


def test_checksum() -> None:
    assert envelope._checksum(b"Four score and seven years ago") == 0x17770551  # by the author of lookup3


def test_root_covers_all_but_the_payload() -> None:
    end = PAYLOAD_OFFSET + KEYFRAME.payload_length
    assert FILE[-32:] == hashlib.sha256(FILE[:PAYLOAD_OFFSET] + FILE[end:-32]).digest()


def test_hdf5_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "one.lcc.h5"
    write(path)
    with h5py.File(path, "r") as file:
        assert file["payload"][()].tobytes() == b"".join(FRAMES)
        assert file["manifest"][()].tobytes() == KEYFRAME.to_bytes()


def test_reading_does_not_import_h5py() -> None:
    program = (
        "import sys; from lccodec.container.checkpoint import open_bytes\n"
        "reader = open_bytes(sys.stdin.buffer.read()); reader.frame(0)\n"
        "assert 'h5py' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], input=FILE, check=True)


@pytest.mark.parametrize("blocks", [1, 25, 834])
def test_overhead(blocks: int) -> None:
    """At most 2 KiB a checkpoint and 96 bytes an array beyond the frames (12 arrays a block)."""
    layers = ("attn.c_attn", "attn.c_proj", "mlp.c_fc")
    parts = [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
    names = [f"transformer.h.{block}.{part}" for block in range(blocks) for part in parts]
    count = itertools.count()
    tree = {"model": {n: next(count) for n in names}, "exp_avg": {n: next(count) for n in names}}
    frames = [b"frame" * 1000] * (2 * len(names))
    arrays, entries = tuple(range(1, len(frames) + 1)), tuple(hashed(frame)[0] for frame in frames)
    manifest = Manifest(10**6, Parent(10**6 - 1, bytes(32)), "lc-3", {}, tree, [], arrays, entries)
    data = to_bytes(frames, manifest)
    assert len(data) - sum(map(len, frames)) <= 2048 + 96 * len(frames)
    assert open_bytes(data).manifest == manifest


def test_overhead_of_a_delta_of_ten_arrays() -> None:
    frames = [bytes(1000), bytes(1001), bytes(3000)]
    entries, arrays = tuple(hashed(frame)[0] for frame in frames), (1, 1, 2, 1, 3, 1, 2, 1, 2, 1)
    manifest = Manifest(10**6, Parent(10**6 - 1, bytes(32)), "balanced", {}, INHERITED, [], arrays, entries)
    assert len(to_bytes(frames, manifest)) - sum(map(len, frames)) < 800


@pytest.mark.parametrize(
    ("name", "parents", "of_exact"),
    [
        ("000000000110", (), ()),
        ("000000000111", (110,), ()),
        ("000000000161", (160, 165), ()),
        ("exact", (), (141,)),
    ],
)
def test_steps_are_known_without_the_manifest(
    name: str, parents: tuple[int, ...], of_exact: tuple[int, ...]
) -> None:
    path = Path(__file__).parents[2] / "spec" / "vectors" / "valid" / f"{name}.lcc.h5"
    source = BytesSource(path.read_bytes())
    assert first_steps(source, of_exact=False) == parents
    assert first_steps(source, of_exact=True) == of_exact


def test_a_partial_read() -> None:
    with open_bytes(FILE) as reader:
        assert reader.frame_head(0, 5) == b"first"
        assert reader.frame_head(1, 5) == b"2"


def test_many_threads_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "one.lcc.h5"
    frames = tuple(bytes([i]) * 10_000 for i in range(50))
    tree = ["l", *range(len(frames))]
    entries = tuple(hashed(frame)[0] for frame in frames)
    write(path, frames, replace(EMPTY, tree=tree, arrays=tuple(range(1, 51)), frames=entries))
    wrong: list[int] = []
    with open_checkpoint(path) as reader:

        def work() -> None:
            wrong.extend(i for i in range(len(frames)) if reader.frame(i) != frames[i])

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_misuse_of_a_reader() -> None:
    with open_bytes(to_bytes(FRAMES[1:2], DELTA)) as reader:
        for index in (-1, len(reader.manifest.frames), 9):
            with pytest.raises(ArgumentError, match="no frame"):
                reader.frame(index)
    reader.close()
    with pytest.raises(ArgumentError, match="closed"):
        reader.frame(0)


# --- damage ---------------------------------------------------------------------------------------


def test_every_flipped_bit_is_detected() -> None:
    for position, bit in itertools.product(range(len(FILE)), range(8)):
        damaged = bytearray(FILE)
        damaged[position] ^= 1 << bit
        with pytest.raises(DataError):
            read_all(open_bytes(damaged))


def test_a_flipped_payload_byte_names_the_frame() -> None:
    damaged = bytearray(FILE)
    damaged[PAYLOAD_OFFSET + len(FRAMES[0])] ^= 1
    with open_bytes(damaged, "file") as reader:
        assert reader.frame(0) == FRAMES[0]
        with pytest.raises(ChecksumError, match=r"file: frame 1 \('b/0'\)"):
            reader.frame(1)
        unverified = reader.frame(1, verify=False)
        assert len(unverified) == len(FRAMES[1])
        assert bytes(unverified[1:]) == FRAMES[1][1:]


def test_every_truncation_is_detected() -> None:
    with pytest.raises(FormatError, match="empty"):
        open_bytes(b"")
    for size in range(1, len(FILE)):
        with pytest.raises(TruncatedError):
            open_bytes(FILE[:size])


@pytest.mark.parametrize("more", [b"\0", b"x" * 87, b"x" * 88, bytes(10_000), FILE[-TRAILER_SIZE:], FILE])
def test_every_extension_is_detected(more: bytes) -> None:
    with pytest.raises(FormatError):
        open_bytes(FILE + more)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data: bytes) -> None:
    for candidate in (data, FILE[:8] + data, data + FILE[-TRAILER_SIZE:]):
        with pytest.raises(DataError):
            open_bytes(candidate)


def test_foreign_files_are_named_so(tmp_path: Path) -> None:
    path = tmp_path / "foreign.h5"
    with h5py.File(path, "w") as file:
        file["weights"] = list(range(1000))
    with pytest.raises(FormatError, match="not an lccodec checkpoint"):
        open_checkpoint(path)
    path.write_bytes(b"PK\x03\x04" + bytes(5000))
    with pytest.raises(FormatError, match="not an lccodec checkpoint"):
        open_checkpoint(path)


def test_a_file_that_shrinks_while_it_is_open(tmp_path: Path) -> None:
    """The end of it is in memory."""
    path = tmp_path / "one.lcc.h5"
    lccodec.save_file({"w": np.random.default_rng(0).standard_normal(10_000)}, path)
    with open_checkpoint(path) as reader:
        os.truncate(path, PAYLOAD_OFFSET + 3)
        with pytest.raises(TruncatedError, match=str(PAYLOAD_OFFSET + 3)):
            reader.frame(0)


def test_a_changed_skeleton_is_found_behind_a_valid_root() -> None:
    end = PAYLOAD_OFFSET + KEYFRAME.payload_length
    for position in (0, 9, 200, PAYLOAD_OFFSET - 1):
        changed = bytearray(FILE)
        changed[position] ^= 0x10
        root = hashlib.sha256(changed[:PAYLOAD_OFFSET] + changed[end:-ROOT_SIZE]).digest()
        with open_bytes(bytes(changed[:-ROOT_SIZE]) + root) as reader:
            problem = check_skeleton(reader)
        assert problem is not None
        assert (problem.rule, problem.where) == ("LCC-H5-05", f"<bytes>: byte {position}")


# --- paths ----------------------------------------------------------------------------------------


def test_a_fifo_does_not_hang(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with pytest.raises(FormatError, match="not a regular file"):
        open_checkpoint(path)
    with pytest.raises(FormatError, match="not a regular file"):
        open_checkpoint(tmp_path)


def test_missing_files_and_directories(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="missing") as caught:
        open_checkpoint(tmp_path / "missing")
    assert caught.value.errno == errno.ENOENT
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    with pytest.raises(StorageError) as caught:
        write(tmp_path / "missing" / "one.lcc.h5")
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(StorageError):
        remove_stale_temporaries(tmp_path / "missing")


@pytest.mark.parametrize("path", ["a\0b", "\udfff\ud800"])
def test_impossible_paths(path: str) -> None:
    with pytest.raises(ArgumentError, match="a path must be"):
        open_checkpoint(path)
    with pytest.raises(ArgumentError, match="a path must be"):
        CheckpointWriter(path)


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
        "import sys; from lccodec.container.checkpoint import *; from lccodec.container.manifest import *\n"
        "frames = [bytes([i]) * i for i in range(1, 50)]\n"
        "with CheckpointWriter(sys.argv[1]) as writer:\n"
        "    entries = tuple(map(writer.write_frame, frames))\n"
        "    tree = {str(i): i for i in range(49)}\n"
        "    arrays = tuple(range(1, len(entries) + 1))\n"
        "    writer.commit(Manifest(1, None, {'bits': 3}, {'k': 'v'}, tree, [], arrays, entries))\n"
    )
    paths = [tmp_path / "a.lcc.h5", tmp_path / "b.lcc.h5"]
    for path in paths:
        run_program(program, path)
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
    entries = tuple(hashed(frame)[0] for frame in frames)
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
        "import resource, sys; from lccodec.container.checkpoint import *\n"
        "from lccodec.errors import StorageError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n"
        "    with CheckpointWriter(sys.argv[1]) as writer:\n"
        "        writer.write_frame(bytes(200_000))\n"
        "except StorageError as error:\n"
        "    print(error.errno)\n"
    )
    path = tmp_path / "one.lcc.h5"
    done = run_program(program, path)
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
    assert {"open", "write", "write_at", "fsync", "close"} <= set(healthy.log)
    assert ("replace" if overwrite else "link") in healthy.log
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
BIG_MANIFEST = replace(
    EMPTY, step=2, tree=["l", 0, 1], arrays=(1, 2), frames=tuple(hashed(frame)[0] for frame in BIG)
)
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
