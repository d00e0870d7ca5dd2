"""A state lies in a file, or in a chain with a link to it; other checkpoints are refused."""

import errno
import json
import shutil
from unittest import mock

import numpy as np
import pytest

import lccodec
from lccodec.adapters.chains import ChainOptions, chain_step, open_linked, open_named, save_linked
from lccodec.errors import ArgumentError, ChainError, FormatError, StorageError
from lccodec.policy.roles import Assignment


def state(step):
    weight = np.random.default_rng(0).standard_normal(3000)
    weight[:step] = step
    return {"w": weight, "step": step}


def opened(path):
    with open_linked(path) as file:
        return file.state()["step"], file.metadata()


@pytest.fixture
def linked(tmp_path):
    """Three states of a run in a chain, each with its link."""
    links = tmp_path / "links"
    links.mkdir()
    with lccodec.Chain(tmp_path / "chain", "lossless", newest="history") as chain:
        for step in range(3):
            save_linked(state(step), links / f"{step}.lcc.h5", {"run": str(step)}, chain)
    return links


def test_without_a_chain_the_file_is_the_state(tmp_path):
    save_linked(state(3), tmp_path / "a.lcc.h5", {"run": "x"}, None)
    assert opened(tmp_path / "a.lcc.h5") == (3, {"run": "x"})
    assert lccodec.load_file(tmp_path / "a.lcc.h5")["step"] == 3


def test_of_a_history_the_files_are_links_and_the_states_are_deltas(linked):
    for step in range(3):
        assert opened(linked / f"{step}.lcc.h5") == (step, {"run": str(step)})
        with lccodec.open(linked / f"{step}.lcc.h5") as link:
            named = json.loads(link.metadata()["lccodec.link"])
        assert (named["chain"], named["step"]) == ("../chain", step)
    with lccodec.Chain(linked.parent / "chain") as chain:
        assert [chain.info(step).parent for step in chain.steps] == [None, 0, 1]


def test_a_link_that_is_deleted_harms_no_other(linked):
    (linked / "1.lcc.h5").unlink()
    assert opened(linked / "2.lcc.h5")[0] == 2


def test_links_and_their_chain_can_be_moved_together(linked):
    place = shutil.move(linked.parent / "links", linked.parent / "chain" / "links")
    with pytest.raises(ChainError, match="is missing"):
        open_linked(f"{place}/0.lcc.h5")
    shutil.move(place, linked.parent / "links")
    other = linked.parent.with_name("elsewhere")
    shutil.move(linked.parent, other)
    assert opened(other / "links" / "1.lcc.h5")[0] == 1


def test_what_a_link_replaces_stays_until_the_state_is_stored(linked, tmp_path):
    before = (linked / "0.lcc.h5").read_bytes()
    with lccodec.Chain(tmp_path / "chain", "lossless") as chain:
        with pytest.raises(ArgumentError):
            save_linked({"x": object()}, linked / "0.lcc.h5", {}, chain)
        assert (linked / "0.lcc.h5").read_bytes() == before
        save_linked(state(7), linked / "0.lcc.h5", {}, chain)
    assert opened(linked / "0.lcc.h5") == (7, {})


def test_roles_of_a_framework_go_into_the_chain(tmp_path):
    rng = np.random.default_rng(0)
    with lccodec.Chain(tmp_path / "chain", "lc-2") as chain:
        for step in range(2):
            arrays = {"odd": rng.standard_normal(3000), "other": rng.standard_normal(3000)}
            save_linked(arrays, tmp_path / f"{step}.lcc.h5", {}, chain, {"odd": Assignment("weight", "told")})
        lossy = {array.name: array.lossy for array in chain.info().arrays}
    assert lossy == {"odd": True, "other": False}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"chain": "../chain", "step": 0}',
        '{"chain": 1, "step": 0, "root": ""}',
        '{"chain": "../chain", "step": 1e999, "root": ""}',
        '{"chain": "../chain", "step": "x", "root": ""}',
    ],
)
def test_a_link_that_names_nothing(linked, text):
    lccodec.save_file(None, linked / "0.lcc.h5", {"lccodec.link": text})
    with pytest.raises(FormatError, match="not a link to a checkpoint of a chain") as caught:
        open_linked(linked / "0.lcc.h5")
    assert caught.value.rule == "lccodec.link"


def test_the_checkpoint_of_a_link_is_missing_or_another(linked):
    target = linked.parent / "chain" / "000000000000.lcc.h5"
    with lccodec.Chain(linked.parent / "other") as chain:
        chain.save(0, state(9))
    shutil.copy(linked.parent / "other" / target.name, target)
    with pytest.raises(ChainError, match="of another run"):
        open_linked(linked / "0.lcc.h5")
    target.unlink()
    with pytest.raises(ChainError, match=r"0\.lcc\.h5: .*000000000000\.lcc\.h5.* is missing"):
        open_linked(linked / "0.lcc.h5")
    target.mkdir()  # it is there, and cannot be read
    with pytest.raises((StorageError, FormatError)):
        open_linked(linked / "0.lcc.h5")


def test_a_file_by_its_root(linked):
    path = linked.parent / "chain" / "000000000001.lcc.h5"
    with lccodec.open(path) as file:
        root = file.info().root
    with open_named(path, root, "by") as file:
        assert file.state()["step"] == 1
    with pytest.raises(ChainError, match=r"^by: "):
        open_named(path, "0" * 64, "by")


def test_each_path_is_whole_and_exact(tmp_path):
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((300, 100)).astype(np.float32) for _ in range(3)]
    paths = [tmp_path / f"{step}.lcc.h5" for step in range(3)]
    with lccodec.Chain(tmp_path / "chain", "lc-2", newest="exact") as chain:
        for weight, path in zip(weights, paths, strict=True):
            save_linked({"weight": weight, "step": path.name}, path, {}, chain)

    def error(step):
        with open_linked(paths[step]) as file:
            state = file.state()
        assert state["step"] == paths[step].name
        return abs(state["weight"] - weights[step]).max()

    assert paths[2].samefile(tmp_path / "chain" / "exact.lcc.h5")  # no bytes of its own
    assert not paths[1].samefile(paths[2])
    for damage in (lambda: None, lambda: chain.prune(lccodec.Keep(latest=1)), lambda: chain.rollback(0)):
        damage()
        assert [error(step) for step in range(3)] == [0, 0, 0]
    shutil.rmtree(tmp_path / "chain")
    assert [error(step) for step in range(3)] == [0, 0, 0]
    assert lccodec.validate(paths[0], deep=True) == []


def test_a_state_that_only_the_exact_file_has_gets_its_link(tmp_path):
    """The history could not be written: the state is kept, so the trainer must go on."""
    weights = [
        np.random.default_rng(step).standard_normal((300, 100)).astype(np.float32) for step in range(3)
    ]
    full = lccodec.StorageError(errno.ENOSPC, "no space", "somewhere")
    with lccodec.Chain(tmp_path / "chain", "lc-2", newest="exact") as chain:
        save_linked({"weight": weights[0]}, tmp_path / "0.lcc.h5", {}, chain)
        with (
            mock.patch("lccodec.chain.save.reference.encode_plan", side_effect=full),
            pytest.warns(lccodec.LccodecWarning, match="step 1 is saved, but only in the exact file"),
        ):
            save_linked({"weight": weights[1]}, tmp_path / "1.lcc.h5", {}, chain)

        def error(step):
            with open_linked(tmp_path / f"{step}.lcc.h5") as file:
                return abs(file.state()["weight"] - weights[step]).max()

        save_linked({"weight": weights[2]}, tmp_path / "2.lcc.h5", {}, chain)
        assert chain.steps == [0, 1, 2]
        assert [error(step) for step in range(3)] == [0, 0, 0]


def test_links_find_what_was_settled(tmp_path):
    """A checkpoint within a group is replaced by another one, with other values."""
    options = ChainOptions(tmp_path / "chain", "balanced", hindsight=3)
    weights = np.cumsum(np.random.default_rng(0).standard_normal((7, 40, 50), np.float32), 0)
    roots = []
    with options.open() as chain:
        for step, weight in enumerate(weights):
            save_linked({"weight": weight}, tmp_path / f"{step}.lcc.h5", {}, chain)
            roots.append(chain.info().root)
    assert [chain.info(step).kind[0] for step in chain.steps] == list("kiidiid")
    for step, weight in enumerate(weights):
        with open_linked(tmp_path / f"{step}.lcc.h5") as file:
            assert file.info().step == step
            assert np.array_equal(file.state()["weight"], weight)
        name = tmp_path / "chain" / f"{step:012d}.lcc.h5"  # as a record of DCP knows it
        with open_named(name, roots[step], "by") as file:
            assert abs(file.state()["weight"] - weight).mean() < 1.5  # a movement is 0.8


def test_links_find_what_was_written_anew(linked):
    chain = lccodec.Chain(linked.parent / "chain")
    (linked / "0.lcc.h5").unlink()
    chain.prune(lccodec.Keep(latest=1), rewrite=True)
    assert chain.steps == [1, 2]
    for step in (1, 2):
        assert opened(linked / f"{step}.lcc.h5")[0] == step


def test_no_prune_removes_the_step_of_a_link(linked):
    """Wherever the link is by now, until its file is gone or is of another step."""
    chain = lccodec.Chain(linked.parent / "chain", keep=lccodec.Keep(latest=1))
    (linked / "sub").mkdir()
    (linked / "0.lcc.h5").rename(linked / "sub" / "best")
    assert chain.prune(lccodec.Keep(latest=1)).kept == {
        0: "named by a link",
        1: "named by a link",
        2: "latest",
    }
    (linked / "sub" / "best").unlink()
    (linked / "1.lcc.h5").replace(linked / "2.lcc.h5")
    pruning = chain.prune(lccodec.Keep(latest=1))
    assert pruning.kept == {1: "named by a link", 2: "latest"}
    with pytest.raises(ArgumentError, match=r"step 1 of .* is named by a link"):
        chain.rollback(0, delete=True)


def test_a_link_on_another_file_system_pins_its_step(linked, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr("lccodec.container.system.System.link", refuse)
    with lccodec.Chain(linked.parent / "chain") as chain:
        save_linked(state(3), linked / "3.lcc.h5", {}, chain, step=7)
    assert chain.pins == [7]
    assert opened(linked / "3.lcc.h5")[0] == 3


def test_where_there_are_no_hard_links_a_path_is_a_copy(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "no hard links")

    monkeypatch.setattr("lccodec.container.system.System.link", refuse)
    with lccodec.Chain(tmp_path / "chain", "lc-2", newest="exact") as chain:
        save_linked(state(1), tmp_path / "1.lcc.h5", {}, chain)
    assert not (tmp_path / "1.lcc.h5").samefile(tmp_path / "chain" / "exact.lcc.h5")
    shutil.rmtree(tmp_path / "chain")
    assert np.array_equal(lccodec.load_file(tmp_path / "1.lcc.h5")["w"], state(1)["w"])


def test_a_link_that_left_its_chain_names_it(linked):
    shutil.copytree(linked, linked.parent / "uploaded" / "links")
    with pytest.raises(ChainError, match=r"only the link was copied") as caught:
        opened(linked.parent / "uploaded" / "links" / "0.lcc.h5")
    assert str(linked.parent / "uploaded" / "chain") in str(caught.value)


@pytest.mark.parametrize(
    ("wanted", "latest", "step"),
    [
        *[(None, -1, 0), (None, 7, 8), (0, -1, 0), (8, 7, 8), (900, 7, 900)],
        *[(7, 7, 8), (3, 7, 8), (-1, -1, 0), (1 << 60, 7, 8)],
    ],
)
def test_the_step_of_a_chain(wanted, latest, step):
    assert chain_step(wanted, latest) == step
