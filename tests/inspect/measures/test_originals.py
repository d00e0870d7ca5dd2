"""Where originals come from, and what is made of those that do not fit."""

from contextlib import closing

import numpy as np

import lccodec
from lccodec.chain.read.replay import DecodedArray
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.opening import BundleStore
from lccodec.constants import EXACT_NAME
from lccodec.container.checkpoint import open_checkpoint
from lccodec.element_types import components
from lccodec.inspect.examination import examine
from lccodec.inspect.inventory import open_source
from lccodec.inspect.loss import ChainOriginals, ExactOriginals, original_bits

from ...support.paths import checkpoint_path
from ...support.runs import arrays_of, run_states, save_run


def roots(path):
    with open_checkpoint(path) as reader:
        return reader.roots


def test_states_of_a_chain_by_rising_step(tmp_path):
    states = run_states(5)
    chain = save_run(tmp_path / "run", states, policy="lossless")
    originals = ChainOriginals(open_source(chain.directory))
    assert list(originals.steps) == [0, 10, 20, 30, 40]
    for step in (0, 30):
        found = originals.state(step)
        for name, array in arrays_of(states[step // 10]).items():
            np.testing.assert_array_equal(found[name], array)
    assert originals.state(10) == {}  # it is past


def test_a_damaged_original_is_told_and_left_out(tmp_path):
    states = run_states(4)
    chain = save_run(tmp_path / "run", states)
    exact = save_run(tmp_path / "exact", states, policy="lossless", keyframe_every=0)
    path = checkpoint_path(exact.directory, 20)
    path.write_bytes(path.read_bytes()[:-1])
    (run,) = examine(chain.directory, against=exact.directory).runs
    assert run.loss.steps == [0, 10, 30]
    assert run.notes[0].startswith("The original of step 20 cannot be read: ")


def test_the_exact_file_of_a_chain_and_a_bundle(tmp_path):
    states = run_states(3)
    chain = save_run(tmp_path / "run", states, newest="exact")
    named = bytes.fromhex(chain.info(20).exact_root)
    lccodec.bundle(chain.directory, tmp_path / "run.lccb")
    with BundleStore(tmp_path / "run.lccb") as bundle:
        for store in (DirectoryStore(chain.directory), bundle):
            with closing(ExactOriginals.of(store, named)) as originals:
                assert list(originals.steps) == [20]
                found = originals.state(20)
                for name, array in arrays_of(states[-1]).items():
                    np.testing.assert_array_equal(found[name], array)
            assert ExactOriginals.of(store, None) is None


def test_without_a_sound_exact_file_there_is_no_original(tmp_path):
    chain = save_run(tmp_path / "run", run_states(3), newest="exact")
    named = bytes.fromhex(chain.info(20).exact_root)
    path = chain.directory / EXACT_NAME
    path.write_bytes(path.read_bytes()[:-1])
    assert ExactOriginals.of(DirectoryStore(chain.directory), named) is None
    path.unlink()
    assert ExactOriginals.of(DirectoryStore(chain.directory), named) is None
    lccodec.bundle(chain.directory, tmp_path / "run.lccb")
    with BundleStore(tmp_path / "run.lccb") as bundle:
        assert ExactOriginals.of(bundle, named) is None


def test_an_original_must_fit():
    kind, bits = components(np.ones((2, 3), np.float32))
    array = DecodedArray(kind, (2, 3), bits)
    fits = np.zeros((2, 3), np.float32)
    found = original_bits({"w": fits}, "w", array)
    assert found is not None
    assert not found.any()
    for other in (fits[:1], fits.astype(np.float64), 3, np.full((2, 3), "text"), np.zeros((2, 3), object)):
        assert original_bits({"w": other}, "w", array) is None
    assert original_bits({}, "w", array) is None
