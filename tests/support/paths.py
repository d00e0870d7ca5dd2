"""Where the files of a chain in a directory are."""

from pathlib import Path

from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.store import checkpoint_name


def checkpoint_path(directory: Path, step: int) -> Path:
    return directory / checkpoint_name(step)


def checkpoints(directory: Path) -> dict[int, Path]:
    """The files of the history, by rising step."""
    return {step: directory / name for step, name in DirectoryStore(directory).checkpoints().items()}
