"""Links and files of strangers in a model's directory lead nowhere: nothing outside is touched.

Whatever has a name that lccodec gives is replaced, in turn, by links of all kinds to files and
directories elsewhere. A verb may raise one of our errors. It may not change, make or remove what is
not its own, nor wait for a FIFO.
"""

import json
import shutil
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import zstandard  # noqa: F401 - what is published is compressed with it

from lccodec import Chain, LccodecError, LccodecWarning, StorageError
from lccodec.adapters import seals
from lccodec.adapters.files.states import save_file
from lccodec.adapters.weights import follow, publish, pull

from ...support.models import bytes_of, read_model, write_model
from ...support.outside import KINDS, TEMPORARY, make_outside, not_hanging, picture, put
from ...support.profiles import LONG

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links and FIFOs of POSIX")

OLD = {f"layer{i}": np.full(40, i, np.float32) for i in range(4)}
NEW = {name: array + 1 for name, array in OLD.items()}

MODEL = ("local/model.safetensors", "local/config.json", f"local/{TEMPORARY}")
NOTES = ("local/.lccodec", "local/.lccodec/lock", "local/.lccodec/state.json", f"local/.lccodec/{TEMPORARY}")
SHARDS = ("local/model.safetensors.index.json", "local/model-00001-of-00002.safetensors")


def pulls(root: Path) -> None:
    pull(root / "run", root / "local", prefix="model")


def publishes(root: Path) -> None:
    publish(root / "run", root / "versions", prefix="model", like=root / "local", full=True)


def follows(root: Path) -> None:
    with follow(root / "versions", root / "local", timeout=0) as follower, suppress(LccodecError):
        next(follower, None)


def exports(root: Path) -> None:
    save_file(NEW, root / "local" / "model.safetensors.index.json", {}, max_shard_bytes=400)


#: Each verb, how many shards the model has, and the places that it goes to.
VERBS: dict[str, tuple[Callable[[Path], object], int, tuple[str, ...]]] = {
    "pull": (pulls, 1, (*MODEL, *NOTES)),
    "pull, shards": (pulls, 2, (*MODEL, *NOTES, *SHARDS)),
    "publish": (
        publishes,
        1,
        (
            *MODEL,
            "versions/.lccodec",
            "versions/.lccodec/lock",
            f"versions/{TEMPORARY}",
            f"versions/{TEMPORARY}/model.safetensors",
            "versions/weight_v000001",
            "versions/weight_v000001/model.safetensors",
            "versions/weight_v000001/config.json",
            "versions/weight_v000002",
        ),
    ),
    "follow": (follows, 1, ("versions/weight_v000001", "versions/weight_v000001/model.safetensors")),
    "export": (exports, 2, SHARDS),
    "seal": (
        lambda root: seals.seal(root / "local", replace=True),
        1,
        (*MODEL, "local/lccodec.sha256"),
    ),
    "seal a file": (
        lambda root: seals.seal(root / "local" / "model.safetensors", replace=True),
        1,
        ("local/model.safetensors.sha256",),
    ),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """For one shard and for two: a run, a model at its first step, a version, and a chain."""
    found = {}
    for shards in (1, 2):
        root = found[shards] = tmp_path_factory.mktemp("built")
        write_model(root / "local", OLD, shards)
        for name in ("sound", "run"):
            with Chain(root / name, "lossless") as chain:
                for step in range(5):
                    chain.save(step, {"model": OLD})
        pull(root / "run", root / "local", prefix="model", step=4)
        publish(root / "run", root / "versions", prefix="model")
        with Chain(root / "run", "lossless") as chain:
            chain.save(5, {"model": NEW})
    return found


#: Of the pairs of a place and a kind, one in so many is tried; all in the nightly profile. Every
#: place and every kind is tried.
SHARE = 3


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_nothing_outside_is_touched(tmp_path: Path, built: dict[int, Path], name: str) -> None:
    act, shards, places = VERBS[name]
    outside = make_outside(built[shards] / "sound", tmp_path / "outside")
    expected = picture(outside)
    pairs = [(place, kind) for place in places for kind in KINDS]
    for number, (place, kind) in enumerate(pairs[:: 1 if LONG else SHARE]):
        root = tmp_path / f"{number}"
        shutil.copytree(built[shards], root)
        put(root / place, kind, outside)
        with warnings.catch_warnings(), not_hanging():
            warnings.simplefilter("ignore", LccodecWarning)
            with suppress(LccodecError):  # any other error is a bug
                act(root)
        assert picture(outside) == expected, (place, kind)
        if place != "local/config.json":
            assert (root / "local" / "config.json").read_text() == "{}"
        shutil.rmtree(root)


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_does_something(tmp_path: Path, built: dict[int, Path], name: str) -> None:
    """Otherwise the matrix would hold of nothing."""
    act, shards, _ = VERBS[name]
    root = Path(shutil.copytree(built[shards], tmp_path / "root"))
    act(root)  # which raises nothing


# --- what a note may say --------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path, built: dict[int, Path]) -> Path:
    """A model at step 4 of a run beside it, which has another step."""
    shutil.copytree(built[1], tmp_path, dirs_exist_ok=True)
    return tmp_path / "local"


def identity(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]


@pytest.mark.parametrize("known", [True, False])
def test_only_what_pull_wrote_is_removed(model: Path, known: bool) -> None:
    """The note is the stranger's: a name in it says nothing, and weights are known by all of it."""
    names = ["config.json", "adapter.safetensors", "other-step000000000001-01234567.safetensors"]
    for name in names:
        (model / name).write_text("{}")
    (model / "link.safetensors").symlink_to(model.parent / "elsewhere")
    files = {name: identity(model / name) if known else [2, 0, 0] for name in names}
    files["link.safetensors"] = files["../run"] = files["/"] = [0, 0, 0]
    note = [{"step": 0, "root": "", "files": files}]
    (model / ".lccodec" / "state.json").write_text(json.dumps(note))
    pulls(model.parent)
    there = [name for name in names if (model / name).exists()]
    assert there == (names[:1] if known else names)
    assert (model / "link.safetensors").is_symlink()
    assert read_model(model) == bytes_of(NEW)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "",
        "null",
        "[null]",
        "[3]",
        '[{"step": 1e999, "root": "", "files": {}}]',
        '[{"step": -1, "root": "", "files": {}}]',
        '[{"step": 4, "root": [], "files": {}}]',
        '[{"step": 4, "root": "", "files": []}]',
        '[{"step": 4, "root": "", "files": {"model.safetensors": 3}}]',
        '[{"step": 4, "root": "", "files": {"model.safetensors": [[], {}, "a"]}}]',
        "\xff",
        " " * (5 << 20),
    ],
)
def test_a_note_that_is_none(model: Path, text: str) -> None:
    """It is never needed: the step is read whole."""
    (model / ".lccodec" / "state.json").write_text(text, encoding="latin-1")
    found = pull(model.parent / "run", model, prefix="model")
    assert (found.base, found.step) == (None, 5)
    assert read_model(model) == bytes_of(NEW)


@pytest.mark.parametrize("place", [".lccodec", ".lccodec/lock"])
@pytest.mark.parametrize("kind", ["link to a chain", "link to a file", "link to nothing", "FIFO"])
def test_a_lock_that_is_another_file_is_refused(
    tmp_path_factory: pytest.TempPathFactory, model: Path, place: str, kind: str
) -> None:
    outside = make_outside(model.parent / "sound", tmp_path_factory.mktemp("place") / "outside")
    put(model / place, kind, outside)
    before = read_model(model)
    with not_hanging(), pytest.raises(StorageError, match="remove or rename it") as caught:
        pulls(model.parent)
    assert caught.value.filename == str(model / place)
    assert read_model(model) == before


def test_a_temporary_of_a_version_keeps_what_others_put_there(tmp_path: Path, built: dict[int, Path]) -> None:
    root = Path(shutil.copytree(built[1], tmp_path / "root"))
    (root / "versions" / TEMPORARY / "mine").mkdir(parents=True)
    (root / "versions" / ".tmp-writer").write_text("mine")
    with pytest.warns(LccodecWarning, match="stays: it has files that lccodec did not make"):
        publishes(root)
    assert (root / "versions" / TEMPORARY / "mine").is_dir()
    assert (root / "versions" / "weight_v000002" / "model.safetensors").exists()
