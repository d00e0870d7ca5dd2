"""The text of a seal is read back as it was written; none leads out, and damage is noticed.

What is loaded is what was sealed; an error names the file and the tensor.

Whole files and parts of them are hashed in one pass; what changes meanwhile is noticed.

Sealed trees of files: what is changed, missing and new is told, and nothing else.
"""

import io
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import (
    ArgumentError,
    ChecksumError,
    DataError,
    FormatError,
    LimitError,
    StorageError,
    UnsupportedError,
)
from lccodec.adapters import hdf5, npz, safetensors, seals
from lccodec.adapters.files import states
from lccodec.adapters.seals import (
    SEAL_NAME,
    Entry,
    Listing,
    SealedPart,
    check_unchanged,
    damaged_parts,
    digest_of,
    entry_of,
    find_seal,
    format_listing,
    in_threads,
    listed_files,
    read_sealed,
    sealed_file,
)

from ..support.damage import files_in, flip, put
from ..support.programs import run_program
from ..support.tuning import tuned

HEX = "0123456789abcdef" * 4
ZERO = "0" * 64

COMPONENTS = st.text(
    st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=9
).filter(lambda text: text not in (".", ".."))
NAMES = st.lists(COMPONENTS, min_size=1, max_size=3).map("/".join)
DIGESTS = st.sampled_from([HEX, ZERO])


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    places = sorted(draw(st.sets(st.integers(0, 10**14), max_size=6)))
    pairs = list(zip(places[::2], places[1::2], strict=False))
    return Entry(
        draw(DIGESTS),
        tuple(SealedPart(draw(st.text(max_size=5)), start, end, draw(DIGESTS)) for start, end in pairs),
    )


LISTINGS = st.dictionaries(NAMES, entries(), min_size=1, max_size=4)


@given(LISTINGS)
def test_what_is_written_is_read_back(files: dict[str, Entry]) -> None:
    text = format_listing(files)
    assert dict(Listing(text, "x")) == files
    assert format_listing(dict(reversed(files.items()))) == text


@given(LISTINGS, st.data())
def test_a_damaged_seal_is_noticed(files: dict[str, Entry], data: st.DataObject) -> None:
    """Where the first line no longer says what it is, the rest is read as sha256sum's."""
    text = bytearray(format_listing(files))
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] ^= data.draw(st.integers(1, 255))
    try:
        found = Listing(bytes(text), "x")
    except DataError:
        return
    assert place < len("# lccodec seal ")
    assert dict(found) == files


@given(LISTINGS, st.data())
def test_a_seal_that_is_cut_off_is_noticed(files: dict[str, Entry], data: st.DataObject) -> None:
    text = format_listing(files)
    with pytest.raises(DataError):
        Listing(text[: data.draw(st.integers(len("# lccodec seal 1"), len(text) - 1))], "x")


def test_the_text_is_that_of_the_page() -> None:
    text = format_listing({"b\\\n": Entry(HEX), "a": Entry(ZERO, (SealedPart('w"é', 8, 12, HEX),))})
    lines = text.decode().splitlines()
    assert lines[:-1] == [
        "# lccodec seal 1",
        f"{ZERO}  a",
        f'# tensor {HEX} 8 12 "w\\"\\u00e9"',
        f"\\{HEX}  b\\\\\\n",
    ]
    assert lines[-1].startswith("# end ")


def test_a_text_of_sha256sum_is_read() -> None:
    text = f"{HEX}  a b\n{ZERO} *./sub/c\n# a comment\n\\{HEX}  x\\\\n\\n\\r".encode()
    found = Listing(text, "x")
    assert {name: entry.digest for name, entry in found.items()} == {
        "a b": HEX,
        "sub/c": ZERO,
        "x\\n\n\r": HEX,
    }


@pytest.mark.parametrize(
    "name",
    ["/a", "..", "../a", "a/../b", "a/..", ".", "a/./b", "a//b", "a/", "././a", ".//a", "a\0b", ""],
)
def test_a_name_that_is_no_path_below_is_refused(name: str) -> None:
    with pytest.raises(FormatError, match="line 2: "):
        Listing(f"{HEX}  ok\n{HEX}  {name}\n".encode(), "x")


@pytest.mark.parametrize(
    "line",
    [
        "",
        HEX,
        f"{HEX} a",
        f"{HEX[:-1]}  a",
        f"{HEX.upper()}  a",
        f" {HEX}  a",
        f"\\{HEX}  a\\b",
        f"\\{HEX}  a\\",
        f"SHA256 (a) = {HEX}",
        f"{HEX}  ok",
        f"{HEX}  ./ok",
    ],
)
def test_a_line_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(FormatError, match="x: line 2: "):
        Listing(f"{HEX}  ok\n{line}\n".encode(), "x")


@pytest.mark.parametrize(
    "lines",
    [
        [f'# tensor {HEX} 0 0 "w"'],
        [f'# tensor {HEX} 2 1 "w"'],
        [f'# tensor {HEX} 0 2 "w"', f'# tensor {HEX} 1 3 "v"'],
        [f'# tensor {HEX} 0 1234567890123456 "w"'],
        [f"# tensor {HEX} 0 1 w"],
        [f'# tensor {HEX} 0 1 "\\x"'],
        [f'# tensor {HEX[1:]} 0 1 "w"'],
        ["# tensor "],
    ],
)
def test_a_tensor_that_cannot_be_is_refused(lines: list[str]) -> None:
    found = Listing("\n".join([f"{HEX}  other", f"{HEX}  a", *lines, ""]).encode(), "x")
    assert found["other"] == Entry(HEX)
    with pytest.raises(FormatError, match="'a'"):
        found["a"]


def test_a_newer_version_is_refused_as_that() -> None:
    with pytest.raises(UnsupportedError, match="version 2"):
        Listing(b"# lccodec seal 2\nwhatever", "x")
    for word in ("", "1.", "one"):
        with pytest.raises(ChecksumError):
            Listing(f"# lccodec seal {word}\n".encode(), "x")


def repeated(line: bytes, count: int) -> bytes:
    """A line with a number in it, so many times."""
    return b"".join(line % number for number in range(count))


_DIGEST = HEX.encode()
#: As many lines as a text of some size has; made when they are asked for.
HOSTILE: dict[str, Callable[[int], bytes]] = {
    "files": lambda size: repeated(_DIGEST + b"  %07x\n", size // 74),
    "tensors": lambda size: (
        _DIGEST
        + b"  a\n"
        + b"".join(b'# tensor %s %d %d ""\n' % (_DIGEST, i, i + 1) for i in range(size // 97))
    ),
    "comments": lambda size: b"#\n" * (size // 64 - 1),
    "folders": lambda size: repeated(_DIGEST + b"  " + b"a/" * 8000 + b"%d\n", size // 16700),
    "escapes": lambda size: repeated(b"\\" + _DIGEST + b"  " + b"\\n" * 8000 + b"%d\n", size // 16700),
    "backslashes": lambda size: repeated(b"\\" + _DIGEST + b"  " + b"\\" * 16000 + b"%d\n", size // 16700),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_seal_takes_bounded_time_and_memory(kind: str) -> None:
    text = HOSTILE[kind](seals.MAX_BYTES)
    assert len(text) <= seals.MAX_BYTES
    start = time.process_time()
    found = Listing(text, "x")
    assert all(entry.digest == HEX for entry in found.values())
    assert time.process_time() - start < 10  # a second or less; the machine may be busy
    assert len(found) in (0, 1, 1004, seals.MAX_BYTES // 74)
    part = HOSTILE[kind](seals.MAX_BYTES // 16)  # to look at each piece of memory takes long
    tracemalloc.start()
    Listing(part, "x")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 512 << 20 >> 4


@pytest.mark.parametrize(
    "text",
    [
        b"#" * (seals.MAX_BYTES + 1),
        b"\n" * (seals.MAX_LINES + 1),
        b"#" * (seals.MAX_LINE_BYTES + 1),
        f"{HEX}  {'a' * seals.MAX_LINE_BYTES}".encode(),
    ],
)
def test_more_than_a_seal_may_have_is_refused(text: bytes) -> None:
    with pytest.raises(LimitError):
        Listing(text, "x")


def test_lines_of_tensors_are_left_out_before_files_are(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {str(i): Entry(HEX, (SealedPart("w", 0, 1, HEX),)) for i in range(9)}
    monkeypatch.setattr(seals, "MAX_LINES", 15)
    assert dict(Listing(format_listing(files), "x")) == {name: Entry(HEX) for name in files}
    monkeypatch.setattr(seals, "MAX_LINES", 9)
    with pytest.raises(ArgumentError, match="too many for one seal"):
        format_listing(files)


def test_a_name_that_is_too_long_for_a_line() -> None:
    long = "a" * seals.MAX_LINE_BYTES
    found = Listing(
        format_listing({"a": Entry(HEX, (SealedPart(long, 0, 1, HEX), SealedPart("b", 1, 2, HEX)))}), "x"
    )
    assert found["a"].parts == (SealedPart("b", 1, 2, HEX),)
    with pytest.raises(ArgumentError, match="too long"):
        format_listing({long: Entry(HEX)})


STATE = {"a": np.arange(1000, dtype=np.float32), "b": np.ones((30, 20), np.float32)}
FORMATS = ["m.safetensors", "m.safetensors.index.json", "m.npz", "m.h5"]


@pytest.fixture(params=["beside", "directory", "above"])
def seal(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Path], object]:
    """Seals the file at a path, or the directory that it is in."""

    def make(path: Path) -> object:
        alone = request.param == "beside" and not path.name.endswith(".index.json")
        return seals.seal(path if alone else path.parent if request.param == "directory" else tmp_path)

    return make


@pytest.mark.parametrize("name", FORMATS)
def test_a_sealed_state_is_loaded_if_it_is_whole(tmp_path: Path, name: str, seal: Any) -> None:
    path = tmp_path / "model" / name
    path.parent.mkdir()
    states.save_file(STATE, path, {})
    seal(path)
    before = states.load_file(path)
    assert all(np.array_equal(before[0][key], array) for key, array in STATE.items())
    shard = next(path.parent.glob("*-00001-*"), path)
    flip(shard, shard.stat().st_size - 8)
    with pytest.raises(ChecksumError, match="changed") as caught:
        states.load_file(path)
    assert (caught.value.rule, caught.value.where) == ("seal", str(shard))


@pytest.mark.parametrize("load", [safetensors.load_file, safetensors.load_state, safetensors.load_metadata])
@pytest.mark.parametrize("sealed_by", ["lccodec", "sha256sum"])
def test_the_damaged_tensor_is_named(tmp_path: Path, load: Any, sealed_by: str) -> None:
    path = tmp_path / "m.safetensors"
    safetensors.save_file(STATE, path)
    made = seals.seal(path)
    assert (made.files, made.tensors, made.nbytes) == (1, 2, path.stat().st_size)
    if sealed_by == "sha256sum":
        made.path.write_text(made.path.read_text().splitlines()[1] + "\n")
    load(path)
    flip(path, -1)
    with pytest.raises(ChecksumError, match="tensor 'b'" if sealed_by == "lccodec" else "changed"):
        load(path)
    flip(path, -1)
    flip(path, 10)
    with pytest.raises(ChecksumError, match="'__metadata__'" if sealed_by == "lccodec" else "changed"):
        load(path)


def test_bytes_behind_the_tensors(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    safetensors.save_file(STATE, path)
    seals.seal(path)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(ChecksumError, match="changed, but none of its tensors"):
        safetensors.load_file(path)


def test_many_damaged_tensors_are_not_all_named(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    safetensors.save_file({f"w{i:02}": np.full(2, i, np.float32) for i in range(30)}, path)
    seals.seal(path)
    path.write_bytes(path.read_bytes()[: -30 * 8] + bytes(30 * 8))
    with pytest.raises(ChecksumError, match=r"tensors 'w01', 'w02', .*'w08' and 21 others since"):
        safetensors.load_file(path)


def test_what_changes_between_check_and_load_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.npz"
    npz.save_file(STATE, path)
    seals.seal(path)
    digest_of = seals.digest_of

    def meanwhile(*arguments: Any) -> str:
        found = digest_of(*arguments)
        data = path.read_bytes()
        path.write_bytes(data)
        os.utime(path, ns=(0, 0))
        return found

    monkeypatch.setattr(seals, "digest_of", meanwhile)
    with pytest.raises(ChecksumError, match="changed while it was read"):
        npz.load_file(path)


def test_the_file_that_is_yielded_is_the_one_that_was_verified(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"sealed")
    other.write_bytes(b"others")
    seals.seal(path)
    with pytest.raises(ChecksumError, match="changed while"), sealed_file(path) as file:
        other.replace(path)
        assert file.read() == b"sealed"


def test_hdf5_goes_by_the_path_and_a_file_in_its_place_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hdf5.save_file(STATE, tmp_path / "a.h5")
    hdf5.save_file({"a": np.zeros(3)}, tmp_path / "b.h5")
    seals.seal(tmp_path / "a.h5")
    opened = h5py.File

    def meanwhile(path: str, mode: str) -> Any:
        (tmp_path / "b.h5").replace(path)
        return opened(path, mode)

    monkeypatch.setattr(h5py, "File", meanwhile)
    with pytest.raises(ChecksumError, match="changed while it was read"):
        hdf5.load_state(tmp_path / "a.h5")


def test_the_nearest_seal_counts(tmp_path: Path) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    path = folder / "a"
    assert find_seal(path) is None
    path.write_bytes(b"abc")
    seals.seal(tmp_path)
    assert (found := find_seal(path)) and found.seal == tmp_path / "lccodec.sha256"
    seals.seal(folder)
    assert (found := find_seal(path)) and found.seal == folder / "lccodec.sha256"
    seals.seal(path)
    assert (found := find_seal(path)) and found.seal == folder / "a.sha256"
    assert find_seal(folder / "new") is None
    (folder / "new").write_bytes(b"new")
    assert read_sealed(folder / "new") == b"new"


def test_a_seal_of_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    shutil.move(seals.seal(tmp_path / "a").path, tmp_path / "b.sha256")
    (tmp_path / "b").write_bytes(b"abc")
    with pytest.raises(FormatError, match="does not name 'b'"):
        read_sealed(tmp_path / "b")


def test_a_seal_that_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    os.mkfifo(tmp_path / "a.sha256")
    with pytest.raises(StorageError, match="not a regular file"):
        read_sealed(tmp_path / "a")
    (tmp_path / "a.sha256").unlink()
    (tmp_path / "lccodec.sha256").mkdir()
    with pytest.raises(StorageError):
        read_sealed(tmp_path / "a")


def test_a_checkpoint_has_hashes_of_its_own(tmp_path: Path) -> None:
    lccodec.save_file(STATE, tmp_path / "m.lcc.h5")
    seals.seal(tmp_path)
    assert list(lccodec.load_file(tmp_path / "m.lcc.h5")) == ["a", "b"]


def test_an_index_that_is_replaced_may_be_damaged(tmp_path: Path) -> None:
    index = tmp_path / "m.safetensors.index.json"
    safetensors.save_file(STATE, index)
    seals.seal(tmp_path)
    index.write_bytes(b"damaged")
    safetensors.save_file(STATE, index)
    assert seals.check(tmp_path) == []
    flip(index, 5)  # others, who know of no seal, may read it: its shards stay until the index is replaced
    safetensors.save_file(STATE, index)
    assert {problem.message for problem in seals.check(tmp_path)} >= {"changed", "missing"}
    (tmp_path / "lccodec.sha256").unlink()
    assert list(safetensors.load_file(index)) == ["a", "b"]


@given(st.binary(max_size=60), st.sets(st.integers(0, 70)), st.integers(1, 20))
def test_parts_of_any_place_are_hashed(data: bytes, cuts: set[int], piece: int) -> None:
    places = sorted(cuts)
    parts = [
        SealedPart(f"{start}", start, end) for start, end in zip(places[::2], places[1::2], strict=False)
    ]
    with tuned(seal_piece_bytes=piece):
        found = entry_of(io.BytesIO(data), parts)
    assert found.digest == sha256(data).hexdigest() == digest_of(io.BytesIO(data))
    whole = [part for part in parts if part.end <= len(data)]
    assert list(found.parts) == [
        SealedPart(p.name, p.start, p.end, sha256(data[p.start : p.end]).hexdigest()) for p in whole
    ]


@given(st.binary(min_size=8, max_size=40), st.data())
def test_damaged_parts_are_those_that_differ(data: bytes, draws: st.DataObject) -> None:
    cuts = [0, 3, 5, len(data)]
    sealed = entry_of(io.BytesIO(data), [SealedPart(f"{a}", a, b) for a, b in pairwise(cuts)])
    now = draws.draw(st.one_of(st.just(data[:-1]), st.binary(min_size=len(data), max_size=len(data))))
    expected = [p.name for p in sealed.parts if now[p.start : p.end] != data[p.start : p.end]]
    assert damaged_parts(io.BytesIO(now), sealed.parts) == expected


def test_a_file_that_changes_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    with path.open("rb") as file:
        before = os.fstat(file.fileno())
        check_unchanged(file, before)
        os.utime(path, ns=(0, before.st_mtime_ns + 1))
        with pytest.raises(ChecksumError, match="changed while it was read"):
            check_unchanged(file, before)
        os.utime(path, ns=(0, before.st_mtime_ns))
        check_unchanged(file, before)
        other = tmp_path / "b"
        other.write_bytes(b"abc")
        other.replace(path)
        with pytest.raises(ChecksumError, match="changed while it was read"):
            check_unchanged(file, before)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_results_are_in_order_and_bytes_are_told(threads: int) -> None:
    told: list[tuple[int, int]] = []

    def call(item: bytes, count: seals.Count) -> Entry:
        return entry_of(io.BytesIO(item), (), count)

    items = [bytes([i]) * 1000 * i for i in range(1, 9)]
    found = in_threads(call, items, 36_000, threads, lambda *numbers: told.append(numbers), "hash")
    assert [entry.digest for entry in found] == [sha256(item).hexdigest() for item in items]
    assert told[-1] == (36_000, 36_000)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_of_a_call_comes_out(threads: int) -> None:
    def call(item: int, _: seals.Count) -> int:
        if item == 2:
            raise ChecksumError("seal", "x", "changed")
        return item

    with pytest.raises(ChecksumError):
        in_threads(call, [1, 2, 3], 0, threads, False, "hash")


#: Of the CPU, for what takes a second or less: the machine may be busy.
MAX_SECONDS = 10

FOLDERS = ["", "sub/", "sub/deep/", "x y/"]
FILES = ["a", "b.pt", "c\\d", "e\nf", "ü", "g.safetensors", ".hidden", "lccodec.sha256x"]
ODD_NAMES = st.tuples(st.sampled_from(FOLDERS), st.sampled_from(FILES)).map("".join)
TREES = st.dictionaries(ODD_NAMES, st.binary(max_size=40), min_size=1, max_size=8)


def told(directory: Path) -> dict[str, str]:
    """What a check tells of files: the first word about each."""
    problems = seals.check(directory)
    assert all(problem.rule == "seal" for problem in problems)
    return {problem.where: problem.message.partition(":")[0] for problem in problems}


@pytest.mark.slow
@given(TREES, TREES, st.sampled_from([1, 2]))
def test_every_difference_is_told(tree: dict[str, bytes], now: dict[str, bytes], threads: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "tree")
        put(folder, tree)
        made = seals.seal(folder, threads=threads)
        assert (made.files, made.nbytes) == (len(tree), sum(map(len, tree.values())))
        assert told(folder) == {}
        text = made.path.read_bytes()
        assert seals.seal(folder).path.read_bytes() == text
        put(folder, {**now, "lccodec.sha256": text})
        assert told(folder) == {
            **dict.fromkeys(tree.keys() - now.keys(), "missing"),
            **dict.fromkeys(now.keys() - tree.keys(), "new"),
            **{name: "changed" for name in tree.keys() & now.keys() if tree[name] != now[name]},
        }
        if tree == now:
            return
        with pytest.raises(ArgumentError, match="is sealed, and has changed"):
            seals.seal(folder)
        assert made.path.read_bytes() == text
        seals.seal(folder, replace=True)
        assert told(folder) == {}


@pytest.mark.slow  # it needs sha256sum, which a fresh machine lacks
@given(TREES, TREES)
def test_sha256sum_agrees(tree: dict[str, bytes], now: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "tree")
        put(folder, tree)
        text = seals.seal(folder).path.read_bytes()
        put(folder, {**now, "lccodec.sha256": text})
        command = ["sha256sum", "--check", "--quiet", "--strict", "lccodec.sha256"]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, check=False, env={**os.environ, "LC_ALL": "C"}
        )
        differing = [name for name, word in told(folder).items() if word != "new"]
        assert (done.returncode == 0) == (not differing), done
        assert done.stdout.count(b": FAILED") == len(differing)


@pytest.mark.slow  # it needs sha256sum, which a fresh machine lacks
@given(TREES)
def test_what_sha256sum_writes_is_checked(tree: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "tree")
        put(folder, tree)
        command = ["sha256sum", *(f"./{name}" for name in tree)]
        with Path(name, "made").open("wb") as made:
            subprocess.run(command, cwd=folder, check=True, stdout=made)
        Path(name, "made").rename(folder / "lccodec.sha256")
        assert told(folder) == {}
        put(folder, {**files_in(folder), next(iter(tree)): b"x" * 41})
        assert told(folder) == {next(iter(tree)): "changed"}


@given(
    st.dictionaries(st.text(max_size=4), st.integers(0, 20), min_size=1, max_size=5),
    st.data(),
)
def test_the_damaged_tensor_is_told(sizes: dict[str, int], draws: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "m.safetensors")
        state = {f"w{key}": np.full(size, 7, np.uint8) for key, size in sizes.items() if key.isprintable()}
        safetensors.save_file(state, path)
        seals.seal(path)
        data = bytearray(path.read_bytes())
        place = draws.draw(st.integers(0, len(data) - 1))
        data[place] ^= draws.draw(st.integers(1, 255))
        path.write_bytes(data)
        (problem,) = seals.check(path)
        start = len(data) - sum(array.nbytes for array in state.values())
        expected = "__metadata__" if place < start else _tensor_at(data, place - start)
        assert problem.message == f"changed: tensor {expected!r}"


def _tensor_at(data: bytearray, offset: int) -> str:
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    header.pop("__metadata__", None)
    places = {name: entry["data_offsets"] for name, entry in header.items()}
    return next(name for name, (start, end) in places.items() if start <= offset < end)


def test_any_file_can_be_sealed_alone(tmp_path: Path) -> None:
    for name in ("a.pt", "m.safetensors"):  # the second is none
        path = tmp_path / name
        path.write_bytes(b"abc")
        made = seals.seal(path)
        assert made == seals.Sealed(tmp_path / f"{name}.sha256", 1, 0, 3)
        assert seals.is_sealed(path)
        assert seals.check(path) == []
        path.write_bytes(b"abd")
        assert told(path) == {name: "changed"}
    assert not seals.is_sealed(tmp_path)
    path.unlink()
    with pytest.raises(ArgumentError, match="no such file"):
        seals.check(path)


def test_a_file_of_a_sealed_directory_is_checked_alone(tmp_path: Path) -> None:
    put(tmp_path, {"sub/a": b"1", "b": b"2"})
    seals.seal(tmp_path)
    put(tmp_path, {**files_in(tmp_path), "b": b"3"})
    assert told(tmp_path / "sub" / "a") == {}
    assert told(tmp_path / "b") == {"b": "changed"}
    (tmp_path / "new").touch()
    assert not seals.is_sealed(tmp_path / "new")


def test_what_cannot_be_sealed_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArgumentError, match="no file to seal"):
        seals.seal(tmp_path / "empty")
    with pytest.raises(ArgumentError, match="no such file or directory"):
        seals.seal(tmp_path / "gone")
    with pytest.raises(ArgumentError, match="is not sealed"):
        seals.check(tmp_path / "empty")
    index = tmp_path / "model.safetensors.index.json"
    safetensors.save_file({"a": np.ones(3)}, index)
    with pytest.raises(ArgumentError, match="seal its directory"):
        seals.seal(index)
    (tmp_path / "out").symlink_to("/etc/passwd")
    with pytest.raises(ArgumentError, match="out: is a link that leads out of the directory"):
        seals.seal(tmp_path)
    (tmp_path / "out").unlink()
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ArgumentError, match="fifo: is not a regular file"):
        seals.seal(tmp_path)
    with pytest.raises(StorageError, match="not a regular file"):
        seals.seal(tmp_path / "fifo")
    assert not list(tmp_path.rglob("*.sha256"))


def test_what_takes_the_place_of_a_sealed_file_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    put(folder, {"a": b"1", "b": b"2", "c": b"3", "d": b"4"})
    (tmp_path / "outside").write_bytes(b"1")
    seals.seal(folder)
    for name in "abcd":
        (folder / name).unlink()
    (folder / "a").symlink_to("../outside")
    os.mkfifo(folder / "b")
    (folder / "c").mkdir()
    (folder / "d").symlink_to("c")
    found = {problem.where: problem.message for problem in seals.check(folder)}
    assert found == {
        "a": "changed: it is a link that leads out of the directory",
        "b": "changed: it is not a regular file",
        "c": "missing",
        "d": "missing",
    }


def test_a_link_in_the_directory_is_sealed_as_what_it_leads_to(tmp_path: Path) -> None:
    put(tmp_path, {"a": b"1", "b": b"2"})
    (tmp_path / "link").symlink_to("a")
    seals.seal(tmp_path)
    assert told(tmp_path) == {}
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("b")
    assert told(tmp_path) == {"link": "changed"}


def test_a_file_that_changes_while_it_is_sealed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, {"a": b"1"})

    def meanwhile(*arguments: Any) -> Entry:
        os.utime(tmp_path / "a", (1, 1))
        return entry_of(*arguments)

    monkeypatch.setitem(seals.seal.__globals__, "entry_of", meanwhile)
    with pytest.raises(ChecksumError, match="changed while it was read"):
        seals.seal(tmp_path)


def test_an_existing_seal_outlives_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, {"a": b"1"})
    made = seals.seal(tmp_path)
    text = made.path.read_bytes()
    put(tmp_path, {"a": b"2", "lccodec.sha256": text})

    def crash(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(StorageError, match="No space left"):
        seals.seal(tmp_path, replace=True)
    monkeypatch.undo()
    assert files_in(tmp_path) == {"a": b"2", "lccodec.sha256": text}


@pytest.mark.parametrize("text", [b"", b"nonsense", b"# lccodec seal 1\n", b"\xff" * 99])
def test_a_damaged_seal_is_a_problem(tmp_path: Path, text: bytes) -> None:
    put(tmp_path, {"a": b"1", "lccodec.sha256": text})
    assert seals.is_sealed(tmp_path)
    assert [problem.rule for problem in seals.check(tmp_path)] == ["seal"]
    put(tmp_path, {"a": b"1", "a.sha256": text})
    assert seals.is_sealed(tmp_path / "a")
    assert [problem.rule for problem in seals.check(tmp_path / "a")] == ["seal"]


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, {"a": b"1", "b": b"2"})
    seals.seal(tmp_path)

    def refuse(*_: object) -> str:
        raise StorageError(5, "Input/output error", "a")

    monkeypatch.setitem(seals.check.__globals__, "digest_of", refuse)
    assert [problem.rule for problem in seals.check(tmp_path)] == ["storage", "storage"]


def test_progress_counts_bytes(tmp_path: Path) -> None:
    put(tmp_path, {"a": b"1" * 100, "b": b"2" * 50})
    seen: list[tuple[int, int]] = []
    seals.seal(tmp_path, progress=lambda *numbers: seen.append(numbers))
    seals.check(tmp_path, progress=lambda *numbers: seen.append(numbers))
    assert seen == [(100, 150), (150, 150)] * 2
    with pytest.raises(ArgumentError, match="progress"):
        seals.seal(tmp_path, progress=3)
    with pytest.raises(ArgumentError, match="threads"):
        seals.seal(tmp_path, threads=-1)


@pytest.mark.slow
def test_a_hostile_seal_is_checked_in_bounded_time_and_memory(tmp_path: Path) -> None:
    """A seal of as many files as fit, none of them there; and of as many tensors, all damaged."""
    digest = b"0" * 64
    many = b"".join(b"%s  %07x\n" % (digest, i) for i in range(seals.MAX_BYTES // 74))
    tensors = [b'# tensor %s %d %d ""\n' % (digest, i, i + 1) for i in range(seals.MAX_BYTES // 97)]
    put(tmp_path / "files", {"lccodec.sha256": many})
    text = digest + b"  a.safetensors\n" + b"".join(tensors)
    put(tmp_path / "tensors", {"lccodec.sha256": text, "a.safetensors": bytes(len(tensors))})
    program = (
        "import resource, sys, time\n"
        "from lccodec.adapters import seals\n"
        "start = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(len(seals.check(sys.argv[1])), time.process_time() - start[0],\n"
        "      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start[1])"
    )
    for name, count in [("files", 1001), ("tensors", 1)]:
        words = run_program(program, tmp_path / name).stdout.split()
        assert int(words[0]) == count
        assert float(words[1]) < MAX_SECONDS
        assert int(words[2]) < 512 << 10


def names(directory: Path) -> dict[str, str]:
    return {found.name: found.refusal for found in listed_files(directory)}


def test_files_at_all_depths_are_found(tmp_path: Path) -> None:
    for name in ("a", "sub/a", "sub/deep/b", "sub/" + SEAL_NAME, "a.sha256"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes(name.encode())
    expected = dict.fromkeys(("a", "sub/a", "sub/deep/b", "sub/" + SEAL_NAME, "a.sha256"), "")
    (tmp_path / SEAL_NAME).touch()
    (tmp_path / "sub" / ".tmp-0123456789abcdef").touch()  # of a process that was killed
    (tmp_path / "empty").mkdir()
    assert names(tmp_path) == expected
    assert {found.size for found in listed_files(tmp_path) if found.name == "sub/deep/b"} == {10}


def test_what_a_writer_keeps_beside_a_chain_is_left_out(tmp_path: Path) -> None:
    for name in ("run/000000000001.lcc.h5", "run/.hashes/values", "run/.parity/a", "other/.hashes/values"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    expected = ("run/000000000001.lcc.h5", "run/.parity/a", "other/.hashes/values")
    assert names(tmp_path) == dict.fromkeys(expected, "")


def test_links_in_the_directory_are_what_they_lead_to(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("sub/a")
    (tmp_path / "latest").symlink_to("sub")
    (tmp_path / "circle").symlink_to(".")
    assert names(tmp_path) == {"sub/a": "", "link": ""}
    outside = tmp_path.with_name(tmp_path.name + "-link")
    outside.symlink_to(tmp_path)
    assert names(outside) == {"sub/a": "", "link": ""}


def test_links_that_lead_elsewhere_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "folder2").mkdir()
    (tmp_path / "folder2" / "a").touch()
    (folder / "out").symlink_to("/etc/passwd")
    (folder / "sub" / "up").symlink_to("../../folder2/a")
    (folder / "up").symlink_to("..")
    (folder / "nowhere").symlink_to("gone")
    (folder / "itself").symlink_to("itself")
    out, nowhere = "is a link that leads out of the directory", "is a link that leads nowhere"
    assert names(folder) == {
        "out": out,
        "sub/up": out,
        "up": out,
        "nowhere": nowhere,
        "itself": nowhere,
    }


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        before = Path.cwd()
        os.chdir(tmp_path)  # the path of a socket must be short
        try:
            listening.bind("socket")
        finally:
            os.chdir(before)
        assert names(tmp_path) == dict.fromkeys(("fifo", "link", "socket"), "is not a regular file")


def test_what_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot list"):
        names(tmp_path / "gone")
