"""One checkpoint file is read: bytes, damage, and paths that are not checkpoints."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.constants import PAYLOAD_OFFSET, ROOT_SIZE, TRAILER_SIZE
from lccodec.container.disk.source import BytesSource
from lccodec.container.disk.whole_file import remove_stale_temporaries
from lccodec.container.manifest import INHERITED, FrameEntry, Manifest, Parent
from lccodec.container.reader import (
    check_skeleton,
    exact_step,
    open_bytes,
    open_checkpoint,
    parent_steps,
)
from lccodec.container.writer import CheckpointWriter, to_bytes
from lccodec.errors import (
    ArgumentError,
    ChecksumError,
    DataError,
    FormatError,
    StorageError,
    TruncatedError,
)

from ..support.checkpoints import DELTA, EMPTY, FILE, FRAMES, KEYFRAME, read_all, write


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
        "import sys; from lccodec.container.reader import open_bytes\n"
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
    arrays, entries = tuple(range(1, len(frames) + 1)), tuple(map(FrameEntry.of, frames))
    manifest = Manifest(10**6, Parent(10**6 - 1, bytes(32)), "lc-3", {}, tree, [], arrays, entries)
    data = to_bytes(frames, manifest)
    assert len(data) - sum(map(len, frames)) <= 2048 + 96 * len(frames)
    assert open_bytes(data).manifest == manifest


def test_overhead_of_a_delta_of_ten_arrays() -> None:
    frames = [bytes(1000), bytes(1001), bytes(3000)]
    entries, arrays = tuple(map(FrameEntry.of, frames)), (1, 1, 2, 1, 3, 1, 2, 1, 2, 1)
    manifest = Manifest(10**6, Parent(10**6 - 1, bytes(32)), "balanced", {}, INHERITED, [], arrays, entries)
    assert len(to_bytes(frames, manifest)) - sum(map(len, frames)) < 800


@pytest.mark.parametrize(
    ("name", "parents", "of_exact"),
    [
        ("000000000110", (), None),
        ("000000000111", (110,), None),
        ("000000000161", (160, 165), None),
        ("exact", (), 141),
    ],
)
def test_steps_are_known_without_the_manifest(
    name: str, parents: tuple[int, ...], of_exact: int | None
) -> None:
    path = Path(__file__).parents[2] / "spec" / "vectors" / "valid" / f"{name}.lcc.h5"
    source = BytesSource(path.read_bytes())
    assert parent_steps(source) == parents
    assert exact_step(source) == of_exact


def test_a_partial_read() -> None:
    with open_bytes(FILE) as reader:
        assert reader.frame_head(0, 5) == b"first"
        assert reader.frame_head(1, 5) == b"2"


def test_many_threads_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "one.lcc.h5"
    frames = tuple(bytes([i]) * 10_000 for i in range(50))
    tree = ["l", *range(len(frames))]
    entries = tuple(map(FrameEntry.of, frames))
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
