"""The comparison of all schemes: rows put together from trials, as markdown, as JSON, as a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from .pieces import CASES, EXACT, OLDER, Piece

__all__ = ["Row", "as_json", "draw", "gather", "markdown", "restores"]

Estimate = tuple[float, float]  # mean over the seeds, and its standard error; 0 if there is one seed
AT_END = 5  # checkpoints whose mean is the loss of a run at its end
SURE = 2.0  # standard errors from 0 of what is taken for true


@dataclass(frozen=True)
class Row:
    """One scheme in one case.

    Ratios are to 4 bytes a value. Gaps are over the exact run's loss.

    Parameters
    ----------
    case, scheme
        Which.
    own, lossless
        Whether it is lccodec's; whether it gives every bit back.
    trial
        What was measured of the chain, ``None`` where nothing was yet.
    gaps
        For each mark the gap of the resumed runs.
    rework
        The gap at the first mark in iterations of the exact run; ``None`` if that makes no headway.
    degradation
        Of the loss after ten restores, as a share.
    apart
        The same where the restores are ten checkpoints apart.
    """

    case: str
    scheme: str
    own: bool
    lossless: bool
    trial: Mapping[str, Any]
    gaps: Mapping[int, Estimate]
    rework: Estimate | None
    degradation: float | None
    apart: Estimate | None


def gather(pieces: Sequence[Piece], own: set[str], lossless: set[str]) -> list[Row]:
    """Return a row for every scheme and case whose chain was measured."""
    rows = []
    results = {(p.case, p.scheme, p.kind, p.seed): p.result for p in pieces}
    for (case, scheme, kind, _), trial in results.items():
        if kind != "chain" or trial is None:
            continue
        gaps = _gaps(pieces, case, scheme)
        slope = headway(pieces, case)
        rework = None
        if slope and gaps:
            middle, error = gaps[min(gaps)]
            rework = middle / slope, error / slope
        restores = results.get((case, scheme, "restores", 0))
        rows.append(
            Row(
                case,
                scheme,
                own=scheme in own,
                lossless=scheme in lossless,
                trial=trial,
                gaps=gaps,
                rework=rework,
                degradation=restores["degradation"] if restores else None,
                apart=_apart(pieces, case, scheme),
            )
        )
    return rows


def _estimate(values: Sequence[float]) -> Estimate:
    return mean(values), stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def _apart(pieces: Sequence[Piece], case: str, scheme: str) -> Estimate | None:
    """Return what ten restores, ten checkpoints apart, add to the loss, as a share of it."""
    found = {(p.scheme, p.seed): p.result for p in pieces if (p.case, p.kind) == (case, "apart")}
    pairs = [(result, found[EXACT, seed]) for (name, seed), result in found.items() if name == scheme]
    if scheme == EXACT or not pairs or not all(ours and exact for ours, exact in pairs):
        return None
    ends = [[mean(r["losses"][-AT_END:]) for r in pair if r] for pair in pairs]
    return _estimate([ours / exact - 1 for ours, exact in ends])


def _gaps(pieces: Sequence[Piece], case: str, scheme: str) -> dict[int, Estimate]:
    """Return the gaps of a scheme at each mark; none unless all seeds are there."""
    resumed = {(p.scheme, p.seed): p for p in pieces if (p.case, p.kind) == (case, "resume")}
    pairs = [(p.result, resumed[EXACT, seed].result) for (name, seed), p in resumed.items() if name == scheme]
    if not pairs or not all(ours and exact for ours, exact in pairs):
        return {}
    found = {}
    for number, mark in enumerate(next(p.marks for (name, _), p in resumed.items() if name == scheme)):
        gaps = [ours["losses"][number] - exact["losses"][number] for ours, exact in pairs if ours and exact]
        found[mark] = _estimate(gaps)
    return found


def exact_spread(pieces: Sequence[Piece], case: str) -> dict[int, tuple[float, float]]:
    """Return mean loss of the exact resumed runs at each mark, and how far the seeds lie apart."""
    found = [p.result for p in pieces if (p.case, p.scheme, p.kind) == (case, EXACT, "resume")]
    if not found or not all(found):
        return {}
    columns = zip(*(result["losses"] for result in found if result), strict=False)
    marks = next(p.marks for p in pieces if (p.case, p.scheme) == (case, EXACT))
    return {m: (mean(c), max(c) - min(c)) for m, c in zip(marks, columns, strict=False)}


def headway(pieces: Sequence[Piece], case: str) -> float | None:
    """Return by how much the loss of the exact run falls in an iteration, ``None`` if it does not.

    Between the first and the last mark of the resumed runs, or from where they resume to their only
    mark. ``None`` as well where it is not sure that the state of an interval before is behind:
    what is less than an interval cannot be told from noise there.
    """
    gaps = _gaps(pieces, case, OLDER)
    if not gaps:
        return None
    behind, error = gaps[min(gaps)]
    if behind <= SURE * error:
        return None
    points = {mark: loss for mark, (loss, _) in exact_spread(pieces, case).items()}
    chain = next((p.result for p in pieces if (p.case, p.scheme, p.kind) == (case, EXACT, "chain")), None)
    if len(points) == 1 and chain:
        points[0] = chain["loss"]
    if len(points) < 2:
        return None
    slope = (points[min(points)] - points[max(points)]) / (max(points) - min(points))
    return slope if slope > 0 else None


def markdown(rows: Sequence[Row], pieces: Sequence[Piece]) -> str:
    """Return a table for each case, best ratio first."""
    tables = []
    for case in dict.fromkeys(row.case for row in rows):
        here = [row for row in rows if row.case == case]
        moments = CASES[case].task in {"gpt", "finetune"}
        marks = list(dict.fromkeys(mark for row in here for mark in row.gaps))
        restores = any(row.degradation is not None for row in here)
        apart = any(row.apart is not None for row in here)
        late = any(row.trial.get("late_gap") is not None for row in here)
        head = ["scheme", "chain, bytes (keyframes)", "chain", "delta, bytes", "delta"]
        head += ["delta, W alone"] if moments else []
        head += ["accuracy", "loss", *(f"+{mark}, gap" for mark in marks), "rework"]
        head += ["ten restores"] if restores else []
        head += ["ten apart"] if apart else []
        head += ["worst accuracy gap"] if late else []
        head += ["impossible v"] if moments else []
        head += ["save, s", "restore, s"]
        lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
        for row in sorted(here, key=lambda r: -r.trial.get("chain_ratio", float("inf"))):
            lines.append("| " + " | ".join(_cells(row, moments, marks, restores, apart, late)) + " |")
        exact = exact_spread(pieces, case)
        counts = {row.trial["checkpoints"] for row in here if "checkpoints" in row.trial}
        notes = [f"{count} checkpoints" for count in counts]
        notes += [
            f"after {mark} more iterations the exact run has a loss of {loss:.4f}, seeds {spread:.4f} apart"
            for mark, (loss, spread) in exact.items()
        ]
        tables.append(
            "\n".join(
                [f"### {case}", "", *([f"{'; '.join(notes).capitalize()}.", ""] if notes else []), *lines]
            )
        )
    return "\n\n".join(tables)


def _cells(  # a flag for every column that is not in all tables
    row: Row, moments: bool, marks: Sequence[int], restores: bool, apart: bool, late: bool
) -> list[str]:
    trial = row.trial

    def shown(key: str, pattern: str) -> str:
        return "" if trial.get(key) is None else pattern.format(trial[key])

    sizes = [f"{trial['chain_bytes']:,} ({trial['keyframes']})" if "chain_bytes" in trial else ""]
    sizes += [
        shown("chain_ratio", "{:.1f}x"),
        shown("delta_bytes", "{:,.0f}"),
        shown("delta_ratio", "{:.1f}x"),
    ]
    if moments:
        sizes.append(shown("weight_ratio", "{:.1f}x"))
    gaps = []
    for mark in marks:
        if row.lossless:
            gaps.append("0")
        elif mark in row.gaps and row.scheme != EXACT:
            gaps.append("{:+.4f} +- {:.4f}".format(*row.gaps[mark]))
        else:
            gaps.append("")
    cells = [f"**{row.scheme}**" if row.own else row.scheme, *sizes]
    cells += [f"{trial['accuracy']:.2%}", f"{trial['loss']:.4f}", *gaps]
    cells.append(
        "0" if row.lossless else "" if row.rework is None else "{:.0f} +- {:.0f}".format(*row.rework)
    )
    if restores:
        degradation = 0.0 if row.lossless else row.degradation
        cells.append("" if degradation is None else f"{degradation:+.2%}")
    if apart:
        added, error = row.apart or (0.0, 0.0)
        several = f" +- {error:.2%}" if error else ""
        cells.append("" if row.apart is None else f"{added:+.2%}{several}")
    if late:
        cells.append(shown("late_gap", "{:.2%}"))
    if moments:
        cells.append(f"{trial['impossible']:,}")
    return [*cells, shown("save_seconds", "{:.3f}"), shown("restore_seconds", "{:.3f}")]


def restores(rows: Sequence[Row]) -> str:
    """Return a table of what restores of lccodec's chains cost; empty if none was measured."""
    lines = []
    for row in rows:
        timed = row.trial.get("restores") or []
        if len(timed) < 3:
            continue
        cells = [f"{r['seconds']:.3f}" + (f" ({r['deltas']})" if r["deltas"] else "") for r in timed]
        lines.append(f"| {row.case} | {row.scheme} | " + " | ".join(cells) + " |")
    if not lines:
        return ""
    head = ["case", "policy", "at a keyframe, s", "in the middle, s (deltas)"]
    head.append("deepest, s (deltas)")
    return "\n".join(
        ["### What a restore costs", "", f"| {' | '.join(head)} |", "|---|---|---:|---:|---:|", *lines]
    )


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows ready for JSON."""
    return [asdict(row) for row in rows]


def draw(rows: Sequence[Row], cases: Sequence[str], stem: Path) -> None:
    """Draw ratios of whole chains against gaps, a panel a case, as PNG and SVG.

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "lccodec"  # the same picture, the same bytes
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(cases), figsize=(6.4 * len(cases), 5.2), squeeze=False)
    for panel, case in zip(panels[0], cases, strict=True):
        here = [row for row in rows if row.case == case and (row.gaps or row.lossless)]
        mark = min((mark for row in here for mark in row.gaps), default=0)
        for row in here:
            middle, error = row.gaps.get(mark, (0.0, 0.0))
            if row.scheme == OLDER:
                panel.axhline(middle, color="black", linewidth=0.7, linestyle=":")
                panel.annotate(OLDER, (1.05, middle), fontsize=7, va="bottom")
            if "chain_ratio" not in row.trial:
                continue
            color = "tab:red" if row.own else "tab:gray" if row.lossless else "tab:blue"
            ratio = row.trial["chain_ratio"]
            panel.errorbar(ratio, middle, error, fmt="o", color=color, linewidth=0.8)
            panel.annotate(
                "" if row.lossless else row.scheme,
                (ratio, middle),
                xytext=(4, 4),
                textcoords="offset points",
                fontsize=8 if row.own else 7,
                color=color,
                weight="bold" if row.own else "normal",
            )
        panel.annotate("lossless", (1.2, 0), xytext=(0, -12), textcoords="offset points", fontsize=7)
        panel.set_xscale("log")
        panel.set_xlim(1, 300)
        panel.set_xticks([1, 2, 5, 10, 20, 50, 100, 200])
        panel.xaxis.set_major_formatter("{x:g}x")
        panel.xaxis.set_minor_formatter("")
        panel.set_yscale("symlog", linthresh=0.005)
        low, high = panel.get_ylim()  # ticks would widen them
        panel.set_yticks([-0.005, 0, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2])
        panel.set_ylim(low, high)
        panel.yaxis.set_major_formatter("{x:+g}")
        stored = "weights and moments" if CASES[case].task in {"gpt", "finetune"} else "weights"
        panel.set_xlabel(f"ratio of the whole chain, {stored}")
        panel.set_ylabel(f"gap of the loss {mark} iterations later (mean and standard error)")
        panel.set_title(case)
    figure.tight_layout()
    figure.savefig(stem.with_suffix(".png"), dpi=110, metadata={"Software": None})
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    plt.close(figure)
