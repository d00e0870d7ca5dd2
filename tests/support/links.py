"""Links of a chain that lie in memory: what each stores, and what its writer had."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis.vendor.pretty import RepresentationPrinter

from lccodec import Policy
from lccodec.chain.read.replay import DecodedArray
from lccodec.chain.save.encode import encode_plan
from lccodec.chain.save.plan import candidates, make_plan
from lccodec.constants import ElementType
from lccodec.container.tree import Flat
from lccodec.frame.header import FrameHeader, parse_header
from lccodec.workers.crew import Threads

Arrays = dict[str, np.ndarray]


@dataclass(repr=False)
class FakeLink:
    """A checkpoint in memory: its frames, and the frame of each array (``None``: it has none)."""

    numbers: dict[str, int | None]
    frames: list[bytes]
    place: str = "link"
    parent: FakeLink | None = None
    later: FakeLink | None = None
    weight: float = 0.5
    far: bool = False
    copies: dict[str, tuple[str, ElementType]] = field(default_factory=dict)
    index_names: list[str] = field(init=False)
    names: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.index_names = list(self.numbers)
        self.names = {name: index for index, name in enumerate(self.numbers)}

    def __repr__(self) -> str:
        """Say what it is in one line; frames are long."""
        sizes, parents = [len(frame) for frame in self.frames], [link.place for link in self.parents]
        told = f"{self.place!r} on {parents}: frames {self.numbers} of {sizes} bytes"
        copies = {name: f"{source} as {kind.name}" for name, (source, kind) in self.copies.items()}
        return f"<{told}, copies {copies}>" if copies else f"<{told}>"

    def _repr_pretty_(self, printer: RepresentationPrinter, _: bool) -> None:
        """Let Hypothesis print that, and not all fields of a dataclass."""
        printer.text(repr(self))

    @property
    def parents(self) -> list[FakeLink]:
        return [link for link in (self.parent, self.later) if link is not None]

    def frame_of(self, index: int) -> int | None:
        return self.numbers[self.index_names[index]]

    @property
    def members(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.frames]
        for index, number in enumerate(self.numbers.values()):
            if number is not None:
                found[number].append(index)
        return found

    @property
    def runs(self) -> list[list[int]]:
        return [run for run in self.members if len(run) > 1]

    @property
    def reader(self) -> FakeLink:
        """It is its own file."""
        return self

    @property
    def source(self) -> FakeLink:
        """And it is what that is read from."""
        return self

    def frame(self, number: int, *, verify: bool = True) -> memoryview:  # noqa: ARG002
        return memoryview(self.frames[number])

    def part(self, number: int, header: FrameHeader, start: int, stop: int) -> None:
        """Frames have no table of pieces here."""

    def header(self, number: int) -> FrameHeader:
        return parse_header(self.frames[number])


def linked(*links: FakeLink) -> list[FakeLink]:
    """The links as a chain of deltas."""
    for link, parent in zip(links, [None, *links[:-1]], strict=True):
        link.parent = parent
    return list(links)


def links_of(states: list[Arrays], quantizer: Any) -> tuple[list[FakeLink], list[Arrays]]:
    """A chain of states, and what the writer has as decoded after each step."""
    links, decoded = [], []
    parents: dict[str, DecodedArray] = {}
    for step, state in enumerate(states):
        names = list(state)
        policy = Policy("of all", patterns={"*": quantizer})
        arrays = candidates(Flat({}, list(state.values()), [], names), parents, {"*": "weight"})
        plan = make_plan(arrays, policy, step - 1 if step else None)
        numbers: dict[str, int | None] = dict.fromkeys(names)
        frames = []
        for number, (chunks, found) in enumerate(encode_plan(plan, dict(parents), "normal", Threads())):
            frames.append(b"".join(chunks))
            numbers |= dict.fromkeys(found, number)
            parents |= found
        links.append(FakeLink(numbers, frames, f"step {step}"))
        decoded.append({name: parents[name].array().copy() for name in names})
    return linked(*links), decoded


def drift(steps: int, shapes: tuple[tuple[int, ...], ...] = ((300,),)) -> list[Arrays]:
    rng = np.random.default_rng(0)
    state = {f"w{i}": np.zeros(shape, np.float32) for i, shape in enumerate(shapes)}
    states = []
    for _ in range(steps):
        state = {name: a + rng.standard_normal(a.shape, np.float32) for name, a in state.items()}
        states.append(state)
    return states
