"""Weight versions as slime writes and SGLang reads them, from what their code does.

Written apart from the code under test, so that neither can be wrong alone. The sources are named in
:mod:`lccodec.adapters.weights.versions`.
"""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
import zstandard

INDEX = "model.safetensors.index.json"


def digest(algorithm: str, data: bytes) -> str:
    return f"{zlib.adler32(data):08x}" if algorithm == "adler32" else xxhash.xxh3_128(data).hexdigest()


def _open(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The metadata of a file, and the bytes of its tensors."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    metadata = header.pop("__metadata__", {})
    return metadata, {name: body[slice(*entry["data_offsets"])] for name, entry in header.items()}


def pulled(directory: Path, base: dict[str, bytes], target: int) -> dict[str, bytes]:
    """The tensors of a version, as an engine makes them: from a full one, or from its base."""
    start = target
    while start > 0 and _is_delta(directory / f"weight_v{start:06d}"):
        start -= 1
    found = dict(base)
    if start:
        [file] = (directory / f"weight_v{start:06d}").glob("*.safetensors")
        found = _open(file)[1]
    for version in range(start + 1, target + 1):
        _apply(found, directory / f"weight_v{version:06d}", version)
    return found


def _is_delta(version: Path) -> bool:
    assert version.is_dir()
    index = version / INDEX
    if not index.exists():
        assert [path.name for path in version.glob("*.safetensors")] == ["model.safetensors"]
        return False
    return "delta_encoding" in json.loads(index.read_text())["metadata"]


def _apply(tensors: dict[str, bytes], version: Path, number: int) -> None:
    index = json.loads((version / INDEX).read_text())
    told = index["metadata"]
    assert (int(told["version"]), int(told["base_version"])) == (number, number - 1)
    assert told["compression_format"] == "zstd"
    files: dict[str, set[str]] = {}
    for name, file in index["weight_map"].items():
        files.setdefault(file, set()).add(name)
    for file, names in files.items():
        digests, deltas = _open(version / file)
        assert deltas.keys() == names
        for name, delta in deltas.items():
            plain = np.frombuffer(zstandard.ZstdDecompressor().decompress(delta), np.uint8)
            region = np.frombuffer(tensors[name], np.uint8).copy()
            if told["delta_encoding"] == "xor":
                assert plain.size == region.size
                region ^= plain
            else:
                count = int.from_bytes(plain[:4].tobytes(), "little")
                region[np.frombuffer(plain[4 : 4 + 4 * count].tobytes(), "<u4")] = plain[4 + 4 * count :]
            assert digest(told["checksum_format"], region.tobytes()) == digests[name]
            tensors[name] = region.tobytes()


def written(  # as a trainer does
    directory: Path,
    number: int,
    old: dict[str, bytes],
    new: dict[str, bytes],
    encoding: str = "xor",
    algorithm: str = "xxh3-128",
) -> Path:
    """Write a delta as slime does, over two files as two ranks do."""
    version = directory / f"weight_v{number:06d}"
    version.mkdir(parents=True)
    changed = [name for name in new if new[name] != old[name]]
    weights = {}
    for rank in range(2):
        deltas, digests = {}, {}
        for name in changed[rank::2]:
            before, after = (np.frombuffer(each[name], np.uint8) for each in (old, new))
            mask = before != after
            if encoding == "xor":
                plain = (before ^ after).tobytes()
            else:
                places = np.flatnonzero(mask).astype("<u4")
                plain = np.uint32(places.size).tobytes() + places.tobytes() + after[mask].tobytes()
            deltas[name] = zstandard.ZstdCompressor(level=1).compress(plain)
            digests[name] = digest(algorithm, new[name])
        if deltas:
            file = f"model-{rank:05d}-of-{2:05d}.safetensors"
            _write(version / file, deltas, digests)
            weights.update(dict.fromkeys(deltas, file))
    told = {
        "version": f"{number:06d}",
        "base_version": f"{number - 1:06d}",
        "delta_encoding": encoding,
        "compression_format": "zstd",
        "checksum_format": algorithm,
    }
    (version / INDEX).write_text(json.dumps({"metadata": told, "weight_map": weights}))
    return version


def _write(path: Path, tensors: dict[str, bytes], metadata: dict[str, str]) -> None:
    header: dict[str, Any] = {"__metadata__": metadata}
    body = b""
    for name, data in tensors.items():
        header[name] = {
            "dtype": "U8",
            "shape": [len(data)],
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
