"""Patterns of names: what matches, and the name that they make on the other side.

A name is segments with the side's separator between them: ``layer1.0.weight`` in torch, ``layer1/0/kernel``
in Flax. In a pattern ``*`` stands for some characters of one segment and ``**`` for whole segments, as many
as there are and also none. The first ``*`` of one side is the first of the other, and so on; ``**`` is
``**``.
"""

from __future__ import annotations

import functools
import re
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = ["SEPARATORS", "Binding", "Side", "fault", "fill", "match", "wildcards"]

Side: TypeAlias = Literal["torch", "flax"]

SEPARATORS: Final[dict[Side, str]] = {"torch": ".", "flax": "/"}


class Binding(NamedTuple):
    """What the wildcards of a pattern stand for: ``**``, and each ``*``."""

    path: str
    parts: tuple[str, ...]


def match(pattern: str, name: str, side: Side) -> Binding | None:
    """Return what the wildcards of a pattern stand for in a name, or None if it does not match.

    Examples
    --------
    >>> match("**.h.*.weight", "gpt.h.3.weight", "torch")
    Binding(path='gpt', parts=('3',))
    >>> match("**.weight", "weight", "torch")
    Binding(path='', parts=())
    """
    found = _compiled(pattern, SEPARATORS[side]).fullmatch(name)
    return None if found is None else Binding(found.groupdict().get("path") or "", _parts(found))


def _parts(found: re.Match[str]) -> tuple[str, ...]:
    return tuple(text for name, text in found.groupdict().items() if name != "path")


def fill(pattern: str, binding: Binding, side: Side) -> str:
    """Return the name that a pattern stands for: the inverse of `match`.

    Examples
    --------
    >>> fill("**/h/*/kernel", Binding("gpt", ("3",)), "flax"), fill("**/kernel", Binding("", ()), "flax")
    ('gpt/h/3/kernel', 'kernel')
    """
    parts = iter(binding.parts)
    segments = (
        binding.path if segment == "**" else re.sub(r"\*", lambda _: next(parts), segment)
        for segment in pattern.split(SEPARATORS[side])
    )
    return SEPARATORS[side].join(filter(None, segments))


def wildcards(pattern: str, side: Side) -> tuple[int, int]:
    """Return how many ``**`` and how many ``*`` a pattern has."""
    segments = pattern.split(SEPARATORS[side])
    return segments.count("**"), sum(segment.count("*") for segment in segments if segment != "**")


def fault(pattern: str, side: Side) -> str | None:
    """Say why a pattern could match in more than one way or in none, or None if it could not."""
    segments = pattern.split(SEPARATORS[side])
    if not all(segments):
        return "has an empty segment"
    if any(segment.count("*") > 1 for segment in segments if segment != "**"):
        return "has more than one * in a segment"
    return None


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str, separator: str) -> re.Pattern[str]:
    """Write a pattern as a regular expression, in which ``**`` takes one separator beside it along."""
    gap, part = re.escape(separator), f"[^{re.escape(separator)}]+"
    groups = (f"(?P<part{number}>{part})" for number in range(pattern.count("*")))
    named = iter(["?P<path>"])  # a second **, which only a one-sided pattern has, is not asked for
    written = ""
    pending = ""  # the separator before the next segment, unless a ** before it has taken it
    for number, segment in enumerate(segments := pattern.split(separator)):
        if segment != "**":
            written += pending + re.sub(r"\*", lambda _: next(groups), re.escape(segment).replace(r"\*", "*"))
            pending = gap
        elif len(segments) == 1:
            written = "(?P<path>.*)"
        elif number == 0:
            written = f"(?:({next(named)}.+){gap})?"
        else:
            written += f"(?:{gap}({next(named, '')}.+))?"
    return re.compile(written, re.DOTALL)
