"""The parts of a weight version, each read back as it was written.

What SkyRL writes and reads: by its own code where that can be imported, else as its code does.

What stands in for it is written apart from the code under test. The source is named in
:mod:`lccodec.adapters.weights.versions`.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xxhash
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ArgumentError, Chain, FormatError, LccodecWarning, StorageError
from lccodec.adapters import torch as adapter
from lccodec.adapters.weights import Publisher, follow, publish
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

from ...support.commands import run as run_verb
from ...support.following import Served
from ...support.models import bytes_of, read_file, read_model, small_model, trained, write_file, write_model
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
            make(encoded(old, new, encoding), found, found, encoding, "sha256", "here")  # type: ignore[arg-type]
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


MODULE = "skyrl.backends.skyrl_train.weight_sync"
STATES = [small_model()]
for _seed in range(1, 5):
    STATES.append(trained(STATES[-1], _seed))
BYTES = [bytes_of(state) for state in STATES]


class Store:
    """An engine's copy of a model, as `LocalCheckpointStore` keeps it."""

    def __init__(self, base: Path) -> None:
        self.tensors, self.version = read_model(base), 0

    def fetch(self, target: int, sync_dir: Path) -> None:
        for version in range(self.version + 1, target + 1):
            place = sync_dir / f"delta-{version:08d}"
            manifest = json.loads((place / "manifest.json").read_text())
            assert (manifest["version"], manifest["base_version"]) == (version, self.version)
            files = {name: read_file(place / name) for name in manifest["payload_files"]}
            assert manifest["total_compressed_num_bytes"] == sum(
                len(data) for tensors in files.values() for data in tensors.values()
            )
            for record in manifest["tensors"]:
                data = files[record["payload_file"]][record["payload_key"]]
                assert len(data) == record["compressed_num_bytes"]
                patch = zstandard.ZstdDecompressor().decompress(data, record["uncompressed_num_bytes"])
                old = np.frombuffer(self.tensors[record["name"]], np.uint8)
                new = (old ^ np.frombuffer(patch, np.uint8)).tobytes()
                assert record["checksum_algorithm"] == "xxh3-128"
                assert xxhash.xxh3_128(new).hexdigest() == record["checksum"]
                assert np.prod(record["shape"]) * getattr(torch, record["dtype"]).itemsize == len(new)
                self.tensors[record["name"]] = new
            self.version = version


def written(sync_dir: Path, version: int, old: dict[str, bytes], new: dict[str, bytes]) -> None:
    """Write a delta as `DeltaCheckpointPublisher` does: the manifest last."""
    place, file = sync_dir / f"delta-{version:08d}", "delta-rank00000-file000000.safetensors"
    place.mkdir(parents=True)
    payload, records = {}, []
    for name, data in new.items():
        patch = np.frombuffer(old[name], np.uint8) ^ np.frombuffer(data, np.uint8)
        if patch.any():
            payload[name] = np.frombuffer(
                zstandard.ZstdCompressor(level=1).compress(patch.tobytes()), np.uint8
            )
            records.append(
                {
                    "name": name, "dtype": "uint8", "shape": [len(data)],
                    "uncompressed_num_bytes": len(data), "compressed_num_bytes": payload[name].size,
                    "payload_file": file, "payload_key": name,
                    "checksum": xxhash.xxh3_128(data).hexdigest(), "checksum_algorithm": "xxh3-128",
                }
            )  # fmt: skip
    write_file(place / file, payload)
    manifest = {"version": version, "base_version": version - 1, "tensors": records, "payload_files": [file]}
    (place / "manifest.json").write_text(json.dumps(manifest))


class OfSkyRL(Store):
    """The same by its own code."""

    def __init__(self, base: Path) -> None:
        from skyrl.backends.skyrl_train.weight_sync.delta_checkpoint import LocalCheckpointStore

        self._store = LocalCheckpointStore(str(base), str(base.parent / "of-skyrl"))

    def fetch(self, target: int, sync_dir: Path) -> None:
        self._store.fetch(target, str(sync_dir))
        self._store.validate_ready(target)
        self.tensors = read_model(self._store.weights_dir)


IS_THERE = importlib.util.find_spec("skyrl") is not None


@pytest.fixture
def base(tmp_path: Path) -> Path:
    write_model(tmp_path / "base", STATES[0], 2)
    return tmp_path / "base"


@pytest.mark.parametrize("kind", [Store, OfSkyRL][: 1 + IS_THERE])
def test_what_is_published(tmp_path: Path, base: Path, kind: type[Store]) -> None:
    """Also after a rollback, by another process, and where nothing differs."""
    run, out, store, late = tmp_path / "run", tmp_path / "out", kind(base), Served()
    with Chain(run, "lossless") as chain:
        chain.save(0, {"model": STATES[0]})
        options: Any = {"prefix": "model", "start": 0, "form": "skyrl", "like": base}
        with Publisher(run, out, **options) as publisher:
            assert publisher.publish() is None
            for step in (1, 2):
                chain.save(step, {"model": STATES[step]})
                found = publisher.publish()
                assert found is not None
                assert (found.version, found.base) == (step, step - 1)
                store.fetch(step, out)
                assert store.tensors == BYTES[step]
        chain.save(3, {"model": STATES[2]})
        publish(run, out, **options)
        chain.rollback(1)
        with (
            Publisher(run, out, **options) as publisher,
            pytest.raises(ArgumentError, match="no full version"),
        ):
            publisher.publish()  # nobody knows what step 3 was
        assert sorted(path.name for path in out.glob("delta*"))[-1] == "delta-00000003"
    store.fetch(3, out)
    assert store.tensors == BYTES[2]
    with follow(out, base) as follower:
        update = follower.prepare(0)
        assert update is not None
        late.take(update)
    late.check(STATES[2])


def test_a_publisher_that_goes_back(tmp_path: Path, base: Path) -> None:
    run, out, store = tmp_path / "run", tmp_path / "out", Store(base)
    options: Any = {"start": 0, "form": "skyrl", "like": base}
    with Chain(run, "lossless") as chain, Publisher(run, out, **options) as publisher:
        for step in range(4):
            chain.save(step, STATES[step])
            publisher.publish()
        chain.rollback(1)
        found = publisher.publish()
        assert found is not None
        assert (found.version, found.step, found.base) == (4, 1, 3)
    store.fetch(4, out)
    assert store.tensors == BYTES[1]


@pytest.mark.parametrize("own", [False, True][: 1 + IS_THERE])
def test_what_skyrl_writes(tmp_path: Path, base: Path, own: bool) -> None:
    served, out, publisher = Served(), tmp_path / "out", None
    states = [{**state, "norm": BYTES[0]["norm"]} for state in BYTES]
    if own:
        checkpoint, chunks = (importlib.import_module(f"{MODULE}.{n}") for n in ("delta_checkpoint", "base"))
        publisher = checkpoint.DeltaCheckpointPublisher(str(base), str(out), str(tmp_path / "staging"))
    with follow(out, base) as follower:
        for version in range(1, 5):
            if publisher is None:
                written(out, version, states[version - 1], states[version])
            else:
                tensors = {name: adapter.from_numpy(array, {}) for name, array in STATES[version].items()}
                del tensors["norm"]  # its code takes no tensor without dimensions
                lists: list[Any] = [list(tensors), [str(t.dtype) for t in tensors.values()]]
                chunk = chunks.WeightChunk(
                    *lists, [list(t.shape) for t in tensors.values()], list(tensors.values())
                )
                publisher.publish(publisher.create_delta_files([chunk]))
            (update,) = iter(lambda: follower.prepare(0), None)
            served.take(update)
            served.check({**STATES[version], "norm": STATES[0]["norm"]})
            assert (update.step, update.steps) == (version, 1)
        assert bytes_of(follower.state("bits")) == states[4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "x"}, "no version, base version or map"),
        ({"tensors": {}}, "no version, base version or map|is not there"),
        ({"base_version": 5}, "says that it is version 1 on 5"),
    ],
)
def test_a_damaged_manifest(tmp_path: Path, base: Path, change: dict[str, Any], message: str) -> None:
    written(tmp_path / "out", 1, BYTES[0], BYTES[1])
    path = tmp_path / "out/delta-00000001/manifest.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, **change}))
    with follow(tmp_path / "out", base) as follower:
        if change == {"tensors": {}}:
            assert follower.prepare(0) is not None  # nothing is new in it
            return
        with pytest.warns(LccodecWarning, match=message):
            assert follower.prepare(0) is None
    (record, *_) = document["tensors"]
    for algorithm, told in (("md5", "'md5' is not one of"), ("sha256", "has the digest")):
        record["checksum_algorithm"] = algorithm
        path.write_text(json.dumps({**document, "tensors": [record]}))
        with (
            follow(tmp_path / "out", base) as follower,
            pytest.warns(LccodecWarning, match=f"{told}|only one of"),
        ):
            assert follower.prepare(0) is None


def test_what_is_refused(tmp_path: Path, base: Path) -> None:
    with Chain(tmp_path / "run", "lossless") as chain:
        chain.save(0, STATES[0])
        chain.save(1, STATES[1])
    with pytest.raises(ArgumentError, match="skyrl has no full versions: start must say"):
        publish(tmp_path / "run", tmp_path / "out", form="skyrl")
    with pytest.raises(ArgumentError, match="no such encoding or checksum of skyrl: 'overwrite'"):
        publish(tmp_path / "run", tmp_path / "out", form="skyrl", start=0, encoding="overwrite")
    with pytest.raises(ArgumentError, match="form must be one of weight-versions, skyrl"):
        publish(tmp_path / "run", tmp_path / "out", form="other")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="it was asked for, and this form has no full versions"):
        publish(tmp_path / "run", tmp_path / "out", form="skyrl", start=0, like=base, full=True)


def test_the_command(tmp_path: Path, base: Path) -> None:
    with Chain(tmp_path / "run", "lossless") as chain:
        chain.save(0, {"model": STATES[0]})
        chain.save(1, {"model": STATES[1]})
    words = ["publish", tmp_path / "run", tmp_path / "out", "--as", "skyrl", "--model", "model"]
    told, _ = run_verb(*words, "--start", 0, "--like", base)
    assert "delta-00000001: step 1, on version 0" in told
    store = Store(base)
    store.fetch(1, tmp_path / "out")
    assert store.tensors == BYTES[1]
