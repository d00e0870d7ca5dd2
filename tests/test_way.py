"""The picture of a value's way in CONTRIBUTING: a save is traced, and goes that way."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from lccodec import Chain

from .support.folders import FOLDERS, PACKAGE

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
MAX_LINES = 18


def picture() -> list[tuple[int, str, str]]:
    """The indent, the name and the file of each line."""
    text = PAGE.read_text().split("## The way of a value")[1].split("```")[1]
    lines = [line for line in text.splitlines() if line.strip()]
    return [(len(line) - len(line.lstrip()), *line.split()[:2]) for line in lines]


def traced(tmp_path: Path) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """The functions that a delta's save enters, in the order of first calls, with their callers."""
    wanted = {(name, str(PACKAGE / file)) for _, name, file in picture()}
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}

    def place(frame: FrameType) -> tuple[str, str]:
        name = frame.f_code.co_qualname.removesuffix(".__init__")
        return (name if name.startswith("Chain.") else name.split(".")[-1]), frame.f_code.co_filename

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and place(frame) in wanted - found.keys():
            above, caller = [], frame.f_back
            while caller is not None:
                above.append(place(caller))
                caller = caller.f_back
            found[place(frame)] = above

    rng = np.random.default_rng(0)
    weight = rng.standard_normal((300, 100)).astype("f4")
    with Chain(tmp_path, "lc-3") as chain:
        chain.save(0, {"weight": weight})
    with Chain(tmp_path) as chain:
        sys.setprofile(note)
        try:
            chain.save(1, {"weight": weight + rng.standard_normal(weight.shape).astype("f4")})
        finally:
            sys.setprofile(None)
    return found


def test_a_save_goes_the_way_of_the_picture(tmp_path: Path) -> None:
    lines = [(indent, (name, str(PACKAGE / file))) for indent, name, file in picture()]
    assert 8 <= len(lines) <= MAX_LINES
    found = traced(tmp_path)
    assert set(found) == {place for _, place in lines}
    callers: list[tuple[int, tuple[str, str]]] = []
    for indent, place in lines:
        callers = [line for line in callers if line[0] < indent]
        if callers:
            assert callers[-1][1] in found[place], place
        callers.append((indent, place))


def test_the_way_leads_down() -> None:
    folders = [file.split("/")[0] for _, _, file in picture()]
    assert {FOLDERS.index(folder) <= FOLDERS.index(folders[0]) for folder in folders} == {True}
