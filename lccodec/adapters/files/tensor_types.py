"""The names of types in the headers of ``.safetensors`` files."""

from __future__ import annotations

from typing import Final

__all__ = ["DTYPE_NAMES", "FLOAT8_NAMES"]

#: The element type of each type that the format of checkpoints has too.
DTYPE_NAMES: Final = {
    "BOOL": "bool", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64",
    "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64",
}  # fmt: skip

#: The types of one byte that are stored as bit patterns, with a note of their name.
FLOAT8_NAMES: Final = {
    "F8_E4M3": "float8_e4m3fn", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip
