"""Files that are read: how many are open, whether they changed, and what an interrupt leaves."""

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import ArgumentError, Chain, ChainError, FormatError, TruncatedError
from lccodec.container import source
from lccodec.container.checkpoint import CheckpointReader
from lccodec.container.source import FileSource

from ..support.descriptors import open_files
from ..support.tuning import tune

PACKAGE = str(Path(lccodec.__file__).parent)
CLOSING = ("close", "drop", "__del__")  # an error in a destructor is only told
LATEST = "000000000003.lcc.h5"
PARENT = "000000000001.lcc.h5"


@pytest.fixture(name="directory")
def _directory(tmp_path: Path) -> Path:
    big = np.random.default_rng(0).standard_normal(5000)
    with Chain(tmp_path / "run", "lossless") as chain:
        for step in range(4):
            chain.save(step, {"big": big, "w": np.full(50, float(step))})
    return tmp_path / "run"


# --- files that rest ------------------------------------------------------------------------------


def test_an_open_checkpoint_shares_descriptors(directory: Path) -> None:
    files = [lccodec.open(directory / LATEST) for _ in range(60)]
    assert 60 < len(open_files(directory)) <= 60 + 32
    for file in files:
        assert file.get("w")[0] == 3
        file.close()
    assert open_files(directory) == []


def test_a_small_file_is_read_by_one_call(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(fd: int, size: int, offset: int) -> bytes:
        calls.append((offset, size))
        return read(fd, size, offset)

    read = source.read_at
    monkeypatch.setattr(source, "read_at", counted)
    size = (directory / LATEST).stat().st_size
    with CheckpointReader(FileSource(directory / LATEST), LATEST) as reader:
        assert size < 1 << 14 and calls == [(0, size)]
        for number in range(len(reader.manifest.frames)):
            assert reader.frame_head(number, 2) == b"LC"
    assert len(calls) == 1


def test_a_source_that_outlives_its_module_says_nothing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of a program, as after Ctrl-C in a framework that keeps the frames of callers."""
    opened, resting = FileSource(directory / LATEST), FileSource(directory / PARENT)
    resting.rest(b"")
    assert opened._descriptor is not None
    with monkeypatch.context() as patch:
        for name in [name for name in vars(source) if not name.startswith("__")]:
            patch.setattr(source, name, None)
        for each in (opened, opened._descriptor, resting):
            each.__del__()
    opened.close()
    resting.close()
    assert open_files(directory) == []


def test_only_the_end_of_a_large_file_is_kept(tmp_path: Path) -> None:
    data = np.random.default_rng(0).bytes(50_000)
    (tmp_path / "large").write_bytes(data)
    file = FileSource(tmp_path / "large")
    for offset, size in ((49_990, 10), (33_616, 16_384), (33_615, 100), (0, 50_000), (50_000, 0)):
        assert file.read(offset, size) == data[offset : offset + size]
    assert file._end == data[-(1 << 14) :]
    with pytest.raises(TruncatedError, match="ends at byte 50000"):
        file.read(49_990, 11)
    file.rest(data[-32:])
    assert file._end is None and file.read(49_990, 10) == data[-10:]
    file.close()


@pytest.mark.parametrize("pool", [0, 1])
def test_a_parent_that_was_replaced_is_noticed(
    directory: Path, monkeypatch: pytest.MonkeyPatch, pool: int
) -> None:
    tune(monkeypatch, max_resting_files=pool)
    with lccodec.open(directory / LATEST) as file:
        kept = (directory / PARENT).read_bytes()
        other = lccodec.save({"w": np.ones(3)})
        for data in (other, kept[:-1] + bytes([kept[-1] ^ 1])):
            (directory / PARENT).unlink()
            (directory / PARENT).write_bytes(data)
            with pytest.raises(ChainError, match=f"{PARENT}: replaced by another file"):
                file.get("w")
        (directory / PARENT).unlink()
        with pytest.raises(ChainError, match="was pruned while it was read"):
            file.get("w")
        (directory / PARENT).write_bytes(kept)
        assert file.get("w")[0] == 3


def test_a_parent_is_found_from_another_working_directory(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tune(monkeypatch, max_resting_files=0)
    monkeypatch.chdir(directory)
    with lccodec.open(LATEST) as file:
        monkeypatch.chdir(tmp_path)
        assert file.get("w")[0] == 3


@pytest.mark.slow
def test_what_rests_can_be_read_by_many_threads(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    tune(monkeypatch, max_resting_files=1)
    with lccodec.open(directory / LATEST) as file, ThreadPoolExecutor(8) as pool:
        assert {float(array[0]) for array in pool.map(lambda _: file.get("w"), range(200))} == {3.0}


# --- what is refused ------------------------------------------------------------------------------


def test_a_directory_is_told_from_a_file(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(FormatError, match="not a regular file") as caught:
            lccodec.load_file(path)
        assert caught.value.rule == "LCC-H5-01"
        assert ("Chain" in str(caught.value)) == path.is_dir()


def test_bytes_are_told_from_a_path() -> None:
    for data in ("model.lcc.h5", None, Path("model.lcc.h5"), 3):
        with pytest.raises(ArgumentError, match="load_file takes a path"):
            lccodec.load(data)


# --- interrupts -----------------------------------------------------------------------------------


def interrupted(call: Callable[[], object], line: int, error: type[BaseException]) -> bool:
    """Make a call with an error at its n-th line in lccodec; return whether it had so many."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE) or frame.f_code.co_name in CLOSING:
            return None
        if event == "line":
            count += 1
            if count == line:
                raise error
        return trace

    before = sys.gettrace()
    gc.disable()  # or destructors run at some line, with the error
    sys.settrace(trace)
    try:
        call()
    except error:
        return True
    finally:
        sys.settrace(before)
        gc.enable()
    return False


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("step", [0, 1])
def test_an_interrupt_while_opening_leaves_nothing_open(
    directory: Path, error: type[BaseException], step: int
) -> None:
    """Of a keyframe, and of a delta with its parent."""
    path = directory / f"{step:012d}.lcc.h5"
    line = 0
    while interrupted(lambda: lccodec.open(path).close(), line := line + 1, error):
        if open_files(directory):
            gc.collect()  # an error may be in a cycle
        assert open_files(directory) == [], line
    assert line > 50
