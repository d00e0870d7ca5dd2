"""A path is the same one all along: after a change of the working directory, and with a ``~``."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import ArgumentError, Chain, Keep, LccodecWarning, StorageError
from lccodec.adapters.chains import ChainOptions, open_linked, save_linked
from lccodec.container.bundle import Bundle
from lccodec.container.system import checked_path

from ..support.walks import assert_same, walk

STATES = walk(6)


@pytest.fixture(name="other")
def _other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to change to; the working directory is another one, `here`, beside it."""
    for name in ("here", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "other"


def save(chain: Chain, step: int) -> None:
    chain.save(step, STATES[step])


def save_beside(chain: Chain, step: int) -> None:
    chain.save_async(step, STATES[step]).result()


@pytest.mark.slow
@pytest.mark.parametrize("saves", [save, save_beside])
@pytest.mark.parametrize("workers", [None, 1])
def test_a_chain_stays_where_it_was_opened(
    other: Path, saves: Callable[[Chain, int], None], workers: int | None
) -> None:
    here = Path.cwd()
    with Chain("run", "lossless", workers=workers, newest="exact") as chain:
        saves(chain, 0)
        os.chdir(other)
        saves(chain, 1)
        saves(chain, 2)
        assert chain.steps == [0, 1, 2]
        assert_same(chain.restore(), STATES[2])
        arrivals = chain.restore_iter(1)
        os.chdir(here)
        assert dict(arrivals)["epoch"] == 1
        os.chdir(other)
        chain.pin(0)
        chain.rollback(1)
        chain.undo_rollback()
        chain.rollback(1)
        saves(chain, 3)
        chain.delete_rolled_back()
        chain.fork("fork", 3)
        chain.prune(Keep(latest=1), rewrite=True)
        assert chain.directory == here / "run"
    assert {path.name for path in here.iterdir()} == {"run"}
    assert {path.name for path in other.iterdir()} == {"fork"}
    assert Chain(here / "run").steps == [0, 3]


def test_what_is_open_is_read_on(other: Path) -> None:
    here = Path.cwd()
    with Chain("run", "lossless") as chain:
        for step in range(3):
            save(chain, step)
    lccodec.bundle("run", "run.lcc")
    opened = [lccodec.open("run.lcc", step=2), lccodec.open("run/000000000002.lcc.h5")]
    bundle, options = Bundle("run.lcc"), ChainOptions("run")
    os.chdir(other)
    for file in opened:
        assert_same(file.state(), STATES[2])
        file.close()
    with bundle:
        assert bundle.path == here / "run.lcc"
    part = options.open("part")
    assert part is not None
    assert part.directory == here / "run" / "part"


def test_a_link_names_the_chain_that_was_saved_to(other: Path) -> None:
    here = Path.cwd()
    with Chain("run", "lossless") as chain:
        os.chdir(other)
        save_linked(STATES[0], "link.lcc.h5", {}, chain)
    os.chdir(here)
    with open_linked(other / "link.lcc.h5") as file:
        assert_same(file.state(), STATES[0])


def test_a_working_directory_that_is_gone(other: Path) -> None:
    os.chdir(other)
    other.rmdir()
    with pytest.raises(StorageError, match=r"cannot find the working directory of.*run"):
        Chain("run")


# --- a home ---------------------------------------------------------------------------------------


@pytest.fixture(name="home")
def _home(other: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(other))
    monkeypatch.setenv("USERPROFILE", str(other))
    return other


def chain_in(path: Any) -> None:
    with Chain(path) as chain:
        chain.save(0, STATES[0])


def made(options: ChainOptions) -> Chain:
    chain = options.open()
    assert chain is not None
    return chain


#: What is given a path in the home directory, which holds a chain and a bundle of it.
ENTRIES: dict[str, Callable[[Any], object]] = {
    "Chain": lambda home: chain_in(f"{home}/new"),
    "Chain, of a Path": lambda home: chain_in(Path(home) / "new"),
    "fork": lambda home: Chain(f"{home}/run").fork(f"{home}/fork", 0),
    "compact": lambda home: Chain(f"{home}/run").compact(directory=f"{home}/compacted"),
    "bundle": lambda home: lccodec.bundle(f"{home}/run", f"{home}/new.lcc"),
    "unbundle": lambda home: lccodec.unbundle(f"{home}/run.lcc", f"{home}/unbundled"),
    "save_file": lambda home: lccodec.save_file({"x": np.ones(3)}, f"{home}/one.lcc.h5"),
    "load_file": lambda home: lccodec.load_file(f"{home}/run/000000000000.lcc.h5"),
    "open": lambda home: lccodec.open(f"{home}/run.lcc").close(),
    "validate": lambda home: lccodec.validate(f"{home}/run") == [] or pytest.fail("problems"),
    "options of adapters": lambda home: save(made(ChainOptions(f"{home}/new")), 0),
    "link": lambda home: save_linked(STATES[0], f"{home}/link.lcc.h5", {}, Chain(f"{home}/linked")),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_tilde_is_the_home_of_the_user(home: Path, name: str) -> None:
    here = Path.cwd()
    chain_in(home / "run")
    lccodec.bundle(home / "run", home / "run.lcc")
    with warnings.catch_warnings():
        warnings.simplefilter("error", LccodecWarning)
        ENTRIES[name]("~")
    assert list(here.iterdir()) == []


def test_only_the_user_s_own_home_is_meant(home: Path) -> None:
    assert checked_path("~") == home
    for text in ("~x/run", "~root", "run/~", "run~", " ~/run"):  # which may be names of files
        assert checked_path(text) == Path.cwd() / text


def test_an_address_in_a_home_is_refused(home: Path) -> None:  # noqa: ARG001 - which is what ~ is
    with pytest.raises(ArgumentError, match="the address"):
        Chain("~/s3://bucket")
