"""What SkyRL writes and reads: by its own code where that can be imported, else as its code does.

What stands in for it is written apart from the code under test. The source is named in
:mod:`lccodec.adapters.weights.versions`.
"""

import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xxhash
import zstandard

from lccodec import ArgumentError, Chain, LccodecWarning
from lccodec.adapters import torch as adapter
from lccodec.adapters.weights import Publisher, follow, publish

from ...support.commands import run as run_verb
from ...support.following import Served
from ...support.models import bytes_of, read_file, read_model, small_model, trained, write_file, write_model

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
        publish(tmp_path / "run", tmp_path / "out", form="other")
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
