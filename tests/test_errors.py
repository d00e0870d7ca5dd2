"""Errors carry the rule and the place, wherever they are sent or raised again."""

import copy
import errno
import pickle

import pytest

from lccodec import errors
from lccodec.errors import DataError, LccodecError, StorageError

KINDS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__
]
OF_DATA = [kind for kind in KINDS if issubclass(kind, DataError)]


@pytest.mark.parametrize("kind", OF_DATA)
def test_an_error_of_the_data_says_where_what_and_which_rule(kind: type[DataError]) -> None:
    error = kind("LCC-FRM-02", "file: frame 3", "cut off")
    assert (error.rule, error.where, error.message) == ("LCC-FRM-02", "file: frame 3", "cut off")
    assert str(error) == "file: frame 3: cut off [LCC-FRM-02]"


@pytest.mark.parametrize("kind", OF_DATA)
def test_an_error_inside_of_something_keeps_all_else(kind: type[DataError]) -> None:
    inner = kind("LCC-FRM-02", "frame 3", "cut off")
    outer = inner.inside("file")
    assert type(outer) is kind
    assert str(outer) == "file: frame 3: cut off [LCC-FRM-02]"
    assert inner.where == "frame 3"


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_can_be_copied_and_sent_to_another_process(kind: type[Exception]) -> None:
    arguments: tuple[object, ...] = ("what happened",)
    if issubclass(kind, DataError):
        arguments = ("LCC-FRM-02", "file", "cut off")
    elif issubclass(kind, StorageError):
        arguments = (errno.ENOSPC, "cannot write", "file")
    error = kind(*arguments)
    for sent in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301
        assert type(sent) is kind
        assert (str(sent), sent.args) == (str(error), error.args)
        assert vars(sent) == vars(error)


def test_only_the_warning_is_no_error() -> None:
    assert [kind.__name__ for kind in KINDS if not issubclass(kind, LccodecError)] == ["LccodecWarning"]


@pytest.mark.parametrize("kind", OF_DATA)
def test_what_is_newer_or_too_large_is_not_lost(kind: type[DataError]) -> None:
    is_lost = kind in (errors.FormatError, errors.TruncatedError, errors.ChecksumError)
    assert errors.is_loss(kind("LCC-FRM-02", "file", "cut off")) == is_lost


def test_a_manifest_longer_than_any_is_a_damaged_length() -> None:
    assert errors.is_loss(errors.LimitError("LCC-LIM-04", "file", "a manifest of 2^60 bytes is too long"))


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ENOTDIR, errno.EIO, errno.EACCES, errno.ESTALE])
def test_what_a_disk_refuses_is_not_lost(code: int) -> None:
    assert errors.is_loss(StorageError(code, "cannot open")) == (code in (errno.ENOENT, errno.ENOTDIR))


def test_every_error_has_a_reason() -> None:
    assert errors.reason_of(OSError("no space")) == "no space"
    assert errors.reason_of(MemoryError()) == "no memory"
