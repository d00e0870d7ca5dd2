"""Markdown for people: lines that fit a window, and links and paths that lead somewhere."""

import re
from pathlib import Path

import pytest

from .support.folders import FOLDERS

ROOT = Path(__file__).parents[1]
MAX_COLUMNS = 100
MAX_TABLE_COLUMNS = 160
#: What is read first is read in a few minutes.
MAX_LINES = {"README.md": 120, "CONTRIBUTING.md": 76}
MAX_WORDS = 900
#: Pages that these tests read; a page beside code is read by the tests of that code.
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "spec").rglob("*.md")),
    ROOT / "fuzz" / "README.md",
]

any_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def lines_of(page: Path) -> list[tuple[int, str, bool]]:
    """The lines of a page with their numbers, and whether they stand in a block of code."""
    code, lines = False, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = line.lstrip().startswith("```")
        lines.append((number, line, code or fence or line.startswith("    ")))
        code ^= fence
    return lines


def is_link_only(line: str) -> bool:
    return re.fullmatch(r"\s*(?:[-*] )?!?\[[^]]*\]\([^)]*\)[.,]?", line) is not None


def is_table_row(line: str) -> bool:
    return line.lstrip().startswith("|")


def too_long(page: Path) -> list[int]:
    """The numbers of the lines of prose, and of rows of tables, that are too long."""
    return [
        number
        for number, line, code in lines_of(page)
        if not code and not is_link_only(line)
        if len(line) > (MAX_TABLE_COLUMNS if is_table_row(line) else MAX_COLUMNS)
    ]


@any_page
def test_lines_fit(page: Path) -> None:
    assert too_long(page) == []


def test_a_long_line_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    words, row = "word " * 30, "| " + "cell " * 40
    page.write_text(f"{words}\n```\n{words}\n```\n{row}\n- [{words}](there)\n| short |\n")
    assert too_long(page) == [1, 5]


@any_page
def test_links_lead_somewhere(page: Path) -> None:
    prose = "\n".join(line for _, line, code in lines_of(page) if not code)
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose)
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("name", MAX_LINES)
def test_pages_at_the_top_are_short(name: str) -> None:
    text = (ROOT / name).read_text()
    assert len(text.splitlines()) <= MAX_LINES[name]
    assert len(text.split()) <= MAX_WORDS


def test_contributing_names_what_there_is() -> None:
    """Every folder of the package, in the order of `test_layers`, and files that exist."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `(\w+)/` \|(.*)$", text, re.MULTILINE)
    assert [folder for folder, _ in rows] == [folder for folder in reversed(FOLDERS) if folder]
    for folder, row in rows:
        for file in re.findall(r"`([\w/]+\.py)`", row):
            places = (ROOT / "lccodec" / folder / file, ROOT / "lccodec" / file, ROOT / file)
            assert any(place.is_file() for place in places), (folder, file)
