"""Hooks of MkDocs: pages that lie outside of ``docs/`` join the site, and links lead to them.

The text of the format stays in ``spec/``. Its pages, and every file of the repository that a page
links to, are part of the site under their path in the repository. A link to a folder becomes plain
text. Examples in the text of docstrings are set as code. What stops the build: a page that would
load anything from a network, and a signature with the name of a constant instead of its value.

A built site has each version of the package in a folder of its own, so that the address of a page
stays right. The first page leads to the newest.
"""

from __future__ import annotations

import html
import json
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[((?:[^]\[]|\[[^]]*\])*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
OUTSIDE = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
SIGNATURE = re.compile(r'<div class="doc-signature highlight">(.*?)</div>', re.DOTALL)
CONSTANT = re.compile(r"= *_?[A-Z][A-Z_]{2,}\b|\blambda\b")
MARK = re.compile(r":(?:mod|class|func|meth):`")
VERSION = re.compile(r"\d+\.\d+\.\d+")
STARTED: list[str] = []
PROJECT = "project.md"  # the page of the repository's README, whose name is that of the first page
NAVIGATED = [
    page.relative_to(ROOT).as_posix()
    for folder in ("spec", "spec/decisions")
    for page in sorted((ROOT / folder).glob("*.md"))
]
READER = [
    path.relative_to(ROOT).as_posix()
    for path in sorted((ROOT / "spec" / "reader").iterdir())
    if path.suffix in {".html", ".css", ".js", ".svg"}
]


def on_startup(command: str, **_: Any) -> None:
    """Note whether the site is built, or served while someone writes."""
    STARTED.append(command)


def on_config(config: Any) -> Any:
    """Add what sets examples as code, for pages and for docstrings."""
    from markdown import Extension, Markdown
    from markdown.preprocessors import Preprocessor

    class Fencing(Preprocessor):
        def run(self, lines: list[str]) -> list[str]:
            return _fenced(lines)

    class Examples(Extension):
        def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - a name of Python-Markdown
            before_superfences = 40
            md.preprocessors.register(Fencing(md), "examples", before_superfences)

    config.markdown_extensions.append(Examples())
    if "build" in STARTED:
        config.site_dir = str(Path(config.site_dir, version()))
    return config


def on_post_build(config: Any) -> None:
    """List the versions of the site for the menu of versions, and lead to the newest one."""
    if "build" in STARTED:
        list_versions(Path(config.site_dir).parent)


def version() -> str:
    """Return the version of the package that the pages are about."""
    text = (ROOT / "lccodec" / "__init__.py").read_text()
    return re.findall(r'^__version__ = "([^"]+)"', text, re.MULTILINE)[0]


def list_versions(site: Path) -> None:
    """Write ``versions.json`` and the first page of a site that has a folder for each version."""
    found = [folder.name for folder in site.iterdir() if VERSION.match(folder.name)]
    found.sort(key=lambda name: [int(part) for part in VERSION.findall(name)[0].split(".")], reverse=True)
    entries = [{"version": name, "title": name, "aliases": []} for name in found]
    (site / "versions.json").write_text(json.dumps(entries, indent=1) + "\n")
    newest = f'<meta http-equiv="refresh" content="0; url={found[0]}/index.html">'
    link = f'<a href="{found[0]}/index.html">lccodec {found[0]}</a>'
    (site / "index.html").write_text(f"<!doctype html><title>lccodec</title>{newest}{link}\n")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the format, and what any page links to outside of ``docs/``."""
    from mkdocs.structure.files import File, InclusionLevel

    waiting = [*NAVIGATED, *READER, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        if not path.startswith("docs/"):
            level = InclusionLevel.INCLUDED if path in NAVIGATED else InclusionLevel.NOT_IN_NAV
            file = File.generated(config, _uri(path), abs_src_path=str(ROOT / path), inclusion=level)
            files.append(file)
        if path.endswith(".md"):
            waiting += _linked_files(path)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let the links of a page, which are right in the repository, lead to the pages of the site."""
    source = _in_repository(page.file.src_uri)

    def lead(link: re.Match[str]) -> str:
        picture, text, target, anchor = link.groups()
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        path = _resolve(source, target)
        if not (ROOT / path).is_file():
            return text if (ROOT / path).is_dir() else link[0]
        here = PurePosixPath(page.file.src_uri).parent
        there = os.path.relpath(_uri(path), here).replace(os.sep, "/")
        return f"{picture}[{text}]({there}{anchor or ''})"

    return "".join(part if part.startswith("```") else LINK.sub(lead, part) for part in _parts(markdown))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that would load something from elsewhere, or that names a constant."""
    from mkdocs.exceptions import PluginError

    for signature in SIGNATURE.findall(output):
        if found := CONSTANT.search(html.unescape(re.sub(r"<[^>]+>", "", signature))):
            raise PluginError(f"{page.file.src_uri} shows the default {found[0]!r}, and not its value")
    if found := OUTSIDE.search(output):
        raise PluginError(f"{page.file.src_uri} loads from a network: {found[0]}")
    return output


def _parts(markdown: str) -> list[str]:
    """Divide a page into blocks of code and what lies between them."""
    return re.split(r"(^```.*?^```$)", markdown, flags=re.DOTALL | re.MULTILINE)


def _fenced(lines: list[str]) -> list[str]:
    """Put fences around examples that have none: from a prompt to the next empty line.

    Marks of reStructuredText before names are left out.
    """
    found: list[str] = []
    fence = example = False
    for line in lines:
        if not example and line.lstrip().startswith("```"):
            fence = not fence
        if not fence and not example and line.startswith(">>> "):
            found += ["```pycon"]
            example = True
        elif example and not line.strip():
            found += ["```"]
            example = False
        found.append(line if fence else MARK.sub("`", line))
    return [*found, *["```"] * example]


def _uri(path: str) -> str:
    """Return the name in the site of a file of the repository."""
    return PROJECT if path == "README.md" else path.removeprefix("docs/")


def _in_repository(uri: str) -> str:
    """Return the path in the repository of a page of the site."""
    if uri == PROJECT:
        return "README.md"
    return f"docs/{uri}" if (ROOT / "docs" / uri).is_file() else uri


def _resolve(source: str, target: str) -> str:
    return os.path.normpath(PurePosixPath(source).parent / target).replace(os.sep, "/")


def _linked_files(path: str) -> list[str]:
    """Return the files outside of ``docs/`` that a page links to."""
    parts = _parts((ROOT / path).read_text())
    links = [link for part in parts if not part.startswith("```") for link in LINK.findall(part)]
    targets = [_resolve(path, target) for _, _, target, _ in links if target and "://" not in target]
    return [there for there in targets if not there.startswith("docs/") and (ROOT / there).is_file()]
