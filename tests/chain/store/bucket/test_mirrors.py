"""Mirrors in buckets: on a real server, and with faults on the way to it."""

import secrets
import shutil
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import lccodec
from lccodec.chain.life.rollback import rollback
from lccodec.chain.mend.mirror import Mirror, MirrorUpkeep
from lccodec.chain.store.bucket.backend import Patience
from lccodec.chain.store.bucket.store import connect
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.store import checkpoints_among
from lccodec.container.system import Address
from lccodec.errors import ChainError, LccodecWarning, StorageError

from ....support.buckets import Proxy, Request
from ....support.mirrors import chain_files, wait_for
from ....support.segments import STATES, run_of
from ....support.tuning import tune
from ....support.walks import assert_same, save_all


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short waits between attempts, and within a store hardly any."""
    tune(monkeypatch, mirror_first_wait=0.05, mirror_longest_wait=0.2, mirror_seconds_of_one_call=0.2)


def mirror_of(run: Path, place: str) -> Mirror:
    store = connect(Address.of(place), Patience(reading=0.0, writing=0.0))
    return Mirror(DirectoryStore(run), store, MirrorUpkeep(rollback))


def files_of(place: str) -> dict[str, bytes]:
    """The bytes of the files of a chain in a bucket."""
    store = connect(Address.of(place))
    listed, found = store.snapshot(), {}
    for name in listed.names():
        source = listed.source(name)
        found[name] = source.read(0, source.size)
    return found


def test_a_mirror_in_a_bucket(place: str, tmp_path: Path) -> None:
    with run_of(tmp_path / "run", 5, newest="exact", mirror=place) as chain:
        wait_for(chain)
        chain.rollback(2)
        for step in (3, 4):
            chain.save(step, STATES[step + 1])
        chain.compact(keyframe_every=8)
    assert files_of(place) == chain_files(tmp_path / "run")
    assert lccodec.validate(place, deep=True) == []
    [aside] = lccodec.Chain(place).rolled_back
    assert aside.steps == (3, 4)
    (tmp_path / "run/000000000001.lcc.h5").unlink()
    with lccodec.Chain(tmp_path / "run", mirror=place) as chain:
        with pytest.warns(LccodecWarning, match="000000000001.lcc.h5 is read from the mirror"):
            assert_same(chain.restore(1), STATES[1])
        assert chain.repair().mended == ("000000000001.lcc.h5",)
    shutil.rmtree(tmp_path / "run")
    with pytest.warns(LccodecWarning, match="is empty: it is read from the mirror"):
        chain = lccodec.Chain(tmp_path / "run", mirror=place)
    assert_same(chain.restore(), STATES[5])
    with pytest.warns(LccodecWarning, match="was brought back"):
        chain.save(5, STATES[7])
    chain.close()
    assert lccodec.Chain(place).steps == [0, 1, 2, 3, 4, 5]


def test_a_chain_in_a_bucket_with_a_mirror_in_a_directory(place: str, tmp_path: Path) -> None:
    with lccodec.Chain(place, "lc-3", mirror=tmp_path / "m") as chain:
        save_all(chain, STATES, range(4))
    assert chain_files(tmp_path / "m") == files_of(place)
    connect(Address.of(place)).remove(["000000000002.lcc.h5", "exact.lcc.h5"])
    with lccodec.Chain(place, mirror=tmp_path / "m") as chain:
        assert set(chain.repair().mended) == {"000000000002.lcc.h5", "exact.lcc.h5"}
    assert chain_files(tmp_path / "m") == files_of(place)


def test_the_newest_step_of_a_bucket_mends_itself(place: str) -> None:
    """From its exact file, without a mirror: there is no parity in a bucket."""
    with lccodec.Chain(place, "lc-3") as chain:
        save_all(chain, STATES, range(3))
        backend = connect(Address.of(place))._backend
        name = "000000000002.lcc.h5"
        objects = [each for each in backend.objects() if each.key.startswith(f"{name}/")]
        found = max(objects, key=lambda each: each.size)
        key, data = found.key, bytearray(backend.read(found.key, 0, found.size))
        data[-9] ^= 1
        backend.delete([key])
        backend.put_if_absent(key, bytes(data))
    repair = lccodec.Chain(place).repair()
    assert dict(repair.remade) == {name: "as a keyframe, from the exact file"}
    assert lccodec.validate(place, deep=True) == []
    assert_same(lccodec.Chain(place).restore(2), STATES[2])


def test_what_arrives_is_read_again_from_the_bucket(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data that the store keeps wrong gets no commit; large files are read piece by piece."""
    run_of(tmp_path / "run", 2).close()
    tune(monkeypatch, bucket_window_bytes=100)
    mirror, wrong = mirror_of(tmp_path / "run", run), [True]
    upload = mirror.mirror._backend.upload

    def damaged(key: str, path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= wrong[0]
        path.write_bytes(data)
        upload(key, path)

    monkeypatch.setattr(mirror.mirror._backend, "upload", damaged)
    with pytest.raises(StorageError, match="what arrived is not what was sent"):
        mirror.bring()
    assert lccodec.Chain(run).steps == []
    wrong[0] = False
    mirror.bring()
    mirror.release()
    assert files_of(run) == chain_files(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["error", "lost", "torn"])
def test_a_fault_at_every_request(run: str, proxy: Proxy, tmp_path: Path, fault: str) -> None:
    """A mirror is a chain of its own after each, and the next attempt goes on."""
    chain = run_of(tmp_path / "run", 4, newest="exact")
    seen = 0
    proxy.rule = lambda _: None
    mirror = mirror_of(tmp_path / "run", f"{run}/0")
    proxy.clear()
    mirror.bring()
    mirror.release()
    count = len(proxy.seen)
    for position in range(0, count, 3):
        place, seen = f"{run}/{secrets.token_hex(4)}", [0]

        def rule(_: Request, position: int = position, seen: Any = seen) -> str | None:
            seen[0] += 1
            return fault if seen[0] == position + 1 else None

        proxy.rule = rule
        mirror = mirror_of(tmp_path / "run", place)
        with suppress(StorageError):
            mirror.bring()
        proxy.rule = lambda _: None
        assert lccodec.validate(place, deep=True) == [] or lccodec.Chain(place).steps == []
        mirror.bring()
        mirror.release()
        assert files_of(place) == chain_files(tmp_path / "run")
    chain.close()


def test_an_outage_of_many_saves(run: str, proxy: Proxy, tmp_path: Path) -> None:
    """No save fails or waits, what lags is seen, and all arrives in order in the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LccodecWarning)
        with run_of(tmp_path / "run", 2, newest="exact", mirror=run) as chain:
            wait_for(chain)
            proxy.rule = lambda _: "cut"
            save_all(chain, STATES, range(2, 10))
            assert chain.mirrors[0].files == 9
            proxy.clear()
            proxy.rule = lambda _: None
    commits = [
        each.path.split("/")[-2] for each in proxy.seen if each.method == "PUT" and each.path.endswith("/0")
    ]
    assert list(checkpoints_among(dict.fromkeys(commits))) == list(range(2, 10))
    assert [name for name in commits if name in {*checkpoints_among(commits).values()}] == sorted(
        checkpoints_among(commits).values()
    )
    assert files_of(run) == chain_files(tmp_path / "run")


def test_a_mirror_of_another_chain(place: str, tmp_path: Path) -> None:
    with lccodec.Chain(place, "lossless") as other:
        other.save(0, STATES[5])
    run_of(tmp_path / "run", 2).close()
    with pytest.raises(ChainError, match="another chain"):
        lccodec.Chain(tmp_path / "run", mirror=place)
    assert lccodec.Chain(place).steps == [0]
