"""What lies in a chain: names of policies, very long texts, files that cannot be opened.

What is examined: directories, bundles and files.
"""

from contextlib import closing

import lccodec
from lccodec.chain.life.prune import pin
from lccodec.chain.overview import MAX_TEXT_CHARACTERS, policy_name, shortened
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import EXACT_NAME
from lccodec.inspect.inventory import Inventory, open_source

from ..support.paths import checkpoint_path
from ..support.runs import run_states, save_run


def inventory_of(path):
    source = open_source(path)
    found = Inventory(source.pins())
    for number, visit in source.visits(decode=False):
        found.add(number, visit)
    return found


def test_names_of_policies():
    assert policy_name("balanced") == "balanced"
    assert policy_name({"policy": "lc-3", "roles": {}}) == "lc-3"
    assert policy_name({"policy": {"name": "mine", "steps": 3}}) == "mine"
    assert policy_name({"name": "mine"}) == "mine"
    assert policy_name(None) == "null"
    assert policy_name([1, 2]) == "[1, 2]"


def test_long_texts_are_cut_off():
    assert shortened("a" * MAX_TEXT_CHARACTERS) == "a" * MAX_TEXT_CHARACTERS
    assert shortened("a" * (MAX_TEXT_CHARACTERS + 1)) == "a" * (MAX_TEXT_CHARACTERS - 3) + "..."


def test_long_metadata_is_cut_off(tmp_path):
    with lccodec.Chain(tmp_path / "run") as chain:
        chain.save(0, {}, {"note": "x" * 10_000})
    found = inventory_of(tmp_path / "run")
    assert len(found.checkpoints[0].metadata["note"]) == MAX_TEXT_CHARACTERS
    assert found.rows() == []


def test_what_cannot_be_read_says_what_is_known(tmp_path):
    chain = save_run(tmp_path / "run", run_states(4))
    for step, keep in ((10, 0), (30, None)):
        path = checkpoint_path(chain.directory, step)
        path.write_bytes(path.read_bytes()[:keep])
    found = inventory_of(chain.directory)
    assert found.newest[0] == 0
    assert found.lacking == set()
    empty, child = found.checkpoints[10], found.checkpoints[20]
    assert (empty.kind, empty.parent, empty.bytes, empty.metadata) == ("unreadable", None, 0, {})
    assert (child.kind, child.parent, child.policy) == ("unreadable", 10, "balanced")
    assert child.bytes == checkpoint_path(chain.directory, 20).stat().st_size
    assert child.metadata == {"loss": str(1 / 3)}


def test_a_missing_parent(tmp_path):
    chain = save_run(tmp_path / "run", run_states(3))
    checkpoint_path(chain.directory, 0).unlink()
    found = inventory_of(chain.directory)
    assert found.lacking == {10, 20}
    assert found.newest == (None, None)


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
