"""Documents of reports: as they are, damaged, hostile, empty and large."""

from dataclasses import replace
from typing import Any

from lccodec.inspect.report import FIGURES, Checkpoint, Flag, Report, Run, document

from .reports import made_up_pictures, made_up_report, made_up_run

#: What would do harm, or hide, if a page took it for anything but text.
HOSTILE = [
    "</script><script>window.harmed = 1</script>",
    "<img src=x onerror='window.harmed = 1'>",
    "--><svg onload=window.harmed=1>",
    "{{DATA}}",
    "javascript:window.harmed=1",
    "__proto__",
    "constructor",
    "gnp.\u202efdp.exe",
    "\u05d0\u05d1\u05d2/weight",
    "bell\x07 and \x1b[2J\r\nclear\x00",
    "zero\u200bwidth\ufeff",
    "half a pair \ud800",
    "a" * 10_000,
    "https://example.com/a?b=c#d",
    "",
    " ",
]


def one_run(**sizes: int) -> dict[str, Any]:
    return document(Report("1.0", ["Every step is shown."], [made_up_run(**sizes)]))


def fields() -> dict[str, Any]:
    """Arrays with pictures: with an original and without, one constant, one narrow."""
    return document(Report("1.0", [], [replace(made_up_run(), pictures=made_up_pictures())]))


def two_runs() -> dict[str, Any]:
    return document(made_up_report(steps=6, layers=1))


def damaged() -> dict[str, Any]:
    """A chain of which nothing can be read."""
    broken = [
        Checkpoint(step, "unreadable", bytes=100, sound=False, problems=["the file is cut off [LCC-TRL-06]"])
        for step in (0, 10, None)
    ]
    flags = [
        Flag("error", "damaged", None, point.step, f"Step {point.step} cannot be read.") for point in broken
    ]
    return document(Report("1.0", [], [empty_run(checkpoints=broken, flags=flags)]))


def hostile() -> dict[str, Any]:
    """Names, metadata and sentences that want to be more than text."""
    run = made_up_run(layers=len(HOSTILE) // 4)
    arrays = [
        replace(array, name=name, why=name, quantizer=name)
        for array, name in zip(run.arrays, HOSTILE, strict=True)
    ]
    checkpoints = [
        replace(point, policy=name, metadata={name: name, "loss": "1"}, problems=[name], sound=False)
        for point, name in zip(run.checkpoints, HOSTILE, strict=False)
    ]
    flags = [Flag("error", "dead", name, 0, f"{name} is dead.") for name in HOSTILE + HOSTILE]
    assert run.loss is not None
    harmed = replace(
        run,
        path=f"/runs/{HOSTILE[1]}",
        notes=HOSTILE,
        arrays=arrays,
        checkpoints=checkpoints,
        flags=flags,
        loss=replace(run.loss, against=HOSTILE[0]),
        scalars={name: [float(i) for i in range(len(checkpoints))] for name in HOSTILE},
    )
    whole = made_up_report()
    assert whole.comparison is not None
    comparison = replace(whole.comparison, left=HOSTILE[0], appeared=HOSTILE, disappeared=HOSTILE)
    return document(Report(HOSTILE[0], HOSTILE, [harmed], comparison))


def empty_run(**parts: Any) -> Run:
    nothing: dict[str, Any] = {"checkpoints": [], "arrays": [], "steps": [], "histograms": [], "streams": {}}
    nothing["figures"] = {name: [] for name in FIGURES}
    return Run("run", "chain", [], **(nothing | parts))


def no_arrays() -> dict[str, Any]:
    points = [Checkpoint(0, "keyframe", bytes=2000), Checkpoint(1, "delta", 0, 1, bytes=1900)]
    return document(Report("1.0", [], [empty_run(checkpoints=points, steps=[0, 1])]))


def one_step() -> dict[str, Any]:
    return one_run(steps=1)


def nothing_finite() -> dict[str, Any]:
    """Every figure is undefined, and there is no histogram."""
    run = made_up_run()
    nothing = {name: [[None] * len(run.steps) for _ in run.arrays] for name in FIGURES}
    none: list[None] = [None] * len(run.arrays)
    empty = replace(run, figures=nothing, histograms=none, quantiles=none, loss=None)
    return document(Report("1.0", [], [empty]))


def many_arrays(arrays: int = 3000, steps: int = 3) -> dict[str, Any]:
    return one_run(steps=steps, layers=arrays // 4, bins=8)
