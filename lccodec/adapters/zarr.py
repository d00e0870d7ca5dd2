"""zarr 3: chunks of an array as lccodec frames.

>>> import numpy as np, zarr
>>> from lccodec import UniformDeadzone
>>> from lccodec.adapters.zarr import LCCodec
>>> array = zarr.create_array({}, shape=(300, 200), chunks=(100, 200), dtype="float32",
...                           serializer=LCCodec(UniformDeadzone(max_error=1e-2)), compressors=None)
>>> values = np.random.default_rng(0).standard_normal((300, 200), np.float32)
>>> array[:] = values
>>> bool(abs(array[:] - values).max() <= 1e-2), array.nbytes_stored() < values.nbytes / 2
(True, True)

The array's metadata say ``{"name": "lccodec", "configuration": {"quantizer": ...}}``. zarr finds
the codec by that name wherever lccodec is installed. It is a serializer: it makes bytes of arrays,
and a compressor behind it gains nothing. Chunks are self-contained, and exact unless another
quantizer is given. Needs the extra ``zarr``. For zarr 2 use the codec in
:mod:`lccodec.adapters.numcodecs`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from ..element_types import element_type
from ..errors import DependencyError, FormatError
from ..frame.decode import decode
from ..frame.encode import encode
from ..quantizers.base import Quantizer
from ..quantizers.lossless import Lossless
from ..quantizers.registry import parse_quantizer, quantizer_json

try:
    from zarr.abc.codec import ArrayBytesCodec
except ImportError:
    raise DependencyError("needs zarr 3: pip install 'lccodec[zarr]'") from None

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer, NDBuffer

__all__ = ["LCCodec"]

_NAME: Final = "lccodec"


@dataclass(frozen=True)
class LCCodec(ArrayBytesCodec):
    """A serializer of zarr: codes a chunk as a frame.

    Parameters
    ----------
    quantizer
        One of lccodec's quantizers, for floating point arrays; other arrays are exact.

    Raises
    ------
    ArgumentError
        For an object that is not a quantizer, an invalid configuration, or an array of a dtype that
        cannot be stored.
    """

    is_fixed_size = False

    quantizer: Quantizer = field(default_factory=Lossless)

    def __post_init__(self) -> None:
        quantizer_json(self.quantizer)  # a check that it can be written to the metadata

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the codec that an array's metadata describe."""
        return cls(parse_quantizer(data.get("configuration") or quantizer_json(Lossless())))

    def to_dict(self) -> dict[str, Any]:
        """Return the codec's entry in an array's metadata."""
        return {"name": _NAME, "configuration": quantizer_json(self.quantizer)}

    def validate(self, *, dtype: Any, **_: Any) -> None:
        """Refuse a new array whose dtype cannot be stored."""
        element_type(dtype.to_native_dtype())

    async def _encode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        array = chunk_data.as_numpy_array()
        return chunk_spec.prototype.buffer.from_bytes(await asyncio.to_thread(encode, array, self.quantizer))

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        array = await asyncio.to_thread(decode, chunk_data.to_bytes())
        dtype = chunk_spec.dtype.to_native_dtype()
        if array.shape != chunk_spec.shape or array.dtype != dtype.newbyteorder("="):
            message = f"holds {array.dtype} {array.shape}, the array says {dtype} {chunk_spec.shape}"
            raise FormatError(_NAME, "chunk", message)
        return chunk_spec.prototype.nd_buffer.from_numpy_array(array)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Refuse: the size of a frame depends on its contents."""
        raise NotImplementedError
