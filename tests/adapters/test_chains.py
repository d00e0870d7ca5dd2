"""The options of an adapter's chain are checked when they are given, and used at the first save.

Links are written when their checkpoints are on the disk, and no failure is lost.
"""

import copy
import ntpath
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import Keep
from lccodec.adapters import chains as link_saver
from lccodec.adapters.chains import ChainOptions, LinkSaver, open_linked
from lccodec.adapters.weights import Rounding
from lccodec.errors import ArgumentError, StorageError, WorkerError

from ..support.far import Far, FarAdapter
from ..support.processes import children
from ..support.programs import run_program


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, "lc-2", 10, 1), "policy 'lc-2' codes deltas, which need chain="),
        ((None, "balanced", 10, 1), "which need chain="),
        ((None, "lc-9", 10, 1), "policy must be .* got 'lc-9'"),
        (("s3://bucket/run", "lossless", 10, 1), "the address"),
        (("", "lossless", 10, 1), "a path must be"),
        ((None, "lossless", 10, 1, "exact"), "newest='exact' needs chain="),
        (
            ("run", "lossless", 10, 1, "oldest"),
            "newest must be 'exact', 'history' or None; got",
        ),
        ((None, "lossless", 10, 1, None, True), "background=True needs chain="),
        (("run", "lossless", 10, 1, None, "yes"), "background must be True or False; got 'yes'"),
        ((None, "lossless", 10, 1, None, False, Keep(latest=1)), "keep= needs chain="),
        (("run", "lossless", 10, 1, None, False, 3), "keep must be an lccodec.Keep; got 3"),
        ((None, "lossless", 10, 1, None, False, None, 8), "hindsight= needs chain="),
        (("run", "balanced", 10, 1, None, False, None, 1), "hindsight must be 0 or an integer"),
        ((None, "lossless", 10, 1, None, False, None, 0, ["w"]), "only= needs chain="),
        (("run", "balanced", 10, 1, None, False, None, 8, ["w"]), "only= needs chain="),
        (("run", "lossless", 10, 1, None, False, None, 0, "w"), "only must be a list of names"),
    ],
)
def test_options_are_checked_before_there_is_anything_to_save(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        ChainOptions(*arguments)


#: In the background, with a worker process, and here.
in_both = pytest.mark.parametrize("background", [False, pytest.param(True, marks=pytest.mark.slow)])


def test_nothing_is_made_before_the_first_save(tmp_path):
    options = ChainOptions(tmp_path / "run", "lc-2", keyframe_every=5, workers=2)
    chain = options.open()
    assert not (tmp_path / "run").exists()
    assert (chain.directory, chain.policy.name) == (tmp_path / "run", "lc-2")
    assert (chain.keyframe_every, chain.workers, chain.newest) == (5, 2, "exact")
    other = ChainOptions(tmp_path / "run", newest="history").open()
    assert (other.newest, other.workers) == ("history", None)
    other.save(0, {"x": np.ones(3)})
    assert (tmp_path / "run").is_dir()


def test_processes_have_chains_of_their_own(tmp_path):
    options = ChainOptions(tmp_path / "run", keyframe_every=5)
    directory = tmp_path / "run" / "process-1"
    adapter = Rounding()
    for chain in (options.open("process-1", adapter), options.open_in(directory, adapter)):
        assert chain.directory == directory
        assert (chain.policy.name, chain.keyframe_every) == ("lossless", 5)
    assert chain.adapter is adapter


def test_a_pattern_may_fit_no_array_of_one_process_of_many():
    options = ChainOptions("run", only=["*lora*", "head"])
    assert options.only_of(lambda: ["a/lora/w", "a/w"], alone=False, has_all=True) == ["*lora*"]
    assert options.only_of(lambda: ["head"], alone=False, has_all=True) == ["head"]
    assert options.only_of(lambda: ["a/w"], alone=False, has_all=True) is None  # all that it has
    assert options.only_of(lambda: ["a/w"], alone=True, has_all=True) == (
        "*lora*",
        "head",
    )  # which is an error of the save
    assert ChainOptions("run").only_of(lambda: ["a/w"], alone=True, has_all=True) is None


def test_the_case_of_names_counts_on_every_system(monkeypatch):
    options = ChainOptions("run", only=["*lora*"])
    with monkeypatch.context() as windows:
        windows.setattr(os, "path", ntpath)
        found = options.only_of(lambda: ["a/LoRA/w"], alone=False, has_all=True)
    assert found is None


@pytest.fixture(params=[False, True], ids=["now", "background"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LinkSaver]:
    saver = LinkSaver(ChainOptions(tmp_path / "chain", background=request.param))
    yield saver
    saver.close()


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[LinkSaver]:
    """A saver that saves in the background."""
    saver = LinkSaver(ChainOptions(tmp_path / "chain", background=True))
    yield saver
    saver.close()


class Gate:
    """Holds up what runs in the background, behind the checkpoint and before its link."""

    def __init__(self, write: Callable[..., int]) -> None:
        self.open = threading.Event()
        self._write = write

    def __call__(self, *arguments: Any) -> int:
        self.open.wait(60)
        return self._write(*arguments)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate(link_saver.write_link)
    monkeypatch.setattr(link_saver, "write_link", gate)
    return gate


def refuse(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let links fail from now on."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(link_saver, "write_link", fail)


def state(step: int) -> dict[str, Any]:
    return {"w": np.random.default_rng(step).standard_normal(3000), "step": step}


def step_of(path: Path) -> Any:
    with open_linked(path) as file:
        return file.state()["step"]


@pytest.mark.slow
def test_each_state_has_its_link(saver: LinkSaver, tmp_path: Path) -> None:
    done: list[int] = []
    for step in range(4):
        saver.save(state(step), tmp_path / f"{step}", {"n": "1"}, then=lambda step=step: done.append(step))
    saver.wait()
    assert [step_of(tmp_path / f"{step}") for step in range(4)] == done == [0, 1, 2, 3]
    saver.close()
    saver.save(state(4), tmp_path / "4")  # opens the chain again
    saver.close()
    assert step_of(tmp_path / "4") == 4
    with lccodec.Chain(tmp_path / "chain") as chain:
        assert [chain.info(step).parent for step in chain.steps] == [None, 0, 1, 2, 3]
        assert chain.info(0).metadata == {"n": "1"}
    assert children() == []


@pytest.mark.slow
@pytest.mark.parametrize("background", [False, True])
def test_the_steps_of_a_trainer(background: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    saver = LinkSaver(ChainOptions(tmp_path / "chain", background=background))
    caplog.set_level("INFO", "lccodec")
    for number, step in enumerate((100, 250, None, 250, 40, 300)):
        saver.save(state(number), tmp_path / f"{number}", step=step)
    saver.close()
    assert lccodec.Chain(tmp_path / "chain").steps == [100, 250, 251, 252, 253, 300]
    assert [step_of(tmp_path / f"{number}") for number in range(6)] == [*range(6)]
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("the trainer")]
    assert told == [
        "the trainer's step 250 is step 252 of the chain, whose latest is 251",
        "the trainer's step 40 is step 253 of the chain, whose latest is 252",
    ]


@in_both
def test_older_steps_go_and_their_paths_stay(background: bool, tmp_path: Path) -> None:
    keep = lccodec.Keep(latest=2)
    options = ChainOptions(tmp_path / "chain", keyframe_every=0, background=background, keep=keep)
    saver = LinkSaver(options)
    for step in range(5):
        saver.save(state(step), tmp_path / f"{step}")
        saver.wait()
        assert lccodec.Chain(tmp_path / "chain").steps[-3:] == [*range(5)][max(0, step - 2) : step + 1]
    saver.close()
    assert lccodec.Chain(tmp_path / "chain").steps == [3, 4]
    assert [step_of(tmp_path / f"{step}") for step in range(5)] == [*range(5)]  # paths are whole


def test_without_a_chain_the_file_is_the_state(tmp_path: Path) -> None:
    class Adapter:
        def to_numpy(self, state: Any, metadata: Any = None, room: Any = None, /) -> Any:  # noqa: ARG002
            return {"wrapped": state}, {**metadata, "by": "me"}

    for adapter, expected in ((None, {"x": 1}), (Adapter(), {"wrapped": {"x": 1}})):
        saver = LinkSaver(ChainOptions(), adapter)
        saver.save({"x": 1}, tmp_path / "a")
        saver.close()
        assert lccodec.load_file(tmp_path / "a") == expected


def test_the_part_of_a_process_is_a_chain_of_its_own(tmp_path: Path) -> None:
    saver = LinkSaver(ChainOptions(tmp_path / "chain"), part="process-1")
    saver.save(state(0), tmp_path / "a")
    assert lccodec.Chain(tmp_path / "chain" / "process-1").steps == [0]
    assert step_of(tmp_path / "a") == 0


@pytest.mark.slow
def test_a_link_comes_after_its_checkpoint(beside: LinkSaver, gate: Gate, tmp_path: Path) -> None:
    done: list[str] = []
    beside.save(state(0), tmp_path / "a", then=lambda: done.append("then"))
    beside.after(lambda: done.append("after"))
    while not lccodec.Chain(tmp_path / "chain").steps:
        pass
    assert not (tmp_path / "a").exists()
    assert done == []
    gate.open.set()
    beside.wait()
    assert step_of(tmp_path / "a") == 0
    assert done == ["then", "after"]
    beside.after(lambda: done.append("at once"))
    assert done[-1] == "at once"


@contextmanager
def failing() -> Iterator[None]:
    """Let what is begun meanwhile fail: its worker stands still, and then it is killed."""
    (worker,) = children()
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGKILL)


@pytest.mark.slow
def test_what_waits_for_a_save_that_fails_is_not_done(beside: LinkSaver, tmp_path: Path) -> None:
    done: list[str] = []
    beside.save(state(0), tmp_path / "a")
    beside.wait()
    with failing():
        beside.save(state(1), tmp_path / "b", then=lambda: done.append("then"))
        beside.after(lambda: done.append("after"))
    beside.settle()
    beside.after(lambda: done.append("after the failure"))
    with pytest.raises(WorkerError) as raised:
        beside.save(state(2), tmp_path / "c")
    assert "step 1 was not saved" in raised.value.__notes__[0]
    assert done == []
    assert not (tmp_path / "b").exists()
    assert not (tmp_path / "c").exists()
    beside.save(state(2), tmp_path / "c")
    beside.wait()
    assert step_of(tmp_path / "c") == 2


def test_what_is_refused_at_once_leaves_nothing(saver: LinkSaver, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        saver.save({"x": object()}, tmp_path / "a")
    saver.close()
    assert list(tmp_path.glob("**/*.h5")) == []
    assert not (tmp_path / "a").exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["save", "wait", "close"])
def test_a_link_that_fails_is_told_once(
    how: str, beside: LinkSaver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        refuse(patch, StorageError(28, "no room for the link"))
        beside.save(state(0), tmp_path / "a")
        beside.settle()
    calls = {
        "save": lambda: beside.save(state(1), tmp_path / "b"),
        "wait": beside.wait,
        "close": beside.close,
    }
    with pytest.raises(StorageError, match="no room for the link"):
        calls[how]()
    calls[how]()
    beside.close()
    assert not (tmp_path / "a").exists()
    assert (tmp_path / "b").exists() == (how == "save")


@pytest.mark.slow
def test_an_action_that_fails_is_told(beside: LinkSaver, gate: Gate, tmp_path: Path) -> None:
    beside.save(state(0), tmp_path / "a")
    beside.after((tmp_path / "none").unlink)
    gate.open.set()
    with pytest.raises(FileNotFoundError):
        beside.wait()


@pytest.mark.slow
def test_once_all_is_saved_an_action_is_done_at_once(beside: LinkSaver, tmp_path: Path) -> None:
    """By the caller, whether it has waited or not; so a file is gone when the call returns."""
    done: list[int] = []
    beside.save(state(0), tmp_path / "a")
    beside.settle()
    beside.after(lambda: done.append(threading.get_ident()))
    assert done == [threading.get_ident()]


@pytest.mark.slow
def test_a_folder_that_is_deleted_meanwhile(
    beside: LinkSaver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []
    beside.save(state(0), tmp_path / "folder" / "a", then=lambda: done.append("then"))
    beside.wait()
    assert done == []
    assert "the folder was deleted before its checkpoint was saved" in caplog.text


@pytest.mark.slow
def test_a_save_that_is_asked_for_is_told_there(beside: LinkSaver, tmp_path: Path) -> None:
    beside.begin(state(0), None, None).link(tmp_path / "0")
    with failing():
        begun = beside.begin(state(1), None, None)
    with pytest.raises(WorkerError):
        begun.link(tmp_path / "1")
    beside.begin(state(2), None, None).link(tmp_path / "2")  # the failure was told
    assert [step_of(tmp_path / name) for name in "02"] == [0, 2]
    assert not (tmp_path / "1").exists()
    with pytest.raises(ArgumentError, match="needs a chain"):
        LinkSaver(ChainOptions()).begin(state(0), None, None)


@pytest.mark.slow
def test_a_copy_goes_on_from_the_disk(saver: LinkSaver, tmp_path: Path) -> None:
    saver.save(state(0), tmp_path / "0")
    saver.wait()
    another = copy.deepcopy(saver)  # in the way of pickle
    another.save(state(1), tmp_path / "1")
    another.close()
    assert [step_of(tmp_path / name) for name in "01"] == [0, 1]


FORK = """
import os, sys, threading, numpy as np
from pathlib import Path
from lccodec.adapters import chains as link_saver
from lccodec.adapters.chains import ChainOptions
gate, write, place = threading.Event(), link_saver.write_link, Path(sys.argv[1])
link_saver.write_link = lambda *given: [gate.wait(60), write(*given)][1]
saver = link_saver.LinkSaver(ChainOptions(place / "chain", background=True))
saver.save({"w": np.zeros(9), "step": 0}, place / "a")
process = os.fork()
if process == 0:
    saver.wait()
    saver.after((place / "forked").touch)
    saver.close()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7
assert (place / "forked").exists() and not (place / "a").exists()
gate.set()
saver.close()
"""


@pytest.mark.slow
def test_a_fork_does_not_wait_for_the_saves_of_its_parent(tmp_path: Path) -> None:
    """In a program of its own: frameworks that other tests import warn of forks."""
    run_program(FORK, tmp_path, flags=("-W", "ignore"))
    assert step_of(tmp_path / "a") == 0


AT_EXIT = """
import sys, numpy as np
from pathlib import Path
from lccodec.adapters import chains as link_saver
from lccodec.adapters.chains import ChainOptions
saver = link_saver.LinkSaver(ChainOptions(sys.argv[1] + "/chain", background=True))
if sys.argv[2] == "fails":
    def refuse(*_): raise OSError("no room for the link")
    link_saver.write_link = refuse
saver.save({"w": np.zeros(1_000_000)}, Path(sys.argv[1], "a"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["works", "fails"])
def test_the_end_of_a_program_waits_and_tells(how: str, tmp_path: Path) -> None:
    done = run_program(AT_EXIT, tmp_path, how)
    assert (tmp_path / "a").exists() == (how == "works")
    assert ("no room for the link" in done.stderr) == (how == "fails")
    assert lccodec.Chain(tmp_path / "chain").steps == [0]


@pytest.mark.slow
@pytest.mark.parametrize("background", [False, True])
def test_some_arrays_are_saved_once_all_of_them_are(background: bool, tmp_path: Path) -> None:
    saver = LinkSaver(ChainOptions(tmp_path / "chain", background=background, only=["lora"]))
    found = []
    for step in range(6):
        if step == 4:
            saver.close()  # then the next save is of all arrays again
        state = {"base": np.full(3000, step), "lora": np.full(30, step), "step": step}
        saver.save(state, tmp_path / f"{step}", names=["base", "lora"] if step == 2 else None)
        saver.wait()
        with open_linked(tmp_path / f"{step}") as file:
            there = file.state()
        found.append((there["base"][0], there["lora"][0], there["step"]))
    saver.close()
    assert found == [(0, 0, 0), (0, 1, 1), (0, 2, 2), (0, 3, 3), (4, 4, 4), (4, 5, 5)]


@in_both
def test_a_name_that_fits_no_array_is_told_at_the_first_save(background: bool, tmp_path: Path) -> None:
    saver = LinkSaver(ChainOptions(tmp_path / "chain", background=background, only=["lore"]))
    with pytest.raises(ArgumentError, match=r"'lore' .is it 'lora'"):
        saver.save({"lora": np.zeros(3)}, tmp_path / "0")
    saver.save({"lora": np.zeros(3)}, tmp_path / "0", names=["lora"])  # others may have it
    saver.close()
    assert (tmp_path / "0").exists()


@in_both
def test_the_names_of_arrays_are_known_without_a_copy(background: bool, tmp_path: Path) -> None:
    options = ChainOptions(tmp_path / "chain", background=background, only=["lora"])
    saver = LinkSaver(options, FarAdapter())
    there = {"base": Far(np.zeros(3000)), "lora": Far(np.zeros(30))}
    copies = []
    for step in range(2):
        saver.save(there, tmp_path / f"{step}")
        saver.wait()
        copies.append([array.copies for array in there.values()])
    saver.close()
    assert copies == [[1, 1], [1, 2]]


@pytest.mark.slow
def test_behind_a_save_that_has_failed_all_arrays_are_saved(tmp_path: Path) -> None:
    some = LinkSaver(ChainOptions(tmp_path / "chain", background=True, only=["lora"]))
    states = [{"base": np.full(3000, step), "lora": np.full(30, step)} for step in range(2)]
    some.save(states[0], tmp_path / "0")
    some.wait()
    some._last = Future()
    some._last.set_exception(StorageError(28, "no space"))
    some.save(states[1], tmp_path / "1")
    some.close()
    with open_linked(tmp_path / "1") as file:
        assert file.state()["base"][0] == 1


@in_both
def test_a_state_that_got_other_arrays_is_saved_at_the_second_try(background: bool, tmp_path: Path) -> None:
    some = LinkSaver(ChainOptions(tmp_path / "chain", background=background, only=["lora"]))
    some.save({"base": np.zeros(3000), "lora": np.zeros(30)}, tmp_path / "0")
    some.wait()
    state = {"base": np.ones(3000), "lora": np.ones(30), "moments": np.ones(30)}
    with pytest.raises(ArgumentError, match="'moments' is not in step 0"):
        some.save(state, tmp_path / "1")
        some.wait()
    some.save(state, tmp_path / "2")
    some.close()
    with open_linked(tmp_path / "2") as file:
        assert sum(map(np.sum, file.state().values())) == 3060


def weights(seed: int) -> dict[str, Any]:
    return {"weight": np.random.default_rng(seed).standard_normal((300, 40)).astype(np.float32), "n": seed}


def is_exact(path: Path, expected: dict[str, Any]) -> bool:
    with open_linked(path) as file:
        found = file.state()
    return found.keys() == expected.keys() and all(np.array_equal(found[key], expected[key]) for key in found)


@in_both
def test_one_step_may_have_several_names(background: bool, tmp_path: Path) -> None:
    """As best and last: it is saved once. What a trainer notes of its callbacks may differ."""
    saver = LinkSaver(ChainOptions(tmp_path / "chain", "balanced", background=background))
    for step in (4, 8):
        saver.save(weights(step), tmp_path / f"best-{step}", step=step)
        saver.save(weights(step), tmp_path / "last", step=step)
        saver.save({**weights(step), "n": -1}, tmp_path / "other", {"noted": "1"}, step=step)
    saver.close()
    assert lccodec.Chain(tmp_path / "chain").steps == [4, 8]
    assert (tmp_path / "last").samefile(tmp_path / "best-8")
    assert all(is_exact(tmp_path / f"best-{step}", weights(step)) for step in (4, 8))
    assert is_exact(tmp_path / "last", weights(8))
    assert is_exact(tmp_path / "other", {**weights(8), "n": -1})
    with open_linked(tmp_path / "other") as file:
        assert file.metadata() == {"noted": "1"}


def test_another_state_of_the_same_step_is_numbered_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saver = LinkSaver(ChainOptions(tmp_path / "chain", "balanced"))
    for seed in range(3):
        saver.save(weights(seed), tmp_path / f"{seed}", step=4)
    saver.close()
    assert lccodec.Chain(tmp_path / "chain").steps == [4, 5, 6]
    assert all(is_exact(tmp_path / f"{seed}", weights(seed)) for seed in range(3))
    assert "the trainer's step 4 is step 6 of the chain" in caplog.text


def test_a_state_that_is_the_newest_is_not_saved_again(tmp_path: Path) -> None:
    """Although another path was loaded meanwhile, as to be validated, or the program is another."""
    saver = LinkSaver(ChainOptions(tmp_path / "chain", "balanced"))
    for step in (4, 8):
        saver.save(weights(step), tmp_path / f"{step}", step=step)
    saver.resumed(4)
    saver.save(weights(8), tmp_path / "again", step=8)
    saver.close()
    LinkSaver(ChainOptions(tmp_path / "chain", "balanced")).save(weights(8), tmp_path / "other", step=8)
    assert lccodec.Chain(tmp_path / "chain").steps == [4, 8]
    assert all(is_exact(tmp_path / name, weights(8)) for name in ("8", "again", "other"))


@pytest.mark.parametrize("how", ["loaded", "anew"])
def test_a_chain_goes_back_with_its_trainer(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saver = LinkSaver(ChainOptions(tmp_path / "chain", "balanced"))
    for step in (4, 6, 8, 12):
        saver.save(weights(step), tmp_path / f"{step}", step=step)
    if how == "anew":
        saver.close()
        saver = LinkSaver(ChainOptions(tmp_path / "chain", "balanced"))
    else:
        saver.resumed(4)
    saver.save(weights(0), tmp_path / "new", step=8)
    saver.save(weights(1), tmp_path / "12", step=12)
    saver.close()
    with lccodec.Chain(tmp_path / "chain") as chain:
        assert chain.steps == ([4, 8, 12] if how == "loaded" else [4, 6, 8, 12])
        assert chain.restore(12)["n"] == 1
        assert [gone.steps for gone in chain.rolled_back] == [(6, 8, 12) if how == "loaded" else (8, 12)]
    assert "the trainer went back to step 8" in caplog.text
    for name, seed in {"4": 4, "6": 6, "8": 8, "new": 0, "12": 1}.items():
        assert is_exact(tmp_path / name, weights(seed))


@pytest.mark.parametrize("newest", ["exact", "history"])
def test_going_back_drops_nothing_that_is_named(newest: Any, tmp_path: Path) -> None:
    """Neither a pinned step nor one that a link names."""
    saver = LinkSaver(ChainOptions(tmp_path / "chain", "balanced", newest=newest))
    for step in (4, 8):
        saver.save(weights(step), tmp_path / f"{step}", step=step)
    if newest == "exact":
        lccodec.Chain(tmp_path / "chain").pin(8)
    saver.resumed(4)
    saver.save(weights(0), tmp_path / "new", step=6)
    saver.close()
    assert lccodec.Chain(tmp_path / "chain").steps == [4, 8, 9]
    assert [step_of_weights(tmp_path / name) for name in ("4", "8", "new")] == [4, 8, 0]


def step_of_weights(path: Path) -> Any:
    with open_linked(path) as file:
        return file.state()["n"]
