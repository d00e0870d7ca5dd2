"""The data sets of the benchmarks, read from a folder the user names.

Rule: no benchmark downloads anything. The folder comes from ``--data DIR`` or from the environment
variable ``LCCODEC_DATA``.
"""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

__all__ = ["Split", "data_directory", "load_mnist", "read_idx"]

MNIST_TRAIN = 8_000  # the first 8,000 of the 10,000 digits train, the last 2,000 test


class Split(NamedTuple):
    """Images (float32, count x 1 x 28 x 28, zero mean, unit variance) and their labels (int64)."""

    images: np.ndarray
    labels: np.ndarray


def data_directory(argument: str | None) -> Path:
    """Return the folder named on the command line, else the one in ``LCCODEC_DATA``."""
    name = argument or os.environ.get("LCCODEC_DATA")
    if not name:
        raise SystemExit("no data folder: give --data DIR or set LCCODEC_DATA")
    if not Path(name).is_dir():
        raise SystemExit(f"not a folder: {name}")
    return Path(name)


def read_idx(path: Path) -> np.ndarray:
    """Read one gzipped IDX file of unsigned bytes.

    The header is big-endian: two zero bytes, the type code (8 = unsigned byte), the number of
    dimensions, then every dimension as a 32-bit integer.
    """
    content = gzip.decompress(path.read_bytes())
    zeros, type_code, dimensions = struct.unpack_from(">HBB", content)
    if zeros != 0 or type_code != 8:
        raise ValueError(f"{path.name}: not an IDX file of unsigned bytes")
    header = 4 + 4 * dimensions
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def load_mnist(directory: Path) -> tuple[Split, Split]:
    """Return the training and the test split of the 10,000 MNIST digits in `directory`."""
    images = read_idx(directory / "t10k-images-idx3-ubyte.gz")
    labels = read_idx(directory / "t10k-labels-idx1-ubyte.gz").astype(np.int64)
    # The usual constants: mean and standard deviation of the pixels of the full MNIST training set.
    pixels = images[:, None] / np.float32(255)
    scaled = (pixels - np.float32(0.1307)) / np.float32(0.3081)
    return (
        Split(scaled[:MNIST_TRAIN], labels[:MNIST_TRAIN]),
        Split(scaled[MNIST_TRAIN:], labels[MNIST_TRAIN:]),
    )
