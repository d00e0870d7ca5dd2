"""The numbers that were set for lccodec's speed, and how far a run is from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..measure.figures import NANOSECONDS, ONE_THREAD, Figure, find
from .chains import POLICIES
from .newest import EXACT, PEER
from .stages import TOTALS

__all__ = ["Goal", "goals", "limits", "summary", "table"]

SIXTEEN_MILLION = "16,000,000"
MIB = 1 << 20
MOST_STAGES = 5  # named of each gap
COMPARED = ("lc-2", "lc-3", "uniform, 2 x rms")  # rows of arrays that have goals


@dataclass(frozen=True)
class Goal:
    """One number; less is better.

    Parameters
    ----------
    what
        That it is about.
    measured
        In this run, or ``None``.
    must
        Bound; to be reached or fallen below; ``None`` where there is only a goal.
    goal
        What it is to be in the end, or ``None`` where that is `must`.
    unit
        ``"copies"`` (times of np.copyto of the same bytes), ``"x"``, ``"ms"`` or ``"MiB"``.
    spent
        Section, beginning of the heading and name of what says where its time goes: a column of the
        profile, a row of the threads.
    """

    what: str
    measured: float | None
    must: float | None
    goal: float | None
    unit: str = "copies"
    spent: tuple[str, str, str] | None = None

    @property
    def is_met(self) -> bool:
        """Whether it was measured and its bound, if it has one, is kept."""
        return self.measured is not None and (self.must is None or self.measured <= self.must)

    @property
    def state(self) -> str:
        """``"reached"``, ``"not measured"``, or by which factors bound and goal are missed."""
        if self.measured is None:
            return "not measured"
        missed = [
            f"{self.measured / limit:.2f} x the {name}"
            for name, limit in (("bound", self.must), ("goal", self.goal))
            if limit is not None and self.measured > limit
        ]
        return ", ".join(missed) or "reached"


def table(found: Sequence[Goal]) -> str:
    """Return the goals that were measured as a markdown table."""
    lines = ["| what | measured | must be | goal | |", "|---|---:|---:|---:|---|"]
    for g in found:
        if g.measured is None:
            continue
        cells = (_shown(value, g.unit) for value in (g.measured, g.must, g.goal))
        lines.append(f"| {g.what} | " + " | ".join(cells) + f" | {g.state} |")
    unknown = sum(g.measured is None for g in found)
    return "\n".join([*lines, *([f"\nNot measured in this run: {unknown} more."] if unknown else [])])


def summary(found: Sequence[Goal]) -> str:
    """Return which of the bounds that were measured are kept, and which are not."""
    bounds = [g for g in found if g.must is not None and g.measured is not None]
    missed = [g.what for g in bounds if not g.is_met]
    lines = [f"{len(bounds) - len(missed)} of {len(bounds)} bounds are met."]
    return "\n".join([*lines, *(["Not met:", "", *(f"- {what}" for what in missed)] if missed else [])])


def limits(found: Sequence[Goal], figures: Sequence[Figure]) -> str:
    """Return where the time of each goal that is not reached goes, as far as it was measured."""
    lines = [f"| what | | {NANOSECONDS}, largest stages first; or {ONE_THREAD} |", "|---|---|---|"]
    for goal in found:
        if goal.spent is None or goal.measured is None or goal.state == "reached":
            continue
        section, case, name = goal.spent
        here = [f for f in figures if f.section == section and f.case.startswith(case)]
        if section == "threads":
            shown = [f"{f.column} {f.ratio:.2f}" for f in here if f.subject == name]
        else:
            stages = [f for f in here if f.action == name and f.subject not in TOTALS]
            stages.sort(key=lambda f: -f.ratio)
            shown = [f"{f.subject} {f.ratio:.2f}" for f in stages[:MOST_STAGES]]
        if shown:
            lines.append(f"| {goal.what} | {goal.state} | {'; '.join(shown)} |")
    return "\n".join(lines)


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"1/{value:.3g}" if unit == "copies" else f"{value:.3g} {unit}"


def goals(figures: Sequence[Figure]) -> list[Goal]:
    """Return all goals, with what `figures` say of them."""
    return [*_arrays(figures), *_states(figures)]


def _ratio(figure: Figure | None) -> float | None:
    return None if figure is None else figure.ratio


def _times(first: Figure | None, second: Figure | None) -> float | None:
    """Return the seconds of the first as a multiple of those of the second."""
    if first is None or second is None or first.seconds is None or second.seconds is None:
        return None
    return first.seconds / second.seconds


def _size(figure: Figure | None) -> str:
    """Return how large what was measured was, to stand behind the name of a goal."""
    return (
        "" if figure is None else ", " + figure.case.split(", ")[0].split(" in ")[0].removesuffix(" float32")
    )


def _arrays(figures: Sequence[Figure]) -> list[Goal]:
    return [
        *(goal for name in COMPARED for goal in _quantized(figures, name)),
        *_bounded(figures),
        *_lossless(figures),
        *_huffman(figures),
        *_costs(figures),
    ]


def _real(figures: Sequence[Figure], subject: str, action: str, threads: int = 1) -> Figure | None:
    return find(figures, "real", subject, action, case=SIXTEEN_MILLION, threads=threads)


def _quantized(figures: Sequence[Figure], name: str) -> list[Goal]:
    encode, into = (_real(figures, name, action) for action in ("encode", "decode into"))
    zstd_encode, zstd_decode = (_real(figures, "zstd -1", action) for action in ("encode", "decode, fresh"))
    over, apply = f"encode 16 M, over zstd -1's time, {name}", f"decode and apply 16 M, {name}"
    found = [
        Goal(f"encode 16 M, {name}", _ratio(encode), 10, 5, spent=("profile", "encode", name)),
        Goal(over, _times(encode, zstd_encode), 1, None, "x"),
        Goal(apply, _ratio(into), 5, 2.5, spent=("profile", "decode into", name)),
        Goal(
            f"decode and apply 16 M, over zstd -1's time, {name}",
            _times(into, zstd_decode),
            0.5,
            None,
            "x",
        ),
    ]
    if _real(figures, name, "encode", 2) is not None:
        for action in ("encode", "decode into"):
            of_one = _times(_real(figures, name, action, 2), _real(figures, name, action))
            what = f"two threads, {action}, over one's time, {name}"
            spent = ("threads", "", f"{action}, {name}")
            found.append(Goal(what, of_one, 1 / 1.7, None, "x", spent))
    return found


def _bounded(figures: Sequence[Figure]) -> list[Goal]:
    found = []
    for suffix in ("max error 0.6 x rms", "max error 1.2 x rms"):
        for own, other in (("encode", "encode"), ("decode into", "decode, fresh")):
            ours, theirs = _real(figures, f"uniform, {suffix}", own), f"SZ3, {suffix}"
            against = _times(ours, _real(figures, theirs, other))
            what = f"{own}, over SZ3's time, {suffix}"
            found.append(Goal(what, against, 1 / 4, 1 / 8, "x"))
    return found


def _lossless(figures: Sequence[Figure]) -> list[Goal]:
    found = []
    for what, action, must in (("encode", "encode", 15), ("decode", "decode into", 8)):
        ratio, spent = _ratio(_real(figures, "lossless", action)), ("profile", action, "lossless")
        found.append(Goal(f"lossless planes, {what} 16 M", ratio, must, None, spent=spent))
    return found


def _huffman(figures: Sequence[Figure]) -> list[Goal]:
    found = []
    for action in ("encode", "decode, fresh"):
        ours, theirs = (find(figures, "huffman", name, action) for name in ("lccodec", "zlib Z_HUFFMAN_ONLY"))
        what = f"Huffman stage, {action}, over zlib's time"
        found.append(Goal(what, _times(ours, theirs), 1, None, "x"))
    return found


def _costs(figures: Sequence[Figure]) -> list[Goal]:
    found = []
    for name in ("lc-3", "uniform, 2 x rms"):
        for action in ("encode", "decode into"):
            what = f"cost a value, dearest size over cheapest, {action}, {name}"
            found.append(Goal(what, _spread(figures, name, action), 1.3, None, "x"))
    return found


def _spread(figures: Sequence[Figure], subject: str, action: str) -> float | None:
    """Return the dearest over the cheapest time a value, of the sizes from a million on."""
    costs = [
        f.seconds / f.values
        for f in figures
        if (f.section, f.subject, f.action, f.threads) == ("real", subject, action, 1)
        and f.seconds is not None
        and f.values is not None
        and f.values >= 1_000_000
    ]
    return max(costs) / min(costs) if len(costs) > 1 else None


def _states(figures: Sequence[Figure]) -> list[Goal]:
    found = []
    for policy in POLICIES:
        save = find(figures, "save", policy, "save")
        write = find(figures, "save", policy, "write and sync as many bytes")
        deep, keyframe = (find(figures, "restore", policy, a) for a in ("deepest", "keyframe"))
        peak = find(figures, "memory", policy, "save")
        mib = None if peak is None or peak.amount is None else peak.amount / MIB
        depth = f" ({deep.note})" if deep else ""
        found += [
            Goal(
                f"Chain.save, {policy}{_size(save)}",
                _ratio(save),
                14,
                None,
                spent=("profile", "Chain.save of", policy),
            ),
            Goal(
                f"Chain.save, over the time to write its bytes, {policy}",
                _times(save, write),
                None,
                1.2,
                "x",
            ),
            Goal(
                f"Chain.restore, deepest delta over keyframe, {policy}{depth}{_size(deep)}",
                _times(deep, keyframe),
                4,
                2,
                "x",
                ("profile", "Chain.restore of", "deepest") if policy == "lc-3" else None,
            ),
            Goal(
                f"peak memory of a save beyond state and reference, {policy}{_size(peak)}",
                mib,
                256,
                128,
                "MiB",
            ),
        ]
    for action, peer in (("save", "save, not synced"), ("load", "load")):
        for subject in ("keyframe", "lc-3"):
            against = _times(find(figures, "many", subject, action), find(figures, "many", "np.savez", peer))
            size = _size(find(figures, "many", subject, action))
            what = f"small arrays, {action} over that of np.savez, {subject}{size}"
            spent = ("profile", "small arrays", f"{action} {subject}")
            found.append(Goal(what, against, 1, None, "x", spent))
    exact, raw = (find(figures, "newest", subject, "write") for subject in (EXACT, PEER))
    what = f"exact file, over np.save and fsync of its bytes{_size(exact)}"
    found.append(Goal(what, _times(exact, raw), 1.2, 1.05, "x"))
    one = find(figures, "tensor", "lccodec", "open, read one, close")
    read = find(figures, "tensor", "lccodec", "read")
    milliseconds = None if one is None or one.seconds is None else 1e3 * one.seconds
    amount = None if read is None or read.amount is None else read.amount / MIB
    return [
        *found,
        Goal(f"one tensor{_size(one)}", milliseconds, 20, None, "ms"),
        Goal("one tensor, bytes read", amount, 2e6 / MIB, None, "MiB"),
    ]
