"""Salvaging a chain that cannot be mended: what still verifies, in a new chain.

Source: SPEC 9 (LCC-EXA-04).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ArgumentError, ChainError, LccodecError, reason_of
from ..read.checkpoint import OpenCheckpoint
from ..read.newest import open_newest
from ..store.store import Store


@dataclass(frozen=True)
class Salvage:
    """What `salvage` found.

    Parameters
    ----------
    whole
        The steps that are whole.
    partial
        The steps of which some arrays are lost, each with their names and the reasons.
    gone
        The steps of which nothing can be read, each with the reason.
    """

    whole: tuple[int, ...]
    partial: Mapping[int, Mapping[str, str]]
    gone: Mapping[int, str]


def salvage(store: Store, save: Callable[..., Any]) -> Salvage:
    """Save every step, and every array that still verifies, to another chain.

    A step of which arrays are lost is saved as a dict of the others by name. The exact file goes
    before the checkpoint of its step, and that before what is damaged in the exact file.

    Parameters
    ----------
    save
        `Chain.save` of the other chain, without an adapter, which loses nothing.

    Raises
    ------
    ChainError
        If there is no checkpoint.
    """
    steps = store.steps()
    if not steps:
        raise ChainError(store.nothing())
    whole, partial, gone = list[int](), dict[int, dict[str, str]](), dict[int, str]()
    for step in steps:
        try:
            with open_newest(store, step) as file:
                arrays, lost = _arrays(file)
                if not lost:
                    save(step, file.state(dtype="bits"), file.metadata())
                    whole.append(step)
                elif arrays:
                    save(step, arrays, file.metadata())
                    partial[step] = lost
                else:
                    gone[step] = next(iter(lost.values()))
        except ArgumentError:  # of the save: nothing of the old chain
            raise
        except LccodecError as error:
            gone[step] = reason_of(error)
    return Salvage(tuple(whole), partial, gone)


def _arrays(file: OpenCheckpoint) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arrays that can be decoded, and why the others cannot."""
    arrays, lost = dict[str, Any](), dict[str, str]()
    for name in list(file.keys()):
        try:
            arrays[name] = file.get(name, dtype="bits")
        except LccodecError as error:
            lost[name] = reason_of(error)
    return arrays, lost
