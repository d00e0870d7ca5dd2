"""The page of a notebook: its cells run in turn, and show what the page says they show.

What a codec stores, and the last digits of a sum, may differ from machine to machine and from
version to version. So numbers may differ by a fifth; words, rows and columns may not.
"""

import ast
import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from lccodec.table import Shown

from .support.pages import DOCS, programs

NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])")
TOLERANCE = 0.2


def cells(page: Path) -> list[tuple[str, str]]:
    """The cells of a page, each with what the page says that it shows."""
    found = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", page.read_text(), re.M | re.S)
    return [(code, shown.rstrip("\n")) for code, shown in found]


def show(code: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Run a cell as a notebook does; return what is shown, and the value of its last expression."""
    body = ast.parse(code).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    with redirect_stdout(io.StringIO()) as output:
        exec(compile(ast.Module(body, []), "cell", "exec"), names)  # noqa: S102 - the text of our own page
        value = None if last is None else eval(ast.unparse(last), names)  # noqa: S307 - the same
    return output.getvalue() + ("" if value is None else repr(value)), value


def words(text: str) -> list[str]:
    return NUMBER.sub("#", text).split()


def numbers(text: str) -> list[float]:
    return [float(each.replace(",", "")) for each in NUMBER.findall(text)]


def is_like(shown: str, said: str) -> bool:
    """Whether a text has the words of another, and about its numbers."""
    if words(shown) != words(said):
        return False
    return numbers(shown) == pytest.approx(numbers(said), rel=TOLERANCE, abs=0.02)


def test_texts_are_told_apart() -> None:
    said = "step  kind   bytes\n   0  key    1,024\n  20  delta     80"
    assert numbers(said) == [0, 1024, 20, 80]
    assert is_like("step  kind   bytes\n   0  key    1,100\n  20  delta     75", said)
    assert not is_like(said.replace("80", "180"), said)
    assert not is_like(said.replace("delta", "key"), said)
    assert not is_like(said[:-10], said)
    assert numbers("fc1.weight exp_avg_2 99 x 64 6.2e-05 24.4x") == [99, 64, 6.2e-05]


@pytest.mark.slow
def test_the_cells_show_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS / "notebook.md"
    found = cells(page)
    assert [code for code, _ in found] == programs(page)
    names: dict[str, Any] = {"__name__": "__main__"}
    tables = 0
    for code, said in found:
        shown, value = show(code, names)
        assert is_like(shown, said), f"the cell\n{code}\nshows\n{shown.rstrip()}"
        if isinstance(value, Shown):
            tables += 1
            assert value._repr_html_() is not None
    assert tables == 3
    assert Path("report.html").stat().st_size > 100_000
