"""States at paths, as frameworks save them: with a chain that the test has open, or without one."""

from __future__ import annotations

from pathlib import Path

from lccodec.adapters.link import chain_step, write_link
from lccodec.chain.save.single_file import save_file
from lccodec.container.system import checked_path


def save_linked(state, path, metadata, chain, roles=None, step=None):
    """Save a state to a file; with a chain, to a step of it, and then to the file."""
    if chain is None:
        save_file(state, path, metadata)
        return
    step = chain_step(step, chain.latest)
    chain.save(step, state, metadata, roles=roles)
    write_link(chain, step, checked_path(path))


def pack(folder, chain=None, *, models=()):
    """Pack a folder of large files; return the files that were removed."""
    from lccodec.adapters import huggingface

    class Saver:
        def save(self, state, path, metadata, roles, then, step):
            save_linked(state, path, metadata, chain, roles, step)
            then()

    before = {path for path in Path(folder).rglob("*") if path.is_file()}
    huggingface.pack(Saver(), folder, models=models, hint=True)
    return sorted(path for path in before if not path.exists())
