"""What is examined: directories, bundles and files."""

from contextlib import closing

import pytest

import lccodec
from lccodec.chain.life.pins import pin
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import EXACT_NAME
from lccodec.inspect.inventory import open_source

from ..support.paths import checkpoint_path
from ..support.runs import run_states, save_run


def test_a_chain_a_bundle_and_a_file(tmp_path):
    chain = save_run(tmp_path / "run", run_states(3), newest="exact")
    pin(DirectoryStore(chain.directory), 10)
    lccodec.bundle(chain.directory, tmp_path / "run.lccb")
    exact = (chain.directory / EXACT_NAME).stat().st_size
    for path, kind, pins in (
        (chain.directory, "chain", {10}),
        (tmp_path / "run.lccb", "bundle", set()),
    ):
        with closing(open_source(path)) as source:
            assert (source.kind, list(source.steps), source.pins()) == (kind, [0, 10, 20], pins)
            assert [number for number, _ in source.visits(decode=False)] == [0, 10, 20]
            assert source.exact_bytes() == exact
    with closing(open_source(checkpoint_path(chain.directory, 20))) as source:
        assert (source.kind, list(source.steps), source.pins(), source.exact_bytes()) == (
            "file",
            [20],
            set(),
            0,
        )
        ((number, visit),) = source.visits(decode=True)
        assert (number, visit.info().deltas, visit.broken()) == (20, 2, [])


def test_without_an_exact_file(tmp_path):
    chain = save_run(tmp_path / "run", run_states(2))
    lccodec.bundle(chain.directory, tmp_path / "run.lccb")
    for path in (chain.directory, tmp_path / "run.lccb"):
        with closing(open_source(path)) as source:
            assert source.exact_bytes() == 0


def test_what_is_none(tmp_path):
    with pytest.raises(lccodec.ArgumentError, match=r"holds no checkpoint$"):
        open_source(tmp_path)
    (tmp_path / "other").write_bytes(b"something else")
    with pytest.raises(lccodec.FormatError):
        open_source(tmp_path / "other")
