"""Weight versions of others are followed as a chain is; what is damaged changes nothing.

Headers of .safetensors files are read without the library; damaged ones are refused.
"""

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from lccodec import ArgumentError, Chain, FormatError, LccodecWarning
from lccodec import follow as follow_chain
from lccodec.adapters.weights import follow, publish
from lccodec.adapters.weights import versions as reader
from lccodec.adapters.weights.layout import read_layout
from lccodec.adapters.weights.versions import read_index_of

from ...support.damage import flip
from ...support.following import Served
from ...support.models import bytes_of, small_model, trained, write_model
from ...support.weight_versions import written

STATES = [small_model()]
for _seed in range(1, 5):
    STATES.append(trained(STATES[-1], _seed))
BYTES = [bytes_of(state) for state in STATES]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    write_model(tmp_path / "base", STATES[0], 2)
    return tmp_path / "base"


def write(directory: Path, *versions: int, **options: Any) -> None:
    for version in versions:
        written(directory, version, BYTES[version - 1], BYTES[version], **options)


def taken(follower: Any, served: Served) -> list[Any]:
    found = []
    while (update := follower.prepare(0)) is not None:
        served.take(update)
        found.append(update)
    return found


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
def test_version_by_version(tmp_path: Path, base: Path, encoding: str) -> None:
    served = Served()
    with follow(tmp_path / "versions", base) as follower:
        assert follower.prepare(0) is None  # nothing is published
        for version in range(1, 5):
            write(tmp_path / "versions", version, encoding=encoding)
            assert follower.lag.steps == 1
            [update] = taken(follower, served)
            served.check(STATES[version])
            assert (update.step, update.steps, follower.step) == (version, 1, version)
            assert update.base == (version - 1 if version > 1 else None)
            if version > 1:
                assert update.nbytes < 2000
            assert bytes_of(follower.state("bits")) == BYTES[version]
            assert follower.get("norm") == STATES[version]["norm"]


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
def test_a_tensor_of_which_little_changes_is_not_made(
    tmp_path: Path, base: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its digest follows from the one before; one that does not follow is still refused."""
    versions, made = tmp_path / "versions", []
    make = reader.make
    monkeypatch.setattr(reader, "make", lambda *arguments: made.append(arguments[-1]) or make(*arguments))
    served = Served()
    with follow(versions, base) as follower:
        for version in (1, 2, 3):
            write(versions, version, encoding=encoding, algorithm="adler32")
            taken(follower, served)
            served.check(STATES[version])
            assert any("weight_v000001" in where for where in made) == (version == 1)
            made.clear()
        write(versions, 4, encoding=encoding, algorithm="adler32")
        path = min((versions / "weight_v000004").glob("*.safetensors"))
        data = path.read_bytes()
        names = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        noted = next(value for value in names.values() if len(value) == 8)
        path.write_bytes(data.replace(noted.encode(), noted[::-1].encode()))
        with pytest.warns(LccodecWarning, match="has the digest"):
            assert follower.prepare(0) is None
        assert made == []
        assert bytes_of(follower.state("bits")) == BYTES[3]
        path.write_bytes(data)
        taken(follower, served)
        served.check(STATES[4])


def test_a_late_joiner_and_a_full_version(tmp_path: Path, base: Path) -> None:
    versions, served = tmp_path / "versions", Served()
    write(versions, 1, 2)
    write_model(versions / "weight_v000003", STATES[3])
    write(versions, 4)
    shutil.rmtree(versions / "weight_v000001")  # nobody needs it any more
    with follow(versions) as follower:  # without a base
        [update] = taken(follower, served)
        served.check(STATES[4])
        assert (update.step, update.steps) == (4, 2)
    with follow(versions / "nothing", base) as follower:
        assert follower.prepare(0) is None


def test_a_trainer_that_begins_again(tmp_path: Path, base: Path) -> None:
    versions, served = tmp_path / "versions", Served()
    write(versions, 1, 2, 3)
    with follow(versions, base) as follower:
        taken(follower, served)
        shutil.rmtree(versions)
        write(versions, 1)
        [update] = taken(follower, served)
        served.check(STATES[1])
        assert (update.base, update.step) == (3, 1)


def test_what_lccodec_publishes(tmp_path: Path, base: Path) -> None:
    """A chain, its versions, and engines that follow either of them have the same values."""
    one, two = Served(), Served()
    with Chain(tmp_path / "run", "lossless") as chain, follow(tmp_path / "versions", base) as follower:
        for step, state in enumerate(STATES):
            chain.save(step, state)
            publish(tmp_path / "run", tmp_path / "versions", start=0)
            taken(follower, one)
        with follow_chain(tmp_path / "run", timeout=0) as direct:
            for update in direct:
                two.take(update)
    one.check(STATES[4])
    two.check(STATES[4])


def edit_index(path: Path, **change: Any) -> None:
    index = json.loads((path / "model.safetensors.index.json").read_text())
    index["metadata"].update(change)
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


def renamed(version: Path, file: str) -> None:
    """Let the index name another file."""
    index = json.loads((version / "model.safetensors.index.json").read_text())
    index["weight_map"] = dict.fromkeys(index["weight_map"], file)
    (version / "model.safetensors.index.json").write_text(json.dumps(index))


def other_base(version: Path) -> None:
    shutil.rmtree(version)
    written(version.parent, 3, BYTES[1], BYTES[3])


def rewritten(version: Path, plain: bytes) -> None:
    """Put other bytes in the place of the first delta."""
    from ...support import weight_versions as writer

    file = version / "model-00000-of-00002.safetensors"
    digests, deltas = writer._open(file)
    deltas[next(iter(deltas))] = zstandard.ZstdCompressor().compress(plain)
    writer._write(file, deltas, digests)


def flip_last(version: Path) -> None:
    flip(next(version.glob("*.safetensors")), -3)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flip_last, "not whole frames of zstd|has the digest"),
        (other_base, "has the digest"),
        (lambda v: edit_index(v, base_version="000001"), "says that it is version 3 on 1"),
        (lambda v: edit_index(v, version="x"), "no version, base version"),
        (lambda v: edit_index(v, delta_encoding="sum"), "'sum' is not one of"),
        (lambda v: edit_index(v, compression_format="lz4"), "'lz4' is not one of"),
        (lambda v: edit_index(v, checksum_format="md5"), "'md5' is not one of"),
        (lambda v: (v / "model.safetensors.index.json").write_text("{"), "not JSON"),
        (lambda v: (v / "model.safetensors.index.json").write_text("[" * 50_000), "not JSON"),
        (lambda v: renamed(v, "../a.safetensors"), "not the name of a .safetensors file"),
        (lambda v: renamed(v, "a\0.safetensors"), "not the name of a .safetensors file"),
        (lambda v: renamed(v, f"{'a' * 300}.safetensors"), "File name too long"),
        (lambda v: (v / "link").symlink_to("nothing") or renamed(v, "link.safetensors"), "No such file"),
        (lambda v: next(v.glob("*.safetensors")).unlink(), "No such file"),
        (lambda v: rewritten(v, b""), "0 bytes for a tensor"),
        (lambda v: rewritten(v, bytes(1 << 20)), "more than"),
    ],
)
def test_a_damaged_version(tmp_path: Path, base: Path, damage: Any, message: str) -> None:
    versions, served = tmp_path / "versions", Served()
    write(versions, 1, 2)
    with follow(versions, base) as follower:
        taken(follower, served)
        write(versions, 3)
        damage(versions / "weight_v000003")
        with pytest.warns(
            LccodecWarning, match=f"version 3 cannot be read, and the state stays.*({message})"
        ):
            assert taken(follower, served) == []
        assert list(follower.refused) == [3]
        assert follower.prepare(0) is None  # said once
        served.check(STATES[2])
        assert bytes_of(follower.state("bits")) == BYTES[2]
        shutil.rmtree(versions / "weight_v000003")
        write(versions, 3)
        [update] = taken(follower, served)
        assert update.base == 2
        served.check(STATES[3])


@pytest.mark.parametrize("plain", [b"", b"\x01\0\0\0", np.array([1, 1 << 30], "<u4").tobytes() + b"x"])
def test_hostile_places(tmp_path: Path, base: Path, plain: bytes) -> None:
    write(tmp_path / "versions", 1, encoding="overwrite")
    rewritten(tmp_path / "versions" / "weight_v000001", plain)
    with (
        follow(tmp_path / "versions", base) as follower,
        pytest.warns(LccodecWarning, match="bytes for .* places|a place behind the end"),
    ):
        assert follower.prepare(0) is None


def test_a_version_whose_base_is_mended(tmp_path: Path, base: Path) -> None:
    versions, served = tmp_path / "versions", Served()
    write(versions, 1)
    with follow(versions, base) as follower:
        taken(follower, served)
        write(versions, 2, 3)
        whole = shutil.copytree(versions / "weight_v000002", tmp_path / "whole")
        flip_last(versions / "weight_v000002")
        with pytest.warns(LccodecWarning, match="cannot be read"):
            assert taken(follower, served) == []
        assert sorted(follower.refused) == [2, 3]
        shutil.rmtree(versions / "weight_v000002")
        shutil.copytree(whole, versions / "weight_v000002")
        assert [update.step for update in taken(follower, served)] == [2, 3]
    served.check(STATES[3])


def test_each_index_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many versions that cannot be read, each would read those before it again."""
    write(tmp_path / "versions", 1)
    for version in range(2, 9):
        shutil.copytree(tmp_path / "versions/weight_v000001", tmp_path / f"versions/weight_v{version:06d}")
        edit_index(tmp_path / f"versions/weight_v{version:06d}", version=version, base_version=version - 1)
    read = list[Path]()
    monkeypatch.setattr(reader, "read_index_of", lambda path: read.append(path) or read_index_of(path))
    with follow(tmp_path / "versions") as follower, pytest.warns(LccodecWarning, match="no base was given"):
        assert follower.prepare(0) is None
        assert len(follower.refused) == len(read) == 8


def test_an_index_that_is_a_fifo(tmp_path: Path, base: Path) -> None:
    """It may be of an older version, which is not looked at before."""
    write(tmp_path / "versions", 1, 2)
    index = tmp_path / "versions/weight_v000001/model.safetensors.index.json"
    index.unlink()
    os.mkfifo(index)
    with follow(tmp_path / "versions", base) as follower:
        with pytest.warns(LccodecWarning, match="version 2 cannot be read.*not a regular file"):
            assert follower.prepare(0) is None
        shutil.rmtree(index.parent)
        write(tmp_path / "versions", 1)
        assert follower.prepare(0).step == 2  # it was not forgotten


def test_without_a_base(tmp_path: Path) -> None:
    write(tmp_path / "versions", 1)
    with (
        follow(tmp_path / "versions") as follower,
        pytest.warns(LccodecWarning, match="there is no full version, and no base was given"),
    ):
        assert follower.prepare(0) is None
    with pytest.raises(ArgumentError, match="poll must be"):
        follow(tmp_path, poll=0)


@pytest.mark.parametrize("shards", [1, 3])
def test_every_tensor_is_found(tmp_path: Path, shards: int) -> None:
    model = small_model()
    write_model(tmp_path, model, shards)
    found = read_layout(tmp_path).arrays()
    assert found.keys() == model.keys()
    for name, array in model.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def test_a_type_that_is_not_known_has_no_array(tmp_path: Path) -> None:
    header = json.dumps({"x": {"dtype": "F4", "shape": [16], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    layout = read_layout(tmp_path)
    assert layout.tensors["x"].kind is None
    assert layout.arrays() == {}


def test_an_index_that_does_not_fit(tmp_path: Path) -> None:
    write_model(tmp_path, {"a": np.ones(2, "f4"), "b": np.ones(2, "f4")}, 2)
    index = tmp_path / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    document["weight_map"]["c"] = document["weight_map"]["a"]
    index.write_text(json.dumps(document))
    with pytest.raises(FormatError, match="only one of index and shard has c"):
        read_layout(tmp_path)
    for text in ("no JSON", "[]"):
        index.write_text(text)
        with pytest.raises(FormatError, match="not an index"):
            read_layout(tmp_path)
