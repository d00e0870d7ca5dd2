"""Every verb of a chain, and a kill or a loss of power at any moment of it.

What was reported as done restores bit for bit, nothing that is listed restores to anything else,
and the next save works. The replay sees all files below a directory, so also the directories that
are made on the way. What only a rare reordering breaks is left to the nightly profile, which tries
all states; otherwise a sample is tried.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lccodec import Chain, Keep, LccodecWarning, bundle, unbundle
from lccodec.chain.save import background
from lccodec.constants import PAYLOAD_OFFSET, ROLLED_BACK_NAME, TEMPORARY_PREFIX

from ..support.crashes import Replay, tried
from ..support.damage import flip
from ..support.profiles import LONG
from ..support.walks import assert_restores, assert_same, save_all, walk

STATES = walk(9, shape=(6, 5))

#: States of a crash that are tried of each verb.
SAMPLE = None if LONG else 8


@dataclass(frozen=True)
class Verb:
    """What is done below a root.

    Parameters
    ----------
    act
        Does it, and tells what is done: the steps that the chain of the result must restore.
    result
        Where that chain is, or that bundle.
    before
        What is there before; by default a chain of six steps in ``run``.
    kept
        The steps that are in ``run`` at every moment.
    loses
        Whether steps may go: otherwise each is in ``run``, or set aside.
    """

    act: Callable[[Path, Replay], object]
    result: str = "run"
    before: Callable[[Path], object] = lambda root: six_steps(root / "run")
    kept: Iterable[int] = ()
    loses: bool = True


def six_steps(directory: Path, **options: Any) -> None:
    with Chain(directory, "lossless", **{"keyframe_every": 2, "newest": "exact", **options}) as chain:
        save_all(chain, STATES, range(6))


def saved(directory: Path, replay: Replay, *, later: bool = False, **options: Any) -> None:
    """Save three steps, and tell of each when it is done."""
    options = {"keyframe_every": 2, **options}
    with Chain(directory, "lossless", **options) as chain:
        for step in range(3):
            if later:
                chain.save_async(step, STATES[step]).result()
            else:
                chain.save(step, STATES[step])
            replay.done([step])


def told(act: Callable[[Path], object], *steps: int) -> Callable[[Path, Replay], None]:
    """Do something to the chain in ``run``; then these steps are there."""

    def run(root: Path, replay: Replay) -> None:
        act(root)
        replay.done(list(steps))

    return run


def rolled_back(root: Path) -> None:
    six_steps(root / "run")
    Chain(root / "run").rollback(3)


def protected(root: Path) -> None:
    six_steps(root / "run", parity=2)


def damaged(root: Path) -> None:
    protected(root)
    flip(root / "run" / "000000000004.lcc.h5", PAYLOAD_OFFSET + 70)


def bundled(root: Path) -> None:
    six_steps(root / "run")
    bundle(root / "run", root / "run.lcc")


def mirrored(root: Path, replay: Replay) -> None:
    with Chain(root / "run", "lossless", mirror=root / "copies" / "run") as chain:
        chain.save(6, STATES[6])
    replay.done(list(range(7)))


def saving(**options: Any) -> Verb:
    return Verb(
        lambda root, replay: saved(root / "new" / "run", replay, **options), "new/run", lambda _: None
    )


VERBS = {
    "save": saving(),
    "save, exact": saving(newest="exact"),
    "save, hashes": saving(reference="hashes"),
    "save, keep": saving(keep=Keep(latest=1)),
    "save_async": saving(later=True),
    "save, parity": saving(parity=1),
    "prune": Verb(told(lambda root: Chain(root / "run").prune(Keep(latest=1)), 3, 4, 5), kept=(3, 4, 5)),
    "prune, rewrite": Verb(
        told(lambda root: Chain(root / "run").prune(Keep(latest=1), rewrite=True), 5), kept=(5,)
    ),
    "compact": Verb(
        told(lambda root: Chain(root / "run").compact(keyframe_every=0), *range(6)), kept=range(6)
    ),
    "compact, fewer keyframes": Verb(
        told(lambda root: Chain(root / "run").compact(keyframe_every=8), *range(6)), kept=range(6)
    ),
    "compact elsewhere": Verb(
        told(lambda root: Chain(root / "run").compact(directory=root / "new" / "run"), *range(6)),
        "new/run",
        kept=range(6),
    ),
    "rollback": Verb(
        told(lambda root: Chain(root / "run").rollback(3), *range(4)), kept=range(4), loses=False
    ),
    "rollback, delete": Verb(
        told(lambda root: Chain(root / "run").rollback(3, delete=True), *range(4)), kept=range(4)
    ),
    "undo": Verb(
        told(lambda root: Chain(root / "run").undo_rollback(), *range(6)),
        before=rolled_back,
        kept=range(4),
        loses=False,
    ),
    "delete_rolled_back": Verb(
        told(lambda root: Chain(root / "run").delete_rolled_back(), *range(4)),
        before=rolled_back,
        kept=range(4),
    ),
    "fork": Verb(
        told(lambda root: Chain(root / "run").fork(root / "new" / "run", 4), 3, 4), "new/run", kept=range(6)
    ),
    "bundle": Verb(told(lambda root: bundle(root / "run", root / "run.lcc"), *range(6)), "run.lcc"),
    "bundle again": Verb(
        told(lambda root: bundle(root / "run", root / "run.lcc"), *range(6)), "run.lcc", bundled
    ),
    "unbundle": Verb(
        told(lambda root: unbundle(root / "run.lcc", root / "new" / "run"), *range(6)), "new/run", bundled
    ),
    "protect": Verb(told(lambda root: Chain(root / "run").protect(1), *range(6)), kept=range(6)),
    "repair": Verb(told(lambda root: Chain(root / "run").repair(), *range(6)), before=damaged),
    "mirror": Verb(mirrored, "copies/run", kept=range(6)),
}

#: The steps that are not as they were saved before the verb: it mends them.
DAMAGED = {"repair": {4, 5}}


def check_chain(place: Path, steps: list[int], spared: set[int]) -> None:
    """Hold what a crash has left against what was saved."""
    if not steps and not place.exists():
        return
    if place.is_file():
        unbundle(place, place.parent / "apart")
        place = place.parent / "apart"
    chain = Chain(place)
    assert set(steps) <= set(chain.steps)
    assert_restores(chain, STATES, set(chain.steps) - spared)
    if chain.steps and not spared:
        assert_same(chain.restore(), STATES[chain.steps[-1]])


def check_kept(run: Path, verb: Verb) -> None:
    """Hold what stays at every moment, and what is set aside, against what there was."""
    chain, base = Chain(run), run / ROLLED_BACK_NAME
    asides = [Chain(path) for path in base.glob("*") if not path.name.startswith(TEMPORARY_PREFIX)]
    assert set(verb.kept) <= set(chain.steps)
    assert chain.steps[-1:] != [5] or 5 not in verb.kept or chain.info(5).exact
    for aside in asides:
        assert_restores(aside, STATES, exact=False)
        assert aside.steps == [3, 4, 5] or verb is VERBS["undo"]
    assert verb.loses or {*chain.steps}.union(*(aside.steps for aside in asides)) == set(range(6))


def goes_on(place: Path) -> None:
    """The next use works."""
    with Chain(place, "lossless") as chain:
        following = chain.steps[-1] + 1 if chain.steps else 0
        chain.save(following, STATES[following])
        assert_same(chain.restore(), STATES[following])


@pytest.fixture(autouse=True)
def _one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "find_obstacle", lambda _: "a replay sees one process")


def bad_states(root: Path, name: str, **options: Any) -> list[str]:
    """The states that crashes of a verb leave and that are not as they should be."""
    verb = VERBS[name]
    root.mkdir()
    verb.before(root)

    def check(reported: list[Any], place: Path) -> None:
        steps = reported[-1] if reported else []
        spared = set() if reported else DAMAGED.get(name, set())
        check_chain(place / verb.result, steps, spared)
        if (place / "run").is_dir():
            check_kept(place / "run", verb)
        for run in {place / "run", place / verb.result}:
            if run.is_dir():
                check_chain(run, [], spared)
                if not spared:
                    goes_on(run)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LccodecWarning)
        return tried(root, lambda replay: verb.act(root, replay), check, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_no_crash_of_a_verb_harms(tmp_path: Path, name: str) -> None:
    assert bad_states(tmp_path / "root", name, most=SAMPLE) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ignore"),
    [
        *(("compact", "sync"), ("prune, rewrite", "sync"), ("prune, rewrite", "sync directory")),
        *((name, "sync directory") for name in ("prune", "rollback", "undo")),
    ],
)
def test_a_flush_that_is_missing_is_found(tmp_path: Path, name: str, ignore: str) -> None:
    assert len(bad_states(tmp_path / "root", name, ignore=ignore)) == 1
