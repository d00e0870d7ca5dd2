"""Models in Hugging Face directories, written and read without the code under test."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from lccodec import BFLOAT16_BITS

#: Types of the header by the dtype of arrays.
TYPES = {"float32": "F32", "float16": "F16", "uint8": "U8", "int64": "I64", "bool": "BOOL", "float64": "F64"}


def write_file(path: Path, tensors: dict[str, Any], types: dict[str, str] | None = None) -> None:
    """Write a ``.safetensors`` file."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, array in tensors.items():
        kind = "BF16" if array.dtype == BFLOAT16_BITS else TYPES[array.dtype.name]
        kind = (types or {}).get(name, kind)
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": offsets}
        data += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_model(directory: Path, tensors: dict[str, Any], shards: int = 1, **options: Any) -> None:
    """Write a model: in one file, or in as many shards with an index."""
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text("{}")
    if shards == 1:
        write_file(directory / "model.safetensors", tensors, **options)
        return
    names, weights = list(tensors), {}
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        chosen = names[number::shards]
        write_file(directory / file, {name: tensors[name] for name in chosen}, **options)
        weights.update(dict.fromkeys(chosen, file))
    index = {"metadata": {"total_size": 1}, "weight_map": weights}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def read_model(directory: Path) -> dict[str, bytes]:
    """Return the bytes of each tensor, as an engine finds them: by the index if there is one."""
    index = directory / "model.safetensors.index.json"
    found: dict[str, bytes] = {}
    if not index.exists():
        return read_file(directory / "model.safetensors")
    weights = json.loads(index.read_text())["weight_map"]
    for file in set(weights.values()):
        tensors = read_file(directory / file)
        assert tensors.keys() == {name for name, there in weights.items() if there == file}
        found.update(tensors)
    return found


def read_file(path: Path) -> dict[str, bytes]:
    """Return the bytes of each tensor of a file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = memoryview(data)[8 + length :]
    assert len(body) == max((entry["data_offsets"][1] for entry in header.values()), default=0)
    return {name: bytes(body[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def bytes_of(tensors: dict[str, Any]) -> dict[str, bytes]:
    """Return the bytes of arrays by name, as `read_model` does."""
    return {name: np.ascontiguousarray(array).tobytes() for name, array in tensors.items()}


def small_model(seed: int = 0) -> dict[str, Any]:
    """Tensors of several types, some of odd sizes so that others are not aligned."""
    rng = np.random.default_rng(seed)
    return {
        "embed.weight": rng.integers(0, 1 << 16, (60, 50), np.uint16).view(BFLOAT16_BITS),
        "mask": rng.random(7) < 0.5,
        "layers.0.weight": rng.standard_normal((40, 80)).astype("f4"),
        "layers.0.bias": rng.standard_normal(40).astype("f2"),
        "scale": rng.integers(0, 255, (33,), np.uint8),
        "layers.1.weight": rng.integers(0, 1 << 16, (3000,), np.uint16).view(BFLOAT16_BITS),
        "norm": np.array(1.5, "f4"),
    }


def trained(tensors: dict[str, Any], seed: int, share: float = 0.01) -> dict[str, Any]:
    """The next weights: a share of the values of each floating-point tensor has other bits."""
    rng, found = np.random.default_rng(seed), {}
    for name, array in tensors.items():
        bits = array.reshape(-1).view(f"u{array.dtype.itemsize}").copy()
        if array.dtype.name not in ("bool", "uint8"):
            bits[rng.random(bits.size) < share] ^= 1
        found[name] = bits.view(array.dtype).reshape(array.shape)
    return found
