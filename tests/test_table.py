"""What a repr shows: short, cut to a terminal, and in HTML nothing but escaped text.

What others have named does not drive a terminal, whoever prints it.
"""

import os
import shutil
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import errors
from lccodec.table import Overview, Shown, Table, cut, ends, printable, width

from .support.paths import checkpoint_path
from .support.programs import run_program

HOSTILE = "<script>alert('x')</script>\x1b[2J&amp;\u202e\""
TAGS = {"div", "p", "strong", "br", "table", "thead", "tbody", "tr", "th", "td"}


class Reader(HTMLParser):
    """What a browser would make of HTML: its tags and attributes, and the text of each cell."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str | None]] = set()
        self.cells: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= set(attrs)
        if tag != "br":
            self.open.append(tag)
        if tag in ("th", "td"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open and self.open[-1] in ("th", "td"):
            self.cells[-1] += data


class Printed(Shown):
    def __init__(self, overview: Overview) -> None:
        self.overview = overview

    def _overview(self) -> Overview:
        return self.overview


def table(rows: int, name: str = "layer") -> Table:
    made = Table("name", "shape", "bytes")
    made.fill(range(rows), lambda row: (f"{name} {row}", "3 x 4", row), short=True)
    return made


def test_a_long_table_is_short() -> None:
    lines = table(1000).text().split("\n")
    assert lines[0] == "name       shape  bytes"
    assert lines[5:8] == ["layer 4    3 x 4      4", "... 990 more", "layer 995  3 x 4    995"]
    assert len(lines) == 12
    assert [len(table(rows).rows) for rows in (0, 1, 11, 12)] == [0, 1, 11, 11]


@given(st.integers(0, 60))
def test_the_ends_are_all_that_is_shown(count: int) -> None:
    items = list(range(count))
    first, more, last = ends(items)
    assert [*first, *items[len(first) : len(first) + more], *last] == items
    assert more != 1, "a line for one more is as long as that one"
    assert len(first) + len(last) <= 11


@given(st.text(), st.integers(0, 50))
def test_what_is_cut_fits(text: str, limit: int) -> None:
    found = cut(text, limit)
    shown = printable(text)
    assert len(found) <= limit
    assert found == shown if len(shown) <= limit else "..."[:limit] in found
    assert cut(text, None) == shown


def test_columns_of_wide_characters() -> None:
    assert [width(text) for text in ("", "weight", "\u6a21\u578b", "e\u0301")] == [0, 6, 4, 1]
    made = Table("name", "kind", "bytes")
    made.row("\u6a21\u578b", "key", 1)
    made.row("weight", "key", 2)
    assert made.text().split("\n")[1:] == ["\u6a21\u578b    key       1", "weight  key       2"]


def test_a_narrow_terminal_gets_lines_that_fit() -> None:
    made = table(3, "transformer.layers.17.attention.query.weight")
    assert max(map(len, made.text(60).split("\n"))) <= 60
    assert max(map(len, made.text(30).split("\n"))) <= 30
    words = Table("name", "role", "bytes")
    words.row("transformer.layers.17.weight", "a role of many words", 1000)
    narrow = words.text(52).split("\n")[1]
    assert narrow == "transformer.layers.17.weight  a role... words   1000", "the name is cut last"
    assert made.text(200) == made.text()
    assert "bytes" in made.text(5), "numbers are never cut"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_repr_fits_the_terminal(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: os.terminal_size((50, 24)))
    shown = Printed(Overview("title", {"label": "word " * 50}, table(3, "a" * 60)))
    lines = repr(shown).split("\n")
    assert lines[0] == "title"
    assert (max(map(len, lines[2:])) <= 50) == terminal
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("stream", [None, object()])
def test_a_repr_needs_no_standard_output(stream: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", stream)
    assert repr(Printed(Overview("title"))) == "title"


@pytest.mark.parametrize("error", [ValueError, AttributeError, RecursionError, MemoryError])
def test_a_repr_never_raises(error: type[Exception]) -> None:
    class Broken(Shown):
        def _overview(self) -> Overview:
            raise error

    broken = Broken()
    assert repr(broken) == object.__repr__(broken)
    assert broken._repr_html_() is None
    assert repr(Shown()).startswith("<lccodec.table.Shown object")


def test_html_is_text_and_nothing_else() -> None:
    made = Table(HOSTILE, "kind")
    made.fill([HOSTILE] * 20, lambda cell: (cell, 1), short=True)
    html = Printed(Overview(HOSTILE, {HOSTILE: HOSTILE}, made))._repr_html_()
    assert html is not None
    found = Reader(html)
    assert found.tags <= TAGS
    assert found.attributes <= {("style", "text-align:left"), ("style", "text-align:right"), ("colspan", "2")}
    assert found.cells[0] == printable(HOSTILE)
    assert found.cells[2] == cut(HOSTILE, 40)
    assert "... 10 more" in found.cells
    assert f"{printable(HOSTILE)}: {printable(HOSTILE)}" in found.text
    assert html.isprintable()


@given(st.text(), st.text(), st.text())
def test_html_of_any_text_is_read_back(title: str, label: str, cell: str) -> None:
    made = Table("name", "kind")
    made.row(cell, cell)
    found = Reader(Overview(title, {label: cell}, made).html())
    assert found.tags <= TAGS
    assert found.cells == ["name", "kind", printable(cell), printable(cell)]
    assert found.text.startswith(f"{printable(title)}{printable(label)}: {cut(cell, 120)}")


HOSTILE_TEXT = "a\x1b[2J\x1b]0;t\x07\r\x08\x9b\u202e\u2066\ud800\x00b"


def test_what_is_printable_stays():
    assert printable("gewicht ü 重み \\x1b") == "gewicht ü 重み \\x1b"
    assert printable(7) == "7"


@pytest.mark.parametrize("character", sorted(HOSTILE_TEXT + "\n\t\x7f\u2028"))
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
    words = ("LCC-X", HOSTILE_TEXT, HOSTILE_TEXT) if issubclass(kind, errors.DataError) else (HOSTILE_TEXT,)
    found = kind(*words)
    assert str(found).isprintable()
    assert found.args == words
    told = "b\n  c\nd"  # a list of what is wrong, and a name
    found = kind("LCC-X", "a", told) if issubclass(kind, errors.DataError) else kind(told)
    assert "b\n  c\\nd" in str(found)


def test_an_error_of_the_system_names_its_file():
    assert str(errors.StorageError(2, "cannot read", "a\x1b")) == "[Errno 2] cannot read: 'a\\x1b'"


def test_warnings_are_printable():
    with pytest.warns(errors.LccodecWarning) as caught:
        errors.warn(f"{HOSTILE}\n  more")
    assert str(caught[0].message).replace("\n  ", "").isprintable()


def test_a_name_makes_no_line_of_a_log(tmp_path, caplog, recwarn):
    run = tmp_path / "run\nERROR:root:all is lost"
    with caplog.at_level("INFO", "lccodec"), lccodec.Chain(run) as chain:
        chain.save(0, {"model": {"w\nERROR": np.ones((4, 4), np.float32)}})
        checkpoint_path(run, 0).unlink()
        chain.save(1, {"model": {"w\nERROR": np.zeros((4, 4), np.float32)}})
    told = [record.getMessage() for record in caplog.records] + [str(w.message) for w in recwarn]
    assert len(told) > 2
    assert not any("\nERROR" in text for text in told)
    with pytest.raises(lccodec.ChainError, match=r"run\\nERROR"):
        chain.restore(7)


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
