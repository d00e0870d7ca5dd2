"""The figures of a run for TensorBoard: histograms and scalars of every array at every shown step.

They are written with TensorBoard's own writer (the extra ``tensorboard``), without TensorFlow or
PyTorch. The tags of scalars are ``movement/NAME``, ``rms/NAME`` and so on, so that TensorBoard puts
arrays with the same figure together. What was saved beside the arrays, such as a loss, is in
``scalars/NAME``; sizes are ``checkpoint/bytes``. What each save measured is in
``checkpoint/error/ROLE``, in movements, ``checkpoint/lag/ROLE``, in intervals, and
``checkpoint/movement/ROLE``, in the unit of the values. What was found beside originals is in
``original_error/NAME`` and ``original_bias/NAME``. Histograms have the names of the arrays; of an
array that lost something there are the quantiles that its save measured, ``quantile_0.5/NAME`` and
so on.
Characters that are not printable become escapes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..container.disk.system import StrPath, checked_path, storage_errors
from ..container.figures import QUANTILES, numbers_by_role
from ..errors import DependencyError
from ..inspect.report import FIGURES, Histogram, Run
from ..printable import printable

__all__ = ["write_events"]


def write_events(run: Run, directory: StrPath) -> int:
    """Write the figures of a run as a file of events; return the number of scalars and histograms.

    Parameters
    ----------
    run
        A run of a report that :func:`lccodec.inspect.examination.examine` made.
    directory
        The log directory, which is made if it is not there. It gets one file more.

    Raises
    ------
    DependencyError
        If TensorBoard is not installed.
    StorageError
        If the operating system refuses to write.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise DependencyError(
            f"events need the package tensorboard ({error}): pip install 'lccodec[tensorboard]'"
        ) from error
    target = checked_path(directory)
    count, now = 0, time.time()
    with storage_errors("cannot write events", target):
        target.mkdir(parents=True, exist_ok=True)
        writer = EventFileWriter(str(target))
        try:
            for place, step in enumerate(run.steps):
                values = [*_scalars(run, place, Summary.Value), *_histograms(run, place, Summary.Value)]
                if values:
                    writer.add_event(Event(wall_time=now, step=step, summary=Summary(value=values)))
                count += len(values)
        finally:
            writer.close()
    return count


def _scalars(run: Run, place: int, value_of: Any) -> Iterator[Any]:
    """Yield the numbers of a step, with the loss if originals were at hand."""
    for figure in FIGURES:
        for row, series in zip(run.arrays, run.figures[figure], strict=True):
            if (number := series[place]) is not None:
                yield value_of(tag=printable(f"{figure}/{row.name}"), simple_value=number)
    for tag, number in _quantiles(run, place):
        yield value_of(tag=tag, simple_value=number)
    step = run.steps[place]
    for at, checkpoint in enumerate(run.checkpoints):
        if checkpoint.step == step:
            for tag, number in _of_checkpoint(run, at):
                yield value_of(tag=printable(tag), simple_value=number)
    if run.loss is not None and step in run.loss.steps:
        at = list(run.loss.steps).index(step)
        for figure, rows in (("error", run.loss.error), ("bias", run.loss.bias)):
            for row, series in zip(run.arrays, rows, strict=True):
                if (number := series[at]) is not None:
                    yield value_of(tag=printable(f"original_{figure}/{row.name}"), simple_value=number)


def _of_checkpoint(run: Run, at: int) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a checkpoint as a whole, by tag."""
    checkpoint = run.checkpoints[at]
    for name, numbers in run.scalars.items():
        if (number := numbers[at]) is not None:
            yield f"scalars/{name}", number
    yield "checkpoint/bytes", checkpoint.bytes
    yield from numbers_by_role(checkpoint.figures).items()


def _quantiles(run: Run, place: int) -> Iterator[tuple[str, float]]:
    """Yield what the save of a step measured of arrays that lost something, by tag."""
    for row, series in zip(run.arrays, run.quantiles, strict=False):
        if series is not None and series[place]:
            for share, value in zip(QUANTILES, series[place][1:-1], strict=True):
                yield f"quantile_{share:.2g}/{printable(row.name)}", value


def _histograms(run: Run, place: int, value_of: Any) -> Iterator[Any]:
    """Yield the histograms of a step, each as rows of low, high and count."""
    from tensorboard.plugins.histogram.metadata import create_summary_metadata
    from tensorboard.util.tensor_util import make_tensor_proto

    for row, histogram in zip(run.arrays, run.histograms, strict=True):
        if histogram is None or not histogram.counts[place]:
            continue
        tensor = make_tensor_proto(_buckets(histogram, place))
        about = create_summary_metadata(display_name=None, description=None)
        yield value_of(tag=printable(row.name), tensor=tensor, metadata=about)


def _buckets(histogram: Histogram, place: int) -> Any:
    counts = histogram.counts[place]
    edges = np.linspace(histogram.low, histogram.high, len(counts) + 1)
    return np.column_stack([edges[:-1], edges[1:], counts])
