"""numcodecs: an array as an lccodec frame, for zarr 2 and other users of numcodecs.

>>> import numcodecs, numpy as np
>>> from lccodec import UniformDeadzone
>>> from lccodec.adapters.numcodecs import LCCodec
>>> codec = LCCodec(UniformDeadzone(max_error=1e-3))
>>> array = np.linspace(0, 1, 1000, dtype=np.float32)
>>> bool(abs(codec.decode(codec.encode(array)) - array).max() <= 1e-3)
True
>>> codec.get_config()
{'id': 'lccodec', 'quantizer': 'UniformDeadzone', 'max_error': 0.001}
>>> numcodecs.get_codec(codec.get_config()) == codec      # found through the entry point
True

The codec does not make deltas: each frame is self-contained. It is exact unless another quantizer
is given. It compresses arrays, not bytes. Needs the extra ``numcodecs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from ..element_types import Array, little_endian
from ..errors import ArgumentError, DependencyError, check_bool
from ..frame.content import checked_array
from ..frame.decode import decode
from ..frame.encode import encode
from ..quantizers.base import Lossless, Quantizer
from ..quantizers.registry import parse_quantizer, quantizer_json

try:
    from numcodecs.abc import Codec
    from numcodecs.compat import ensure_contiguous_ndarray, ndarray_copy
except ImportError:
    raise DependencyError("needs numcodecs: pip install 'lccodec[numcodecs]'") from None

__all__ = ["LCCodec"]


class LCCodec(Codec):  # type: ignore[misc]
    """Codes an array of numbers as a frame.

    Parameters
    ----------
    quantizer
        One of lccodec's quantizers, for floating point arrays; other arrays are exact.
    rewritten
        Whether an array may be decoded, changed in part and coded again, as chunks of zarr are. If
        it is False, a smooth array takes fewer bytes, but each time that it is coded again, all of
        it loses up to the bound again.

    Raises
    ------
    ArgumentError
        For an object that is not a quantizer, or an invalid configuration. When encoding: for an
        array of a dtype that cannot be stored, for one with a mask or a unit, and for a big-endian
        array: a frame does not keep the byte order, and zarr would misread the decoded bytes.
    """

    codec_id = "lccodec"

    def __init__(self, quantizer: Quantizer = Lossless(), rewritten: bool = True) -> None:  # noqa: B008 - it is immutable
        quantizer_json(quantizer)  # so that it can stand in a configuration
        check_bool("LCCodec: rewritten", rewritten)
        self.quantizer, self.rewritten = quantizer, rewritten

    def encode(self, buf: Any) -> bytes:
        """Return the frame of an array, whose axes are in the order that they have in memory."""
        if isinstance(buf, np.ndarray):  # a mask or a unit would be lost
            checked_array(buf, "the array")
        try:
            array = ensure_contiguous_ndarray(buf, flatten=False)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"not a contiguous array of numbers: {error}") from None
        array = array if array.flags.c_contiguous else array.T
        _check_order(array)
        return encode(array, self.quantizer.for_rewriting if self.rewritten else self.quantizer)

    def decode(self, buf: Any, out: Any = None) -> Array:
        """Return the array in a frame, little-endian on every host; in `out` if given.

        It is in C order. Of an array in Fortran's order it is the transposed one, whose numbers lie
        in memory as they did.

        Raises
        ------
        ArgumentError
            If `out` is big-endian.
        DataError
            If the bytes break a rule of the format.
        """
        if isinstance(out, np.ndarray):
            _check_order(out)
        array = little_endian(decode(ensure_contiguous_ndarray(buf).view(np.uint8).data))
        return array if out is None else ndarray_copy(array, out)

    def get_config(self) -> dict[str, Any]:
        """Return the configuration as JSON."""
        once = {} if self.rewritten else {"rewritten": False}
        return {"id": self.codec_id, **quantizer_json(self.quantizer), **once}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Return the codec of a configuration."""
        settings = dict(config) or quantizer_json(Lossless())
        rewritten = settings.pop("rewritten", True)
        return cls(parse_quantizer(settings), rewritten)


def _check_order(array: Array) -> None:
    if array.dtype.kind in "iufc" and array.dtype.newbyteorder("<") != array.dtype:
        raise ArgumentError(
            f"{array.dtype.str} is big-endian, and a frame does not keep the byte order: "
            "store it as little-endian"
        )
