"""A report of a small run, with everything that a page can show; its numbers are made up."""

import numpy as np

from lccodec.chain.read.replay import DecodedArray
from lccodec.container.manifest import QUANTILES, Figures
from lccodec.element_types import components
from lccodec.inspect.difference import Replacement
from lccodec.inspect.report import (
    FIGURES,
    ArrayRow,
    Checkpoint,
    Compared,
    Comparison,
    Flag,
    Histogram,
    Loss,
    Picture,
    Report,
    RoleLoss,
    Run,
    Verdict,
    picture,
)

ROLES = ("weight", "first_moment", "second_moment", "other")


def measured(seed: int) -> Figures:
    """Figures of a role at a save."""
    return Figures(spread=0.05, movement=0.001 + 1e-5 * seed, error=0.0007, lag=0.01 * seed)


def made_up_pictures() -> list[Picture]:
    """Pictures of the first arrays of a run."""
    wave = np.add.outer(np.sin(np.arange(64) / 5), np.cos(np.arange(32) / 3))
    holes, still, narrow = wave.copy(), np.full((64, 32), 2.0), np.tile(wave, (1, 60))[:8]
    holes[10:20, 5:9] = np.nan
    rng, made = np.random.default_rng(0), []
    for number, values in enumerate([wave, holes, still, narrow]):
        kind, bits = components(values)
        array = DecodedArray(kind, values.shape, bits)
        exact = None if number == 1 else components(values + 1e-4 * rng.uniform(-1, 1, values.shape))[1]
        found = picture(f"model/layers.{number % 3}.weight", 300, array, exact, 5e-5)
        assert found is not None
        made.append(found)
    return made


def made_up_run(path: str = "run-a", steps: int = 12, layers: int = 3, bins: int = 24) -> Run:
    rng = np.random.default_rng(steps * layers)
    shown = [100 * step for step in range(steps)]
    arrays = [
        ArrayRow(
            f"{prefix}/layers.{i}.weight",
            role,
            f"in {prefix!r}",
            "float32",
            (64, 32),
            2048,
            "B()",
            900,
            8192 * steps,
        )
        for prefix, role in zip(("model", "m", "v", "stats"), ROLES, strict=True)
        for i in range(layers)
    ]

    def rows(low: float, high: float, first: float | None) -> list[list[float | None]]:
        return [[first, *rng.uniform(low, high, steps - 1).tolist()] for _ in arrays]

    ranges: list[tuple[float, float]] = [(1e-4, 1e-2), (0.01, 0.1), (0, 0.2), (-1, 0), (0, 1), (0, 0)]
    ranges += [(1, 64), (0, 1), (0, 0.1)]
    of_changes = ("movement", "rank", "error", "lag")
    figures = {
        name: rows(*of, None if name in of_changes else of[0])
        for name, of in zip(FIGURES, ranges, strict=True)
    }
    for row in figures["not_finite"]:
        row[:] = [0] * steps
    figures["not_finite"][1][-1] = 3
    first = {role: Figures(spread=0.05, error=0.01) for role in ROLES[:3]}
    checkpoints = [
        Checkpoint(
            step,
            "delta" if i else "keyframe",
            shown[i - 1] if i else None,
            i,
            9000 - 8000 * bool(i),
            98304,
            "balanced",
            {"loss": f"{3 / (i + 1):.3f}"},
            exact=i == steps - 1,
            pinned=i == 2,
            roles=dict.fromkeys(ROLES, 200),
            figures={role: measured(i + n) for n, role in enumerate(ROLES[:3])} if i else first,
        )
        for i, step in enumerate(shown)
    ]
    checkpoints.append(
        Checkpoint(
            shown[-1] + 100,
            "unreadable",
            bytes=512,
            sound=False,
            problems=["the file is cut off [LCC-TRL-06]"],
        )
    )
    counts = [rng.multinomial(2048, np.full(bins, 1 / bins), size=steps).tolist() for _ in arrays]
    histograms: list[Histogram | None] = [Histogram(-1.0, 1.0, of) for of in counts]
    quantiles: list[list[tuple[float, ...]] | None] = [None] * len(arrays)
    # The second array lost something at all steps but the last, the third at all.
    rising = np.sort(rng.uniform(-1, 1, (2, steps, 2 + len(QUANTILES))), axis=-1).tolist()
    quantiles[1] = [*map(tuple, rising[0][:-1]), ()] if steps > 1 else None
    quantiles[2] = [*map(tuple, rising[1])]
    histograms[1] = Histogram(-1.0, 1.0, [*([[]] * (steps - 1)), counts[1][-1]])
    histograms[2] = None
    errors = [[None if not i else x for i, x in enumerate(row)] for row in rows(0.1, 2, None)]
    loss = Loss(
        "the exact states in originals",
        shown,
        errors,
        rows(-0.1, 0.1, None),
        rows(0, 1e-3, 0.0),
        [0.001 if array.role == "weight" else None for array in arrays],
        {role: RoleLoss(0.9, -0.01, [None, *[0.9] * (steps - 1)]) for role in ROLES[:3]},
    )
    flags = [
        Flag(
            "error",
            "not finite",
            arrays[1].name,
            shown[-1],
            f"{arrays[1].name} has elements that are NaN or infinite: 3 of 2,048 at step 1100.",
            shown[-2] if steps > 1 else None,
            [arrays[1].name],
        ),
        Flag(
            "warning",
            "exploding",
            arrays[0].name,
            shown[steps // 2],
            f"2 weights move 40 to 50 times as far as before: {arrays[0].name}, {arrays[2].name}.",
            shown[steps // 2 - 1] if steps > 1 else None,
            [arrays[0].name, arrays[2].name],
        ),
        Flag(
            "note", "frozen", arrays[2].name, None, f"{arrays[2].name} does not move.", None, [arrays[2].name]
        ),
        Flag("error", "damaged", None, shown[-1] + 100, "The checkpoint of step 1200 cannot be read."),
    ]
    return Run(
        path,
        "chain",
        ["All 12 steps are shown."],
        checkpoints,
        arrays,
        shown,
        figures,
        histograms,
        {
            "container": 1000,
            "manifest": 2000,
            "raw": 100,
            "planes": 3000,
            "smooth": 500,
            "codebook": 9000,
            "exact file": 40000,
        },
        flags,
        loss,
        {
            "loss": [3 / (i + 1) for i in range(len(checkpoints))],
            "lr": [None, *(0.1 / i for i in range(1, len(checkpoints)))],
        },
        Verdict("broken", f"Broken between steps 500 and 600: {arrays[1].name} has NaN. 1 more finding."),
        quantiles=quantiles,
    )


def made_up_report(**sizes: int) -> Report:
    """Two runs and their comparison; `sizes` are those of `made_up_run`."""
    comparison = Comparison(
        "run-a step 1100",
        "run-b step 1100",
        [
            Compared("model/layers.0.weight", "weight", 0.31, 0.5, 0.95, 1.0),
            Compared("v/layers.0.weight", "second_moment", None, None, None, 0.5),
        ],
        7,
        ["model/new"],
        ["model/old"],
        [Replacement("model/head", "float32 (3,)", "float32 (4,)")],
        [Replacement("epoch", "3", "4")],
    )
    notes = ["Movement is not quality: what moves much may be learning well, or badly."]
    return Report("0.0", notes, [made_up_run("run-a", **sizes), made_up_run("run-b", **sizes)], comparison)
