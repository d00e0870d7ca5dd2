"""Checkpoints of a bundle are opened in place, and are what they are in a directory."""

from pathlib import Path

import pytest

import lccodec
from lccodec.chain.read.checkpoint import open_exact, open_step, with_exact
from lccodec.chain.store.directory import BundleStore, DirectoryStore, describe_exact
from lccodec.constants import PAYLOAD_OFFSET
from lccodec.container.bundle import Bundle
from lccodec.errors import ArgumentError, ChainError, LccodecError, LccodecWarning

from ...support.checkpoints import listing
from ...support.walks import assert_same, lossy_chain, walk


def test_every_step_is_opened_in_place(tmp_path: Path) -> None:
    chain = lossy_chain(tmp_path / "run", newest="exact")
    path = tmp_path / "run.lcc"
    lccodec.bundle(chain.directory, path)
    for step in chain.steps:
        with lccodec.open(path, step=step, exact=False) as file:
            assert_same(file.state(), chain.restore(step, exact=False))
            assert file.metadata() == {"step": str(step // 10)}
            assert file.info() == open_step(DirectoryStore(chain.directory), step).info()
            assert_same(
                file.get("layer/weight"), chain.restore(step, "layer/weight", exact=False)["layer/weight"]
            )
    for step in (None, 40):
        with lccodec.open(path, step=step) as file:
            assert_same(file.state(), walk(5)[4])
            assert file.info().exact
    file.close()
    with pytest.raises(ArgumentError, match="closed"):
        file.state()


def test_a_file_of_one_checkpoint_is_opened_too(tmp_path: Path) -> None:
    chain = lossy_chain(tmp_path / "run", steps=2)
    with lccodec.open(chain.directory / "000000000010.lcc.h5") as file:
        assert_same(file.state(), chain.restore(10, exact=False))
    with pytest.raises(ArgumentError, match="a step needs a chain or a bundle"):
        lccodec.open(chain.directory / "000000000010.lcc.h5", step=10)
    with lccodec.open(chain.directory, step=0) as file:  # so are the steps of a directory
        assert_same(file.state(), chain.restore(0))
    with pytest.raises(LccodecError):
        lccodec.open(tmp_path / "none.lcc")


def test_an_unknown_step(tmp_path: Path) -> None:
    chain = lossy_chain(tmp_path / "run")
    lccodec.bundle(chain.directory, tmp_path / "run.lcc")
    with pytest.raises(ChainError, match="has no step 12; the nearest is 10"):
        lccodec.open(tmp_path / "run.lcc", step=12)
    with pytest.raises(ArgumentError, match="a step must be an integer"):
        lccodec.open(tmp_path / "run.lcc", step="10")


def test_a_damaged_exact_file_in_a_bundle_gives_the_history(tmp_path: Path) -> None:
    chain = lossy_chain(tmp_path / "run", steps=2, newest="exact")
    path = tmp_path / "run.lcc"
    lccodec.bundle(chain.directory, path)
    data = bytearray(path.read_bytes())
    with Bundle(path) as bundle:
        place = bundle.index.offsets[-1] + 20
    data[place] ^= 1
    path.write_bytes(data)
    with (
        pytest.warns(LccodecWarning, match="returned the newest state of the history"),
        lccodec.open(path) as file,
    ):
        assert_same(file.state(), chain.restore(10, exact=False))
    assert [problem.rule for problem in lccodec.validate(path)] == ["LCC-TRL-05"]
    with pytest.warns(LccodecWarning, match="the exact file is left out"):
        lccodec.unbundle(path, tmp_path / "back")
    assert listing(tmp_path / "back") == ["000000000000.lcc.h5", "000000000010.lcc.h5"]


@pytest.mark.parametrize("keys", [None, "layer/weight"])
def test_a_damaged_array_of_an_exact_file_comes_from_the_history(tmp_path: Path, keys: str | None) -> None:
    """As in a directory: the index and the manifest are sound, and a frame is not."""
    chain = lossy_chain(tmp_path / "run", steps=3, newest="exact")
    path = tmp_path / "run.lcc"
    lccodec.bundle(chain.directory, path)
    data = bytearray(path.read_bytes())
    with Bundle(path) as bundle:
        place = bundle.index.offsets[-1] + PAYLOAD_OFFSET + 100
    data[place] ^= 1
    path.write_bytes(data)
    with (
        pytest.warns(LccodecWarning, match=r"run\.lcc: the exact file is damaged; returned the state of"),
        lccodec.open(path) as file,
    ):
        assert_same(file.state(keys), chain.restore(keys=keys, exact=False))
    with lccodec.open(path, exact=False) as file:
        assert_same(file.state(), chain.restore(exact=False))


def test_what_is_known_of_the_exact_file(tmp_path: Path) -> None:
    chain = lossy_chain(tmp_path / "run", steps=2, newest="exact")
    path = tmp_path / "run.lcc"
    lccodec.bundle(chain.directory, path)
    with BundleStore(path) as store:
        with open_exact(store) as exact:
            assert exact.info().step == 10
        size = (chain.directory / "exact.lcc.h5").stat().st_size
        assert describe_exact(store) == {"step": 10, "bytes": size, "problem": None}
        for step, known in ((0, False), (10, True)):
            with open_step(store, step) as opened:
                assert not opened.info().exact
                assert with_exact(opened.info(), store).exact == known
    lccodec.bundle(chain.directory, path, [0])
    with BundleStore(path) as store:
        assert describe_exact(store) is None
