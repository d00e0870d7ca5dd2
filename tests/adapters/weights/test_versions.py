"""The parts of a weight version, each read back as it was written."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zstandard  # noqa: F401 - differences are compressed with it
from hypothesis import given
from hypothesis import strategies as st

from lccodec import FormatError, StorageError
from lccodec.adapters.weights.versions import (
    CHECKSUMS,
    ENCODINGS,
    FORMS,
    Encoding,
    Entry,
    VersionIndex,
    change_by,
    changed_adler32,
    digest_of,
    encoded,
    find_form,
    make,
    read_index_of,
)

from ...support.tuning import tune


@given(st.binary(max_size=3000), st.integers(0, 2**32), st.sampled_from(ENCODINGS))
def test_a_difference_leads_from_one_to_the_other(data: bytes, seed: int, encoding: Encoding) -> None:
    old = np.frombuffer(data, np.uint8)
    rng = np.random.default_rng(seed)
    new = np.where(rng.random(old.size) < rng.random(), rng.integers(0, 256, old.size, np.uint8), old)
    found = np.empty_like(old)
    told = make(encoded(old, new, encoding), old, found, encoding, "adler32", "here")
    np.testing.assert_array_equal(found, new)
    assert told == digest_of("adler32", new)


@given(
    st.sampled_from(["u1", "u2", "u4", "u8"]),
    st.integers(0, 900),
    st.integers(0, 2**32),
    st.sampled_from(ENCODINGS),
)
def test_what_a_difference_changes_is_what_it_makes(
    dtype: str, size: int, seed: int, encoding: Encoding
) -> None:
    rng = np.random.default_rng(seed)
    old = rng.integers(0, np.iinfo(dtype).max, size, dtype=dtype)
    new = np.where(rng.random(size) < rng.random(), rng.integers(0, 9, size, dtype=dtype), old)
    delta = encoded(old.view(np.uint8), new.view(np.uint8), encoding)
    places = np.flatnonzero(old != new)
    with pytest.MonkeyPatch.context() as patch:  # pieces of whole numbers, and of parts of them
        tune(patch, version_piece_bytes=int(rng.integers(1, 2000)))
        found = change_by(delta, old, encoding, "here", size)
    assert found is not None
    np.testing.assert_array_equal(found.places, places)
    np.testing.assert_array_equal(found.old, old[places])
    np.testing.assert_array_equal(found.new, new[places])
    before = digest_of("adler32", old.view(np.uint8))
    assert changed_adler32(before, old.nbytes, *found) == digest_of("adler32", new.view(np.uint8))
    if places.size:
        assert change_by(delta, old, encoding, "here", 0) is None
    for other in (old[1:], np.append(old, old[:1])):
        if encoding == "xor" and other.size != size:
            with pytest.raises(FormatError):
                change_by(delta, other, encoding, "here", size)


def test_only_overwriting_may_be_repeated() -> None:
    old, new = np.zeros(50, np.uint8), np.arange(50, dtype=np.uint8)
    for encoding, expected in (("xor", old), ("overwrite", new)):
        found = old.copy()
        for _ in range(2):
            make(encoded(old, new, encoding), found, found, encoding, "sha256", "here")
        np.testing.assert_array_equal(found, expected)


def test_digests_are_those_of_the_packages() -> None:
    import xxhash  # noqa: F401 - one of them

    assert CHECKSUMS == ("adler32", "xxh3-128", "blake3", "sha256")
    assert digest_of("adler32", np.frombuffer(b"Wikipedia", np.uint8)) == "11e60398"
    assert digest_of("xxh3-128", np.empty(0, np.uint8)) == "99aa06d3014798d86001c324468d497f"
    assert digest_of("sha256", np.empty(0, np.uint8))[:8] == "e3b0c442"


def test_an_index(tmp_path: Path) -> None:
    form, tensors = FORMS["weight-versions"], {"w": Entry("model-00000-of-00001.safetensors", "w")}
    index = VersionIndex(7, 6, "xor", "adler32", tensors, {"more": "1"})
    (tmp_path / form.index).write_bytes(index.to_json(form))
    found = read_index_of(tmp_path)
    assert found is not None
    assert (found.version, found.base_version, found.encoding, found.checksum) == (7, 6, "xor", "adler32")
    assert found.tensors == tensors
    assert found.metadata["more"] == "1"
    assert found.metadata["base_version"] == "000006"
    (tmp_path / form.index).write_text('{"weight_map": {}}')
    assert read_index_of(tmp_path) is None  # a full version
    assert read_index_of(tmp_path / "nothing") is None


def test_a_manifest(tmp_path: Path) -> None:
    form, place = FORMS["skyrl"], tmp_path / "delta-00000007"
    tensors = {"w": Entry("delta-rank00000-file000000.safetensors", "w", "ab")}
    index = VersionIndex(7, 6, "xor", "xxh3-128", tensors, {"more": "1"})
    place.mkdir()
    with pytest.raises(StorageError, match="No such file"):
        read_index_of(place)
    (place / form.index).write_bytes(index.to_json(form))
    assert read_index_of(place) == replace(index, metadata={"more": "1"})
    old = json.loads((place / form.index).read_bytes())
    del old["tensors"][0]["checksum"]
    old["tensors"][0]["sha256"] = "cd"
    (place / form.index).write_text(json.dumps(old))
    found = read_index_of(place)
    assert found is not None
    assert (found.checksum, found.tensors["w"].digest) == ("sha256", "cd")


def test_names() -> None:
    form = FORMS["weight-versions"]
    assert form.version_name(12) == "weight_v000012"
    names = ["weight_v000012", "weight_v000002", "weight_v1234567", "weight_v12", "weight_v0000012", "x"]
    assert form.versions_in(names) == [2, 12, 1234567]
    assert find_form(names) is find_form([]) is form
    assert find_form(["x", "delta-1", "delta-00000001"]) is FORMS["skyrl"]
    assert FORMS["skyrl"].version_name(1) == "delta-00000001"
