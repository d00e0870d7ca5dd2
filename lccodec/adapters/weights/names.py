"""The names of tensors in a state: the keys of one of its entries, such as ``"model"``.

A model on the disk may have other names than the state: without the prefixes of wrappers, under
those of ``rename=``, and of tied weights only one. A tensor that has several names in the state is
stored once; the names that the model lacks are left out, as long as it has one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...container.tree import leaf_name, unescaped
from ...errors import ArgumentError
from ..tree.matching import Renaming, first_of, paired


class Prefix:
    """The entry of a state whose keys are the names of tensors, and new names for these.

    Examples
    --------
    >>> model = Prefix("run/model", {"a/*": "*"})
    >>> model.path("layers.0.weight"), model.name("run/model/a~1b")
    ('run/model/layers.0.weight', 'a/b')
    >>> paths = {"run/model/a~1b": 0, "run/model/_orig_mod.c": 1, "run/model/tied": 1, "step": 2}
    >>> model.tensors(paths, ["b", "c"], "local")
    {'run/model/a~1b': 'b', 'run/model/_orig_mod.c': 'c'}
    """

    def __init__(self, prefix: str, rename: Mapping[str, str] | None = None) -> None:
        if not isinstance(prefix, str):
            raise ArgumentError(f"prefix must be a string such as 'model'; got {prefix!r}")
        Renaming(rename)  # refuses what is not one
        self._start, self._rename = f"{prefix}/" if prefix else "", rename
        self.keys = [prefix] if prefix else None  # what is followed

    def path(self, name: str) -> str:
        """Return where a tensor is in the state."""
        return self._start + leaf_name((name,))

    def name(self, path: str) -> str:
        """Return the name of the tensor at a place."""
        return unescaped(path.removeprefix(self._start))

    def tensors(
        self, paths: Mapping[str, int], there: Collection[str] | None, where: object, *, strict: bool = True
    ) -> dict[str, str]:
        """Return what a model calls the arrays of a state, by their paths.

        `paths` has the index of each array; a tied one has several. `there` has the names of the
        tensors of the model, which errors call `where`; with ``None`` it takes any. If it is not
        `strict`, it may lack tensors.

        Raises
        ------
        ArgumentError
            If the model lacks a tensor, or a name fits several; the message lists up to ten.
        """
        names = {self.name(path): path for path in paths if path.startswith(self._start)}
        renaming = Renaming(self._rename)
        wanted = [renaming(name) for name in names] if there is None else there
        called, problems = paired(wanted, names, renaming)
        renaming.check_used()
        known = set(wanted)
        chosen = {names[name]: new for name, new in called.items() if new in known}
        fitting = {paths[path] for path in chosen}
        lacking = {name: path for name, path in names.items() if paths[path] not in fitting}
        if not strict:
            chosen |= {path: renaming(name) for name, path in lacking.items()}
        elif not problems:
            problems = [f"{name!r} is not there" for name in lacking]
        if problems:
            told = [f"{where}: the tensors do not fit", *first_of(problems)]
            raise ArgumentError("\n  ".join([*told, "rename={pattern: name} gives the state other names"]))
        return chosen
