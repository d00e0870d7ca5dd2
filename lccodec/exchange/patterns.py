"""Patterns of names: which names match, and the corresponding names on the other side.

A name consists of segments, joined by the separator of its side: ``layer1.0.weight`` in torch,
``layer1/0/kernel`` in Flax. In a pattern ``*`` stands for one or more characters of one segment,
and ``**`` for any number of whole segments, even none. The first ``*`` on one side corresponds to
the first on the other side, and so on; ``**`` corresponds to ``**``.
"""

from __future__ import annotations

import functools
import re
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = ["SEPARATORS", "Binding", "Side", "fault", "fill", "match", "wildcards"]

Side: TypeAlias = Literal["torch", "flax"]

SEPARATORS: Final[dict[Side, str]] = {"torch": ".", "flax": "/"}


class Binding(NamedTuple):
    """What the wildcards of a pattern stand for: ``**`` (`path`) and each ``*`` (`parts`)."""

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
    """Return the name that a pattern makes with a binding: the inverse of `match`.

    Examples
    --------
    >>> fill("**/h/*/kernel", Binding("gpt", ("3",)), "flax")
    'gpt/h/3/kernel'
    >>> fill("**/kernel", Binding("", ()), "flax")
    'kernel'
    """
    parts = iter(binding.parts)
    segments = (
        binding.path if segment == "**" else re.sub(r"\*", lambda _: next(parts), segment)
        for segment in pattern.split(SEPARATORS[side])
    )
    return SEPARATORS[side].join(filter(None, segments))


def wildcards(pattern: str, side: Side) -> tuple[int, int]:
    """Return the numbers of ``**`` and of ``*`` in a pattern."""
    segments = pattern.split(SEPARATORS[side])
    return segments.count("**"), sum(segment.count("*") for segment in segments if segment != "**")


def fault(pattern: str, side: Side) -> str | None:
    """Return why a pattern is ambiguous or can never match, or None if it is sound."""
    segments = pattern.split(SEPARATORS[side])
    if not all(segments):
        return "has an empty segment"
    if any(segment.count("*") > 1 for segment in segments if segment != "**"):
        return "has more than one * in a segment"
    return None


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str, separator: str) -> re.Pattern[str]:
    """Return a pattern as a regular expression; ``**`` includes one separator beside it."""
    gap, part = re.escape(separator), f"[^{re.escape(separator)}]+"
    groups = (f"(?P<part{number}>{part})" for number in range(pattern.count("*")))
    named = iter(["?P<path>"])  # only the first ** is read; only one-sided patterns have a second one
    written = ""
    pending = ""  # the separator before the next segment, unless a ** has included it
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
