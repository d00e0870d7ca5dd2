"""All ways to checkpoint that are compared, and which of them are not installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

import lccodec

from ..compressors import bounded
from . import differences
from .check_n_run import CheckNRun
from .excp import ExCP
from .inshrinkerator import Inshrinkerator
from .lc_checkpoint import LCCheckpoint
from .partial import Scar, TopN
from .session import Codec, CodecSession, LccodecSession, Scheme

__all__ = ["VARIANTS", "catalogue", "is_close", "is_own", "is_variant"]

# What a name needs to be measured, and what makes its codec.
PUBLISHED: dict[str, Callable[[], Codec]] = {
    "LC-Checkpoint, 2 bits": partial(LCCheckpoint, 2),
    "LC-Checkpoint, 3 bits": partial(LCCheckpoint, 3),
    "SCAR, 1/8": partial(Scar, 1 / 8),
    "TOPN, 1/64": partial(TopN, 1 / 64),
    "Check-N-Run-like, 4 bits": partial(CheckNRun, 4),
    "Check-N-Run-like, 8 bits": partial(CheckNRun, 8),
    "Inshrinkerator, 16 centres": partial(Inshrinkerator, 16, 0.1, 0.005),
    "Inshrinkerator, 32 centres": partial(Inshrinkerator, 32, 0.0, 0.01),
    "ExCP": ExCP,
    "ExCP, threshold at its cap": partial(ExCP, alpha=np.inf),
}
NOTES = {
    "Inshrinkerator, 16 centres": "moments exact, as published",
    "Inshrinkerator, 32 centres": "moments exact, as published",
    "ExCP": "alpha as published",
}
BOUNDED: dict[str, tuple[str, Callable[[], Codec]]] = {
    "SZ3, 0.5": ("hdf5plugin", partial(differences.Bounded, bounded.sz3, 0.5)),
    "SZ3, 1": ("hdf5plugin", partial(differences.Bounded, bounded.sz3, 1.0)),
    "SZ3, 1.4": ("hdf5plugin", partial(differences.Bounded, bounded.sz3, 1.4)),
    "ZFP, 0.5": ("hdf5plugin", partial(differences.Bounded, bounded.zfp, 0.5)),
    "SPERR, 1": ("hdf5plugin", partial(differences.Bounded, bounded.sperr, 1.0)),
}
LOSSLESS: dict[str, tuple[str, Callable[[], Codec]]] = {
    "zstd -3": ("zstandard", partial(differences.zstd, 3)),
    "zstd -19": ("zstandard", partial(differences.zstd, 19)),
    "pcodec": ("pcodec", differences.pcodec),
    "ZipNN": ("zipnn", differences.zipnn),
    "blosc2": ("blosc2", differences.blosc2),
}


def _variant(weight: float = 0.06, first: float = 5.0, second: float = 1.0) -> lccodec.Balanced:
    moments = {
        "first_moment": lccodec.UniformDeadzone(relative_step=first, absolute=True),
        "second_moment": lccodec.LogSteps(second),
    }
    preset = lccodec.POLICIES["balanced"]
    return replace(
        preset,
        roles={**preset.roles, **moments, "weight": lccodec.UniformDeadzone(share=weight)},
        keyframes={**preset.keyframes, **moments},
    )


# `balanced` with another share of the weights coded (it has 0.06), other steps of first moments (5)
# or of second ones (1): curves of gaps over bytes.
VARIANTS = {
    **{f"balanced, W {share:g}": _variant(weight=share) for share in (0.5, 0.25, 0.12)},
    "balanced, m 3": _variant(first=3.0),
    "balanced, v 2": _variant(second=2.0),
}

# Those of the literature that are looked at as closely as lccodec's policies: longer, and in more
# cases.
CLOSE = ("LC-Checkpoint, 3 bits", "Inshrinkerator, 32 centres", "ExCP, threshold at its cap", "SZ3, 1.4")


def is_close(name: str) -> bool:
    """Return whether a scheme is looked at closely."""
    return name in lccodec.POLICIES or name in CLOSE


def is_variant(name: str) -> bool:
    """Return whether a scheme is a preset with other steps."""
    return name in VARIANTS


def is_own(name: str) -> bool:
    """Return whether a scheme is lccodec's."""
    return name in lccodec.POLICIES or name in VARIANTS or name.startswith("lccodec")


def catalogue() -> tuple[list[Scheme], list[str]]:
    """Return the schemes that can be measured here, and the names of those not installed."""
    found = [
        Scheme(name, partial(LccodecSession, name), lossless=name == "lossless", own=True)
        for name in lccodec.POLICIES
    ]
    found += [Scheme(name, partial(LccodecSession, policy), own=True) for name, policy in VARIANTS.items()]
    found += [
        Scheme(name, partial(_session, make), note=NOTES.get(name, "")) for name, make in PUBLISHED.items()
    ]
    found += [
        Scheme(
            f"lccodec, {error:g}",
            partial(_session, partial(differences.Bounded, bounded.frame, error)),
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
