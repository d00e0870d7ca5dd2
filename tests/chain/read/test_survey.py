"""A survey decodes every checkpoint once, and reports the problems that a reader would meet.

A walk through a run decodes what is wanted, and verifies the rest.
"""

import itertools
import os
import random
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import Chain, ChainError, DataError, LccodecError, Lossless, validate
from lccodec.chain.read.checkpoint import open_path
from lccodec.chain.read.replay import DecodedArray
from lccodec.chain.read.survey import survey
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import PAYLOAD_OFFSET
from lccodec.container.checkpoint import CheckpointWriter, open_checkpoint
from lccodec.container.manifest import INHERITED, Manifest, Parent, parse_manifest
from lccodec.frame.decode import decode_components
from lccodec.frame.header import parse_header
from lccodec.inspect.difference import Leaves, compare_states

from ...support.chains import HistoryChain

State = dict[str, np.ndarray]

#: The parent of each step.
TREES = {
    "two branches in turn": [None, 0, 0, 1, 2, 3, 4, 5, 6],
    "a comb": [None, 0, 0, 2, 2, 4, 4, 6, 6],
    "a star": [None, 0, 0, 0, 0, 0, 0],
    "two keyframes": [None, None, 0, 1, 2, 3],
    "random": [None, *(random.Random(1).randrange(step) for step in range(1, 20))],
}


def write(directory: Path, step: int, parent: int | None, state: State, before: State | None) -> None:
    """Write a checkpoint with one frame for each array; `before` holds the references."""
    named = None
    if parent is not None:
        with open_checkpoint(directory / f"{parent:012d}.lcc.h5") as reader:
            named = Parent(parent, reader.root)
    with CheckpointWriter(directory / f"{step:012d}.lcc.h5") as writer:
        entries = []
        for name, array in state.items():
            reference = None if before is None else before[name]
            frame = lccodec.encode(array, Lossless(), reference)
            assert parse_header(frame).relative == (before is not None)
            entries.append(writer.write_frame(frame))
        tree = INHERITED if parent is not None else {name: i for i, name in enumerate(state)}
        numbers = tuple(range(1, len(entries) + 1))
        writer.commit(Manifest(step, named, "lossless", {}, tree, [], numbers, tuple(entries)))


def write_tree(directory: Path, parents: list[int | None], wrong: int | None = None) -> dict[int, State]:
    """Write checkpoints with these parents; step `wrong` is coded against another reference."""
    rng = np.random.default_rng(0)
    states: dict[int, State] = {}
    for step, parent in enumerate(parents):
        last = {} if parent is None else states[parent]
        states[step] = {
            name: (last.get(name, np.ones(50)) + 1e-6 * rng.standard_normal(50)).astype(np.float32)
            for name in ("v", "w")
        }
        before = None if parent is None else dict(states[parent])
        if step == wrong and before is not None:
            before["w"] = before["w"] + 1
        write(directory, step, parent, states[step], before)
    return states


resource = pytest.importorskip("resource")


@pytest.fixture(name="counts")
def _counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often frames were decoded, manifests parsed and files opened."""
    counts: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*args, **options)

        return call

    monkeypatch.setattr("lccodec.chain.read.replay.decode_components", counted("decoded", decode_components))
    monkeypatch.setattr("lccodec.container.checkpoint.parse_manifest", counted("parsed", parse_manifest))
    monkeypatch.setattr(os, "open", counted("opened", os.open))
    return counts


def small_arrays(directory: Path, arrays: int, steps: int, every: int = 1000) -> int:
    """Write a chain of many small arrays, which share frames; return the number of its frames."""
    rng = np.random.default_rng(0)
    big = rng.standard_normal(30_000)  # so that deltas are smaller than their keyframe for long
    frames = 0
    with HistoryChain(directory, "lossless", keyframe_every=every) as chain:
        for step in range(steps):
            state = {f"a{i}": np.full(8, step + i, np.float32) for i in range(arrays)}
            chain.save(step, {"big": big, **state, "n": np.arange(step + 1)})
            with open_checkpoint(directory / f"{step:012d}.lcc.h5") as reader:
                frames += len(reader.manifest.frames)
    return frames


@contextmanager
def few_descriptors(more: int) -> Iterator[None]:
    """Let this process open no more than so many files beside those that are open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}
    free = (number for number in itertools.count() if number not in used)
    last = next(itertools.islice(free, more, None))  # the limit is one of numbers, not of their count
    resource.setrlimit(resource.RLIMIT_NOFILE, (last, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_deep_check_decodes_each_frame_once(tmp_path: Path, counts: Counter[str]) -> None:
    frames = small_arrays(tmp_path, 100, 12, every=7)
    counts.clear()
    assert validate(tmp_path, deep=True) == []
    assert counts["decoded"] == frames
    assert counts["parsed"] == 12
    assert counts["opened"] <= 2 * 12


def test_a_check_of_a_file_decodes_its_chain_once(tmp_path: Path, counts: Counter[str]) -> None:
    frames = small_arrays(tmp_path, 100, 5)
    counts.clear()
    assert validate(tmp_path / "000000000004.lcc.h5", deep=True) == []
    assert counts["decoded"] == frames
    assert counts["parsed"] == counts["opened"] == 5


@pytest.mark.slow
def test_a_check_parses_each_manifest_once(tmp_path: Path, counts: Counter[str]) -> None:
    small_arrays(tmp_path, 3, 40)
    counts.clear()
    assert validate(tmp_path) == []
    assert (counts["parsed"], counts["decoded"]) == (40, 0)
    assert counts["opened"] <= 80


def test_a_difference_decodes_each_frame_once(tmp_path: Path, counts: Counter[str]) -> None:
    frames = small_arrays(tmp_path, 100, 4)
    first = 0
    with open_checkpoint(tmp_path / "000000000000.lcc.h5") as reader:
        first = len(reader.manifest.frames)
    counts.clear()
    with (
        open_path(tmp_path / "000000000000.lcc.h5") as old,
        open_path(tmp_path / "000000000003.lcc.h5") as new,
    ):
        difference = compare_states(Leaves(old), Leaves(new))
    assert len(difference.changed) == 100
    assert counts["decoded"] <= frames + first


@pytest.mark.slow
def test_a_long_chain_needs_few_descriptors(tmp_path: Path) -> None:
    small_arrays(tmp_path, 2, 90)
    with few_descriptors(40):
        chain = HistoryChain(tmp_path)
        assert chain.info().deltas == 89
        assert chain.restore()["a1"][0] == 90
        assert validate(tmp_path, deep=True) == []
        with open_path(tmp_path / "000000000089.lcc.h5") as one:
            with open_path(tmp_path / "000000000088.lcc.h5") as other:
                assert one.get("n").size == other.get("n").size + 1
            assert one.get("a0")[0] == 89  # the other has let go of what is shared


@pytest.mark.slow
def test_the_latest_of_many_checkpoints_is_read_alone(tmp_path: Path, counts: Counter[str]) -> None:
    small_arrays(tmp_path, 2, 50, every=0)
    counts.clear()
    chain = HistoryChain(tmp_path)
    assert chain.steps == list(range(50))
    chain.restore()
    assert (counts["parsed"], counts["opened"]) == (1, 1)


@pytest.mark.slow
def test_a_deep_check_holds_one_state(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    state = {f"w{i}": rng.standard_normal(100_000) for i in range(10)}
    with HistoryChain(tmp_path, "lossless") as chain:
        for step in range(5):
            chain.save(step, state)
            state = {name: array + 1e-9 for name, array in state.items()}
    tracemalloc.start()
    assert validate(tmp_path, deep=True) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.8 * 10 * 800_000


# --- any tree of parents --------------------------------------------------------------------------


def by_reading(path: Path) -> set[tuple[str, str]]:
    """What a reader of one file meets, array by array."""
    found = set()
    try:
        with open_path(path) as file:
            for name in file.keys():  # noqa: SIM118
                try:
                    file.get(name)
                except DataError as error:
                    found.add((error.rule, error.where))
    except ChainError:
        found.add(("chain", path.name))
    except DataError as error:
        found.add((error.rule, error.where))
    return found


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES)
def test_any_tree_is_decoded_once(tmp_path: Path, parents: list[int | None], counts: Counter[str]) -> None:
    write_tree(tmp_path, parents)
    counts.clear()
    assert validate(tmp_path, deep=True) == []
    assert (counts["decoded"], counts["parsed"]) == (2 * len(parents), len(parents))
    assert counts["opened"] <= 2 * len(parents)


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES)
def test_parents_come_before_their_children_and_few_wait(tmp_path: Path, parents: list[int | None]) -> None:
    write_tree(tmp_path, parents)
    steps = {step: f"{step:012d}.lcc.h5" for step in range(len(parents))}
    visits = survey(DirectoryStore(tmp_path), steps)
    seen = []
    for visit in visits:
        assert visit.reader is not None
        step = visit.info().step
        assert step is not None
        assert parents[step] is None or parents[step] in seen
        seen.append(step)
        assert len(visits.gi_frame.f_locals["found"].waiting) <= len(parents).bit_length()
    assert sorted(seen) == list(steps)


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES)
def test_by_rising_step_the_arrays_are_those_of_a_restore(
    tmp_path: Path, parents: list[int | None], counts: Counter[str]
) -> None:
    states = write_tree(tmp_path, parents)
    steps = {step: f"{step:012d}.lcc.h5" for step in states}
    counts.clear()
    seen = []
    for visit in survey(DirectoryStore(tmp_path), steps, decode=True, rising=True):
        step = visit.info().step
        assert step is not None
        for name, array in visit.arrays().items():
            assert isinstance(array, DecodedArray)
            np.testing.assert_array_equal(array.array(), states[step][name])
        seen.append(step)
    assert seen == list(steps)
    assert (counts["decoded"], counts["parsed"]) == (2 * len(parents), len(parents))


def test_bytes_of_frames_by_method(tmp_path: Path) -> None:
    write_tree(tmp_path, [None, 0])
    store = DirectoryStore(tmp_path)
    for visit in survey(store, store.checkpoints()):
        assert visit.reader is not None
        assert sum(visit.frame_bytes().values()) == visit.reader.trailer.payload_length
        assert visit.frame_bytes().keys() <= {"raw", "planes"}
        assert visit.arrays() == {}


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES)
@pytest.mark.parametrize("wrong", [1, 2, 4])
def test_a_wrong_sum_is_a_problem_of_all_that_depend_on_it(
    tmp_path: Path, parents: list[int | None], wrong: int, counts: Counter[str]
) -> None:
    write_tree(tmp_path, parents, wrong)
    assert validate(tmp_path) == []
    counts.clear()
    problems = validate(tmp_path, deep=True)
    below = {wrong} if parents[wrong] is not None else set()
    for step, parent in enumerate(parents):
        if parent in below:
            below.add(step)
    place = f"{wrong:012d}.lcc.h5: array 'w': frame"
    told = [
        ("chain", f"{step:012d}.lcc.h5") if step != wrong else ("LCC-FRM-09", place) for step in sorted(below)
    ]
    assert [(p.rule, p.where) for p in problems] == told
    assert counts["decoded"] <= 2 * len(parents)  # what depends on it is not tried
    for step in range(len(parents)):
        path = tmp_path / f"{step:012d}.lcc.h5"
        assert {(p.rule, p.where) for p in validate(path, deep=True)} == (
            {("LCC-FRM-09", place)} if step in below else set()
        )


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


DAMAGE: dict[str, Callable[[Path], object]] = {
    "payload": lambda path: path.write_bytes(flipped(path.read_bytes(), PAYLOAD_OFFSET + 28)),
    "root": lambda path: path.write_bytes(flipped(path.read_bytes(), -1)),
    "manifest": lambda path: path.write_bytes(flipped(path.read_bytes(), -120)),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "gone": lambda path: path.unlink(),
    "another": lambda path: path.write_bytes(path.with_name("000000000000.lcc.h5").read_bytes()),
}


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES)
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_told_as_a_reader_meets_it(
    tmp_path: Path, parents: list[int | None], damage: Callable[[Path], object]
) -> None:
    write_tree(tmp_path, parents)
    damage(tmp_path / "000000000002.lcc.h5")
    problems = validate(tmp_path, deep=True)
    files = sorted(tmp_path.glob("*.lcc.h5"))
    others = [path for path in files if path.name != "000000000002.lcc.h5"]
    named = [path for path in others if any(p.where.startswith(path.name) for p in problems)]
    assert named == [path for path in others if by_reading(path)]
    assert named == [path for path in others if validate(path, deep=True)]
    gone = damage is DAMAGE["gone"]
    file = tmp_path / "000000000002.lcc.h5"
    of_file = set() if gone else {(p.rule, p.where) for p in validate(file, deep=True)}
    own = {(p.rule, p.where) for p in problems if not any(p.where.startswith(path.name) for path in named)}
    assert own == of_file or damage is DAMAGE["another"]  # whose name is wrong for a chain alone


def test_problems_are_in_the_order_of_the_steps(tmp_path: Path) -> None:
    write_tree(tmp_path, [None, 0, 0, 1, 2])
    for step in (0, 1, 2, 3, 4):
        DAMAGE["payload"](tmp_path / f"{step:012d}.lcc.h5")
    places = [Path(p.where.split(": frame")[0]).name for p in validate(tmp_path)]
    assert list(dict.fromkeys(places)) == [f"{step:012d}.lcc.h5" for step in range(5)]
    assert places == sorted(places)


# --- files that come and go -----------------------------------------------------------------------


@pytest.mark.parametrize("deep", [False, True])
def test_a_check_beside_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deep: bool) -> None:
    small_arrays(tmp_path, 2, 3)
    chain = HistoryChain(tmp_path, "lossless")
    listed = os.listdir

    def list_and_write(path: Path) -> list[str]:
        before = listed(path)
        with monkeypatch.context() as patch:
            patch.setattr(os, "listdir", listed)
            chain.save(chain.steps[-1] + 1, {"a": 1})
        (path / ".tmp-0123456789abcdef").write_bytes(b"half")
        return before if len(before) == 3 else listed(path)

    monkeypatch.setattr(os, "listdir", list_and_write)
    assert validate(tmp_path, deep=deep) == []


def test_a_file_that_vanishes_is_no_problem_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_arrays(tmp_path, 2, 3)
    listed = os.listdir

    def list_and_remove(path: Path) -> list[str]:
        names = listed(path)
        (path / "000000000002.lcc.h5").unlink(missing_ok=True)
        return names

    monkeypatch.setattr(os, "listdir", list_and_remove)
    assert validate(tmp_path, deep=True) == []


def test_a_link_to_nothing_is_a_problem(tmp_path: Path) -> None:
    small_arrays(tmp_path, 2, 2)
    (tmp_path / "000000000002.lcc.h5").symlink_to(tmp_path / "nothing")
    (problem,) = validate(tmp_path)
    assert (problem.rule, problem.where) == ("storage", "000000000002.lcc.h5")


@pytest.mark.parametrize("parent", [None, 0])
def test_a_file_that_became_another_since_the_order_was_made(tmp_path: Path, parent: int | None) -> None:
    """The first look at a file only makes an order: what is found later counts."""
    write_tree(tmp_path, [None, 0, 1, 0, 3])

    class Changed(DirectoryStore):
        def parents_of(self, _: str) -> tuple[int, ...]:
            return () if parent is None else (parent,)

    def broken() -> list[int]:
        store = Changed(tmp_path)
        visits = survey(store, store.checkpoints(), decode=True)
        return [visit.step for visit in visits if visit.error or visit.broken()]

    assert broken() == []
    (tmp_path / "000000000001.lcc.h5").unlink()
    assert broken() == [2]


def test_a_parent_that_was_not_listed_is_found(tmp_path: Path) -> None:
    write_tree(tmp_path, [None, 0, 1])
    visit = next(survey(DirectoryStore(tmp_path), {2: "000000000002.lcc.h5"}, decode=True))
    assert visit.info().deltas == 2
    assert visit.broken() == []


def test_a_survey_raises_what_a_reader_would(tmp_path: Path) -> None:
    write_tree(tmp_path, [None, 0])
    (tmp_path / "000000000000.lcc.h5").unlink()
    (visit,) = survey(DirectoryStore(tmp_path), {1: "000000000001.lcc.h5"})
    with pytest.raises(LccodecError, match="its parent, step 0, is missing"):
        visit.info()


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES)
def test_what_is_not_decoded_is_verified(tmp_path: Path, parents: list[int | None]) -> None:
    states = write_tree(tmp_path, parents)
    store = DirectoryStore(tmp_path)
    for visit in survey(store, store.checkpoints(), decode={"w"}):
        (array,) = visit.arrays().values()
        assert isinstance(array, DecodedArray)
        np.testing.assert_array_equal(array.array(), states[visit.step]["w"])
        assert [shape for _, shape in visit.verified().values()] == [states[visit.step]["v"].shape]

    def problems(decode: bool | frozenset[str]) -> dict[int, list[str]]:
        found = survey(store, store.checkpoints(), decode=decode)
        return {visit.step: list(map(str, visit.broken())) for visit in found}

    path = tmp_path / "000000000002.lcc.h5"
    data = bytearray(path.read_bytes())
    with open_checkpoint(path) as reader:
        data[PAYLOAD_OFFSET + reader.manifest.frames[0].length - 1] ^= 1  # in the frame of v
    path.write_bytes(data)
    found = problems(decode=True)
    assert found[2]
    assert problems(frozenset()) == problems(frozenset({"w"})) == found


def test_copies_are_verified_with_their_sources(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with Chain(tmp_path, "lossless") as chain:
        for step in range(3):
            w = rng.normal(size=(100, 80)).astype(np.float32)
            chain.save(step, {"half": w.astype(np.float16), "other": np.arange(step + 9), "w": w})
    store = DirectoryStore(tmp_path)

    def problems(decode: bool | frozenset[str]) -> dict[int, list[str]]:
        found = survey(store, store.checkpoints(), decode=decode)
        return {visit.step: list(map(str, visit.broken())) for visit in found}

    for visit in survey(store, store.checkpoints(), decode=frozenset()):
        assert ["half", "w"] in visit.runs()
        half, _, w = (visit.verified()[name] for name in ("half", "other", "w"))
        assert (half[0].name, half[1], w[0].name) == ("float16", (100, 80), "float32")
    for visit in survey(store, store.checkpoints(), decode=frozenset({"half", "w"})):
        half, w = (visit.arrays()[name].array() for name in ("half", "w"))
        np.testing.assert_array_equal(half, w.astype(np.float16))
        assert list(visit.verified()) == ["other"]

    path = tmp_path / "000000000001.lcc.h5"
    data = bytearray(path.read_bytes())
    with open_checkpoint(path) as reader:
        data[PAYLOAD_OFFSET + reader.manifest.payload_length - 1] ^= 1  # in the frame of w
    path.write_bytes(data)
    found = problems(decode=True)
    assert [len(broken) for broken in found.values()] == [0, 2, 2]
    assert problems(frozenset()) == problems(frozenset({"half", "w"})) == found


def test_what_is_unchanged_is_verified_as_its_parent_was(tmp_path: Path) -> None:
    v, w = np.linspace(1, 2, 300), np.linspace(1, 2, 300, dtype=np.float32)  # two types: two frames
    with Chain(tmp_path, "lossless") as chain:
        for step, moved in enumerate([v, v, v + 1e-9]):
            chain.save(step, {"v": moved, "w": w + np.float32(1e-6 * step)})
    store = DirectoryStore(tmp_path)
    for visit in survey(store, store.checkpoints(), decode=frozenset({"w"})):
        assert [shape for _, shape in visit.verified().values()] == [(300,)]

    def problems(decode: bool | frozenset[str]) -> dict[int, list[str]]:
        found = survey(store, store.checkpoints(), decode=decode)
        return {visit.step: list(map(str, visit.broken())) for visit in found}

    path = tmp_path / "000000000000.lcc.h5"
    data = bytearray(path.read_bytes())
    data[PAYLOAD_OFFSET + 40] ^= 1  # in the frame of v
    path.write_bytes(data)
    found = problems(decode=True)
    assert [len(broken) for broken in found.values()] == [1, 1, 1]
    assert problems(frozenset()) == problems(frozenset({"w"})) == found
