"""A directory and a bundle of the same files are the same store: names, places, removal."""

import errno
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import Chain
from lccodec.chain.store.bucket.store import BucketStore
from lccodec.chain.store.directory import (
    BundleStore,
    DirectoryStore,
    is_chain,
    is_folder,
    open_store,
    writable_store,
)
from lccodec.chain.store.lineage import Lineage, remove_steps
from lccodec.chain.store.store import (
    Store,
    check_name,
    check_next,
    checkpoint_name,
    checkpoints_among,
    is_of_chain,
    pin_name,
    pins_among,
    step_index,
)
from lccodec.constants import EXACT_NAME, MAX_STEP
from lccodec.container.system import Address, Place
from lccodec.errors import ArgumentError, FormatError, StorageError

from ...support.directories import entries
from ...support.systems import Faulty
from ...support.walks import chain_of, lossy_chain


def test_both_say_the_same(tmp_path: Path) -> None:
    chain, _ = chain_of(tmp_path / "run")
    lccodec.bundle(chain.directory, tmp_path / "run.lcc")
    for path, kind in ((chain.directory, DirectoryStore), (tmp_path / "run.lcc", BundleStore)):
        with open_store(path) as store:
            assert type(store) is kind
            check_store(store, chain)


def check_store(store: Store, chain: lccodec.Chain) -> None:
    assert list(store.steps()) == list(store.checkpoints()) == chain.steps
    assert [store.parents_of(name) for name in store.steps().values()] == [(), (0,), (1,), ()]
    for step, name in store.steps().items():
        assert name == store.name_of(step) == f"{step:012d}.lcc.h5"
        with store.open(name) as reader:
            assert (reader.manifest.step, reader.name) == (step, str(store.path / name))
            assert store.root(name) == (reader.root, store.size([name]))
    assert len({store.identity(name) for name in store.steps().values()}) == 4
    assert (store.has("000000000000.lcc.h5"), store.has("000000000009.lcc.h5")) == (True, False)
    for call in (store.open, store.source, store.root, store.identity):
        with pytest.raises(StorageError) as caught:
            call("000000000009.lcc.h5")
        assert caught.value.errno == errno.ENOENT
    assert store.parents_of("000000000009.lcc.h5") == ()
    assert (store.exact_step(), store.unfinished_step(), store.pins()) == (None, None, [])


def test_a_damaged_exact_file_that_is_alone_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    """The conformance corpus has it as ``exact-damaged@directory``."""
    lossy_chain(tmp_path / "run", steps=1, newest="exact")
    (tmp_path / "run" / checkpoint_name(0)).unlink()
    exact = tmp_path / "run" / EXACT_NAME
    exact.write_bytes(exact.read_bytes() * 2)
    with pytest.raises(FormatError, match="LCC-TRL-06"):
        lccodec.open(tmp_path / "run")


def test_a_step_that_only_the_exact_file_has(tmp_path: Path) -> None:
    chain = lossy_chain(tmp_path / "run", steps=3, newest="exact")
    (chain.directory / "000000000020.lcc.h5").unlink()
    lccodec.bundle(chain.directory, tmp_path / "run.lcc")
    for path in (chain.directory, tmp_path / "run.lcc"):
        with open_store(path) as store:
            assert list(store.checkpoints()) == [0, 10]
            assert store.steps() == {**store.checkpoints(), 20: EXACT_NAME}
            assert (store.exact_step(), store.unfinished_step(), store.name_of(20)) == (20, 20, EXACT_NAME)
            assert store.next_step(20) == (20, None)  # it may be saved again
            assert store.next_step(21) == (21, 20)
            with pytest.raises(ArgumentError, match="step 20 exists already"):
                store.next_step(20, [20])
            with pytest.raises(ArgumentError, match="above the latest, 20"):
                store.next_step(15)
        with lccodec.open(path) as file:
            assert file.info().step == 20


def test_a_new_step_comes_after_all_others() -> None:
    run = Path("run")
    assert check_next(np.int64(7), [], run) == 7
    assert check_next(7, [2, 6], run) == 7
    for step, message in ((6, "exists already in run"), (5, "above the latest, 6 in run"), (-1, "from 0")):
        with pytest.raises(ArgumentError, match=message):
            check_next(step, [2, 6], run)
    with pytest.raises(ArgumentError, match=f"from 0 to {MAX_STEP}"):
        check_next(MAX_STEP + 1, [], run)


def test_an_exact_file_that_can_be_read_only_sometimes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one listing lacks, another has."""
    lossy_chain(tmp_path, 2).close()
    (tmp_path / "000000000010.lcc.h5").unlink()
    told = iter([None, 10])
    monkeypatch.setattr(DirectoryStore, "exact_step", lambda _: next(told))
    assert DirectoryStore(tmp_path).next_step(10) == (10, None)


STEPS = [0, 7, 999_999_999_999, 1_000_000_000_000, (1 << 53) - 1]
OTHER_NAMES = [
    "7.lcc.h5",
    "a",
    "00000000000007.lcc.h5",
    "0123456789012.lcc.h5",
    "0000000000007.lcc.h5",
    "000000000007.h5",
    "000000000007.lcc.h5.tmp",
    "000000000007.lcc.h5\n",
    "-00000000007.lcc.h5",
    "00000000000٣.lcc.h5",
    "99999999999999999.lcc.h5",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_name_is_read_as_it_is_written(step: int) -> None:
    name = checkpoint_name(step)
    assert checkpoints_among([name]) == {step: name}
    assert pins_among([name, pin_name(step)]) == [step]
    check_name(name, step)
    with pytest.raises(FormatError, match=f"holds step {step + 1}") as caught:
        check_name(name, step + 1)
    assert caught.value.rule == "LCC-CHN-01"


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_other_names_are_no_steps(name: str) -> None:
    assert checkpoints_among([name]) == {}
    check_name(name, 3)  # a file of another name may hold any step


@given(st.sets(st.integers(0, MAX_STEP), max_size=5))
def test_a_file_is_found_by_the_name_it_was_given(steps: set[int]) -> None:
    found = checkpoints_among(checkpoint_name(step) for step in steps)
    assert list(found.items()) == [(step, checkpoint_name(step)) for step in sorted(steps)]


def test_pins() -> None:
    names = ["000000000007.pin", "7.pin", "000000000008.pin.txt", "1000000000000.pin", "000000000009.lcc.h5"]
    assert pins_among(names) == [7, 10**12]
    assert pin_name(10**12) == "1000000000000.pin"


def test_files_of_a_chain() -> None:
    ours = [checkpoint_name(3), pin_name(3), EXACT_NAME, ".tmp-writer", f".tmp-{'0' * 16}"]
    assert all(map(is_of_chain, ours))
    assert not any(map(is_of_chain, ["notes.txt", "model.lcc.h5", "7.pin", ".tmp-7"]))


def test_integers_are_steps() -> None:
    assert [step_index(step) for step in (3, np.int64(3), np.uint8(3), np.array(3))] == [3] * 4
    for step in (True, np.True_, 3.0, "3", None):
        with pytest.raises(ArgumentError, match="a step must be an integer"):
            step_index(step)


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Place]:
    chain_of(tmp_path / "run")[0].close()
    lccodec.bundle(tmp_path / "run", tmp_path / "run.lccb")
    file = tmp_path / "run" / "000000000000.lcc.h5"
    return {"directory": tmp_path / "run", "bundle": tmp_path / "run.lccb", "file": file}


def test_each_place_has_its_store(places: dict[str, Place]) -> None:
    for name, expected in {"directory": DirectoryStore, "bundle": BundleStore}.items():
        with open_store(places[name]) as store:
            assert type(store) is expected
            assert list(store.steps()) == [0, 1, 2, 3]
    assert type(writable_store(places["directory"])) is DirectoryStore


def test_an_address_has_a_bucket() -> None:
    import fsspec  # noqa: F401 - what it needs

    with open_store(Address.of("memory://nothing/run")) as store:
        assert type(store) is BucketStore
        assert store.steps() == {}
        assert store.nothing() == "memory://nothing/run holds no checkpoint"


def test_what_may_have_many_steps(places: dict[str, Place]) -> None:
    address = Address.of("memory://nothing/run")
    assert [is_folder(place) for place in (*places.values(), address)] == [True, False, False, True]
    assert [is_chain(place) for place in (*places.values(), address)] == [True, True, False, True]
    assert not is_chain(Path("a" * 300))  # a name that is too long is none


def test_a_place_where_nothing_is_yet_may_be_awaited(tmp_path: Path, places: dict[str, Place]) -> None:
    with open_store(tmp_path / "later", awaited=True) as store:
        assert (type(store), store.steps()) == (DirectoryStore, {})
    with pytest.raises(StorageError):
        open_store(tmp_path / "later")
    with open_store(places["bundle"], awaited=True) as bundle:
        assert type(bundle) is BundleStore


def test_a_file_is_no_folder(tmp_path: Path, places: dict[str, Place]) -> None:
    (tmp_path / ".hashes").touch()
    (tmp_path / ".parity").mkdir()
    store = DirectoryStore(tmp_path)
    assert [store.has_folder(name) for name in (".hashes", ".parity", ".links")] == [False, True, False]
    with open_store(places["bundle"]) as bundle:
        assert not bundle.has_folder("000000000000.lcc.h5")


def test_waves(tmp_path: Path) -> None:
    chain_of(tmp_path, 8)  # 0 1 2, 3 4 5, 6 7
    store = DirectoryStore(tmp_path)
    steps = store.checkpoints()
    assert [sorted(group) for group in Lineage.named(store).waves()] == [[2, 5, 7], [1, 4, 6], [0, 3]]
    assert [sorted(group) for group in Lineage.named(store, (0, 2, 4, 5)).waves()] == [
        [0, 2, 5],
        [4],
    ]
    assert Lineage.named(store, ()).waves() == []
    (tmp_path / steps[1]).write_bytes(b"damaged")  # it cannot be restored, and what needs it neither
    assert sorted(step for group in Lineage.named(store).waves() for step in group) == list(range(8))


def test_what_is_removed(tmp_path: Path) -> None:
    chain, _ = chain_of(tmp_path, 8)
    system = Faulty()
    store = DirectoryStore(tmp_path, system)
    steps = store.checkpoints()
    (tmp_path / steps[4]).unlink()
    with store.locked() as held:
        remove_steps(store, held, {step: steps[step] for step in (3, 4, 5, 6, 7)})
    assert Chain(tmp_path).steps == [0, 1, 2]
    assert system.log.count("unlink") == 5
    assert system.log.count("fsync") == 2  # 4 is not there to say that it needs 3
    assert chain.restore(2)["epoch"] == 2


def test_errors(tmp_path: Path) -> None:
    chain_of(tmp_path)
    system = Faulty(errno.EIO, lambda name, _: name == "unlink")
    store = DirectoryStore(tmp_path, system)
    with store.locked() as held, pytest.raises(StorageError, match="cannot remove files"):
        remove_steps(store, held, store.checkpoints())
    assert len(entries(tmp_path)) == 4
