"""What save does before and after it saves: the steps of files, sizes, and what was lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from ..adapters.files.formats import check_suffix, load_with_roles
from ..adapters.files.steps import FileOriginals, files_below, number_files
from ..chain.save.forecast import Forecast, forecast
from ..chain.store.directory import DirectoryStore
from ..chain.store.store import check_next
from ..errors import ArgumentError
from ..inspect.loss import ImportLoss, import_loss
from ..policy.policy import Policy
from ..policy.presets import POLICIES
from ..policy.roles import Assignment
from ..printable import printable
from ..table import ratio
from . import render

#: State, metadata and known roles of a file.
Loaded: TypeAlias = tuple[Any, dict[str, str], Mapping[str, Assignment]]

_STATES_OF_A_FORECAST: Final = 2
_WORTHWHILE: Final = 0.9  # of the exact bytes: a policy that takes more is not offered

_SOURCES: Final = {
    "names": "from the numbers in the file names",
    "folders": "from the numbers in the folder names",
    "given": "as given",
    "order": "in the order given, because no name has a number",
}


@dataclass(frozen=True)
class Mapped:
    """Files by rising step, where the steps are from, and the steps that are there already."""

    steps: dict[int, Path]
    source: str
    skipped: tuple[int, ...] = ()


def map_files(
    directory: Path,
    places: Iterable[Path],
    first: int | None,
    steps: Sequence[int] | None,
    skip_existing: bool,
) -> Mapped:
    """Return which file becomes which step of a chain. Nothing is loaded.

    `places` are files and directories of files. Steps are `steps`, or count from `first`, or are
    found in names. Raise ``ArgumentError`` if a step is not clear, exists, or is too low.
    """
    paths: list[Path] = []
    for place in places:
        if place.is_dir() and DirectoryStore(place).steps():
            raise ArgumentError(
                f"{place} is already a chain: use fork, compact or bundle; or convert, for one step of it"
            )
        paths += files_below(place) if place.is_dir() else [check_suffix(place)]
    present = list(DirectoryStore(directory).steps()) if directory.is_dir() else []
    found, source = _numbered(paths, first, steps, present)
    skipped = tuple(step for step in found if step in present) if skip_existing else ()
    wanted = {step: path for step, path in found.items() if step not in skipped}
    for step, path in wanted.items():
        try:
            check_next(step, present, directory)
        except ArgumentError as error:
            there = "; --skip-existing skips it" if step in present else ""
            raise ArgumentError(f"{path}: {error}{there}") from None
    return Mapped(wanted, source, skipped)


def _numbered(
    paths: Sequence[Path], first: int | None, steps: Sequence[int] | None, present: Sequence[int]
) -> tuple[dict[int, Path], str]:
    if steps is not None:
        if len(steps) != len(paths) or len(set(steps)) != len(steps):
            raise ArgumentError(
                f"--steps must have a different step for each of {len(paths)} files; got {len(set(steps))}"
            )
        return dict(sorted(zip(steps, paths, strict=True))), "given"
    if first is not None:
        return dict(enumerate(paths, first)), "given"
    try:
        found = number_files(paths)
    except ArgumentError as error:
        raise ArgumentError(
            f"{error}; give the steps: --steps 100,200 with one for each file, or --step for the first"
        ) from None
    if found is not None:
        return found.steps, found.source
    return dict(enumerate(paths, present[-1] + 1 if present else 0)), "order"


def mapping_text(mapped: Mapped) -> str:
    """Return which file becomes which step."""
    width = max((len(str(step)) for step in mapped.steps), default=0)
    lines = [f"  {step:{width}}  {printable(path)}" for step, path in mapped.steps.items()]
    head = [f"steps, {_SOURCES[mapped.source]}:"] if lines else ["nothing to save"]
    there = [f"skipped {len(mapped.skipped)} steps that exist already"] if mapped.skipped else []
    return "\n".join([*head, *lines, *there])


class Loader:
    """Loads files one after the other, by rising step; the first two at once."""

    def __init__(self, mapped: Mapped) -> None:
        self._paths = list(mapped.steps.values())
        self._ahead = [load_with_roles(path) for path in self._paths[:_STATES_OF_A_FORECAST]]

    @property
    def following(self) -> Any:
        """The state of the second file; None without one."""
        return self._ahead[1][0] if len(self._ahead) > 1 else None

    def forecasts(self, policies: Iterable[Policy]) -> list[Forecast]:
        """Return about how many bytes a chain of all files takes with each policy."""
        states = [state for state, *_ in self._ahead]
        return [
            forecast(states, policy, self._ahead[0][2])
            for policy in {each.name: each for each in policies}.values()
        ]

    def __iter__(self) -> Iterator[Loaded]:
        for place, path in enumerate(self._paths):
            yield self._ahead.pop(0) if place < _STATES_OF_A_FORECAST else load_with_roles(path)


def forecasts_text(found: Sequence[Forecast], states: int, exact: bool) -> str:
    """Return about how many bytes each policy takes; `exact` is as for `Forecast.chain_bytes`."""
    lines = [f"about {found[0].nbytes * states:,} bytes in {states} states; as a chain, about:"]
    for each in found:
        size = each.chain_bytes(states, exact)
        note = ", with the newest state exact" if exact and each.policy != "lossless" else ""
        times = ratio(each.nbytes * states, size) or 0.0
        lines.append(f"  {size:,} bytes ({times:.1f}x) with --policy {each.policy}{note}")
    return "\n".join(lines)


def offered(loader: Loader, states: int, exact: bool) -> list[Forecast]:
    """Return what the lossless policy and the offered one take, if that one takes less."""
    lossless, lossy = loader.forecasts((POLICIES["lossless"], POLICIES["balanced"]))
    small = lossy.chain_bytes(states, exact) <= _WORTHWHILE * lossless.chain_bytes(states)
    return [lossless, lossy] if small else []


def measured_loss(directory: Path, mapped: Mapped) -> ImportLoss:
    """Return what the saved files have lost; they are read again."""
    with render.progress("comparing") as update:
        return import_loss(directory, FileOriginals(mapped.steps, "the files"), update)


def loss_text(loss: ImportLoss) -> str:
    """Return what was lost, in units of the movement."""
    parts = []
    if loss.worst is not None:
        where = f"{printable(loss.name)} at step {loss.step}"
        parts.append(
            f"errors (rms) in units of the movement between two steps: typically {loss.typical:.2g},"
            f" at worst {loss.worst:.2g} ({where})"
        )
    if loss.unmoved:
        parts.append(f"{loss.unmoved} times an array that did not move lost something")
    if loss.unmeasured:
        parts.append(f"{loss.unmeasured} times an array with unknown movement lost something")
    return "; ".join(parts) or "nothing was lost"
