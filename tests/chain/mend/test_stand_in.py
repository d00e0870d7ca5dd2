"""What is damaged or missing is read from a mirror, which is never trusted without its roots."""

import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

import lccodec
from lccodec import ArgumentError, Chain, ChainError, DataError, LccodecWarning, StorageError
from lccodec.chain.mend.mirror import StandIn
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import PAYLOAD_OFFSET

from ...support.damage import damaged, files_in, flip, put
from ...support.mirrors import chain_files
from ...support.segments import STATES, run_of
from ...support.walks import assert_restores, assert_same, save_all


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A chain with a mirror beside it, in `m`."""
    run_of(tmp_path / "run", 6, newest="exact", mirror=tmp_path / "m").close()
    return tmp_path / "run"


CASES = [
    (name, how) for name in ("000000000004.lcc.h5", "exact.lcc.h5") for how in ("payload", "manifest", "cut")
]


@pytest.mark.parametrize(("name", "how"), [*CASES, ("000000000004.lcc.h5", "gone")])
def test_single_files_come_from_the_mirror(run: Path, tmp_path: Path, name: str, how: str) -> None:
    path = run / name
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    else:
        flip(path, PAYLOAD_OFFSET if how == "payload" else -200)
    before = files_in(run)
    chain, step = Chain(run, mirror=tmp_path / "m"), 5 if name[0] == "e" else 4
    said = f"{name} is read from the mirror .*/m: {'it is missing' if how == 'gone' else ''}"
    with pytest.warns(LccodecWarning, match=said):
        assert_same(chain.restore(step), STATES[step])
    with pytest.warns(LccodecWarning, match=said):
        assert_same(chain.restore(step, keys="layer")["layer/bias"], STATES[step]["layer"]["bias"])
    with pytest.warns(LccodecWarning, match=said):
        assert_same(dict(chain.restore_iter(step))["layer/weight"], STATES[step]["layer"]["weight"])
    with (
        pytest.warns(LccodecWarning, match=said),
        lccodec.open(run, step=step, mirror=tmp_path / "m") as file,
    ):
        assert_same(file.get("layer/weight"), STATES[step]["layer"]["weight"])
        assert_same(file.state(), STATES[step])
        file.verify()
        assert file.info().step == step
    assert files_in(run) == before  # reading writes nothing
    chain.close()


def test_a_step_that_was_pruned_here(run: Path, tmp_path: Path) -> None:
    with Chain(run, mirror=tmp_path / "m") as chain:
        chain.prune(lccodec.Keep(latest=1))
        assert chain.steps == [3, 4, 5]
        said = r"00000000000[01].lcc.h5 is read from the mirror .* is missing"
        with pytest.warns(LccodecWarning, match=said):
            assert_same(chain.restore(1), STATES[1])
        with pytest.raises(ChainError, match="99"):
            chain.restore(99)


def test_without_damage_nothing_is_said_and_nobody_asks_the_mirror(run: Path, tmp_path: Path) -> None:
    chain = Chain(run, mirror=tmp_path / "m")
    shutil.rmtree(tmp_path / "m")
    assert_restores(chain, STATES)


def test_a_lossy_chain_without_its_exact_file(tmp_path: Path) -> None:
    """The state comes bit for bit from the mirror, not lossy from here."""
    with Chain(tmp_path / "run", "lc-3", mirror=tmp_path / "m") as chain:
        save_all(chain, STATES, range(3))
    (tmp_path / "run/exact.lcc.h5").unlink()
    chain = Chain(tmp_path / "run", mirror=tmp_path / "m")
    with pytest.warns(LccodecWarning, match="exact.lcc.h5 is read from the mirror"):
        assert_same(chain.restore(), STATES[2])
    chain.close()


def test_fallback_comes_after_the_mirror(run: Path, tmp_path: Path) -> None:
    for name in ("000000000005.lcc.h5", "exact.lcc.h5"):
        flip(run / name)
    chain = Chain(run, mirror=tmp_path / "m")
    with pytest.warns(LccodecWarning) as told:
        assert_same(chain.restore(fallback=True), STATES[5])
    assert not [each for each in told if "skipped" in str(each.message)]


# --- mirrors that must not be trusted -------------------------------------------------------------


def restores(run: Path, mirror: Path, step: int) -> Any:
    with warnings.catch_warnings(action="ignore", category=LccodecWarning):
        return Chain(run, mirror=mirror).restore(step)


def test_a_damaged_mirror_is_not_trusted(run: Path, tmp_path: Path) -> None:
    flip(run / "000000000004.lcc.h5")
    chain = Chain(run, mirror=tmp_path / "m")
    flip(tmp_path / "m/000000000004.lcc.h5", PAYLOAD_OFFSET + 3)
    with pytest.warns(LccodecWarning, match="from the mirror"), pytest.raises(DataError):
        chain.restore(4)


def test_a_file_of_another_root_is_not_taken(run: Path, tmp_path: Path) -> None:
    """Whole by itself, but not the one that is lost."""
    with Chain(tmp_path / "other", "lossless", keyframe_every=2) as other:
        for step in range(6):
            other.save(step, STATES[9 - step])
    for step in (3, 4):
        flip(run / f"00000000000{step}.lcc.h5")
    chain = Chain(run, mirror=tmp_path / "m")
    for step in (3, 4):
        name = f"00000000000{step}.lcc.h5"
        shutil.copy(tmp_path / "other" / name, tmp_path / "m" / name)
    with (
        pytest.warns(LccodecWarning, match="no mirror can help: .* is a mirror of another chain"),
        pytest.raises(DataError),
    ):
        chain.restore(3)
    for step in (3, 4):  # their roots cannot be read any more
        (run / f"00000000000{step}.lcc.h5").write_bytes(b"")
    with pytest.raises(DataError):  # step 5 names another step 4
        restores(run, tmp_path / "m", 4)


def test_an_older_exact_file_is_not_taken(run: Path, tmp_path: Path) -> None:
    old = (tmp_path / "m/exact.lcc.h5").read_bytes()
    with Chain(run) as chain:
        chain.save(6, STATES[6])
    (run / "exact.lcc.h5").unlink()
    view = StandIn(DirectoryStore(run), [DirectoryStore(tmp_path / "m")])
    assert view.of("exact.lcc.h5").path == run
    (tmp_path / "m/exact.lcc.h5").write_bytes(old)
    assert_same(Chain(run).restore(), STATES[6])


def test_a_chain_is_read_as_it_is_when_the_mirror_is_away(run: Path, tmp_path: Path) -> None:
    flip(run / "exact.lcc.h5")
    chain = Chain(run, mirror=tmp_path / "m")
    shutil.rmtree(tmp_path / "m")
    (tmp_path / "m").write_text("")
    with pytest.warns(LccodecWarning) as told:
        assert_same(chain.restore(), STATES[5])
    said = " ".join(str(each.message) for each in told)
    assert "no mirror can help" in said
    assert "returned the state of the history" in said
    with pytest.warns(LccodecWarning), lccodec.open(run, mirror=tmp_path / "m") as file:
        assert_same(file.state(), STATES[5])


def test_a_directory_that_is_gone_is_opened_from_its_mirror(run: Path, tmp_path: Path) -> None:
    shutil.rmtree(run)
    with (
        pytest.warns(LccodecWarning, match="it is missing"),
        lccodec.open(run, mirror=tmp_path / "m") as file,
    ):
        assert_same(file.state(), STATES[5])
    with pytest.raises(ArgumentError, match="mirror= needs a chain"):
        lccodec.open(tmp_path / "m/exact.lcc.h5", mirror=tmp_path / "m")


def test_a_view_is_a_store(run: Path, tmp_path: Path) -> None:
    (run / "000000000004.lcc.h5").unlink()
    view = StandIn(DirectoryStore(run), [DirectoryStore(tmp_path / "m")], tell=False)
    original = DirectoryStore(tmp_path / "m")
    assert sorted(view.checkpoints()) == [0, 1, 2, 3, 4, 5]
    for name in original.checkpoints().values():
        assert view.root(name) == original.root(name)
        assert view.size([name]) == original.size([name])
        assert view.parents_of(name) == original.parents_of(name)
    assert view.identity("000000000004.lcc.h5") == original.identity("000000000004.lcc.h5")
    assert view.has("000000000004.lcc.h5")
    assert not view.has("000000000007.lcc.h5")
    with pytest.raises(StorageError):
        view.open("000000000007.lcc.h5")


@pytest.mark.slow
def test_random_damage_of_both(run: Path, tmp_path: Path) -> None:
    """A step is what it was, if each file that it needs is whole in one place; else an error."""
    files, generator, mended = files_in(run), random.Random(0), 0
    needed = {step: [f"{each:012d}.lcc.h5" for each in range(step - step % 3, step + 1)] for step in range(6)}
    for _ in range(60):
        here, there = (damaged(chain_files(run), generator, generator.randint(1, 3)) for _ in range(2))
        put(tmp_path / "a", here)
        put(tmp_path / "b", there)
        for step in range(5):
            is_there = all(files[name] in (here.get(name), there.get(name)) for name in needed[step])
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", LccodecWarning)
                    with lccodec.open(tmp_path / "a", step=step, mirror=tmp_path / "b") as file:
                        assert_same(file.state(), STATES[step])
            except lccodec.LccodecError:
                assert not is_there
            else:
                assert is_there
                mended += any(here.get(name) != files[name] for name in needed[step])
    assert mended > 50
