"""Addresses and paths: what is taken for which."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lccodec.container.disk.address import Address, checked_place
from lccodec.errors import ArgumentError


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
