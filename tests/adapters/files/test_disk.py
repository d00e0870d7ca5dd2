"""Only regular files are read; a file is written whole, or what was there stays."""

import errno
import os

import pytest

from lccodec.adapters.files.disk import parsed, read_bounded, regular_file, replacing
from lccodec.errors import FormatError, LimitError, StorageError

from ...support.crashes import tried


@pytest.mark.parametrize("kind", ["directory", "fifo", "missing"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, kind):
    path = tmp_path / "x"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    with pytest.raises(StorageError, match="cannot read") as caught, regular_file(path):
        pass
    assert caught.value.filename == str(path)


def test_a_file_takes_the_place_of_another_once_it_is_written(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with replacing(path) as temporary:
        temporary.write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full"), ValueError("x")])
def test_what_fails_leaves_what_was_there_and_no_temporary(tmp_path, error):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    kind = StorageError if isinstance(error, OSError) else type(error)
    with pytest.raises(kind), replacing(path) as temporary:
        temporary.write_bytes(b"new")
        raise error
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_ordinary_permissions(tmp_path):
    (tmp_path / "usual").touch()
    with replacing(tmp_path / "a") as temporary:
        temporary.write_bytes(b"new")
        temporary.chmod(0o600)  # as a library does that writes a file of its own
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_what_is_written_is_never_open_to_more_readers_than_the_file(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"")
    path.chmod(0o600)
    with replacing(path) as temporary:
        assert temporary.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(path)
    with replacing(tmp_path / "link") as temporary:
        assert temporary.stat().st_mode & 0o777 == 0o600
        temporary.write_bytes(b"new")
    assert not (tmp_path / "link").is_symlink()  # the link is replaced, not what it points to
    assert path.read_bytes() == b""
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with replacing(tmp_path / "dangling") as temporary:
        temporary.write_bytes(b"new")
    assert (tmp_path / "dangling").read_bytes() == b"new"


def test_no_crash_loses_a_file_that_was_written(tmp_path):
    (tmp_path / "root").mkdir()
    path = tmp_path / "root" / "a"
    path.write_bytes(b"old")

    def work(replay):
        with replacing(path) as temporary:
            temporary.write_bytes(b"new")
        replay.done()

    def check(reported, place):
        assert (place / "a").read_bytes() in ([b"new"] if reported else [b"old", b"new"])

    assert tried(tmp_path / "root", work, check) == []
    for ignore in ("sync", "sync directory"):
        path.write_bytes(b"old")
        assert len(tried(tmp_path / "root", work, check, ignore=ignore)) == 1


def test_what_is_too_long_or_is_not_json_is_told(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"[1, 2]")
    assert parsed(read_bounded(path, 6, "rule"), "rule", "a.json") == [1, 2]
    with pytest.raises(LimitError, match=r"a\.json: more than 5 bytes \[rule\]"):
        read_bounded(path, 5, "rule")
    for text in (b"", b"\xff", b"[" * 100_000, b'{"a":' * 100_000):
        with pytest.raises(FormatError, match="not JSON, or nested too deeply"):
            parsed(text, "rule", "a.json")
