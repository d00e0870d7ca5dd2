"""What is published is read by a reader that was written from the code of the engines."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard  # noqa: F401 - what is published is compressed with it
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ArgumentError, Chain, ChainError, Keep
from lccodec.adapters.weights import Published, Publisher, publish
from lccodec.adapters.weights.publish import Target
from lccodec.adapters.weights.versions import changed_adler32, digest_of
from lccodec.chain.read.followed_state import FollowedState
from lccodec.element_types import stored_view

from ...support.crashes import hold
from ...support.models import bytes_of, small_model, trained, write_model
from ...support.processes import killed_after
from ...support.weight_versions import pulled

STATES = [small_model()]
for _seed in range(1, 6):
    STATES.append(trained(STATES[-1], _seed))


class Trainer:
    """A run that is published after each save."""

    def __init__(self, directory: Path) -> None:
        self.run, self.output = directory / "run", directory / "published"
        self.chain = Chain(self.run, "lossless", keyframe_every=3)

    def save(self, step: int, state: dict[str, Any] | None = None) -> None:
        self.chain.save(step, {"model": STATES[step] if state is None else state, "m": np.zeros(9)})

    def publish(self, **options: Any) -> Published | None:
        return publish(self.run, self.output, prefix="model", **options)

    def check(self, version: int, state: dict[str, Any]) -> None:
        assert pulled(self.output, bytes_of(STATES[0]), version) == bytes_of(state)


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
@pytest.mark.parametrize("checksum", ["adler32", "xxh3-128"])
def test_deltas_on_the_engines_base(tmp_path: Path, encoding: Any, checksum: Any) -> None:
    trainer = Trainer(tmp_path)
    trainer.save(0)
    for step in range(1, 6):
        trainer.save(step)
        found = trainer.publish(start=0, encoding=encoding, checksum=checksum)
        assert found is not None
        assert (found.version, found.step, found.base) == (step, step, step - 1)
        trainer.check(step, STATES[step])
    assert trainer.publish(start=0) is None  # it is published


def test_steps_that_were_not_published_are_in_the_next_version(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    for step in range(3):
        trainer.save(step)
    first = trainer.publish(start=0)
    assert first is not None
    assert (first.version, first.step) == (1, 2)
    trainer.check(1, STATES[2])


def test_a_full_version_first_and_when_asked_for(tmp_path: Path) -> None:
    like = tmp_path / "like"
    like.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors", "model.safetensors.index.json"):
        (like / name).write_text("{}")
    trainer = Trainer(tmp_path)
    trainer.save(0)
    assert trainer.publish(like=like) == Published(
        1, 0, None, (trainer.output / "weight_v000001/model.safetensors").stat().st_size
    )
    trainer.save(1)
    assert trainer.publish().base == 1
    assert trainer.publish(full=True, like=like).base is None
    trainer.save(2)
    assert trainer.publish().base == 3
    for version, step in enumerate([0, 1, 1, 2], 1):
        trainer.check(version, STATES[step])
    names = {path.name for path in (trainer.output / "weight_v000003").iterdir()}
    assert names == {"config.json", "tokenizer.json", "model.safetensors"}


def test_a_rollback_takes_no_other_files_from_the_engines(tmp_path: Path) -> None:
    """Of a full version an engine keeps that version's files, and no others."""
    trainer = Trainer(tmp_path)
    for step in range(2):
        trainer.save(step)
    trainer.publish(start=0)
    trainer.chain.rollback(0)
    trainer.save(1, STATES[2])
    with pytest.raises(ArgumentError, match=r"such as config\.json: give the model"):
        trainer.publish(start=0)
    assert [path.name for path in trainer.output.glob("weight_v*")] == ["weight_v000001"]
    write_model(tmp_path / "like", STATES[0])
    assert trainer.publish(start=0, like=tmp_path / "like").base is None
    trainer.save(2)
    assert trainer.publish().base == 2
    assert trainer.publish(full=True).base is None  # with the files of the full version before
    assert (trainer.output / "weight_v000004" / "config.json").read_text() == "{}"


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
@pytest.mark.parametrize("checksum", ["adler32", "xxh3-128"])
def test_a_publisher_holds_what_it_published(tmp_path: Path, encoding: Any, checksum: Any) -> None:
    """It writes what a publisher without memory writes, and reads the deltas alone."""
    trainer = Trainer(tmp_path)
    trainer.save(0)
    form = {"encoding": encoding, "checksum": checksum}
    with Publisher(trainer.run, trainer.output, prefix="model", start=0, **form) as publisher:
        assert publisher.publish() is None
        for step in range(1, 5):
            trainer.save(step)
            assert publisher.publish() == Published(step, step, step - 1, nbytes_of(trainer.output, step))
            assert publisher.publish() is None
            trainer.check(step, STATES[step])
        again = Trainer(tmp_path / "again")
        for step in range(5):
            again.save(step)
            again.publish(start=0, **form)  # from nothing each time
        assert files_below(again.output) == files_below(trainer.output)
        trainer.chain.rollback(3)
        trainer.save(4, STATES[2])
        assert publisher.publish().base == 4  # the chain has that state no more, the publisher does
        trainer.check(5, STATES[2])


def test_publishers_take_turns(tmp_path: Path) -> None:
    """What another process has published is what the next version is a delta to."""
    trainer = Trainer(tmp_path)
    trainer.save(0)
    options: dict[str, Any] = {"prefix": "model", "start": 0}
    with (
        Publisher(trainer.run, trainer.output, **options) as one,
        Publisher(trainer.run, trainer.output, **options) as other,
    ):
        for step in range(1, 6):
            trainer.save(step)
            assert (one if step in (1, 2, 5) else other).publish() is not None
            assert (other if step in (1, 2, 5) else one).publish() is None
            trainer.check(step, STATES[step])


def test_an_interrupted_publisher_knows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(tmp_path)
    trainer.save(0)
    with Publisher(trainer.run, trainer.output, prefix="model", start=0) as publisher:
        trainer.save(1)
        publisher.publish()
        trainer.save(2)
        usual = Target.write

        def interrupted(*args: Any) -> int:
            usual(*args)  # it is published, and the publisher does not come to know
            raise KeyboardInterrupt

        monkeypatch.setattr(Target, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            publisher.publish()
        monkeypatch.undo()
        assert publisher.publish() is None
        trainer.save(3)
        assert publisher.publish().base == 2
        for version in (1, 2, 3):
            trainer.check(version, STATES[version])


@given(st.sampled_from(["u1", "u2", "u4", "u8"]), st.integers(1, 300), st.integers(0, 1 << 32))
def test_a_digest_of_changed_numbers(dtype: str, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    old = np.frombuffer(rng.bytes(size * np.dtype(dtype).itemsize), dtype)
    places = np.flatnonzero(rng.random(old.size) < 0.3)
    new = old.copy()
    new[places] = np.frombuffer(rng.bytes(places.size * old.itemsize), dtype)
    before = digest_of("adler32", stored_view(old))
    found = changed_adler32(before, old.nbytes, places, old[places], new[places])
    assert found == digest_of("adler32", stored_view(new))


def nbytes_of(output: Path, version: int) -> int:
    return sum(path.stat().st_size for path in (output / f"weight_v{version:06d}").iterdir())


def files_below(output: Path) -> dict[str, bytes]:
    found = (path for path in output.glob("weight_v*/*"))
    return {str(path.relative_to(output)): path.read_bytes() for path in found}


def test_safetensors_reads_a_full_version(tmp_path: Path) -> None:
    import safetensors

    trainer = Trainer(tmp_path)
    trainer.save(0)
    trainer.publish()
    with safetensors.safe_open(trainer.output / "weight_v000001/model.safetensors", "np") as file:
        assert set(file.keys()) == STATES[0].keys()
        np.testing.assert_array_equal(file.get_tensor("layers.0.weight"), STATES[0]["layers.0.weight"])
        assert file.metadata()["lccodec_step"] == "0"


@pytest.mark.parametrize("change", ["shape", "more", "less", "rollback", "pruned"])
def test_what_no_delta_leads_to_is_a_full_version(tmp_path: Path, change: str) -> None:
    trainer, other = Trainer(tmp_path), dict(STATES[1])
    trainer.save(0)
    trainer.publish()
    if change == "rollback":
        trainer.save(1)
        trainer.publish()
        trainer.chain.rollback(0)
        other = trained(STATES[0], 99)
    if change == "shape":
        other["norm"] = np.ones(2, "f4")
    if change == "more":
        other["more"] = np.ones(2, "f4")
    if change == "less":
        del other["norm"]
    trainer.save(1, other)
    if change == "pruned":
        for step in range(2, 6):
            trainer.save(step)
        trainer.chain.prune(Keep(latest=1))
        other = STATES[5]
    found = trainer.publish()
    assert found is not None
    assert found.base is None
    trainer.check(found.version, other)


def test_a_version_in_which_nothing_differs(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    trainer.save(0)
    trainer.save(1, STATES[0])
    found = trainer.publish(start=0)
    assert found is not None
    assert (found.version, found.step) == (1, 1)
    assert [path.name for path in (trainer.output / "weight_v000001").iterdir()] == [
        "model.safetensors.index.json"
    ]
    trainer.check(1, STATES[0])


def test_small_beside_the_model(tmp_path: Path) -> None:
    state = {"w": np.random.default_rng(0).standard_normal(200_000).astype("f4")}
    trainer = Trainer(tmp_path)
    trainer.save(0, state)
    trainer.save(1, trained(state, 1, 0.001))
    found = trainer.publish(start=0)
    assert found is not None
    assert found.nbytes < state["w"].nbytes / 100


def rank_chains(directory: Path, step: int, state: dict[str, Any]) -> list[Path]:
    """Save a third of the tensors in the chain of each rank; all of them have the norm."""
    runs = [directory / f"rank-{rank}" for rank in range(3)]
    for rank, run in enumerate(runs):
        own = {name: array for number, (name, array) in enumerate(state.items()) if number % 3 == rank}
        with Chain(run, "lossless") as chain:
            chain.save(step, {**own, "norm": state["norm"]})
    return runs


def test_the_chains_of_ranks_are_one_version(tmp_path: Path) -> None:
    """A step counts once all ranks have it; tensors that several have are there once."""
    output = tmp_path / "published"
    for step in range(3):
        runs = rank_chains(tmp_path, step, STATES[step])
        found = publish(runs, output, start=0)
        assert found is None if step == 0 else found is not None and found.step == step
    with Chain(runs[0], "lossless") as chain:
        chain.save(3, {"norm": np.ones((), "f4")})  # the others are not there yet
    assert publish(runs, output) is None
    for version in (1, 2):
        assert pulled(output, bytes_of(STATES[0]), version) == bytes_of(STATES[version])
    files = {path.name for path in (output / "weight_v000002").glob("*.safetensors")}
    assert files == {f"model-0000{number}-of-00002.safetensors" for number in range(2)}
    with pytest.raises(ArgumentError, match="give the model that they have as like="):
        publish(runs, output, full=True)
    write_model(tmp_path / "like", STATES[0])
    found = publish(runs, output, full=True, like=tmp_path / "like")
    assert found is not None
    assert found.base is None
    assert pulled(output, {}, 3) == bytes_of(STATES[2])


def test_ranks_that_differ_are_refused(tmp_path: Path) -> None:
    runs = rank_chains(tmp_path, 0, STATES[0])
    with pytest.raises(ChainError, match="share no step"):
        publish([*runs, rank_chains(tmp_path / "other", 1, STATES[0])[0]], tmp_path / "published")
    for rank, run in enumerate(runs):
        with Chain(run, "lossless") as chain:
            chain.save(1, {**chain.restore(), "norm": np.array(rank, "f4")})
    for options in ({"start": 0}, {}):
        with pytest.raises(ArgumentError, match="tensor 'norm': two ranks have it with other values"):
            publish(runs, tmp_path / "published", **options)


def test_refused(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    trainer.run.mkdir()
    with pytest.raises(ChainError, match="has no step to publish"):
        trainer.publish()
    trainer.save(0)
    with pytest.raises(ChainError, match="has no step 7 to start from"):
        trainer.publish(start=7)
    for options in ({"encoding": "sum"}, {"checksum": "md5"}):
        with pytest.raises(ArgumentError, match="no such encoding or checksum"):
            trainer.publish(**options)
    trainer.save(1, {"w": np.zeros(3, complex)})
    with pytest.raises(ArgumentError, match=r"complex128 cannot be in a \.safetensors file"):
        trainer.publish()


def test_every_crash_leaves_whole_versions(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    trainer.save(0)
    trainer.save(1)
    trainer.publish(start=0)
    trainer.save(2)

    def check(done: bool, place: Path) -> bool:
        names = {path.name for path in place.glob("weight_v*")}
        if names != {"weight_v000001", "weight_v000002"} and (done or names != {"weight_v000001"}):
            return False
        publish(trainer.run, place, prefix="model")
        assert not list(place.glob(".tmp-*"))
        return pulled(place, bytes_of(STATES[0]), 2) == bytes_of(STATES[2])

    work = lambda system: publish(trainer.run, trainer.output, prefix="model", system=system)  # noqa: E731
    hold(trainer.output, work, check, above=10)


@pytest.mark.slow
def test_publishers_are_killed(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    for step in range(6):
        trainer.save(step)
    program = (
        "import sys, itertools\nfrom lccodec.adapters.weights import publish\n"
        "print('ready', flush=True)\n"
        "while True: publish(sys.argv[1], sys.argv[2], prefix='model', full=True)\n"
    )
    waits = (0.05 + 0.031 * number for number in range(6))
    for _ in killed_after(waits, program, trainer.run, trainer.output):
        for path in trainer.output.glob("weight_v*"):
            trainer.check(int(path.name[8:]), STATES[5])
    assert trainer.publish(full=True) is not None
    assert not list(trainer.output.glob(".tmp-*"))


@pytest.mark.parametrize(
    ("settings", "last"),
    [
        pytest.param({}, 3, marks=pytest.mark.slow),  # it begins worker processes
        ({"reference": "hashes"}, None),
        ({"policy": "lc-3"}, None),
        ({"keyframe_every": 2}, None),
    ],
)
def test_the_chain_of_the_same_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], last: int | None
) -> None:
    """What it saved is taken from memory; if it is not there, files are read."""
    compared, like, lossy = list[bytes](), tmp_path / "like", "policy" in settings
    compare = FollowedState._compare
    monkeypatch.setattr(FollowedState, "_compare", lambda *args: compared.append(b"") or compare(*args))
    states = [small_model()]
    for seed in range(1, 5):
        states.append(trained(states[-1], seed))
    write_model(like, states[0])
    options: Any = {"prefix": "model", "start": None if lossy else 0, "like": like}

    def check(version: int, state: dict[str, Any]) -> None:
        assert pulled(tmp_path / "out", bytes_of(states[0]), version) == bytes_of(state)

    with (
        Chain(tmp_path / "run", **{"policy": "lossless", **settings}) as chain,
        Publisher(chain, tmp_path / "out", **options) as publisher,
    ):
        for step, state in enumerate(states):
            if step == last:
                chain.save_async(step, {"model": state}).result()
            else:
                chain.save(step, {"model": state})
            publisher.publish()
            assert publisher._ranks[0].at_hand is None
            check(step + lossy, state)
        chain.rollback(2)
        chain.save(3, {"model": states[0]})
        found = publisher.publish()
        assert found is not None
        assert (found.version, found.step, found.base) == (5 + lossy, 3, 4 + lossy)
        check(5 + lossy, states[0])
    if last is None:  # there are hashes alone, and of a lossy chain the exact file is published
        assert len(compared) == (0 if {"reference", "policy"} & settings.keys() else 5)
    else:  # the workers have what was saved in the background, until the rollback ends them
        assert len(compared) == last


def test_engines_that_begin_with_other_values(tmp_path: Path) -> None:
    weight = np.linspace(-1, 1, 2000, dtype="f4")
    write_model(tmp_path / "like", {"weight": weight * 2})
    with Chain(tmp_path / "run", "lossless") as chain:
        for step in range(2):
            chain.save(step, {"weight": weight + np.float32(step)})
    with pytest.raises(ArgumentError, match=r"not the tensors of step 0\n  'weight' differs"):
        publish(tmp_path / "run", tmp_path / "out", start=0, like=tmp_path / "like")
    assert list((tmp_path / "out").glob("weight*")) == []
