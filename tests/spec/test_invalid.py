"""The invalid vectors of the specification: each is refused, for the one rule it breaks."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import errors
from lccodec.container import parity
from lccodec.container.bundle import Bundle
from lccodec.container.source import FileSource
from lccodec.element_types import components, from_components
from lccodec.errors import ChainError, DataError, LccodecError
from lccodec.frame.decode import decode_components
from lccodec.frame.header import FrameHeader, parse_header

from ..support.bounds import bounded
from ..support.vectors import SPEC, VECTORS, Entry, beside, by_kind, each, entries

ENTRIES = [entry for entry in entries() if "rule" in entry]
FRAMES, CHECKPOINTS, BUNDLES, PARITY = by_kind(ENTRIES)
RULES = json.loads((SPEC / "tables" / "rules.json").read_bytes())
EMULATED = os.environ.get("HYPOTHESIS_PROFILE") == "emulated"  # .ci/big-endian: slow, and of another Python
MAX_SECONDS = 200 if EMULATED else 10  # of CPU: other programs run beside
MAX_BYTES = (256 if EMULATED else 128) << 20

#: Rules that no vector breaks, by the class of the error.
NOT_COVERED = {
    ("LCC-STA-06", "FormatError"): "UTF-8 has no lone surrogate, and its escape breaks LCC-MAN-01 first",
    ("LCC-LIM-06", "LimitError"): "2^20 + 1 arrays make two megabytes (spec/conformance/corpus.py)",
    ("LCC-BKT-01", "ChecksumError"): "a name in a bucket is no file (chain/store/bucket/test_garbled.py)",
    ("LCC-BKT-02", "FormatError"): "a commit is no file (chain/store/bucket/test_keys.py)",
    ("LCC-H5-01", "FormatError"): "a FIFO or a device is no file to keep (container/test_reader.py)",
}


@pytest.fixture(autouse=True)
def _bounded(request: pytest.FixtureRequest) -> Iterator[None]:
    """Bound the time and the memory of a test of one file; a slow one reads all of them."""
    alone = request.node.get_closest_marker("slow") is None
    with bounded(MAX_SECONDS if alone else 10 * MAX_SECONDS, MAX_BYTES):
        yield


@pytest.fixture(name="make", scope="module")
def _make() -> Iterator[ModuleType]:
    with beside("make", VECTORS) as make:
        yield make


def header_of(frame: bytes) -> FrameHeader | None:
    try:
        return parse_header(frame)
    except DataError:
        return None


def stored(reference: bytes | None, header: FrameHeader | None) -> np.ndarray | None:
    """Return the components of a reference; None where no readable header asks for one."""
    if reference is None or header is None:
        return None
    return np.frombuffer(reference, header.kind.bits.newbyteorder("<")).astype(header.kind.bits)


def ways(frame: bytes, reference: bytes | None) -> list[Callable[[], np.ndarray]]:
    """Return the ways to decode a frame to components: of a run there is one."""
    header = header_of(frame)
    bits = stored(reference, header)
    if header is not None and header.run:
        return [lambda: decode_components(frame, bits)]
    array = None if bits is None else from_components(bits, header.kind, header.shapes[0], "bits")
    return [
        lambda: decode_components(frame, bits),
        lambda: components(lccodec.decode(frame, array, dtype="bits"))[1],
    ]


def refused(entry: Entry, error: LccodecError) -> None:
    assert type(error).__name__ == entry["error"]
    if isinstance(error, DataError):
        assert error.rule == entry["rule"], error
        assert error.__cause__ is None or not isinstance(error.__cause__, MemoryError)


def check_file(entry: Entry, path: Path) -> None:
    """Load and validate a file; a reader does not see all that a validator sees."""
    if entry["reported_by"] == "reader":
        with pytest.raises(LccodecError) as caught:
            lccodec.load_file(path, dtype="bits")
        refused(entry, caught.value)
    else:
        lccodec.load_file(path, dtype="bits")
    found = {problem.rule for problem in lccodec.validate(path, deep=True)}
    assert found == {"chain" if entry["error"] == "ChainError" else entry["rule"]}


# --- the corpus -----------------------------------------------------------------------------------


def test_there_are_vectors_and_no_other_files() -> None:
    assert len(FRAMES) > 100
    assert len(CHECKPOINTS) > 100
    members = ("file", "reference", "parent", "expected")
    listed = [entry[what] for entry in ENTRIES for what in members if entry.get(what)]
    listed += [name for entry in ENTRIES for name in entry.get("beside", ())]
    files = [path for path in (VECTORS / "invalid").rglob("*") if path.is_file()]
    assert set(listed) == {path.relative_to(VECTORS).as_posix() for path in files}
    assert len({entry["name"] for entry in ENTRIES}) == len(ENTRIES)
    assert sum(path.stat().st_size for path in files) < 1_300_000
    assert max(path.stat().st_size for path in files) < 110_000
    for entry in ENTRIES:
        assert entry["name"].startswith(entry["rule"])
        assert entry["error"] in RULES[entry["rule"]]["errors"] or entry["error"] == "ChainError"
        assert issubclass(getattr(errors, entry["error"]), DataError | ChainError)
        assert entry["reported_by"] in ("reader", "validator")
        assert 10 < len(entry["why"]) < 110


def test_every_rule_with_errors_is_broken_once() -> None:
    broken = {(entry["rule"], entry["error"]) for entry in ENTRIES if entry["error"] != "ChainError"}
    listed = {(name, error) for name, rule in RULES.items() for error in rule["errors"]}
    assert broken | NOT_COVERED.keys() == listed
    assert not broken & NOT_COVERED.keys()


# --- frames ---------------------------------------------------------------------------------------


@each(FRAMES)
def test_frame(entry: Entry) -> None:
    frame = (VECTORS / entry["file"]).read_bytes()
    reference = entry["reference"] and (VECTORS / entry["reference"]).read_bytes()
    for way in ways(frame, reference):
        with pytest.raises(DataError) as caught:
            way()
        refused(entry, caught.value)


@each(FRAMES)
@pytest.mark.usefixtures("make")
def test_frame_in_a_checkpoint(entry: Entry, tmp_path: Path) -> None:
    """A file is refused for its frame, and by the validator."""
    files, frame = sys.modules["broken_checkpoints"], (VECTORS / entry["file"]).read_bytes()
    arrays = 1
    if len(frame) >= 12 and frame[5] & 2:
        arrays = max(1, min(int.from_bytes(frame[8:12], "little"), 4))
    tree = ["l", *range(arrays)]
    members: dict[str, Any] = {"tree": tree, "scalars": ..., "arrays": [1] * arrays}
    if not frame:
        return  # no entry can be of a frame without bytes
    header = header_of(frame)
    if entry["reference"] and header is not None:
        bits = stored((VECTORS / entry["reference"]).read_bytes(), header)
        array = from_components(bits, header.kind, header.shapes[0], "bits")
        parent = lccodec.encode(array, lccodec.Lossless())
        data = files.file_of(files.text_of(files.keyframe((parent,), **members)), parent)
        (tmp_path / files.PARENT).write_bytes(data)
        members |= {"step": 2, "parent": [1, files.base64_of(data[-32:])], "tree": ...}
    path = tmp_path / "broken.lcc.h5"
    path.write_bytes(files.file_of(files.text_of(files.keyframe((frame,), **members)), frame))
    check_file(entry, path)


@pytest.mark.slow
def test_frames_are_sound_without_their_fault(make: ModuleType) -> None:
    count = 0
    for vector in make.broken_frames():
        if vector.sound is not None:
            header = parse_header(vector.sound)
            for way in ways(vector.sound, vector.reference if header.relative else None):
                assert way().size == header.components, vector.name
            count += 1
    assert count > 100


# --- checkpoint files -----------------------------------------------------------------------------


@each(CHECKPOINTS)
def test_checkpoint(entry: Entry) -> None:
    path = VECTORS / entry["file"]
    check_file(entry, path)
    if entry["parent"] is None and entry["reported_by"] == "reader" and path.stat().st_size:
        with pytest.raises(DataError) as caught:
            lccodec.load(path.read_bytes(), dtype="bits")
        refused(entry, caught.value)


@pytest.mark.slow
def test_files_are_sound_without_their_fault(make: ModuleType, tmp_path: Path) -> None:
    for path in (VECTORS / "invalid").glob("0*.lcc.h5"):  # what lies beside those with a fault
        shutil.copy(path, tmp_path)
    assert lccodec.validate(tmp_path, deep=True) == []
    vectors = list(make.broken_files())
    assert len({vector.name for vector in vectors}) == len(CHECKPOINTS)
    for sound, name in {vector.sound: vector.name for vector in vectors}.items():
        path = tmp_path / "sound.lcc.h5"
        path.write_bytes(sound)
        assert lccodec.validate(path, deep=True) == [], name
        lccodec.load_file(path)


def test_a_chain_notices_a_file_of_another_step(tmp_path: Path) -> None:
    entry = next(entry for entry in CHECKPOINTS if entry["rule"] == "LCC-CHN-01")
    shutil.copy(VECTORS / entry["file"], tmp_path)
    with lccodec.Chain(tmp_path) as chain, pytest.raises(DataError) as caught:
        chain.restore()
    refused(entry, caught.value)


# --- bundles --------------------------------------------------------------------------------------


def read_bundle(path: Path) -> None:
    """Read every state of a bundle; where its index cannot be read, this raises its error."""
    with Bundle(path) as bundle:
        steps = bundle.steps
    for step in [None, *steps]:
        with lccodec.open(path, step=step, exact=step is None) as file:
            file.state(dtype="bits")


@pytest.mark.filterwarnings("ignore:.*its exact file is not:lccodec.LccodecWarning")
@each(BUNDLES)
def test_bundle(entry: Entry) -> None:
    path = VECTORS / entry["file"]
    if entry["reported_by"] == "reader":
        with pytest.raises(LccodecError) as caught:
            read_bundle(path)
        refused(entry, caught.value)
    elif entry["rule"] == "LCC-EXA-03":
        read_bundle(path)  # a Reader does not compare the two
    else:
        with pytest.warns(lccodec.LccodecWarning, match="the exact file (cannot be used|is damaged)"):
            read_bundle(path)
    found = {problem.rule for problem in lccodec.validate(path, deep=True)}
    seen = "chain" if entry["error"] == "ChainError" else entry["rule"]
    # Without its magic it is a file of another kind. Deltas of a broken parent are named beside it.
    told = "LCC-TRL-01" if entry["name"] == "LCC-BUN-01-bundle-magic" else seen
    assert found - ({"chain"} - {seen}) == {told}


def test_bundles_are_sound_without_their_fault(make: ModuleType, tmp_path: Path) -> None:
    assert len(BUNDLES) > 30
    path = tmp_path / "sound.lcc"
    for sound, name in {vector.sound: vector.name for vector in make.broken_bundles()}.items():
        path.write_bytes(sound)
        assert lccodec.validate(path, deep=True) == [], name
        read_bundle(path)


# --- parity ---------------------------------------------------------------------------------------


def check_parity(path: Path, named: str) -> None:
    """Check a parity file under a name."""
    with closing(FileSource(path)) as source:
        parity.check_file(source, path.name, named)


@each(PARITY)
def test_parity(entry: Entry) -> None:
    with pytest.raises(DataError) as caught:
        check_parity(VECTORS / entry["file"], entry["named"])
    refused(entry, caught.value)


def test_parity_files_are_sound_without_their_fault(make: ModuleType, tmp_path: Path) -> None:
    assert len(PARITY) > 35
    path = tmp_path / "sound"
    vector_name = sys.modules["broken_parity"].name_of()
    for sound in {vector.sound for vector, _ in make.broken_parity()}:
        path.write_bytes(sound)
        check_parity(path, vector_name)
