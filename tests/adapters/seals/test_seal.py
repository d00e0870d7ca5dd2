"""Sealed trees of files: what is changed, missing and new is told, and nothing else."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ArgumentError, ChecksumError, StorageError
from lccodec.adapters import safetensors, seals
from lccodec.adapters import seals as listing
from lccodec.adapters.seals import SEAL_NAME, Entry, entry_of, listed_files

from ...support.damage import files_in, put

#: Of the CPU, for what takes a second or less: the machine may be busy.
MAX_SECONDS = 10

FOLDERS = ["", "sub/", "sub/deep/", "x y/"]
FILES = ["a", "b.pt", "c\\d", "e\nf", "ü", "g.safetensors", ".hidden", "lccodec.sha256x"]
NAMES = st.tuples(st.sampled_from(FOLDERS), st.sampled_from(FILES)).map("".join)
TREES = st.dictionaries(NAMES, st.binary(max_size=40), min_size=1, max_size=8)


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
        seals.seal(tmp_path, progress=3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="threads"):
        seals.seal(tmp_path, threads=-1)


@pytest.mark.slow
def test_a_hostile_seal_is_checked_in_bounded_time_and_memory(tmp_path: Path) -> None:
    """A seal of as many files as fit, none of them there; and of as many tensors, all damaged."""
    digest = b"0" * 64
    many = b"".join(b"%s  %07x\n" % (digest, i) for i in range(listing.MAX_BYTES // 74))
    tensors = [b'# tensor %s %d %d ""\n' % (digest, i, i + 1) for i in range(listing.MAX_BYTES // 97)]
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
        command = [sys.executable, "-c", program, str(tmp_path / name)]
        words = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
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
