"""One checkpoint file: bytes, damage, hostile manifests, and commits that fail, are killed or lose power."""

from __future__ import annotations

import base64
import errno
import hashlib
import itertools
import json
import os
import random
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.constants import (
    FORMAT_MAJOR,
    MAX_ARRAYS,
    MAX_MANIFEST_BYTES,
    MAX_NESTING,
    MAX_STEP,
    PAYLOAD_OFFSET,
    ROOT_SIZE,
    SKELETON_SIZE,
    TEMPORARY_PREFIX,
    TRAILER_MAGIC,
    TRAILER_SIZE,
)
from lccodec.container.manifest import INHERITED, FrameEntry, Manifest, Parent, parse_manifest
from lccodec.container.reader import CheckpointReader, check_skeleton, open_bytes, open_checkpoint
from lccodec.container.system import System
from lccodec.container.trailer import Trailer, parse_trailer
from lccodec.container.writer import CheckpointWriter, remove_stale_temporaries, to_bytes
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

FRAMES = (b"first frame", b"2", b"the third frame")
ENTRIES = tuple(map(FrameEntry.of, FRAMES))
KEYFRAME = Manifest(
    step=7,
    parent=None,
    policy="lc-3",
    metadata={"run": "é"},
    tree={"a": 0, "b": ["l", 1, None], "c": ["t", 2, 0]},
    scalars=[{"f": "0.1"}],
    arrays=(1, 2, 3),
    frames=ENTRIES,
)
DELTA = replace(
    KEYFRAME,
    step=8,
    parent=Parent(7, bytes(range(32))),
    tree=INHERITED,
    metadata={},
    arrays=(0, 1, 0),
    frames=ENTRIES[1:2],
)
EMPTY = Manifest(None, None, None, {}, {}, [], (), ())
RUN = replace(KEYFRAME, arrays=(1, 2, 1), frames=ENTRIES[:2])  # two arrays share the first frame
FILE = to_bytes(FRAMES, KEYFRAME)


def listing(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def write(
    path: Path, frames: tuple[bytes, ...] = FRAMES, manifest: Manifest = KEYFRAME, **options: Any
) -> bytes:
    with CheckpointWriter(path, **options) as writer:
        for frame in frames:
            writer.write_frame(frame)
        return writer.commit(manifest)


def frames_of(manifest: Manifest) -> tuple[bytes, ...]:
    return tuple(FRAMES[ENTRIES.index(entry)] for entry in manifest.frames)


def read_all(reader: CheckpointReader) -> tuple[bytes, ...]:
    with reader:
        return tuple(reader.frame(number) for number in range(len(reader.manifest.frames)))


def with_manifest(data: bytes, payload: bytes = b"".join(FRAMES)) -> bytes:
    """A file around a hostile manifest, with lengths and a root that fit."""
    head = FILE[:PAYLOAD_OFFSET]
    trailer = Trailer(len(payload), len(data)).to_bytes()[:-ROOT_SIZE]
    tail = bytes(SKELETON_SIZE - PAYLOAD_OFFSET) + data + trailer
    return head + payload + tail + hashlib.sha256(head + tail).digest()


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


def test_trailer_fields() -> None:
    trailer = Trailer(payload_length=0x1122334455, manifest_length=0x667788, root=bytes(range(32)))
    data = trailer.to_bytes()
    assert len(data) == TRAILER_SIZE
    assert data[:8] == TRAILER_MAGIC
    bounds = itertools.pairwise([8, 10, 12, *range(16, 57, 8)])
    numbers = [int.from_bytes(data[start:stop], "little") for start, stop in bounds]
    end = PAYLOAD_OFFSET + 0x1122334455 + 600
    assert numbers == [FORMAT_MAJOR, 0, 0, PAYLOAD_OFFSET, 0x1122334455, end, 0x667788, end + 0x667788 + 88]
    assert data[56:] == bytes(range(32))
    assert parse_trailer(data, "here") == trailer


def test_manifest_bytes() -> None:
    digests = [base64.urlsafe_b64encode(hashlib.sha256(f).digest()[:16]).decode().rstrip("=") for f in FRAMES]
    assert KEYFRAME.to_bytes().decode() == (
        '{"lccodec":[1,0],"step":7,"parent":null,"policy":"lc-3","metadata":{"run":"é"},'
        '"tree":{"a":0,"b":["l",1,null],"c":["t",2,0]},"scalars":[{"f":"0.1"}],'
        f'"arrays":[1,2,3],"frames":[[11,"{digests[0]}"],[1,"{digests[1]}"],[15,"{digests[2]}"]]}}'
    )
    assert DELTA.to_bytes().decode() == (
        f'{{"lccodec":[1,0],"step":8,"parent":{{"step":7,"root":"{bytes(range(32)).hex()}"}},"policy":"lc-3",'
        f'"scalars":[{{"f":"0.1"}}],"arrays":[0,1,0],"frames":[[1,"{digests[1]}"]]}}'
    )


def test_root_covers_all_but_the_payload() -> None:
    end = PAYLOAD_OFFSET + KEYFRAME.payload_length
    assert FILE[-32:] == hashlib.sha256(FILE[:PAYLOAD_OFFSET] + FILE[end:-32]).digest()


def test_hdf5_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "one.lcc.h5"
    write(path)
    with h5py.File(path, "r") as file:
        assert file["payload"][()].tobytes() == b"".join(FRAMES)
        assert file["manifest"][()].tobytes() == KEYFRAME.to_bytes()


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
        for index in (-1, 3):
            with pytest.raises(ArgumentError, match="no frame"):
                reader.frame(index)
    reader.close()
    with pytest.raises(ArgumentError, match="closed"):
        reader.frame(0)


def test_an_inherited_tree_is_checked() -> None:
    assert DELTA.inherit(KEYFRAME.tree, "here").tree == KEYFRAME.tree
    assert KEYFRAME.inherit({}, "here") is KEYFRAME
    with pytest.raises(FormatError, match=r"here: tree.*LCC-STA-02"):
        DELTA.inherit({"a": 0}, "here")


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
    path = tmp_path / "one.lcc.h5"
    write(path)
    with open_checkpoint(path) as reader:
        os.truncate(path, PAYLOAD_OFFSET + 3)
        with pytest.raises(TruncatedError, match=str(PAYLOAD_OFFSET + 3)):
            reader.frame(0)


def test_a_changed_skeleton_is_found_behind_a_valid_root() -> None:
    end = PAYLOAD_OFFSET + KEYFRAME.payload_length
    for position in (0, 9, PAYLOAD_OFFSET - 1, end, end + 599):
        changed = bytearray(FILE)
        changed[position] ^= 0x10
        root = hashlib.sha256(changed[:PAYLOAD_OFFSET] + changed[end:-ROOT_SIZE]).digest()
        with open_bytes(bytes(changed[:-ROOT_SIZE]) + root) as reader:
            problem = check_skeleton(reader)
        assert problem is not None
        assert (problem.rule, problem.where) == ("LCC-H5-05", f"<bytes>: byte {position}")


# --- hostile trailers and manifests ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "value", "error", "rule"),
    [
        (0, b"LCCODEX\x1a", FormatError, "LCC-TRL-01"),
        (8, b"\2\0", UnsupportedError, "LCC-TRL-03"),
        (8, b"\0\0", UnsupportedError, "LCC-TRL-03"),
        (12, b"\1", UnsupportedError, "LCC-TRL-04"),
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


def changed(**fields: Any) -> bytes:
    """The keyframe's manifest with other JSON values; ... leaves a key out."""
    document = json.loads(KEYFRAME.to_bytes()) | fields
    document = {key: value for key, value in document.items() if value is not ...}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def text(old: str, new: str) -> bytes:
    return KEYFRAME.to_bytes().replace(old.encode(), new.encode("utf-8", "surrogatepass"), 1)


ROOT = "00" * 32
DIGEST = json.loads(KEYFRAME.to_bytes())["frames"][0][1]
HOSTILE_MANIFESTS: list[tuple[bytes, str]] = [
    (b"", "LCC-MAN-01"),
    (b"\xff", "LCC-MAN-01"),
    (b"\xef\xbb\xbf{}", "LCC-MAN-01"),
    (b"nul", "LCC-MAN-01"),
    (b'{"a', "LCC-MAN-01"),
    (b"[1,", "LCC-MAN-01"),
    (b"[1}", "LCC-MAN-01"),
    (b"NaN", "LCC-MAN-01"),
    (text("7", "7 "), "LCC-MAN-01"),
    (text('"step"', '"\\u0073tep"'), "LCC-MAN-01"),
    (text("é", "\\u00e9"), "LCC-MAN-01"),
    (text("é", "\\ud800"), "LCC-MAN-01"),
    (text("é", "\ud800"), "LCC-MAN-01"),
    (text("é", "\n"), "LCC-MAN-01"),
    (text('"step":7', '"step":7,"step":7'), "LCC-MAN-01"),
    (text('"a":0', '"a":0,"a":0'), "LCC-MAN-01"),
    (text('"lc-3"', "NaN"), "LCC-MAN-01"),
    (text('"lc-3"', "-Infinity"), "LCC-MAN-01"),
    (text('"lc-3"', "1e999"), "LCC-MAN-01"),
    (text('"lc-3"', "1e2"), "LCC-MAN-01"),
    (text('"lc-3"', "-0"), "LCC-MAN-01"),
    (KEYFRAME.to_bytes() + b"\n", "LCC-MAN-01"),
    (changed(step=-1), "LCC-MAN-02"),
    (changed(step=True), "LCC-MAN-02"),
    (changed(step=7.0), "LCC-MAN-02"),
    (changed(step=MAX_STEP + 1), "LCC-MAN-02"),
    (b"7", "LCC-MAN-03"),
    (b"[]", "LCC-MAN-03"),
    (b"{}", "LCC-MAN-03"),
    (changed(more=1), "LCC-MAN-03"),
    (changed(step=...), "LCC-MAN-03"),
    (changed(policy=...), "LCC-MAN-03"),
    (changed(scalars=...), "LCC-MAN-03"),
    (text('"step":7,"parent":null', '"parent":null,"step":7'), "LCC-MAN-03"),
    (changed(parent=7), "LCC-MAN-04"),
    (changed(parent={}), "LCC-MAN-04"),
    (changed(parent={"root": ROOT, "step": 1}), "LCC-MAN-04"),
    (changed(parent={"step": None, "root": ROOT}), "LCC-MAN-02"),
    (changed(parent={"step": 1, "root": 7}), "LCC-MAN-04"),
    (changed(parent={"step": 1, "root": ROOT[1:]}), "LCC-MAN-04"),
    (changed(parent={"step": 1, "root": ROOT + "\n"}), "LCC-MAN-04"),
    (changed(parent={"step": 1, "root": "AB" * 32}), "LCC-MAN-04"),
    (changed(frames=None), "LCC-MAN-05"),
    (changed(frames=[0]), "LCC-MAN-05"),
    (changed(frames=[None]), "LCC-MAN-05"),
    (changed(frames=[False]), "LCC-MAN-05"),
    (changed(frames=[1]), "LCC-MAN-05"),
    (changed(arrays=None), "LCC-MAN-10"),
    (changed(arrays=[1, 2]), "LCC-MAN-10"),
    (changed(arrays=[1, 3, 2]), "LCC-MAN-10"),
    (changed(arrays=[1, 2, 4]), "LCC-MAN-10"),
    (changed(arrays=[0, 1, 2]), "LCC-MAN-10"),
    (changed(arrays=[1, 1, 1]), "LCC-MAN-10"),
    (changed(arrays=[True, 2, 3]), "LCC-MAN-10"),
    (changed(arrays=[1.0, 2, 3]), "LCC-MAN-10"),
    (changed(arrays=[1, 2, 3, 3]), "LCC-STA-02"),
    (changed(frames=[[1]]), "LCC-MAN-05"),
    (changed(frames=[[0, DIGEST]]), "LCC-MAN-05"),
    (changed(frames=[[-1, DIGEST]]), "LCC-MAN-05"),
    (changed(frames=[[True, DIGEST]]), "LCC-MAN-05"),
    (changed(frames=[[1.0, DIGEST]]), "LCC-MAN-05"),
    (changed(frames=[[1 << 53, DIGEST]]), "LCC-MAN-05"),
    (changed(frames=[[26, DIGEST], [1, DIGEST], [1, DIGEST]]), "LCC-MAN-05"),
    (changed(metadata={}), "LCC-MAN-06"),
    (changed(metadata=None), "LCC-MAN-06"),
    (changed(metadata={"a": 1}), "LCC-MAN-06"),
    (changed(tree=...), "LCC-MAN-07"),
    (changed(frames=[[1, 7]]), "LCC-MAN-08"),
    (changed(frames=[[1, DIGEST + "=="]]), "LCC-MAN-08"),
    (changed(frames=[[1, DIGEST[1:]]]), "LCC-MAN-08"),
    (changed(frames=[[1, "+" * 22]]), "LCC-MAN-08"),
    (changed(frames=[[1, "é" * 22]]), "LCC-MAN-08"),
    (changed(frames=[[1, "A" * 21 + "B"]]), "LCC-MAN-08"),
    (changed(lccodec=[2, 0]), "LCC-MAN-09"),
    (changed(lccodec=[1, 1]), "LCC-MAN-09"),
    (changed(lccodec=[1]), "LCC-MAN-09"),
    (changed(lccodec=[True, 0]), "LCC-MAN-09"),
    (changed(lccodec="1.0"), "LCC-MAN-09"),
    (changed(tree=7), "LCC-STA-02"),
    (changed(tree={"a": 0.0}), "LCC-STA-01"),
    (changed(scalars=[]), "LCC-STA-03"),
    (changed(scalars=[1.5]), "LCC-STA-04"),
    (changed(scalars=[{"f": "1"}]), "LCC-STA-05"),
    (text('"lc-3"', "[" * 65 + "]" * 65), "LCC-LIM-05"),
    (text('"lc-3"', "[" * 100_000 + "]" * 100_000), "LCC-LIM-05"),
    (text('"lc-3"', '{"a":' * 100_000), "LCC-LIM-05"),
    (b"[" * 10**6, "LCC-LIM-05"),
    (b'"' + b"\\" * 10**6, "LCC-MAN-01"),
    (b'"' + b'\\"' * 10**6, "LCC-MAN-01"),
    (changed(arrays=[1] * (MAX_ARRAYS + 1)), "LCC-LIM-06"),
    (changed(arrays=[1] * MAX_ARRAYS), "LCC-MAN-10"),
    (text('"step":7', '"step":' + "7" * 5000), "LCC-LIM-07"),
    (text('"lc-3"', "-" + "7" * 10**6), "LCC-LIM-07"),
]


@pytest.mark.parametrize(("data", "rule"), HOSTILE_MANIFESTS, ids=itertools.count())
def test_hostile_manifests(data: bytes, rule: str) -> None:
    with pytest.raises(DataError) as caught:
        open_bytes(with_manifest(data), "file")
    assert caught.value.rule == rule
    assert caught.value.where.startswith("file: manifest")


def test_of_several_broken_rules_the_first_is_named() -> None:
    """The order of SPEC 8, Precedence."""
    members: list[tuple[str, dict[str, Any]]] = [
        ("LCC-MAN-03", {"more": 1}),
        ("LCC-MAN-09", {"lccodec": [1]}),
        ("LCC-MAN-02", {"step": -1}),
        ("LCC-MAN-06", {"metadata": {}}),
        ("LCC-MAN-04", {"parent": 7}),
        ("LCC-STA-04", {"scalars": [1.5]}),
        ("LCC-MAN-05", {"frames": [[0, DIGEST]]}),
        ("LCC-MAN-10", {"arrays": [0]}),
        ("LCC-STA-01", {"tree": True}),
    ]
    for number, (rule, _) in enumerate(members):
        broken = {name: value for _, member in members[number:] for name, value in member.items()}
        with pytest.raises(DataError) as caught:
            parse_manifest(changed(**broken), "here")
        assert caught.value.rule == rule


def test_unknown_keys_and_versions_are_unsupported() -> None:
    for data in (changed(more=1), changed(lccodec=[2, 0])):
        with pytest.raises(UnsupportedError):
            parse_manifest(data, "here")


def test_a_newer_minor_version_without_anything_new_is_read() -> None:
    manifest = replace(KEYFRAME, minor=1)
    trailer = Trailer(KEYFRAME.payload_length, len(manifest.to_bytes()), minor=1).to_bytes()[:-ROOT_SIZE]
    middle = PAYLOAD_OFFSET + KEYFRAME.payload_length
    tail = FILE[middle : middle + 600] + manifest.to_bytes() + trailer
    root = hashlib.sha256(FILE[:PAYLOAD_OFFSET] + tail).digest()
    assert open_bytes(FILE[:middle] + tail + root).manifest == manifest


def test_brackets_in_strings_do_not_nest() -> None:
    deep: Any = "[{" * 1000 + '"\\'
    for _ in range(MAX_NESTING):
        deep = [deep]
    manifest = replace(KEYFRAME, policy=deep)
    assert parse_manifest(manifest.to_bytes(), "here") == manifest


@given(st.data())
def test_mutated_manifests_are_refused_or_canonical(data: st.DataObject) -> None:
    original = bytearray(KEYFRAME.to_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(original) - 1))
        original[position : position + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    try:
        manifest = parse_manifest(bytes(original), "here")
    except DataError:
        return
    assert manifest.to_bytes() == original


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
    with pytest.raises(ArgumentError, match="not a path"):
        open_checkpoint(path)
    with pytest.raises(ArgumentError, match="not a path"):
        CheckpointWriter(path)


def test_an_existing_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "one.lcc.h5"
    path.write_bytes(b"precious")
    with pytest.raises(ArgumentError, match="already exists"), CheckpointWriter(path):
        pass
    path.unlink()
    with pytest.raises(ArgumentError, match="already exists"), CheckpointWriter(path) as writer:
        path.write_bytes(b"came in between")
        writer.commit(EMPTY)
    assert path.read_bytes() == b"came in between"
    root = write(path, overwrite=True)
    assert open_checkpoint(path).root == root
    assert listing(tmp_path) == [path.name]


def test_leaving_without_a_commit_leaves_nothing(tmp_path: Path) -> None:
    with CheckpointWriter(tmp_path / "one.lcc.h5") as writer:
        writer.write_frame(b"frame")
    with pytest.raises(KeyboardInterrupt), CheckpointWriter(tmp_path / "one.lcc.h5") as writer:
        raise KeyboardInterrupt
    assert not listing(tmp_path)
    with pytest.raises(ArgumentError, match="closed"):
        writer.write_frame(b"frame")


def test_stale_temporaries(tmp_path: Path) -> None:
    stale = tmp_path / f"{TEMPORARY_PREFIX}stale"
    stale.write_bytes(b"left by a kill")
    (tmp_path / "unrelated").write_bytes(b"")
    (tmp_path / f"{TEMPORARY_PREFIX}directory").mkdir()
    with CheckpointWriter(tmp_path / "one.lcc.h5") as writer:
        assert remove_stale_temporaries(tmp_path) == [stale.name]
        writer.commit(EMPTY)
    assert remove_stale_temporaries(tmp_path) == []
    assert listing(tmp_path) == [f"{TEMPORARY_PREFIX}directory", "one.lcc.h5", "unrelated"]


def test_a_temporary_cleaned_up_before_it_was_locked_is_made_again(tmp_path: Path) -> None:
    class Cleaned(System):
        locks = 0

        def lock(self, fd: int, wait: bool) -> None:
            self.locks += 1
            if self.locks == 1:
                remove_stale_temporaries(tmp_path)
            System.lock(fd, wait)

    system = Cleaned()
    write(tmp_path / "one.lcc.h5", system=system)
    assert system.locks == 2
    assert listing(tmp_path) == ["one.lcc.h5"]


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

OPERATIONS = (
    "mode",
    "open",
    "set_mode",
    "lock",
    "exists",
    "seek",
    "write",
    "fsync",
    "close",
    "link",
    "replace",
    "unlink",
)


class Faulty(System):
    """The real system, but for the operations that `fails` picks by name and number."""

    def __init__(self, code: int, fails: Callable[[str, int], bool]) -> None:
        self.log: list[str] = []
        self.descriptors: set[int] = set()
        for name in OPERATIONS:
            setattr(self, name, self._wrap(name, code, fails))

    def _wrap(self, name: str, code: int, fails: Callable[[str, int], bool]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.log.append(name)
            failed = fails(name, len(self.log) - 1)
            if failed and name != "close":
                raise OSError(code, os.strerror(code))
            result = getattr(System, name)(*arguments)
            if name == "open":
                self.descriptors.add(result)
            if name == "close":
                self.descriptors.remove(arguments[0])
            if failed:  # a close that fails has closed the file all the same
                raise OSError(code, os.strerror(code))
            return result

        return call


def committed(path: Path) -> bool:
    if not path.exists():
        return False
    with open_checkpoint(path) as reader:
        return reader.manifest == KEYFRAME


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("overwrite", [False, True])
def test_faults_at_every_operation(tmp_path: Path, code: int, sticky: bool, overwrite: bool) -> None:
    healthy = Faulty(code, lambda *_: False)
    write(tmp_path / "healthy", system=healthy, overwrite=overwrite)
    assert {"open", "seek", "write", "fsync", "close", "replace" if overwrite else "link"} <= set(healthy.log)
    for position, operation in enumerate(healthy.log):
        directory = tmp_path / f"{position}"
        directory.mkdir()
        path = directory / "one.lcc.h5"
        if overwrite:
            write(path, (), EMPTY)
        before = listing(directory)

        # A sticky fault lasts, but lets the temporary be removed: a full disk does.
        def fails(name: str, number: int, position: int = position) -> bool:
            return number == position or (sticky and number > position and name != "unlink")

        system = Faulty(code, fails)
        writer = CheckpointWriter(path, system=system, overwrite=overwrite)
        error = None
        try:
            with writer:
                for frame in FRAMES:
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
    healthy = Faulty(0, lambda *_: False)
    write(tmp_path / "healthy", system=healthy)
    passed = []
    for position, operation in enumerate(healthy.log):
        try:
            write(tmp_path / f"{position}", system=Faulty(errno.EIO, lambda _, i, at=position: i == at))
        except StorageError:
            continue
        passed.append(operation)
    assert passed == ["lock", "close", "unlink"]


def test_a_system_that_sees_no_file_does_not_hang_the_writer(tmp_path: Path) -> None:
    """`lexists` is false where `lstat` fails, whatever for."""
    blind = Faulty(0, lambda *_: False)
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


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_without_hard_links_the_file_is_renamed(tmp_path: Path, code: int) -> None:
    path = tmp_path / "one.lcc.h5"
    write(path, system=Faulty(code, lambda name, _: name == "link"))
    assert committed(path)
    assert listing(tmp_path) == [path.name]
    writer = CheckpointWriter(tmp_path / "two", system=Faulty(code, lambda name, _: name == "link"))
    with pytest.raises(ArgumentError, match="already exists"), writer:
        (tmp_path / "two").write_bytes(b"came in between")
        writer.commit(EMPTY)
    assert (tmp_path / "two").read_bytes() == b"came in between"


def test_directories_that_cannot_be_synced_are_passed_over(tmp_path: Path) -> None:
    seen: list[str] = []

    def second_fsync(name: str, _: int) -> bool:
        seen.append(name)
        return name == "fsync" and seen.count("fsync") == 2

    write(tmp_path / "one.lcc.h5", system=Faulty(errno.EINVAL, second_fsync))
    assert committed(tmp_path / "one.lcc.h5")


# --- kill and power loss --------------------------------------------------------------------------


class Disk(System):
    """A file system in memory that logs each change to files and directories, synced or not."""

    def __init__(self, files: dict[str, bytes], ignore: str = "") -> None:
        self.log: list[tuple[Any, ...]] = []
        self.names = {name: ("old", name) for name in files}
        self.initial = files
        self._ignore = ignore
        self._files: dict[int, list[Any]] = {}

    def open(self, path: Path, flags: int, _mode: int = 0) -> int:
        fd = len(self._files) + 100
        inode = ("new", fd) if flags & os.O_CREAT else None
        if inode:
            self._name(path.name, inode)
        self._files[fd] = [inode, 0]
        return fd

    def seek(self, fd: int, offset: int, _whence: int) -> None:
        self._files[fd][1] = offset

    def write(self, fd: int, data: memoryview) -> int:
        inode, offset = self._files[fd]
        piece = bytes(data[:2000])  # large writes are partial
        self.log.append(("write", inode, offset, piece))
        self._files[fd][1] += len(piece)
        return len(piece)

    def fsync(self, fd: int) -> None:
        inode = self._files[fd][0]
        kind = "sync" if inode else "sync directory"
        if kind != self._ignore:
            self.log.append((kind, inode))

    def close(self, fd: int) -> None: ...

    def lock(self, fd: int, wait: bool) -> None: ...

    def mode(self, path: Path) -> int | None:
        return 0o644 if path.name in self.names else None

    def set_mode(self, fd: int, mode: int) -> None: ...

    def exists(self, path: Path) -> bool:
        return path.name in self.names

    def link(self, source: Path, target: Path) -> None:
        if target.name in self.names:
            raise FileExistsError(errno.EEXIST, "exists")
        self._name(target.name, self.names[source.name])

    def replace(self, source: Path, target: Path) -> None:
        self._name(target.name, self.names[source.name], source.name)

    def unlink(self, path: Path) -> None:
        if path.name not in self.names:
            raise FileNotFoundError(errno.ENOENT, "missing")
        self._name(path.name, None)

    def _name(self, name: str, inode: Any, moved_from: str | None = None) -> None:
        self.log.append(("name", name, inode, moved_from))
        _apply_name(self.names, name, inode, moved_from)

    def after(self, kept: list[tuple[Any, ...]]) -> dict[str, bytes]:
        """The files there are once the kept operations, and no others, have reached the disk."""
        names: dict[str, Any] = {name: ("old", name) for name in self.initial}
        contents = {("old", name): bytearray(data) for name, data in self.initial.items()}
        for kind, *details in kept:
            if kind == "name":
                _apply_name(names, *details)
            elif kind == "write":
                inode, offset, data = details
                content = contents.setdefault(inode, bytearray())
                content.extend(bytes(max(0, offset + len(data) - len(content))))
                content[offset : offset + len(data)] = data
        return {name: bytes(contents.get(inode, b"")) for name, inode in names.items()}


def _apply_name(names: dict[str, Any], name: str, inode: Any, moved_from: str | None) -> None:
    if moved_from is not None:
        names.pop(moved_from, None)
    if inode is None:
        names.pop(name, None)
    else:
        names[name] = inode


def unsynced(log: list[tuple[Any, ...]]) -> list[int]:
    """The positions of the operations that no later sync has made durable."""
    volatile: list[int] = []
    for position, (kind, *details) in enumerate(log):
        if kind == "sync":
            volatile = [i for i in volatile if log[i][0] != "write" or log[i][1] != details[0]]
        elif kind == "sync directory":
            volatile = [i for i in volatile if log[i][0] != "name"]
        else:
            volatile.append(position)
    return volatile


def power_losses(log: list[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """What may have reached the disk: without one, all but one, all, or some of the unsynced operations."""
    volatile = unsynced(log)
    lost = [set(volatile), set(), *({i} for i in volatile), *(set(volatile) - {i} for i in volatile)]
    generator = random.Random(len(log))
    lost += [{i for i in volatile if generator.random() < 0.5} for _ in range(20)]
    for dropped in lost:
        yield [operation for i, operation in enumerate(log) if i not in dropped]


BIG = (bytes(range(256)) * 20, b"small")
BIG_MANIFEST = replace(EMPTY, step=2, tree=["l", 0, 1], arrays=(1, 2), frames=tuple(map(FrameEntry.of, BIG)))
OLD = to_bytes((), replace(EMPTY, step=1))
NEW = to_bytes(BIG, BIG_MANIFEST)


def violations(overwrite: bool, ignore: str = "", power: bool = True) -> tuple[int, int]:
    """How many crash states were tried, and in how many a checkpoint was broken or a committed one lost."""
    files = {"one.lcc.h5": OLD} if overwrite else {}
    disk = Disk(files, ignore)
    write(Path("one.lcc.h5"), BIG, BIG_MANIFEST, system=disk, overwrite=overwrite)
    tried = broken = 0
    for length in range(len(disk.log) + 1):
        log = disk.log[:length]
        for kept in power_losses(log) if power else [log]:
            tried += 1
            found = disk.after(kept).get("one.lcc.h5")
            allowed = [NEW] if length == len(disk.log) else [NEW, files.get("one.lcc.h5")]
            broken += found not in allowed
    return tried, broken


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("power", [False, True])
def test_no_crash_breaks_or_loses_a_checkpoint(overwrite: bool, power: bool) -> None:
    tried, broken = violations(overwrite, power=power)
    assert tried > (300 if power else 10)
    assert broken == 0


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("ignore", ["sync", "sync directory"])
def test_without_a_sync_the_crash_test_finds_violations(overwrite: bool, ignore: str) -> None:
    assert violations(overwrite, ignore)[1] > 0


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
