"""One array to a frame, as users ask for it: by a quantizer or by the name of a preset."""

from __future__ import annotations

from ..element_types import Array
from ..frame import decode as frame
from ..frame.encode import Effort
from ..quantizers.uniform import Quantizer
from .presets import resolve_quantizer

__all__ = ["encode"]


def encode(
    array: Array,
    quantizer: Quantizer | str,
    reference: Array | None = None,
    *,
    effort: Effort = "normal",
    threads: int = 1,
) -> bytes:
    """Code an array as a frame.

    The array may change meanwhile, as one that is trained does: then the frame holds every element as it
    was at one moment or another, within the error asked for. The reference has to hold still until this
    returns.

    Parameters
    ----------
    array
        Any shape, order and byte order; a dtype of SPEC 5.2. Integers and bool are stored exactly
        whatever the quantizer.
    quantizer
        `ExponentBuckets`, `UniformDeadzone`, `LogSteps`, `Clusters` or `Lossless`; or the name of a preset
        that codes every weight in one way: ``"lossless"``, ``"lc-2"`` or ``"lc-3"``.
    reference
        Array of the same dtype and shape that :func:`decode` will be given: the parent *as decoded*.
    effort
        ``"high"`` looks at a lossy array as a matrix whose rows and columns change more or less than
        others: fewer bytes for more time, both to encode and to
        decode (``spec/decisions/0007-classed-streams.md``).
    threads
        How many to use, 0 for one each core; the frame is the same whatever the number.

    Returns
    -------
    bytes
        The frame (SPEC 6).

    Raises
    ------
    ArgumentError
        For what is no NumPy array, or one of a dtype or a shape that cannot be stored; a reference of
        another dtype or shape; what is no quantizer; or an unknown effort.

    Examples
    --------
    >>> import numpy as np, lccodec
    >>> before = np.linspace(0, 1, 1000, dtype=np.float32)
    >>> after = before + np.float32(0.01)
    >>> frame = lccodec.encode(after, lccodec.UniformDeadzone(max_error=1e-3), reference=before)
    >>> bool(abs(lccodec.decode(frame, reference=before) - after).max() <= 1e-3)
    True
    """
    return frame.encode(array, resolve_quantizer(quantizer), reference, effort=effort, threads=threads)
