"""The interface of a compressor, and which ones are installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Compressor", "installed"]


@dataclass(frozen=True)
class Compressor:
    """A compressor of 1-D arrays, on one thread.

    Parameters
    ----------
    encode
        Array to bytes.
    decode
        Bytes, and the number of values, to a fresh array or buffer.
    """

    encode: Callable[[np.ndarray], bytes]
    decode: Callable[[bytes, int], Any]


def installed(
    makers: Mapping[str, Callable[[], Compressor]],
) -> tuple[dict[str, Compressor], list[str]]:
    """Return the compressors that can be imported, and the names of the others."""
    found, absent = {}, []
    for name, make in makers.items():
        try:
            found[name] = make()
        except ImportError:
            absent.append(name)
    return found, absent
