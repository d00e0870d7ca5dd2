"""Which step a restore returns if the one asked for is damaged: the newest whole one before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeVar

from ..container.system import Place
from ..errors import ChainError, DataError, LccodecError, StorageError, is_loss, warn

Found = TypeVar("Found")


def steps_until(steps: Iterable[int], step: int | None) -> list[int]:
    """Return `step` and all before it, or all steps; none if `step` is not one of them."""
    there = list(steps)
    if step is None:
        return there
    return [each for each in there if each <= step] if step in there else []


@contextmanager
def advice(steps: Callable[[], list[int]], text: str) -> Iterator[None]:
    """Add a note to the error of a step that is damaged, if there is an older one to restore.

    `steps` returns those of `steps_until`.
    """
    try:
        yield
    except LccodecError as error:
        with suppress(LccodecError):
            if is_loss(error) and len(steps()) > 1:
                error.add_note(text)
        raise


def newest_whole(place: Place, steps: Iterable[int], read: Callable[[int], Found]) -> Found:
    """Return what `read` returns for the newest of the steps that it can read.

    `read` raises an error unless all of a step is sound. An `LccodecWarning` names the steps that
    were skipped, and why. Raises ``ChainError`` if no step can be read; it names each, and why.
    """
    skipped: dict[int, str] = {}
    for step in sorted(steps, reverse=True):
        try:
            found = read(step)
        except (DataError, ChainError, StorageError) as error:
            skipped[step] = str(error)  # not the error, which would keep what was decoded
        else:
            if skipped:
                advice = f"roll back to step {step} before the next save"
                warn(f"{place}: restored step {step}; skipped {_reasons(skipped)}; {advice}")
            return found
    raise ChainError(f"{place}: no step can be restored: {_reasons(skipped)}")


def _reasons(skipped: Mapping[int, str]) -> str:
    """Return why steps were skipped; those that share a reason, such as a parent, together."""
    steps: dict[str, list[str]] = {}
    for step, reason in skipped.items():
        steps.setdefault(reason, []).append(str(step))
    parts = [f"step{'s'[: len(names) > 1]} {', '.join(names)}: {reason}" for reason, names in steps.items()]
    return "; ".join(parts)
