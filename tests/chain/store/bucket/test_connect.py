"""From an address to a store, and what is said where there is none."""

from __future__ import annotations

import importlib.util

import pytest

import lccodec
from lccodec.chain.store.bucket import store as module
from lccodec.chain.store.bucket.backend import FsspecBackend, ObstoreBackend
from lccodec.container.disk.address import Address
from lccodec.errors import ArgumentError, DependencyError


@pytest.mark.parametrize(
    ("text", "package"), [("s3://bucket/run", "obstore"), ("memory://run", "fsspec"), ("hf://a/b", "fsspec")]
)
def test_a_missing_package_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, text: str, package: str
) -> None:
    monkeypatch.setattr(
        module, "find_spec", lambda name: None if name == package else importlib.util.find_spec(name)
    )
    with pytest.raises(DependencyError, match=r"pip install 'lccodec\[remote\]'") as caught:
        lccodec.Chain(text)
    assert text in str(caught.value)
    assert package in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket/run", ObstoreBackend),
        ("gs://bucket/run", ObstoreBackend),
        ("memory://run", FsspecBackend),
    ],
)
def test_the_scheme_chooses(monkeypatch: pytest.MonkeyPatch, text: str, expected: type) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert isinstance(module.connect(Address.of(text))._backend._backend, expected)


@pytest.mark.parametrize("text", ["file:///tmp/run", "nowhere://run", "s3://"])
def test_an_address_without_a_store_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"file://|nowhere|must look like"):
        lccodec.Chain(text)
