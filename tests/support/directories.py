"""What is in the directory of a chain."""

from pathlib import Path

from lccodec.constants import WRITER_NAME


def entries(directory: Path) -> list[Path]:
    """The files of a directory by name, but for the lock of a chain that is open for saving."""
    return sorted(path for path in directory.iterdir() if path.name != WRITER_NAME)
