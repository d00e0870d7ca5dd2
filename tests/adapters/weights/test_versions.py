"""The parts of a weight version, each read back as it was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zstandard  # noqa: F401 - differences are compressed with it
from hypothesis import given
from hypothesis import strategies as st

from lccodec.adapters.weights.versions import (
    CHECKSUMS,
    ENCODINGS,
    Encoding,
    VersionIndex,
    apply,
    digest,
    encoded,
    read_index_of,
    version_name,
    versions_in,
)


@given(st.binary(max_size=3000), st.integers(0, 2**32), st.sampled_from(ENCODINGS))
def test_a_difference_leads_from_one_to_the_other(data: bytes, seed: int, encoding: Encoding) -> None:
    old = np.frombuffer(data, np.uint8)
    rng = np.random.default_rng(seed)
    new = np.where(rng.random(old.size) < rng.random(), rng.integers(0, 256, old.size, np.uint8), old)
    found = old.copy()
    apply(encoded(old, new, encoding), found, encoding, "here")
    np.testing.assert_array_equal(found, new)


def test_only_overwriting_may_be_repeated() -> None:
    old, new = np.zeros(50, np.uint8), np.arange(50, dtype=np.uint8)
    for encoding, expected in (("xor", old), ("overwrite", new)):
        found = old.copy()
        for _ in range(2):
            apply(encoded(old, new, encoding), found, encoding, "here")  # type: ignore[arg-type]
        np.testing.assert_array_equal(found, expected)


def test_digests_are_those_of_the_packages() -> None:
    import xxhash  # noqa: F401 - one of them

    assert CHECKSUMS == ("adler32", "xxh3-128", "blake3")
    assert digest("adler32", np.frombuffer(b"Wikipedia", np.uint8)) == "11e60398"
    assert digest("xxh3-128", np.empty(0, np.uint8)) == "99aa06d3014798d86001c324468d497f"


def test_an_index(tmp_path: Path) -> None:
    index = VersionIndex(7, 6, "xor", "adler32", {"w": "model-00000-of-00001.safetensors"}, {"more": "1"})
    (tmp_path / "model.safetensors.index.json").write_bytes(index.to_json())
    found = read_index_of(tmp_path)
    assert found is not None
    assert (found.version, found.base_version, found.encoding, found.checksum) == (7, 6, "xor", "adler32")
    assert found.weights == index.weights
    assert found.metadata["more"] == "1"
    assert found.metadata["base_version"] == "000006"
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    assert read_index_of(tmp_path) is None  # a full version
    assert read_index_of(tmp_path / "nothing") is None


def test_names() -> None:
    assert version_name(12) == "weight_v000012"
    names = ["weight_v000012", "weight_v000002", "weight_v1234567", "weight_v12", "weight_v0000012", "x"]
    assert versions_in(names) == [2, 12, 1234567]
