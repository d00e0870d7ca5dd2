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

from ..container.manifest import QUANTILES, numbers_by_role
from ..container.system import StrPath, checked_path, storage_errors
from ..errors import DependencyError
from ..inspect.report import FIGURES, Run
from ..table import printable

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
                values = [
                    Summary.Value(tag=printable(tag), simple_value=number)
                    for tag, number in _numbers(run, place)
                    if number is not None
                ]
                values += _histograms(run, place, Summary.Value)
                if values:
                    writer.add_event(Event(wall_time=now, step=step, summary=Summary(value=values)))
                count += len(values)
        finally:
            writer.close()
    return count


def _numbers(run: Run, place: int) -> Iterator[tuple[str, float | None]]:
    """Yield the numbers of a step by tag, with the loss if originals were at hand."""
    for figure in FIGURES:
        for row, series in zip(run.arrays, run.figures[figure], strict=True):
            yield f"{figure}/{row.name}", series[place]
    for row, measured in zip(run.arrays, run.quantiles, strict=False):
        if measured is not None and measured[place]:
            for share, value in zip(QUANTILES, measured[place][1:-1], strict=True):
                yield f"quantile_{share:.2g}/{row.name}", value
    step = run.steps[place]
    for at, checkpoint in enumerate(run.checkpoints):
        if checkpoint.step == step:
            yield from ((f"scalars/{name}", numbers[at]) for name, numbers in run.scalars.items())
            yield "checkpoint/bytes", checkpoint.bytes
            yield from numbers_by_role(checkpoint.figures).items()
    if run.loss is not None and step in run.loss.steps:
        at = list(run.loss.steps).index(step)
        for figure, rows in (("error", run.loss.error), ("bias", run.loss.bias)):
            for row, series in zip(run.arrays, rows, strict=True):
                yield f"original_{figure}/{row.name}", series[at]


def _histograms(run: Run, place: int, value_of: Any) -> Iterator[Any]:
    """Yield the histograms of a step, each as rows of low, high and count."""
    from tensorboard.plugins.histogram.metadata import create_summary_metadata
    from tensorboard.util.tensor_util import make_tensor_proto

    for row, histogram in zip(run.arrays, run.histograms, strict=True):
        if histogram is None or not (counts := histogram.counts[place]):
            continue
        edges = np.linspace(histogram.low, histogram.high, len(counts) + 1)
        tensor = make_tensor_proto(np.column_stack([edges[:-1], edges[1:], counts]))
        about = create_summary_metadata(display_name=None, description=None)
        yield value_of(tag=printable(row.name), tensor=tensor, metadata=about)
