"""The vectors of the specification decode to their expected values, and cover the format.

The invalid ones are in ``test_invalid.py``.
"""

import itertools
import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import lccodec
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import ELEMENT_TYPES, EQUAL_COPY, TRAILER_SIZE
from lccodec.container.checkpoint import parse_trailer
from lccodec.container.parity import check_file
from lccodec.container.source import FileSource
from lccodec.element_types import components, from_components
from lccodec.frame.decode import decode_components
from lccodec.frame.header import parse_header

from ..support.vectors import VECTORS, Entry, beside, by_kind, entries

VALID = [entry for entry in entries() if "rule" not in entry]
#: The folders of frozen vectors, each with the sum of the sums of its files.
FOLDERS = {
    "frozen": "ffc29e84b5fb50a939ab77c137774e1d65191418100522582b5d49e3a35e309e",
    "frozen-1.1": "9fdc4044eb4fcbdfc9aebade67bb0d8d35de08f3cf44418fb23db5a41f991bac",
}
LISTS = {folder: entries(folder) for folder in FOLDERS}
FROZEN = [entry for entries in LISTS.values() for entry in entries]
FRAMES, CHECKPOINTS, BUNDLES, PARITY = by_kind(VALID + FROZEN)
FORMS = {
    *("constant", "raw", "huffman", "sparse", "sparse with low bits", "packed 1", "packed 2", "packed 4"),
    "classed",
}
KINDS = {kind.name: kind for kind in ELEMENT_TYPES}


def name_of(entry: Entry) -> str:
    return str(Path(entry["file"]).parent / entry["name"])


any_frame = pytest.mark.parametrize("entry", FRAMES, ids=name_of)
any_checkpoint = pytest.mark.parametrize("entry", CHECKPOINTS, ids=name_of)


@pytest.fixture(name="make", scope="module")
def _make() -> Iterator[ModuleType]:
    with beside("make", VECTORS) as make:
        yield make


def read(entry: Entry, what: str = "file") -> bytes:
    return (VECTORS / entry[what]).read_bytes()


def stored(entry: Entry, what: str) -> np.ndarray:
    kind = KINDS[entry["dtype"]]
    bits = np.frombuffer(read(entry, what), kind.bits.newbyteorder("<")).astype(kind.bits)
    shapes = entry["shapes"]
    return from_components(bits, kind, tuple(shapes[0]) if len(shapes) == 1 else (-1,), "bits")


def little(array: np.ndarray) -> bytes:
    _, bits = components(array)
    return bits.astype(bits.dtype.newbyteorder("<")).tobytes()


def files_of(entries: list[Entry]) -> set[str]:
    """The names of all files of vectors."""
    return {entry[what] for entry in entries for what in ("file", "expected", "reference") if entry.get(what)}


def test_there_are_vectors_and_no_other_files() -> None:
    assert len(FRAMES) > 80
    assert len(CHECKPOINTS) > 5
    assert len(BUNDLES) > 2
    assert len(PARITY) > 4
    assert files_of(VALID) == {f"valid/{path.name}" for path in (VECTORS / "valid").iterdir()}
    files = [path for path in VECTORS.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) < 5_000_000


@any_frame
def test_frame(entry: Entry) -> None:
    frame = read(entry)
    header = parse_header(frame)
    assert (header.method_name, header.kind.name) == (entry["method"], entry["dtype"])
    assert header.shapes == tuple(map(tuple, entry["shapes"]))
    assert entry["reference"] is not None or not header.relative  # some come with one that they ignore
    reference = stored(entry, "reference") if header.relative else None
    if header.run:
        decoded = decode_components(frame, None if reference is None else components(reference)[1])
    else:
        decoded = lccodec.decode(frame, reference, dtype="bits")
        assert decoded.shape == header.shapes[0]
        assert components(decoded)[0] == header.kind
    if entry["expected"]:
        assert little(decoded) == read(entry, "expected")
    assert sha256(little(decoded)).hexdigest() == entry["sha256"]


@any_checkpoint
def test_checkpoint(entry: Entry, make: ModuleType) -> None:
    path = VECTORS / entry["file"]
    assert lccodec.validate(path, deep=True) == []
    expected = read(entry, "expected")
    assert sha256(expected).hexdigest() == entry["sha256"]
    state = lccodec.load_file(path, dtype="bits")
    assert make.expected_state(state) == json.loads(expected)


@pytest.mark.filterwarnings("ignore:.*the exact file:lccodec.LccodecWarning")
@pytest.mark.parametrize("entry", BUNDLES, ids=name_of)
def test_bundle(entry: Entry, make: ModuleType, tmp_path: Path) -> None:
    path = VECTORS / entry["file"]
    # The exact file that a checkpoint does not name is of another save.
    another = {"chain"} if entry["name"] in ("newest-not-named", "newest-another-named") else set()
    assert {problem.rule for problem in lccodec.validate(path, deep=True)} == another
    expected = read(entry, "expected")
    assert sha256(expected).hexdigest() == entry["sha256"]
    states = json.loads(expected)
    for name, state in states.items():
        step = None if name == "newest" else int(name)
        with lccodec.open(path, step=step, exact=step is None) as file:
            assert make.expected_state(file.state(dtype="bits")) == state
    steps = lccodec.unbundle(path, tmp_path / "run")
    assert [*map(str, steps), "newest"] == list(states)
    for file in (tmp_path / "run").iterdir() if not entry["name"].startswith("newest") else ():
        assert file.read_bytes() == path.with_name(file.name).read_bytes()


@pytest.mark.parametrize("entry", PARITY, ids=name_of)
def test_parity(entry: Entry, tmp_path: Path) -> None:
    path = VECTORS / entry["file"]
    assert sha256(path.read_bytes()).hexdigest() == entry["sha256"]
    with closing(FileSource(path)) as source:
        index = check_file(source, entry["file"], path.name)
    assert [member.name for member in index.layout.members] == entry["members"]
    if not index.layout.aligned:
        return
    files = dict(zip(entry["members"], entry["files"], strict=True))
    # Each alone, from this file alone; of many only some, which takes long enough.
    for number, lost in list(enumerate(files))[:: max(len(files) // 3, 1)]:
        place = tmp_path / str(number)
        (place / ".parity").mkdir(parents=True)
        shutil.copy(path, place / ".parity")
        for other in files.keys() - {lost}:
            (place / other).parent.mkdir(exist_ok=True)
            shutil.copy(VECTORS / files[other], place / other)
        assert repair(DirectoryStore(place)).mended == (lost,)
        assert (place / lost).read_bytes() == (VECTORS / files[lost]).read_bytes()


def test_they_cover_the_format(make: ModuleType) -> None:
    """The files hold every method with every element type of it, and every form of stream."""
    seen, forms = set(), set()
    for entry in FRAMES:
        frame = read(entry)
        header = parse_header(frame)
        seen.add((header.method_name, header.kind.name, header.relative))
        found = make.stream_forms(frame)
        assert found == entry["forms"], entry["name"]
        forms |= {(header.method_name, form) for form in found}
    for method in ("raw", "planes", "codebook"):
        for kind in ELEMENT_TYPES:
            if method != "codebook" or kind.is_float:
                assert (method, kind.name, False) in seen
                assert method == "raw" or (method, kind.name, True) in seen
    for kind in ELEMENT_TYPES:
        if kind.kind == "f":
            assert {("smooth", kind.name, False), ("smooth", kind.name, True)} <= seen
    for method, more in (("planes", {"split"}), ("codebook", set())):
        assert {form for found, form in forms if found == method} == FORMS | more


def test_they_are_made_anew_byte_by_byte(make: ModuleType, tmp_path: Path) -> None:
    make.make(tmp_path)
    made = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert Path("manifest.json") in made
    for path, data in made.items():
        assert data == (VECTORS / path).read_bytes(), path


@pytest.mark.parametrize("folder", FOLDERS)
def test_frozen_vectors_are_never_changed(folder: str) -> None:
    """A new version gets a folder of its own."""
    sums = (VECTORS / folder / "SHA256SUMS").read_bytes()
    assert sha256(sums).hexdigest() == FOLDERS[folder]
    listed = {name: right for right, name in (line.split("  ") for line in sums.decode().splitlines())}
    found = {path.name: sha256(path.read_bytes()).hexdigest() for path in (VECTORS / folder).iterdir()}
    assert listed == {name: sum for name, sum in found.items() if name != "SHA256SUMS"}
    assert {f"{folder}/{name}" for name in listed} - {f"{folder}/manifest.json"} == files_of(LISTS[folder])


def test_a_file_of_each_structure_is_frozen() -> None:
    headers = {entry["name"]: parse_header(read(entry)) for entry in FROZEN if entry["kind"] == "frame"}
    found = {(header.method_name, header.relative, header.run) for header in headers.values()}
    either = (False, True)
    assert found == {
        *(("raw", False, run) for run in either),
        *itertools.product(("planes", "codebook"), either, either),
        *(("smooth", relative, False) for relative in either),
    } - {("planes", False, True)}
    assert any(header.ordered for header in headers.values())
    forms = {form for entry in FROZEN if entry["kind"] == "frame" for form in entry["forms"]}
    assert forms == FORMS | {"split"}
    with_members = set[str]()
    for entry in FROZEN:
        if entry["kind"] == "checkpoint":
            data = read(entry)
            place, length = parse_trailer(data[-TRAILER_SIZE:], entry["file"]).spans[2:4]
            manifest = json.loads(data[place : place + length])
            with_members |= {member for member, value in manifest.items() if value is not None}
            with_members |= {"pieces"} if any(len(frame) == 3 for frame in manifest["frames"]) else set()
            copied = {code for _, code in manifest.get("copies", [])}
            with_members |= {"equal copies"} if EQUAL_COPY in copied else set()
    assert with_members >= {
        *("step", "parent", "later", "replaces", "exact", "figures", "metadata", "tree", "scalars", "copies"),
        *("pieces", "equal copies"),
    }
    kinds = {entry["kind"] for entry in FROZEN}
    assert kinds == {"frame", "checkpoint", "bundle", "parity"}
