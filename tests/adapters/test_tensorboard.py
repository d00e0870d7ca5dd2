"""Events for TensorBoard: what its own reader finds is what the report says."""

import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

import lccodec
from lccodec.adapters.tensorboard import write_events
from lccodec.container.manifest import QUANTILES
from lccodec.inspect.examination import examine

from ..support.runs import run_states, save_run


@pytest.fixture(name="run", scope="module")
def _run(tmp_path_factory):
    chain = save_run(tmp_path_factory.mktemp("tensorboard") / "run", run_states(5), newest="exact")
    return examine(chain.directory).runs[0]


def test_all_of_it_is_read_back(run, tmp_path):
    count = write_events(run, tmp_path / "logs" / "run")
    events = EventAccumulator(str(tmp_path / "logs" / "run"), {"scalars": 0, "tensors": 0})
    events.Reload()
    tags = events.Tags()
    for index, row in enumerate(run.arrays):
        for figure, rows in run.figures.items():
            tag = f"{figure}/{row.name}"
            expected = {
                step: value for step, value in zip(run.steps, rows[index], strict=True) if value is not None
            }
            found = (
                {event.step: event.value for event in events.Scalars(tag)} if tag in tags["scalars"] else {}
            )
            assert found == pytest.approx(expected, rel=1e-6)
        spread, measured = run.histograms[index], run.quantiles[index]
        assert (spread is None) == (measured is not None and all(measured))
        for place, share in enumerate(QUANTILES, 1):
            tag = f"quantile_{share:.2g}/{row.name}"
            assert (tag in tags["scalars"]) == (measured is not None)
            if measured is not None:
                values = [event.value for event in events.Scalars(tag)]
                assert values == pytest.approx([row[place] for row in measured if row], rel=1e-6)
        if spread is None:
            assert row.name not in tags["tensors"]
            continue
        for event, counts in zip(events.Tensors(row.name), filter(None, spread.counts), strict=True):
            buckets = make_ndarray(event.tensor_proto)
            assert buckets[:, 2].tolist() == counts
            assert (buckets[0, 0], buckets[-1, 1]) == (spread.low, spread.high)
            np.testing.assert_array_equal(buckets[1:, 0], buckets[:-1, 1])
        about = events.SummaryMetadata(row.name)
        assert about.plugin_data.plugin_name == "histograms"
    assert {measured is None for measured in run.quantiles} == {True, False}
    losses = {event.step: event.value for event in events.Scalars("scalars/loss")}
    assert losses == pytest.approx(dict(zip(run.steps, run.scalars["loss"], strict=True)), rel=1e-6)
    sizes = [event.value for event in events.Scalars("checkpoint/bytes")]
    assert sizes == [each.bytes for each in run.checkpoints]
    assert [event.step for event in events.Scalars("original_error/model/fc1.weight")] == [40]
    assert "original_bias/model/fc1.weight" in tags["scalars"]
    for role in ("weight", "first_moment"):
        measured = {each.step: each.figures[role] for each in run.checkpoints}
        assert measured[0].error_in_movements is None  # nothing is shown of the first save
        for tag, name in (("error", "error_in_movements"), ("lag", "lag"), ("movement", "movement")):
            found = {event.step: event.value for event in events.Scalars(f"checkpoint/{tag}/{role}")}
            expected = {step: getattr(figures, name) for step, figures in measured.items() if step}
            assert found == pytest.approx(expected, rel=1e-6)
    read = sum(len(events.Scalars(tag)) for tag in tags["scalars"])
    assert count == read + sum(len(events.Tensors(tag)) for tag in tags["tensors"])


def test_no_framework_is_imported(run, tmp_path):
    before = set(sys.modules)
    write_events(run, tmp_path)
    assert not {"torch", "tensorflow"} & (set(sys.modules) - before)


def test_nothing_to_write(tmp_path):
    lccodec.save_file({}, tmp_path / "empty.lcc.h5")
    (run,) = examine(tmp_path / "empty.lcc.h5").runs
    assert write_events(run, tmp_path / "logs") == 0
    lccodec.save_file({"nan": np.full(2, np.nan), "none": np.ones(0)}, tmp_path / "nan.lcc.h5")
    (run,) = examine(tmp_path / "nan.lcc.h5").runs
    assert write_events(run, tmp_path / "logs") == 4  # zeros and not finite


def test_a_directory_that_cannot_be_written(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(lccodec.StorageError):
        write_events(run, tmp_path / "file" / "logs")


def test_without_tensorboard(run, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(lccodec.DependencyError, match=r"pip install 'lccodec\[tensorboard\]'"):
        write_events(run, tmp_path)
