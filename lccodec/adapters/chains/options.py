"""The chain options that several adapters take: documented and checked once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypedDict

from ...chain.adapter import Adapter
from ...chain.chain import Chain
from ...chain.life.keep import Keep, check_keep
from ...chain.save.options import check_hindsight
from ...chain.save.partial.selection import check_only
from ...chain.save.settings import KEYFRAME_EVERY
from ...container.disk.system import checked_path
from ...errors import ArgumentError
from ...policy.policy import Policy
from ...policy.presets import resolve_policy
from ...policy.record import Kept, check_newest
from ...policy.roles import check_matches


class OtherOptions(TypedDict, total=False):
    """The types of the options that adapters take by keyword and hand on to `ChainOptions`."""

    keyframe_every: int
    workers: int | None
    newest: Kept | None
    background: bool
    keep: Keep | None
    hindsight: int
    only: Sequence[str] | None


@dataclass(frozen=True)
class ChainOptions:
    """Where and how an adapter stores a chain of deltas: the parameters of all that have one.

    Parameters
    ----------
    chain
        The directory of the chain. The first save makes it. Without it each checkpoint is a
        lossless file that stands alone; DCP then keeps the chains in the directory of the
        checkpoint.
    policy
        A preset (a name in `lccodec.POLICIES`) or a `Policy`, as for `Chain`. The default is exact.
        A lossy policy needs a chain.
    keyframe_every
        The largest number of deltas that a restore may replay, as for `Chain`.
    workers
        The number of worker processes that code, as for `Chain`; by default this process does.
    newest
        What a chain keeps beside its history, as for `Chain`. With ``"exact"``, the default, a path
        of the framework holds a whole file, which is exact and needs no chain: a second name of the
        chain's exact file. It takes no bytes while it is the newest, and then those of a raw state.
        With ``"history"`` a path is a link to a step of the chain, as that was saved: up to the
        policy. No prune removes a step that a link names. ``"exact"`` needs a chain.
    background
        Whether a save copies the state, returns, and lets workers do the rest, as
        `Chain.save_async` does. It needs a chain. What names a checkpoint is written when the
        checkpoint is on the disk. A save waits for the one before. The failure of a save is raised
        by the next save or load, or at the end of training; then that save is not begun. DCP has
        its own option for that: `dcp.async_save`.
    keep
        Which steps of the chain stay, as for `Chain`. Older ones go when a later save begins, or at
        the end: the path of the checkpoint before is on the disk then. It needs a chain, except
        with DCP.
    hindsight
        As for `Chain`: how many checkpoints are in a group, of which those within are coded again.
        It needs a chain, and a lossy policy.
    only
        Names or patterns of the arrays that change, such as ``["*lora*"]``, as for `Chain.save`:
        the first save stores all arrays, later ones of the same object only these. All others must
        not change. Of several processes, one that has no such array saves all that it has. It needs
        a chain, and cannot be used with `hindsight`.

    Raises
    ------
    ArgumentError
        For an unknown policy; for a lossy policy, an exact state or saves in the background without
        a chain; or for a chain that is not a local path.
    """

    chain: str | os.PathLike[str] | None = None
    policy: str | Policy = "lossless"
    keyframe_every: int = KEYFRAME_EVERY
    workers: int | None = None
    newest: Kept | None = None
    background: bool = False
    keep: Keep | None = None
    hindsight: int = 0
    only: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.chain is not None:
            object.__setattr__(self, "chain", checked_path(self.chain))
        policy = resolve_policy(self.policy)
        if self.chain is None and policy != resolve_policy("lossless"):
            raise ArgumentError(
                f"policy {policy.name!r} codes deltas, which need chain=, the directory of a chain"
            )
        if not isinstance(self.background, bool):
            raise ArgumentError(f"background must be True or False; got {self.background!r}")
        for option, is_given in (
            ("newest='exact'", check_newest(self.newest) == "exact"),
            ("background=True", self.background),
            ("keep=", check_keep(self.keep) is not None),
            ("hindsight=", check_hindsight(self.hindsight)),
        ):
            if is_given and self.chain is None:
                raise ArgumentError(
                    f"{option} needs chain=, the directory of a chain; without it every checkpoint is exact"
                )
        object.__setattr__(self, "only", check_only(self.only))
        if self.only is not None and (self.chain is None or self.hindsight):
            raise ArgumentError("only= needs chain=, the directory of a chain, and no hindsight=")

    def only_of(self, names: Iterable[str], *, alone: bool) -> Sequence[str] | None:
        """Return which arrays, of these, a process saves; ``None`` for all of them.

        If it is not alone, a pattern may fit none of them.
        """
        if self.only is None or alone:
            return self.only
        own = list(names)
        return [
            each for each in self.only if each in own or any(fnmatchcase(name, each) for name in own)
        ] or None

    def check_names(self, names: Iterable[str]) -> None:
        """Raise ``ArgumentError`` if a name or pattern of `only` fits no array."""
        check_matches("only", self.only or (), names)

    def open(self, part: str = "", adapter: Adapter | None = None) -> Chain:
        """Open the chain, or that of one process in a subdirectory. There must be one."""
        return self.open_in(Path(self.chain or "", part), adapter, "exact")

    def open_in(self, directory: Path, adapter: Adapter | None = None, newest: Kept | None = None) -> Chain:
        """Open a chain with these options in the given directory; `newest` if that is not given."""
        return Chain(
            directory,
            self.policy,
            keyframe_every=self.keyframe_every,
            workers=self.workers,
            adapter=adapter,
            newest=self.newest or newest,
            hindsight=self.hindsight,
        )
