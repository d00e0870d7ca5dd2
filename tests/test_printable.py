"""What others have named does not drive a terminal, whoever prints it."""

import pytest

from lccodec import errors
from lccodec.table import printable

from .support.programs import run_program

HOSTILE = "a\x1b[2J\x1b]0;t\x07\r\x08\x9b\u202e\u2066\ud800\x00b"


def test_what_is_printable_stays():
    assert printable("gewicht ü 重み \\x1b") == "gewicht ü 重み \\x1b"
    assert printable(7) == "7"


@pytest.mark.parametrize("character", sorted(HOSTILE + "\n\t\x7f\u2028"))
def test_what_is_not_becomes_an_escape(character):
    for lines in (False, True) if character != "\n" else (False,):
        shown = printable(f"a{character}b", lines=lines)
        assert shown == (f"a{character}b" if character in "[]012Jt;b" else shown)
        assert shown.isprintable()
        assert shown.encode()
    assert printable("a\n\x1b\n", lines=True) == "a\n\\x1b\n"


KINDS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.LccodecError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_printable_and_keep_what_they_hold(kind):
    words = ("LCC-X", HOSTILE, HOSTILE) if issubclass(kind, errors.DataError) else (HOSTILE,)
    found = kind(*words)
    assert str(found).isprintable()
    assert found.args == words
    found = kind("LCC-X", "a", "b\nc") if issubclass(kind, errors.DataError) else kind("b\nc")
    assert "b\nc" in str(found)  # a list of what is wrong


def test_an_error_of_the_system_names_its_file():
    assert str(errors.StorageError(2, "cannot read", "a\x1b")) == "[Errno 2] cannot read: 'a\\x1b'"


def test_warnings_are_printable():
    with pytest.warns(errors.LccodecWarning) as caught:
        errors.warn(f"{HOSTILE}\nmore")
    assert str(caught[0].message).replace("\n", "").isprintable()


@pytest.mark.slow
def test_a_program_that_ends_with_an_error_prints_no_control_characters(tmp_path):
    """Also at its end, where nobody is left to catch what a save in the background says."""
    script = """
import sys, numpy as np, lccodec
chain = lccodec.Chain(sys.argv[1])
chain.save_async(0, {"a": np.ones(3)}).result()
import shutil; shutil.rmtree(sys.argv[1])
open(sys.argv[1], "w").close()
chain.save_async(1, {"a": np.ones(3)})
"""
    target = tmp_path / "evil\x1b[2J\u202e"
    done = run_program(script, target, code=1)
    assert "evil\\x1b[2J\\u202e" in done.stderr
    assert printable(done.stderr, lines=True) == done.stderr
