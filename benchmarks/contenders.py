"""All ways to checkpoint that are compared, and which of them are not installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial

import clustered
import compressors
import numpy as np
import published
from schemes import Codec, CodecSession, LccodecSession, Scheme

import lccodec

__all__ = ["contenders", "is_close"]

# What a name needs to be measured, and what makes its codec.
PUBLISHED: dict[str, Callable[[], Codec]] = {
    "LC-Checkpoint, 2 bits": partial(published.LCCheckpoint, 2),
    "LC-Checkpoint, 3 bits": partial(published.LCCheckpoint, 3),
    "SCAR, 1/8": partial(published.Scar, 1 / 8),
    "TOPN, 1/64": partial(published.TopN, 1 / 64),
    "Check-N-Run-like, 4 bits": partial(published.CheckNRun, 4),
    "Check-N-Run-like, 8 bits": partial(published.CheckNRun, 8),
    "Inshrinkerator, 16 centres": partial(clustered.Inshrinkerator, 16, 0.1, 0.005),
    "Inshrinkerator, 32 centres": partial(clustered.Inshrinkerator, 32, 0.0, 0.01),
    "ExCP": clustered.ExCP,
    "ExCP, threshold at its cap": partial(clustered.ExCP, alpha=np.inf),
}
NOTES = {
    "Inshrinkerator, 16 centres": "moments exact, as published",
    "Inshrinkerator, 32 centres": "moments exact, as published",
    "ExCP": "alpha as published",
}
BOUNDED: dict[str, tuple[str, Callable[[], Codec]]] = {
    "SZ3, 0.5": ("hdf5plugin", partial(compressors.Bounded, compressors.sz3, 0.5)),
    "SZ3, 1": ("hdf5plugin", partial(compressors.Bounded, compressors.sz3, 1.0)),
    "SZ3, 1.4": ("hdf5plugin", partial(compressors.Bounded, compressors.sz3, 1.4)),
    "ZFP, 0.5": ("hdf5plugin", partial(compressors.Bounded, compressors.zfp, 0.5)),
    "SPERR, 1": ("hdf5plugin", partial(compressors.Bounded, compressors.sperr, 1.0)),
}
LOSSLESS: dict[str, tuple[str, Callable[[], Codec]]] = {
    "zstd -3": ("zstandard", partial(compressors.zstd, 3)),
    "zstd -19": ("zstandard", partial(compressors.zstd, 19)),
    "pcodec": ("pcodec", compressors.pcodec),
    "ZipNN": ("zipnn", compressors.zipnn),
    "blosc2": ("blosc2", compressors.blosc2),
}

# Those of the literature that are looked at as closely as lccodec's policies: longer, and in more
# cases.
CLOSE = ("LC-Checkpoint, 3 bits", "Inshrinkerator, 32 centres", "ExCP, threshold at its cap", "SZ3, 1.4")


def is_close(name: str) -> bool:
    """Return whether a scheme is looked at closely."""
    return name in lccodec.POLICIES or name in CLOSE


def contenders() -> tuple[list[Scheme], list[str]]:
    """Return the schemes that can be measured here, and the names of those not installed."""
    found = [
        Scheme(name, partial(LccodecSession, name), lossless=name == "lossless", own=True)
        for name in lccodec.POLICIES
    ]
    found += [
        Scheme(name, partial(_session, make), note=NOTES.get(name, "")) for name, make in PUBLISHED.items()
    ]
    found += [
        Scheme(
            f"lccodec, {error:g}",
            partial(_session, partial(compressors.Bounded, compressors.frame, error)),
            own=True,
        )
        for error in (0.5, 1.0, 1.4)
    ]
    absent = []
    for table, lossless in ((BOUNDED, False), (LOSSLESS, True)):
        for name, (package, make) in table.items():
            if importlib.util.find_spec(package) is None:
                absent.append(name)
            else:
                found.append(Scheme(name, partial(_session, make), lossless=lossless))
    return found, absent


def _session(make: Callable[[], Codec]) -> CodecSession:
    return CodecSession(make())
