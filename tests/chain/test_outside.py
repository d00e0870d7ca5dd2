"""Links in a chain's directory lead nowhere: no verb touches what lies outside.

Whatever has a name that lccodec gives is replaced, in turn, by links of all kinds to files and
directories beside the chain, and every verb is tried. It may raise one of our errors. It may not
change, make or remove anything outside, nor wait for a FIFO.
"""

import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lccodec import Chain, Keep, LccodecError, LccodecWarning, bundle, unbundle, validate
from lccodec.adapters.ranks import prune_together
from lccodec.chain.save import background
from lccodec.chain.store.directory import DirectoryStore, describe_exact
from lccodec.constants import EXACT_NAME, ROLLED_BACK_NAME, WRITER_NAME
from lccodec.inspect.examination import examine

from ..support.outside import KINDS, TEMPORARY, make_outside, not_hanging, picture, put
from ..support.profiles import LONG
from ..support.walks import save_all, walk

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links and FIFOs of POSIX")

STATES = walk(10, shape=(6, 5))
ARCHIVE = f"{ROLLED_BACK_NAME}/0001-to-6"

#: What lccodec names in a directory, or would: step 7 is the next, and was rolled back once.
PLACES = (
    "000000000000.lcc.h5",
    "000000000004.lcc.h5",
    "000000000006.lcc.h5",
    "000000000007.lcc.h5",
    EXACT_NAME,
    "000000000001.pin",
    "000000000002.pin",
    WRITER_NAME,
    TEMPORARY,
    ROLLED_BACK_NAME,
    ARCHIVE,
    f"{ROLLED_BACK_NAME}/{TEMPORARY}",
    f"{ROLLED_BACK_NAME}/0002-to-4",
    f"{ARCHIVE}/000000000006.lcc.h5",
    f"{ARCHIVE}/000000000007.lcc.h5",
    f"{ARCHIVE}/000000000007.pin",
    f"{ARCHIVE}/{EXACT_NAME}",
    f"{ARCHIVE}/{TEMPORARY}",
    f"{ARCHIVE}/{ROLLED_BACK_NAME}",
    f"{ARCHIVE}/notes.txt",
)


def chain_verb(act: Callable[[Chain], Any], **options: Any) -> Callable[[Path], None]:
    def run(directory: Path) -> None:
        with Chain(directory, **options) as chain:
            act(chain)

    return run


def look(directory: Path) -> None:
    """What `lccodec ls` and `lccodec rolled-back` show."""
    chain = Chain(directory)
    for call in (
        lambda: [chain.info(step) for step in chain.steps],
        lambda: describe_exact(DirectoryStore(directory)),
        lambda: chain.pins,
        lambda: chain.rolled_back,
        lambda: examine(directory),
    ):
        with suppress(LccodecError):
            call()


def restore_all(chain: Chain) -> None:
    for step in chain.steps:
        with suppress(LccodecError):
            chain.restore(step)
        with suppress(LccodecError):
            dict(chain.restore_iter(step, exact=False))


VERBS: dict[str, Callable[[Path], object]] = {
    "save": chain_verb(lambda chain: chain.save(7, STATES[7])),
    "save twice": chain_verb(lambda chain: [chain.save(step, STATES[step]) for step in (8, 9)]),
    "save a keyframe": chain_verb(lambda chain: chain.save(8, STATES[8]), keyframe_every=0),
    "save the history": chain_verb(lambda chain: chain.save(8, STATES[8]), newest="history"),
    "save, keep": chain_verb(lambda chain: chain.save(8, STATES[8]), keep=Keep(latest=2)),
    "save_async": chain_verb(lambda chain: chain.save_async(8, STATES[8]).result()),
    "restore": chain_verb(restore_all),
    "average": chain_verb(lambda chain: chain.average(last=3)),
    "plan": chain_verb(lambda chain: chain.plan(STATES[8])),
    "look": look,
    "rollback": chain_verb(lambda chain: chain.rollback(3)),
    "rollback to the newest": chain_verb(lambda chain: chain.rollback(6)),
    "rollback, delete": chain_verb(lambda chain: chain.rollback(3, delete=True)),
    "bring back": chain_verb(lambda chain: chain.undo_rollback()),
    "bring back one": chain_verb(lambda chain: chain.undo_rollback("0001-to-6")),
    "delete_rolled_back": chain_verb(lambda chain: chain.delete_rolled_back(pinned=True)),
    "delete one": chain_verb(lambda chain: chain.delete_rolled_back("0001-to-6", pinned=True)),
    "prune": chain_verb(lambda chain: chain.prune(Keep(latest=1))),
    "prune, rewrite": chain_verb(lambda chain: chain.prune(Keep(latest=2), rewrite=True)),
    "prune, and ranks": lambda directory: prune_together(directory, Keep(latest=1)),
    "compact": chain_verb(lambda chain: chain.compact(keyframe_every=0)),
    "compact elsewhere": chain_verb(lambda chain: chain.compact(directory=f"{chain.directory}-compacted")),
    "code anew": chain_verb(lambda chain: chain.compact("lc-3", directory=f"{chain.directory}-anew")),
    "fork": chain_verb(lambda chain: chain.fork(f"{chain.directory}-fork", 6)),
    "pin": chain_verb(lambda chain: [chain.pin(1), chain.pin(2)]),
    "unpin": chain_verb(lambda chain: [chain.unpin(1), chain.unpin(2)]),
    "bundle": lambda directory: bundle(directory, f"{directory}.lcc"),
    "bundle inside": lambda directory: bundle(directory, directory / "all.lcc"),
    "unbundle": lambda directory: unbundle(directory.parent / "all.lcc", directory),
    "fork into": lambda directory: Chain(directory.parent / "sound").fork(directory, 4),
    "validate": lambda directory: validate(directory, deep=True),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain, `run`, with all that it can have; a bundle of it; and a sound chain."""
    root = tmp_path_factory.mktemp("built")
    with Chain(root / "run", "lossless", keyframe_every=2, newest="exact") as chain:
        save_all(chain, STATES, range(8))
        chain.pin(7)
        chain.rollback(6)
        chain.pin(1)
        chain.restore()  # lossless: an exact file is not missed
    bundle(root / "run", root / "all.lcc")
    with Chain(root / "sound", "lossless") as chain:
        save_all(chain, STATES, range(5))
    return root


@pytest.fixture
def no_hanging() -> Iterator[None]:
    with not_hanging():
        yield


#: Of the verbs, one in so many is tried with a place and a kind; all in the nightly profile.
#: Every verb meets every place and every kind.
SHARE = 4


@pytest.mark.slow
@pytest.mark.usefixtures("no_hanging")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_nothing_outside_is_touched(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch, place: str, kind: str
) -> None:
    monkeypatch.setattr(background, "find_obstacle", lambda _: "a thread is faster here")
    outside = make_outside(built / "sound", tmp_path / "outside")
    expected = picture(outside)
    for name in ("all.lcc", "sound"):
        (tmp_path / name).symlink_to(built / name)
    first = 0 if LONG else (PLACES.index(place) + [*KINDS].index(kind)) % SHARE
    for number, (name, verb) in enumerate([*VERBS.items()][first :: 1 if LONG else SHARE]):
        directory = tmp_path / f"run-{number}"
        shutil.copytree(built / "run", directory)
        put(directory / place, kind, outside)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LccodecWarning)
            with suppress(LccodecError):  # any other error is a bug
                verb(directory)
        assert picture(outside) == expected, name


#: What lies beside the files of a chain, and the verbs that write there.
BESIDE = (
    ".hashes",
    ".hashes/hashes",
    ".hashes/values",
    f".hashes/{TEMPORARY}",
    ".parity",
    f".parity/{TEMPORARY}",
)
VERBS_BESIDE: dict[str, Callable[[Path], object]] = {
    "save, hashes": chain_verb(
        lambda chain: [chain.save(step, STATES[step]) for step in (7, 8)], reference="hashes"
    ),
    "save, parity": chain_verb(lambda chain: chain.save(7, STATES[7]), parity=1),
    "protect": chain_verb(lambda chain: chain.protect(2)),
    "repair": chain_verb(lambda chain: chain.repair()),
}


@pytest.fixture(scope="module")
def built_beside(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same chain with hashes and parity beside it."""
    run = tmp_path_factory.mktemp("beside") / "run"
    shutil.copytree(built / "run", run)
    with Chain(run, reference="hashes") as chain:
        chain.save(7, STATES[7])
        chain.protect(1)
        chain.rollback(6)
    return run


@pytest.mark.usefixtures("no_hanging")
@pytest.mark.parametrize("place", BESIDE)
def test_nothing_outside_is_touched_by_what_lies_beside(
    tmp_path: Path, built: Path, built_beside: Path, place: str
) -> None:
    outside = make_outside(built / "sound", tmp_path / "outside")
    expected = picture(outside)
    verbs = [*VERBS_BESIDE.items()]
    for number, kind in enumerate(KINDS):
        first = (BESIDE.index(place) + number) % len(verbs)
        for name, verb in verbs if LONG else [verbs[first]]:
            directory = tmp_path / f"{number}-{name}"
            shutil.copytree(built_beside, directory)
            put(directory / place, kind, outside)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LccodecWarning)
                with suppress(LccodecError):
                    verb(directory)
            assert picture(outside) == expected, (kind, name)


def test_what_is_compared_shows_a_change(tmp_path: Path, built: Path) -> None:
    outside = make_outside(built / "sound", tmp_path / "outside")
    for change in (
        lambda: (outside / "file").write_bytes(b"MINE"),
        lambda: (outside / "file").chmod(0o600),
        lambda: os.utime(outside / "file", (1, 1)),
        (outside / "directory").rmdir,
        (outside / "nothing").touch,
    ):
        before = picture(outside)
        change()
        assert picture(outside) != before


@pytest.mark.slow
def test_every_verb_does_something_in_a_sound_chain(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the matrix would hold of nothing."""
    monkeypatch.setattr(background, "find_obstacle", lambda _: None)
    (tmp_path / "sound").symlink_to(built / "sound")
    (tmp_path / "all.lcc").symlink_to(built / "all.lcc")
    refused = []
    for number, (name, verb) in enumerate(VERBS.items()):
        directory = tmp_path / f"run-{number}"
        shutil.copytree(built / "run", directory)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LccodecWarning)
                verb(directory)
        except LccodecError as error:
            refused.append((name, str(error)))
    assert [name for name, _ in refused] == ["fork into"]


def test_a_link_to_the_directory_itself_is_the_choice_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    with Chain(tmp_path / "run", "lossless", newest="exact") as chain:
        save_all(chain, STATES, range(4))
        chain.rollback(1)
        chain.undo_rollback()
        chain.prune(Keep(latest=1), rewrite=True)
    assert [path.name for path in sorted((tmp_path / "disk").iterdir())] == [
        "000000000003.lcc.h5",
        EXACT_NAME,
    ]


# --- what is said of it ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["link to a chain", "link to nothing", "FIFO"])
def test_an_archive_that_is_a_link_is_left_alone(tmp_path: Path, built: Path, kind: str) -> None:
    outside, directory = make_outside(built / "sound", tmp_path / "outside"), tmp_path / "run"
    shutil.copytree(built / "run", directory)
    for place in (f"{ROLLED_BACK_NAME}/0002-to-4", f"{ROLLED_BACK_NAME}/{TEMPORARY}"):
        put(directory / place, kind, outside)
    with Chain(directory) as chain, pytest.warns(LccodecWarning) as told:
        assert [each.name for each in chain.rolled_back] == ["0001-to-6"]
        assert chain.undo_rollback().steps == (7,)
        assert chain.steps == list(range(8))
        assert chain.rollback(3).name == "0003-to-3"
    texts = {str(warning.message).rpartition("/")[2] for warning in told}
    rest = (
        f"is left alone: it is {'not a directory' if kind == 'FIFO' else 'a link'},"
        " and lccodec goes only into"
    )
    assert texts == {
        f"{name} {rest} directories here: remove or rename it" for name in ("0002-to-4", TEMPORARY)
    }
    assert (directory / ROLLED_BACK_NAME / TEMPORARY).lstat()


def test_a_link_in_the_place_of_the_archives_is_refused(tmp_path: Path, built: Path) -> None:
    outside, directory = make_outside(built / "sound", tmp_path / "outside"), tmp_path / "run"
    shutil.copytree(built / "run", directory)
    put(directory / ROLLED_BACK_NAME, "link to a chain", outside)
    with Chain(directory) as chain:
        for verb in (
            lambda: chain.rolled_back,
            lambda: chain.rollback(3),
            chain.undo_rollback,
            chain.delete_rolled_back,
        ):
            with pytest.raises(LccodecError, match=r"it is a link, .*: remove or rename it"):
                verb()
        assert chain.steps == list(range(7))
        assert chain.rollback(3, delete=True).steps == (4, 5, 6)


def test_files_of_others_in_an_archive_stay(tmp_path: Path, built: Path) -> None:
    directory = tmp_path / "run"
    shutil.copytree(built / "run", directory)
    (directory / ARCHIVE / "notes.txt").write_bytes(b"mine")
    with Chain(directory) as chain:
        with pytest.warns(LccodecWarning, match="stays: it has files that lccodec did not make"):
            chain.delete_rolled_back(pinned=True)
        assert chain.rolled_back == []
    (notes,) = (directory / ROLLED_BACK_NAME).rglob("notes.txt")
    assert [path.name for path in notes.parent.iterdir()] == ["notes.txt"]


def test_a_bundle_leaves_temporaries_of_others_alone(tmp_path: Path, built: Path) -> None:
    """It lies in any directory, where others may have files of nearly that name."""
    mine = tmp_path / ".tmp-notes"
    mine.write_bytes(b"mine")
    (tmp_path / TEMPORARY).write_bytes(b"left by a kill")
    bundle(built / "sound", tmp_path / "all.lcc")
    assert mine.read_bytes() == b"mine"
    assert not (tmp_path / TEMPORARY).exists()
