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
quantizer is given. The fill value of the array is exact, and no part of the range of a chunk.
`encoding` gives the variables of an xarray dataset such codecs, and obeys what they declare. A
chunk may be written in parts: what is in it already does not change, however often it is coded
again (`Smooth(repeatable=True)`). Who writes whole chunks, each once, saves bytes with
``LCCodec(quantizer, rewritten=False)``. Of a large chunk, only the blocks of the rows that are
asked for are decoded.
Needs the extra ``zarr``. For zarr 2 use the codec in
:mod:`lccodec.adapters.numcodecs`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from ..element_types import Array, element_type
from ..errors import DependencyError, FormatError, check_bool
from ..frame.decode import decode, decode_rows
from ..frame.encode import encode
from ..frame.header import parse_header
from ..policy.declared import declarations
from ..policy.policy import Declaration
from ..quantizers.base import Lossless, Quantizer
from ..quantizers.registry import parse_quantizer, quantizer_json

try:
    from zarr.abc.codec import ArrayBytesCodec, ArrayBytesCodecPartialDecodeMixin
except ImportError:
    raise DependencyError("needs zarr 3: pip install 'lccodec[zarr]'") from None

if TYPE_CHECKING:
    from zarr.abc.store import ByteGetter
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer, NDBuffer
    from zarr.core.indexing import SelectorTuple

__all__ = ["LCCodec", "encoding"]

_NAME: Final = "lccodec"
_KEPT: Final = ("_FillValue", "missing_value")  # of the encoding that a variable has already


@dataclass(frozen=True)
class LCCodec(ArrayBytesCodec, ArrayBytesCodecPartialDecodeMixin):
    """A serializer of zarr: codes a chunk as a frame.

    Parameters
    ----------
    quantizer
        One of lccodec's quantizers, for floating point arrays; other arrays are exact.
    rewritten
        Whether a chunk may be written more than once, as when values are appended to it. If it is
        False, a smooth chunk takes fewer bytes, but each time that it is written again, all of it
        loses up to the bound again.

    Raises
    ------
    ArgumentError
        For an object that is not a quantizer, an invalid configuration, or an array of a dtype that
        cannot be stored.
    """

    is_fixed_size = False

    quantizer: Quantizer = field(default_factory=Lossless)
    rewritten: bool = True

    def __post_init__(self) -> None:
        quantizer_json(self.quantizer)  # a check that it can be written to the metadata
        check_bool("LCCodec: rewritten", self.rewritten)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the codec that an array's metadata describe."""
        settings = data.get("configuration") or quantizer_json(Lossless())
        rewritten = True
        if isinstance(settings, dict):
            settings = dict(settings)
            rewritten = settings.pop("rewritten", True)
        return cls(parse_quantizer(settings), rewritten)

    def to_dict(self) -> dict[str, Any]:
        """Return the codec's entry in an array's metadata."""
        once = {} if self.rewritten else {"rewritten": False}
        return {"name": _NAME, "configuration": {**quantizer_json(self.quantizer), **once}}

    def validate(self, *, dtype: Any, **_: Any) -> None:
        """Refuse a new array whose dtype cannot be stored."""
        element_type(dtype.to_native_dtype())

    async def _encode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        array = chunk_data.as_numpy_array()
        quantizer = _with_fill(self.quantizer, array, chunk_spec.fill_value)
        if self.rewritten:  # a chunk that is written in part is decoded first, and then coded again
            quantizer = quantizer.for_rewriting
        data = await asyncio.to_thread(encode, array, quantizer)
        return chunk_spec.prototype.buffer.from_bytes(data)

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        array = await asyncio.to_thread(_decoded, chunk_data.to_bytes(), chunk_spec)
        return chunk_spec.prototype.nd_buffer.from_numpy_array(array)

    async def _decode_partial_single(
        self, byte_getter: ByteGetter, selection: SelectorTuple, chunk_spec: ArraySpec
    ) -> NDBuffer | None:
        data = await byte_getter.get(chunk_spec.prototype)
        if data is None:
            return None
        array = await asyncio.to_thread(_selected, data.to_bytes(), selection, chunk_spec)
        return chunk_spec.prototype.nd_buffer.from_numpy_array(array)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Refuse: the size of a frame depends on its contents."""
        raise NotImplementedError


def encoding(dataset: Any, quantizer: Quantizer, *, rewritten: bool = True) -> dict[str, dict[str, Any]]:
    """Return an encoding for ``to_zarr(encoding=..., zarr_format=3)`` of an xarray dataset.

    It has the variables of floating point numbers. Fill values are exact, and valid numbers stay
    valid, as the attributes say, or the encoding of the file that they were read from. Coordinates,
    their bounds, and packed numbers are left out, and so stay exact.

    Parameters
    ----------
    dataset
        An ``xarray.Dataset``.
    quantizer, rewritten
        As for `LCCodec`.

    Examples
    --------
    >>> import numpy as np, xarray
    >>> from lccodec import Smooth
    >>> values = np.sin(np.linspace(0, 6, 500))
    >>> data = xarray.Dataset({"height": ("time", values, {"_FillValue": -9999.0})})
    >>> encoding(data, Smooth(max_error=1e-3))["height"]["serializer"].quantizer.fill
    (-9999.0,)
    """
    variables = dataset.variables
    attributes = {name: {**variable.encoding, **variable.attrs} for name, variable in variables.items()}
    dimensions = {name: variable.dims for name, variable in variables.items()}
    declared = declarations(attributes, list(variables), dimensions)
    chosen: dict[str, dict[str, Any]] = {}
    for name in dataset.data_vars:
        variable, own = declared.get(name, Declaration("")), attributes[name]
        packed = np.dtype(own.get("dtype", variables[name].dtype)).kind != "f"
        if packed or variables[name].dtype.kind != "f" or variable.exact:
            continue
        coder = quantizer.with_fills(variable.fills, variable.minimum, variable.maximum)
        if coder is None:
            coder = (
                Lossless()
                if variable.fills or (variable.minimum, variable.maximum) != (None, None)
                else quantizer
            )
        kept = {key: variables[name].encoding[key] for key in _KEPT if key in variables[name].encoding}
        chosen[name] = {**kept, "serializer": LCCodec(coder, rewritten), "compressors": None}
    return chosen


def _with_fill(quantizer: Quantizer, array: Array, fill: Any) -> Quantizer:
    """Return the quantizer of a chunk, in which the array's fill value is exact."""
    if not quantizer.lossy or array.dtype.kind != "f" or not np.isfinite(fill):
        return quantizer
    filled = quantizer.with_fills((float(fill),))
    if filled is None:  # steps around 0 keep 0, but no other number
        return Lossless() if fill != 0 and bool((array == fill).any()) else quantizer
    return filled


def _decoded(data: bytes, chunk: ArraySpec, rows: slice | None = None) -> Array:
    """Return the rows of a chunk, by default all."""
    header = parse_header(data)
    dtype = chunk.dtype.to_native_dtype()
    if header.shapes[0] != chunk.shape or header.kind != element_type(dtype):
        stored = f"{header.kind.name} {header.shapes[0]}"
        raise FormatError(_NAME, "chunk", f"holds {stored}, the array says {dtype} {chunk.shape}")
    return decode(data) if rows is None else decode_rows(memoryview(data), rows.start, rows.stop)


def _selected(data: bytes, selection: Any, chunk: ArraySpec) -> Array:
    """Return what a selection of NumPy takes of a chunk."""
    first, *others = selection if isinstance(selection, tuple) and selection else (slice(None),)
    rows = None
    if isinstance(first, slice) and chunk.shape:
        start, stop, step = first.indices(chunk.shape[0])
        if step > 0:
            rows = slice(start, max(start, stop))
            first = slice(None, None, step)
    elif isinstance(first, int | np.integer):
        rows, first = slice(int(first), int(first) + 1), 0
    elif isinstance(first, np.ndarray) and first.dtype.kind in "iu" and first.size and first.min() >= 0:
        rows = slice(int(first.min()), int(first.max()) + 1)
        first = first - first.min()
    if rows is None:
        return np.asarray(_decoded(data, chunk)[selection])
    return np.asarray(_decoded(data, chunk, rows)[(first, *others)])
