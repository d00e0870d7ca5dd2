"""Paths, locks and permissions, and what becomes of errors of the operating system.

Addresses and paths: what is taken for which.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.container.system import (
    SYSTEM,
    Address,
    checked_path,
    checked_place,
    flag,
    is_plain,
    storage_errors,
)
from lccodec.errors import ArgumentError, ChecksumError, StorageError


@pytest.mark.parametrize(
    "path",
    ["run", "/run/0.lcc.h5", "C:/run", "C:\\run", "a:b", "./s3:/b", "12:/x", "-a:/x", "ü", Path("run")],
)
def test_a_path_becomes_absolute(path: Any) -> None:
    assert checked_path(path) == Path.cwd() / path


@pytest.mark.parametrize(
    "path",
    ["s3://bucket/run", "gs://b", "file:///run", "s3:/bucket", "hf+x.y-z:/b", "1://x", Path("s3://b/x")],
)
def test_an_address_is_refused(path: Any) -> None:
    with pytest.raises(ArgumentError, match="the address"):
        checked_path(path)


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", b"run", None, 3, ["run"], object()])
def test_what_can_be_no_path_is_refused(path: Any) -> None:
    with pytest.raises(ArgumentError, match="a path must be"):
        checked_path(path)


@given(st.text())
def test_any_text_is_a_path_or_refused(text: str) -> None:
    try:
        path = checked_path(text)
    except ArgumentError:
        return
    assert not is_plain(text) or str(path) == text or str(path) == str(Path(text))
    assert path == (Path.home() / text[2:] if text[:2] in ("~", "~/") else Path.cwd() / text)
    assert "://" not in text


@pytest.mark.parametrize("path", ["run", "~/run", "/s3://x", "/a\0b", "/ü", "/\ud800", "", b"/run", None])
def test_a_path_to_check_is_not_plain(path: Any) -> None:
    assert is_plain("/run/a b/0.lcc.h5")
    assert not is_plain(path)


def test_an_error_of_the_system_says_what_was_done_and_where() -> None:
    cause = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "temporary")
    with pytest.raises(StorageError) as caught, storage_errors("cannot write", "one.lcc.h5"):
        raise cause
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == "one.lcc.h5"
    assert caught.value.strerror == f"cannot write: {os.strerror(errno.ENOSPC)}"
    assert caught.value.__cause__ is cause


def test_an_error_of_the_system_without_words_of_its_own() -> None:
    with pytest.raises(StorageError, match="cannot read: cut off"), storage_errors("cannot read", "x"):
        raise OSError("cut off")


@pytest.mark.parametrize(
    "error", [StorageError(errno.EIO, "inner", "x"), ChecksumError("LCC-MAN-08", "x", "y"), KeyError("x")]
)
def test_other_errors_pass_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, storage_errors("outer", "y"):
        raise error
    assert caught.value is error


def test_the_mode_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert SYSTEM.mode(path) is None
    path.touch()
    with path.open("rb") as file:
        SYSTEM.set_mode(file.fileno(), 0o640)
    assert SYSTEM.mode(path) == stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_file_is_locked_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with path.open("rb") as first, path.open("rb") as second:
        SYSTEM.lock(first.fileno(), wait=True)
        with pytest.raises(BlockingIOError):
            SYSTEM.lock(second.fileno(), wait=False)
        first.close()  # which lets go of the lock
        SYSTEM.lock(second.fileno(), wait=False)


def test_a_system_without_locks_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lccodec.container.system.fcntl", None)
    with (tmp_path / "file").open("wb") as file, pytest.raises(OSError, match="supported") as caught:
        SYSTEM.lock(file.fileno(), wait=False)
    assert caught.value.errno == errno.ENOTSUP


def test_a_flag_that_a_system_lacks_is_0() -> None:
    assert flag("O_CREAT") == os.O_CREAT
    assert flag("O_OF_ANOTHER_SYSTEM") == 0


def test_an_address_is_what_it_was_given_as() -> None:
    address = checked_place("S3://bucket/run//")
    assert str(address) == os.fspath(address) == "s3://bucket/run"
    assert checked_place(address) is address
    assert str(address / "a" / "b") == "s3://bucket/run/a/b"
    assert (address / "a").name == "a"
    assert repr(str(Address.of("memory://run"))) == "'memory://run'"


@pytest.mark.parametrize("text", ["~/s3://bucket", "://bucket", "1://x", "simplecache::s3://bucket/run"])
def test_an_address_within_a_path_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="must be local"):
        checked_place(text)


@pytest.mark.parametrize("text", ["s3://", "s3:///", "s3://bucket\n"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="an address must look like"):
        checked_place(text)


def test_paths_stay_paths(tmp_path: Path) -> None:
    assert checked_place(tmp_path) == tmp_path
    assert checked_place("~/run") == Path.home() / "run"
    assert checked_place("C:x") == Path("C:x").absolute()


def test_a_path_that_was_an_address_is_refused() -> None:
    """`Path` has taken one of its slashes."""
    with pytest.raises(ArgumentError, match="must be local"):
        checked_place(Path("s3://bucket/run"))
