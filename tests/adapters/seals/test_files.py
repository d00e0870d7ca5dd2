"""What a seal of a directory is about: regular files in it, by whatever links."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from lccodec import StorageError
from lccodec.adapters.seals.seal import SEAL_NAME, found_in


def names(directory: Path) -> dict[str, str]:
    return {found.name: found.refusal for found in found_in(directory)}


def test_files_at_all_depths_are_found(tmp_path: Path) -> None:
    for name in ("a", "sub/a", "sub/deep/b", "sub/" + SEAL_NAME, "a.sha256"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes(name.encode())
    expected = dict.fromkeys(("a", "sub/a", "sub/deep/b", "sub/" + SEAL_NAME, "a.sha256"), "")
    (tmp_path / SEAL_NAME).touch()
    (tmp_path / "sub" / ".tmp-0123456789abcdef").touch()  # of a process that was killed
    (tmp_path / "empty").mkdir()
    assert names(tmp_path) == expected
    assert {found.size for found in found_in(tmp_path) if found.name == "sub/deep/b"} == {10}


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
