"""Which entry of a state belongs to which entry of a target: by name, and what came of it.

Names belong together if they are equal, or equal without what wrappers of modules put into them
(DDP, FSDP, ``torch.compile``, activation checkpoints). Before that, ``rename=`` gives names of the
state new names. A name that fits two is an error: nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from ..container.tree import unescaped
from ..errors import ArgumentError, warn
from ..policy.vocabulary import WRAPPERS

#: Problems of one kind that an error lists.
_MAX_LISTED: Final = 10
#: Names of one kind that a warning gives as examples.
_EXAMPLES: Final = 2
#: What ``torch.optim.swa_utils.AveragedModel`` has beside the module that it wraps.
_BESIDE_WRAPPED: Final = "n_averaged"

_WRAPPER: Final = re.compile(rf"(?:^|(?<=[./]))({'|'.join(sorted(WRAPPERS))})\.")
#: The same without ``module``, which is also a usual name of a part of a model.
_SURE_WRAPPER: Final = re.compile(rf"(?:^|(?<=[./]))({'|'.join(sorted(WRAPPERS - {'module'}))})\.")
_WILDCARD: Final = re.compile(r"(\*|\?|\[!?[^]]+\])")


@dataclass
class LoadReport:
    """What `load_into` did, by the names of entries as ``"model/0.weight"``.

    Moments have the name of their parameter, as ``"optimizer/0.weight"``.

    Parameters
    ----------
    loaded
        Entries of the target that have values of the state.
    renamed
        The names of loaded entries in the state that have another name in the target.
    missing
        Entries of the target that the state lacks. They keep the values of the target; parameters
        that are new to an optimizer start without moments.
    left_over
        Entries of the state that the target lacks.
    settings
        Settings of optimizers that differ, as ``"optimizer/param_groups/0/lr"``: the saved value
        and the one that the target had. ``settings=`` says which of them is used.
    """

    loaded: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)
    settings: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"{len(self.loaded)} entries loaded"]
        renamed = [f"{old} -> {wanted}" for old, wanted in self.renamed.items()]
        settings = [f"{name} {saved} / {own}" for name, (saved, own) in self.settings.items()]
        for words, names in (
            ("under another name", renamed),
            ("that the state lacks", self.missing),
            ("that the target lacks", self.left_over),
            ("settings that differ (saved / target)", settings),
        ):
            if names:
                parts.append(f"{len(names)} {words} ({some(names)})")
        return ", ".join(parts)

    def add(self, more: LoadReport, place: str = "") -> None:
        """Add what was loaded at a place of the target."""
        start = f"{place}/" if place else ""
        for kind in ("loaded", "missing", "left_over"):
            getattr(self, kind).extend(start + name for name in getattr(more, kind))
        self.renamed.update((start + name, start + new) for name, new in more.renamed.items())
        self.settings.update((start + name, pair) for name, pair in more.settings.items())

    def tell(self, report: Callable[[LoadReport], object] | None, *, strict: bool) -> None:
        """Warn of what was skipped, with two examples of each kind; give this to who wants it."""
        if not strict and (self.missing or self.left_over):
            told = LoadReport(self.loaded, {}, self.missing, self.left_over)
            warn(f"load_into(strict=False): {told}; report= gets all names")
        if report is not None:
            report(self)


def check_report(report: object) -> None:
    """Raise an ``ArgumentError`` for an argument ``report=`` that is no function."""
    if not (report is None or callable(report)):
        raise ArgumentError(f"report must be a function such as print; got {report!r}")


def some(names: Collection[str]) -> str:
    """Return some of many names as examples."""
    shown = ", ".join(list(names)[:_EXAMPLES])
    return f"{shown}, ..." if len(names) > _EXAMPLES else shown


class Renaming:
    """The argument ``rename=``: new names for entries of a state, by name or pattern.

    Patterns are those of :mod:`fnmatch`. A ``*`` in a new name stands for what the wildcard at the
    same position of the pattern has matched. A pattern with a ``/`` is for the path of an entry,
    any other one for its name in the module or dict that it is in.

    >>> Renaming({"encoder.*": "backbone.*"})("encoder.0.weight")
    'backbone.0.weight'
    """

    def __init__(self, rename: Mapping[str, str] | None) -> None:
        items = {} if rename is None else rename
        if not isinstance(items, Mapping) or not all(
            isinstance(text, str) and text for item in items.items() for text in item
        ):
            raise ArgumentError(
                f"rename must be a dict such as {{'encoder.*': 'backbone.*'}}; got {rename!r}"
            )
        self._rules = {pattern: (_compiled(pattern), name) for pattern, name in items.items()}
        for pattern, (compiled, name) in self._rules.items():
            if name.count("*") > compiled.groups:
                raise ArgumentError(f"rename: {name!r} has more wildcards than {pattern!r}")
        self._unused = dict.fromkeys(self._rules)

    def __call__(self, name: str, place: str = "") -> str:
        """Return the new name of an entry of the module or dict at `place`, or its own."""
        for pattern, (compiled, new) in self._rules.items():
            start = f"{place}/" if place and "/" in pattern else ""
            matched = compiled.fullmatch(start + name)
            if matched is None:
                continue
            self._unused.pop(pattern, None)
            values = iter(matched.groups())
            made = re.sub(r"\*", lambda _, values=values: next(values), new)  # type: ignore[misc]
            if not made.startswith(start):
                raise ArgumentError(f"rename: {start + name!r} would become {made!r}, at another place")
            return made.removeprefix(start)
        return name

    def check_used(self) -> None:
        """Raise an ArgumentError if a pattern has fitted no name."""
        if self._unused:
            raise ArgumentError(f"rename: no name of the state fits {', '.join(map(repr, self._unused))}")


def _compiled(pattern: str) -> re.Pattern[str]:
    wildcards = {"*": "(.*)", "?": "(.)"}
    parts = _WILDCARD.split(pattern)
    for i, part in enumerate(parts):
        if i % 2:
            parts[i] = wildcards.get(part) or f"({part.replace('[!', '[^', 1)})"
        else:
            parts[i] = re.escape(part)
    return re.compile("".join(parts), re.DOTALL)


@lru_cache(maxsize=1 << 14)
def unwrapped(name: str) -> str:
    """Return the name of a tensor without the prefixes of wrappers (DDP, FSDP, `compile`)."""
    return _WRAPPER.sub("", name)


def paired(
    wanted: Collection[str], saved: Collection[str], renamed: Callable[[str], str]
) -> tuple[dict[str, str], list[str]]:
    """Return what the target calls each name of a state; and in words the names that fit several.

    `renamed` returns the name that the user gives to a name of the state. If the target lacks a
    name, what it would be there is returned.

    >>> paired(["0.weight"], ["_orig_mod.0.weight", "_orig_mod.new"], str)
    ({'_orig_mod.0.weight': '0.weight', '_orig_mod.new': 'new'}, [])
    """
    called = {name: renamed(name) for name in saved}
    problems = [
        f"{_quoted(names)} of the state would both be {new!r}"
        for new, names in _inverted(called, str).items()
        if len(names) > 1
    ]
    if problems or set(called.values()) == set(wanted):
        return called, problems
    # Prefixes that all names have are taken off first: a part of a model may be a `module` too.
    before, after = _common_start(called.values()), _common_start(wanted)
    short = {name: new.removeprefix(before) for name, new in called.items()}
    sources, targets = dict(short), {name: name.removeprefix(after) for name in wanted}
    pairs: dict[str, str] = {}
    for reduced in (str, lambda text: _SURE_WRAPPER.sub("", text), unwrapped):
        problems, fitting = [], _inverted(targets, reduced)
        for text, names in _inverted(sources, reduced).items():
            fits = fitting.get(text, [])
            if len(fits) == len(names) == 1:
                pairs[names[0]] = fits[0]
                del sources[names[0]], targets[fits[0]]
            elif fits:
                problems.append(f"{_quoted(names)} of the state could be {_quoted(fits)} of the target")
    return {name: pairs.get(name, after + new) for name, new in short.items()}, problems


def _inverted(names: Mapping[str, str], reduced: Callable[[str], str]) -> dict[str, list[str]]:
    inverted: dict[str, list[str]] = {}
    for name, text in names.items():
        inverted.setdefault(reduced(text), []).append(name)
    return inverted


def _quoted(names: Collection[str]) -> str:
    return " and ".join(map(repr, names))


def _common_start(names: Iterable[str]) -> str:
    """Return the prefix of wrappers that all names have."""
    kept, start = [name for name in names if name != _BESIDE_WRAPPED], ""
    while kept:
        first = kept[0].removeprefix(start).partition(".")[0]
        if first not in WRAPPERS or not all(name.startswith(f"{start}{first}.") for name in kept):
            break
        start += f"{first}."
    return start


def checked_prefix(prefix: object, like: str = "model") -> str:
    """Return the argument ``prefix=``; raise ``ArgumentError`` if it is no string."""
    if not isinstance(prefix, str):
        raise ArgumentError(f"prefix must be a string such as {like!r}; got {prefix!r}")
    return prefix


def part_of(state: Any, prefix: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the part of a state that a prefix names, and the path to it."""
    prefix = checked_prefix(prefix)
    path, dotted = prefix.rpartition("/")[::2] if prefix.endswith(".") else (prefix, "")
    keys: tuple[str, ...] = ()
    names = path.split("/") if path else []
    while names and isinstance(state, dict) and names[0] in state:
        keys, state = (*keys, names[0]), state[names.pop(0)]
    if not names and not dotted:
        return state, keys
    # `Chain.restore(keys=...)` returns a flat dict of paths, in which `/` in a key is ~1.
    start = "".join(f"{name}/" for name in names) + dotted
    items = state.items() if isinstance(state, dict) else ()
    part = {key.removeprefix(start): value for key, value in items if str(key).startswith(start)}
    if not part:
        raise ArgumentError(f"the state has nothing under the prefix {prefix!r}")
    if names:
        part = {unescaped(key): value for key, value in part.items()}
    return part, keys


def check_same(
    wanted: Mapping[str, str], saved: Mapping[str, str], more: Iterable[str] = (), advice: str = ""
) -> None:
    """Compare the leaves of a target and of a state by their words; raise if they differ.

    The ``ArgumentError`` lists up to ten of each kind, and `more` misfits. `advice` says what to do
    about what only one of the two has.
    """
    problems = [
        [f"missing: {name} ({wanted[name]})" for name in wanted if name not in saved],
        [f"unexpected: {name} ({saved[name]})" for name in saved if name not in wanted],
        [
            f"{name}: {saved[name]}, where the target has {wanted[name]}"
            for name in wanted
            if name in saved and saved[name] != wanted[name]
        ],
        list(more),
    ]
    if any(problems):
        told = f": {advice}" if advice and (problems[0] or problems[1]) else ""
        listed = [line for kind in problems for line in first_of(kind)]
        raise ArgumentError("\n  ".join([f"the state does not fit the target{told}", *listed]))


def first_of(lines: list[str]) -> list[str]:
    """Return the first lines of many, and how many more there are."""
    more = len(lines) - _MAX_LISTED
    return [*lines[:_MAX_LISTED], f"... and {more} more"] if more > 0 else lines
