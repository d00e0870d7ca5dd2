"""A local model follows a chain, and is a valid model of one step at every moment."""

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import ArgumentError, Chain, ChainError, Keep, StorageError
from lccodec.adapters.weights import Pulled, Puller, local, pull
from lccodec.container.source import FileSource

from ...support.crashes import broken, hold
from ...support.models import bytes_of, read_model, small_model, trained, write_model
from ...support.processes import killed_after

STATES = [small_model()]
for _seed in range(1, 6):
    STATES.append(trained(STATES[-1], _seed))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with Chain(tmp_path / "run", "lossless", keyframe_every=3) as chain:
        for step, state in enumerate(STATES):
            chain.save(step, {"model": state, "optimizer": {"m": np.zeros(9)}})
    return tmp_path / "run"


@pytest.fixture(params=[1, 3])
def model(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    write_model(tmp_path / "local", STATES[0], request.param)
    return tmp_path / "local"


def files_of(model: Path) -> set[str]:
    """The files of the model, and none that is left over."""
    found = {path.name for path in model.iterdir()} - {"config.json", ".lccodec"}
    index = model / "model.safetensors.index.json"
    named = set(json.loads(index.read_text())["weight_map"].values()) if index.exists() else set()
    assert found == ({index.name} | named if index.exists() else {"model.safetensors"})
    assert {path.name for path in (model / ".lccodec").iterdir()} == {"state.json", "lock"}
    return found


def test_step_by_step(run: Path, model: Path) -> None:
    for step in range(1, 6):
        found = pull(run, model, prefix="model", step=step, start=0)
        assert (found.step, found.base) == (step, None if step == 1 else step - 1)
        assert "mask" not in found.names
        assert read_model(model) == bytes_of(STATES[step])
        assert set(found.files) <= files_of(model)
    note = (model / ".lccodec" / "state.json").stat()
    again = pull(run, model, prefix="model")
    assert again == Pulled(5, 5, root=again.root)
    after = (model / ".lccodec" / "state.json").stat()
    assert (after.st_ino, after.st_mtime_ns) == (note.st_ino, note.st_mtime_ns)  # nothing is written
    assert pull(run, model, prefix="model", step=2).step == 2  # back
    assert read_model(model) == bytes_of(STATES[2])


def test_only_deltas_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even of the step that the directory begins with."""
    state = {"w": np.random.default_rng(0).standard_normal((200, 300)).astype("f4")}
    run, model = tmp_path / "run", tmp_path / "local"
    write_model(model, state)
    with Chain(run, "lossless") as chain:
        chain.save(0, state)
        chain.save(1, trained(state, 1))
    read, whole = dict[str, int](), FileSource.read

    def counted(source: FileSource, offset: int, size: int) -> bytes:
        read[Path(source._path).name] = read.get(Path(source._path).name, 0) + size
        return whole(source, offset, size)

    monkeypatch.setattr(FileSource, "read", counted)
    pull(run, model, step=0, start=0)  # nothing differs
    found = pull(run, model)
    assert (found.base, found.step) == (0, 1)
    assert found.bytes_read == (run / "000000000001.lcc.h5").stat().st_size
    assert read["000000000000.lcc.h5"] < 10_000 < (run / "000000000000.lcc.h5").stat().st_size / 10
    assert read_model(model) == bytes_of(trained(state, 1))


def test_a_shard_in_which_nothing_differs_stays(tmp_path: Path) -> None:
    state = {"a": np.arange(9000, dtype="f4"), "b": np.arange(9000, dtype="f4")}
    write_model(tmp_path / "local", state, 2)
    before = (tmp_path / "local" / "model-00002-of-00002.safetensors").stat()
    with Chain(tmp_path / "run", "lossless") as chain:
        chain.save(0, state)
        chain.save(1, {**state, "a": state["a"] + 1})
    found = pull(tmp_path / "run", tmp_path / "local", start=0)
    assert found.names == ("a",)
    [file] = found.files
    assert file.startswith("model-00001-of-00002-step000000000001-")
    after = (tmp_path / "local" / "model-00002-of-00002.safetensors").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert json.loads((tmp_path / "local" / "model.safetensors.index.json").read_text())["metadata"] == {
        "total_size": 1
    }


def test_another_base_is_refused(run: Path, tmp_path: Path) -> None:
    other = {**STATES[0], "layers.0.weight": STATES[0]["layers.0.weight"] * 2}
    write_model(tmp_path / "local", other)
    before = read_model(tmp_path / "local")
    with pytest.raises(ArgumentError, match=r"not the arrays of step 0: 'model/layers\.0\.weight' differs"):
        pull(run, tmp_path / "local", prefix="model", start=0)
    assert read_model(tmp_path / "local") == before
    found = pull(run, tmp_path / "local", prefix="model")  # without a base: read whole
    assert (found.base, found.step) == (None, 5)
    assert read_model(tmp_path / "local") == bytes_of(STATES[5])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": None}, "'norm' is not there"),
        ({"layers.0.bias": np.zeros(41, "f2")}, r"'layers.0.bias' is float16 \(41,\), and float16 \(40,\)"),
        ({"scale": np.zeros(33, "?")}, r"'scale' is bool \(33,\), and uint8 \(33,\) in the chain"),
    ],
)
def test_tensors_that_do_not_fit(run: Path, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    state = {name: array for name, array in {**STATES[0], **change}.items() if array is not None}
    write_model(tmp_path / "local", state)
    before = read_model(tmp_path / "local")
    with pytest.raises(ArgumentError, match=message):
        pull(run, tmp_path / "local", prefix="model")
    assert read_model(tmp_path / "local") == before


def test_what_the_state_has_not_stays(run: Path, tmp_path: Path) -> None:
    """Such as rows of padding, or a buffer that is not trained."""
    write_model(tmp_path / "local", {**STATES[0], "rotary": np.ones(5, "f4")})
    pull(run, tmp_path / "local", prefix="model", start=0)
    assert read_model(tmp_path / "local") == bytes_of({**STATES[5], "rotary": np.ones(5, "f4")})


def test_float8(tmp_path: Path) -> None:
    import torch

    from lccodec.adapters import torch as adapter

    bits = [np.arange(4000, dtype=np.uint8), np.arange(4000, dtype=np.uint8)]
    bits[1][7] ^= 1
    write_model(tmp_path / "local", {"w": bits[0]}, types={"w": "F8_E4M3"})
    with Chain(tmp_path / "run", "lossless", adapter=adapter) as chain:
        for step, each in enumerate(bits):
            chain.save(step, {"w": torch.from_numpy(each).view(torch.float8_e4m3fn)})
    pull(tmp_path / "run", tmp_path / "local", start=0)
    assert read_model(tmp_path / "local") == bytes_of({"w": bits[1]})
    write_model(tmp_path / "local", {"w": bits[0]}, types={"w": "F8_E5M2"})
    with pytest.raises(ArgumentError, match=r"'w' is float8_e5m2 .*, and float8_e4m3fn"):
        pull(tmp_path / "run", tmp_path / "local")


def test_a_base_that_was_pruned(run: Path, model: Path) -> None:
    pull(run, model, prefix="model", step=1, start=0)
    Chain(run).prune(Keep(latest=1))
    found = pull(run, model, prefix="model")
    assert (found.base, found.step) == (1, 5)
    assert read_model(model) == bytes_of(STATES[5])


def test_a_chain_without_the_step(run: Path, model: Path, tmp_path: Path) -> None:
    with pytest.raises(ChainError, match="has no step 99"):
        pull(run, model, prefix="model", step=99)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ChainError, match="has no step to pull"):
        pull(tmp_path / "empty", model)
    with pytest.raises(StorageError, match=r"neither model.safetensors.index.json nor"):
        pull(run, tmp_path / "empty", prefix="model")
    with pytest.raises(ArgumentError, match="prefix must be a string"):
        pull(run, model, prefix=3)


def test_files_that_were_changed_by_others(run: Path, model: Path) -> None:
    """What is noted of them counts no more: the step is read whole."""
    pull(run, model, prefix="model", step=3, start=0)
    shutil.rmtree(model)
    write_model(model, STATES[1])
    found = pull(run, model, prefix="model")
    assert (found.base, found.step) == (None, 5)
    assert read_model(model) == bytes_of(STATES[5])


@pytest.mark.parametrize(
    ("shards", "noted"), [(1, True), *(pytest.param(2, n, marks=pytest.mark.slow) for n in (True, False))]
)
def test_every_crash_leaves_a_model(
    run: Path, tmp_path: Path, shards: int, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kills and losses of power at any moment: the old model or the new one, and a pull goes on."""
    # A file that is put there again has another number and time than the file that the note names.
    monkeypatch.setattr(local, "identity_of", lambda status: [status.st_size, 0, 0])
    write_model(tmp_path / "local", STATES[3], shards)
    (tmp_path / "local" / "config.json").write_text('{"precious": true}')
    if noted:
        pull(run, tmp_path / "local", prefix="model", step=3, start=3)
    before, after = bytes_of(STATES[3]), bytes_of(STATES[4])

    def check(done: bool, place: Path) -> bool:
        found = read_model(place)
        if found != after and (done or found != before):
            return False
        if (place / "config.json").read_text() != '{"precious": true}':
            return False
        pull(run, place, prefix="model", step=4)
        files_of(place)
        shutil.rmtree(place / ".lccodec")
        sound = read_model(place) == after
        shutil.rmtree(place)
        return sound

    def work(system: Any) -> None:
        pull(run, tmp_path / "local", prefix="model", step=4, start=3, system=system)

    hold(tmp_path / "local", work, check, above=10)


@pytest.mark.slow
def test_a_file_without_a_flush_is_found(run: Path, tmp_path: Path) -> None:
    """The test above can fail."""
    write_model(tmp_path / "local", STATES[3], 2)

    def check(_: bool, place: Path) -> bool:
        try:
            return read_model(place) in (bytes_of(STATES[3]), bytes_of(STATES[4]))
        except (OSError, ValueError, AssertionError, KeyError):
            return False

    def work(system: Any) -> None:
        pull(run, tmp_path / "local", prefix="model", step=4, system=system)

    assert broken(tmp_path / "local", work, check, ignore="sync")[1] == 1


def test_several_on_one_host_patch_once(run: Path, model: Path) -> None:
    found: list[Pulled] = []
    threads = [
        threading.Thread(target=lambda: found.append(pull(run, model, prefix="model", start=0)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(each.files) > 0 for each in found) == [False, False, False, True]
    assert {each.step for each in found} == {5}
    assert read_model(model) == bytes_of(STATES[5])


@pytest.mark.slow
def test_processes_are_killed_while_they_pull(run: Path, model: Path) -> None:
    program = (
        "import sys, itertools\nfrom lccodec.adapters.weights import pull\n"
        "print('ready', flush=True)\n"
        "for step in itertools.cycle([1, 4, 2, 5, 3]):\n"
        "    pull(sys.argv[1], sys.argv[2], prefix='model', step=step)\n"
    )
    for _ in killed_after((0.03 + 0.037 * number for number in range(8)), program, run, model):
        assert read_model(model) in [bytes_of(state) for state in STATES]
    pull(run, model, prefix="model")
    assert read_model(model) == bytes_of(STATES[5])
    files_of(model)


def test_one_that_looks_first(run: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `Puller` reads no byte where nothing has changed, and sees whatever has."""
    with Puller(run, model, prefix="model") as puller:
        first = puller.pull()
        assert (first.step, first.root) == (5, Chain(run).info(5).root)
        reads = 0
        usual = FileSource.read

        def counted(*args: Any) -> Any:
            nonlocal reads
            reads += 1
            return usual(*args)

        puller.pull()  # it looks at the files that the first call has written
        monkeypatch.setattr(FileSource, "read", counted)
        for _ in range(3):
            assert puller.pull() == Pulled(5, 5, root=first.root)
        assert reads == 0
        with Chain(run, "lossless") as chain:
            chain.rollback(4)
        assert (puller.pull().step, puller.pull().names) == (4, ())
        assert read_model(model) == bytes_of(STATES[4])
        write_model(model, STATES[1], len(list(model.glob("*.safetensors"))))  # somebody else's bytes
        assert puller.pull().step == 4
        assert read_model(model) == bytes_of(STATES[4])
        with Chain(run, "lossless") as chain:
            chain.rollback(3)
            chain.save(4, {"model": STATES[2]})  # the same step, with other values
        assert puller.pull().root != first.root
        assert read_model(model) == bytes_of(STATES[2])
