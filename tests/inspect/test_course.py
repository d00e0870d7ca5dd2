"""One array over the steps: the figures of a whole examination, with its own frames alone."""

from collections import Counter

import lccodec
from lccodec.chain.read.checkpoint import open_path
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.opening import BundleStore
from lccodec.frame.decode import decode_components
from lccodec.inspect.examination import examine
from lccodec.inspect.trajectory import course

from ..support.groups import grouped
from ..support.paths import checkpoint_path
from ..support.runs import run_states, save_run

NAME = "model/fc1.weight"


def about(chain, name=NAME):
    """What is known of the array."""
    return next(array for array in chain.info().arrays if array.name == name)


def examined(directory, name=NAME):
    """Its figures, as an examination of all arrays has them."""
    (run,) = examine(directory).runs
    index = [row.name for row in run.arrays].index(name)
    return {figure: rows[index] for figure, rows in run.figures.items()}


def test_figures_are_those_of_an_examination(tmp_path):
    chain = save_run(tmp_path / "run", run_states(8), keyframe_every=2)
    figures, array = examined(chain.directory), about(chain)
    seen = []
    found = course(DirectoryStore(chain.directory), array, lambda done, total: seen.append((done, total)))
    assert found.steps == chain.steps
    assert {name: series[0] for name, series in found.finish().items()} == figures
    assert seen == [(number, 8) for number in range(1, 9)]
    lccodec.bundle(chain.directory, tmp_path / "run.lccb")
    with BundleStore(tmp_path / "run.lccb") as bundle:
        assert course(bundle, array).finish() == found.finish()


def test_interpolated_steps_come_between_the_others(tmp_path):
    chain = grouped(tmp_path / "run", "balanced")
    found = course(DirectoryStore(chain.directory), about(chain, "w"))
    assert found.steps == chain.steps
    assert {name: series[0] for name, series in found.finish().items()} == examined(chain.directory, "w")


def test_only_its_own_frames_are_decoded(tmp_path, monkeypatch):
    chain = save_run(tmp_path / "run", run_states(6, width=300))
    array = about(chain)
    decoded = Counter()

    def counted(*args, **options):
        decoded["frames"] += 1
        return decode_components(*args, **options)

    monkeypatch.setattr("lccodec.chain.read.replay.decode_components", counted)
    course(DirectoryStore(chain.directory), array)
    assert decoded["frames"] == 6


def test_what_cannot_be_read_is_left_out(tmp_path):
    chain = save_run(tmp_path / "run", run_states(9), keyframe_every=2)
    array = about(chain)
    path = checkpoint_path(chain.directory, 80)
    path.write_bytes(path.read_bytes()[:-1])
    checkpoint_path(chain.directory, 30).unlink()
    assert course(DirectoryStore(chain.directory), array).steps == [0, 10, 20, 60, 70]
    data = bytearray(checkpoint_path(chain.directory, 10).read_bytes())
    with open_path(checkpoint_path(chain.directory, 10)) as file:
        link = file.links[-1]
        number = link.frame_of(link.names[NAME])
        data[link.reader._offsets[number] + link.manifest.frames[number].length // 2] ^= 1
    checkpoint_path(chain.directory, 10).write_bytes(bytes(data))
    assert course(DirectoryStore(chain.directory), array).steps == [0, 60, 70]


def test_an_array_that_came_later(tmp_path):
    states = run_states(4)
    for state in states[:2]:
        del state["model"]["fc1.weight"]
    chain = save_run(tmp_path / "run", states)
    assert course(DirectoryStore(chain.directory), about(chain)).steps == [20, 30]
