"""Draws the pictures of the page How it works, as SVG files beside this program.

``pip install -e '.[plot]' && python docs/pictures/draw.py``. The same program gives the same bytes.
Each picture has a light ground of its own, so that it can be read on a dark page.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
GROUND, INK, SOFT = "#fbfaf7", "#1f2430", "#5c626d"
BLUE, ORANGE, GREEN, GREY = "#cfe2f7", "#fbdcb8", "#cfeacb", "#e6e6e3"
WAYS = {"mean of each set": (0, "#b4560f", "-"), "moved outwards": (1, "#1b64ad", "--")}
ZONE = 0.6  # half a dead zone, in steps (SPEC 7.7)
SHARE = 0.06  # of the weights that leave the dead zone

Axes = Any


def picture(width: float, height: float, columns: float, rows: float) -> tuple[Any, Axes]:
    """Return a figure of so many inches, and axes of so many columns and rows without a frame."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(width, height), facecolor=GROUND)
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    axes.axis("off")
    figure.subplots_adjust(left=0.01, right=0.99, top=0.99, bottom=0.01)
    return figure, axes


def box(axes: Axes, corner: tuple[float, float], size: tuple[float, float], text: str, colour: str) -> None:
    """Draw a box with a text in its middle."""
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0,rounding_size=0.12"
    axes.add_patch(
        FancyBboxPatch(corner, *size, boxstyle=style, facecolor=colour, edgecolor=INK, linewidth=1)
    )
    label(axes, (corner[0] + size[0] / 2, corner[1] + size[1] / 2), text)


def label(axes: Axes, place: tuple[float, float], text: str, **style: Any) -> None:
    """Write a text around a place."""
    axes.text(*place, text, **{"ha": "center", "va": "center", "color": INK, "fontsize": 10, **style})


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], bend: float = 0) -> None:
    """Draw an arrow between two places."""
    style = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.2, "connectionstyle": f"arc3,rad={bend}"}
    axes.annotate("", end, start, arrowprops={**style, "shrinkA": 0, "shrinkB": 0})


def loop() -> Any:
    """Draw the closed loop of a delta."""
    figure, axes = picture(8, 3.1, 16, 6.2)
    box(axes, (0.3, 0.8), (2.6, 1.4), "state of\nthis step", BLUE)
    box(axes, (4.3, 0.8), (2.4, 1.4), "difference", GREY)
    box(axes, (8.1, 0.8), (3.3, 1.4), "quantizer:\nsymbols and\nrepresentatives", ORANGE)
    box(axes, (13.0, 0.8), (2.7, 1.4), "file of\nthis step", GREEN)
    box(axes, (8.1, 3.9), (3.3, 1.4), "what a reader\nwill decode", BLUE)
    box(axes, (4.3, 3.9), (2.4, 1.4), "reference", BLUE)
    arrow(axes, (2.9, 1.5), (4.3, 1.5))
    arrow(axes, (6.7, 1.5), (8.1, 1.5))
    arrow(axes, (11.4, 1.5), (13.0, 1.5))
    arrow(axes, (9.75, 2.2), (9.75, 3.9))
    arrow(axes, (8.1, 4.6), (6.7, 4.6))
    arrow(axes, (5.5, 3.9), (5.5, 2.2))
    label(axes, (3.6, 1.15), "+", fontsize=14)
    label(axes, (5.15, 3.0), "–", fontsize=14)  # noqa: RUF001 - a sign, set as such
    label(axes, (7.4, 5.75), "for the next step", color=SOFT)
    label(axes, (12.1, 3.05), "the same addition\nas in the reader", color=SOFT)
    return figure


def bias() -> Any:
    """Draw how values are decoded, and how far a chain stays behind, with two representatives."""
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(8, 3.3), facecolor=GROUND)
    for axes in (left, right):
        axes.set_facecolor(GROUND)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    d = np.linspace(-2.4, 2.4, 2001)
    symbols = np.where(abs(d) < ZONE, 0, np.sign(d) * np.ceil(abs(d) - ZONE))
    middle = symbols + np.sign(symbols) * (ZONE - 0.5)
    left.plot(d, d, color=SOFT, linewidth=1, linestyle=":")
    for name, (outwards, colour, style) in WAYS.items():
        moved = middle + np.sign(symbols) * 0.35 * outwards
        left.plot(d, moved, color=colour, linestyle=style, linewidth=1.6, label=name)
        right.plot(_behind(outwards), color=colour, linestyle=style, linewidth=1.6, label=name)
    left.set_xlabel("difference to the stored value, in steps", fontsize=9)
    left.set_ylabel("what is decoded", fontsize=9)
    left.legend(fontsize=8, frameon=False, loc="upper left")
    right.axhline(0, color=SOFT, linewidth=1, linestyle=":")
    right.set_xlabel("checkpoint", fontsize=9)
    right.set_ylabel("stays behind, in movements", fontsize=9)
    right.legend(fontsize=8, frameon=False, loc="center right")
    figure.tight_layout()
    return figure


def _behind(outwards: float) -> list[float]:
    """Return by how many movements stored values stay behind, at each checkpoint of a simulation.

    10,000 weights move with a trend and with noise. 6 % of those that moved are stored.
    Representatives are the means of their bins (SPEC 7.7), moved outwards or not.
    """
    rng = np.random.default_rng(0)
    trend = rng.standard_normal(10_000)
    true = np.zeros(10_000)
    stored, behind = true.copy(), []
    for _ in range(60):
        movement = trend + 2 * rng.standard_normal(10_000)
        true = true + movement
        d = true - stored
        step = np.quantile(abs(d), 1 - SHARE) / ZONE
        symbols = np.where(abs(d) < ZONE * step, 0, np.sign(d) * np.ceil(abs(d) / step - ZONE))
        for symbol in np.unique(symbols[symbols != 0]):
            found = symbols == symbol
            away = 0.75 * ZONE * step * (1 - SHARE) ** 1.5 * outwards
            stored[found] += d[found].mean() + np.sign(symbol) * away
        behind.append(float(((true - stored) * movement).mean() / (movement**2).mean()))
    return behind


def streams() -> Any:
    """Draw how the symbols of an array become bytes."""
    symbols = [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 3]
    figure, axes = picture(8, 3.4, 20.6, 8.8)
    label(axes, (0.3, 0.55), "symbols of the values, in order: 0 keeps the reference", ha="left")
    for place, symbol in enumerate(symbols):
        box(axes, (0.3 + place, 1.0), (0.92, 0.95), str(symbol), ORANGE if symbol else GREY)
    label(axes, (0.3, 3.0), "gaps between symbols that are not 0", ha="left")
    label(axes, (11.3, 3.0), "these symbols", ha="left")
    for place, gap in enumerate([3, 6, 0, 7]):
        box(axes, (0.3 + 1.2 * place, 3.45), (1.1, 0.95), str(gap), BLUE)
    for place, symbol in enumerate([2, 1, 1, 3]):
        box(axes, (11.3 + 1.2 * place, 3.45), (1.1, 0.95), str(symbol), ORANGE)
    box(axes, (0.3, 6.1), (4.9, 1.15), "high part: Huffman", GREEN)
    box(axes, (5.5, 6.1), (4.9, 1.15), "low bits: as they are", GREEN)
    box(axes, (11.3, 6.1), (4.9, 1.15), "Huffman", GREEN)
    arrow(axes, (2.0, 4.4), (2.7, 6.1))
    arrow(axes, (4.0, 4.4), (7.5, 6.1))
    arrow(axes, (13.7, 4.4), (13.7, 6.1))
    label(axes, (10.3, 8.1), "NumPy decodes the many lanes of a Huffman code side by side", color=SOFT)
    return figure


def container() -> Any:
    """Draw a checkpoint file, and the chain that it is in."""
    figure, axes = picture(8, 3.7, 16, 7.4)
    label(axes, (0.3, 0.4), "one checkpoint: one file, which HDF5 tools open too", ha="left")
    parts = [
        (1.6, "head", GREY),
        (8.0, "payload: frames, end to end", ORANGE),
        (3.9, "manifest: names,\nshapes, hashes", BLUE),
        (1.9, "trailer:\nroot hash", GREEN),
    ]
    start = 0.3
    for width, text, colour in parts:
        box(axes, (start, 0.8), (width, 1.4), text, colour)
        start += width
    label(axes, (0.3, 3.2), "a chain: a directory of such files", ha="left")
    names = [
        ("keyframe\nstep 0", BLUE),
        *((f"delta\nstep {step}", GREY) for step in (20, 40, 60)),
        ("exact file\nstep 60", GREEN),
    ]
    for place, (name, colour) in enumerate(names):
        box(axes, (0.3 + 3.15 * place, 3.7), (2.5, 1.4), name, colour)
    for place in range(3):
        arrow(axes, (3.45 + 3.15 * place, 4.4), (2.8 + 3.15 * place, 4.4))
    arrow(axes, (12.9, 4.4), (12.25, 4.4))
    label(axes, (6.0, 5.7), "each names its parent and the parent's root hash", color=SOFT)
    label(axes, (14.15, 5.85), "the newest state\nbit for bit", color=SOFT)
    label(axes, (0.3, 6.9), "a bundle holds the files of a chain, as they are, in one file", ha="left")
    return figure


PICTURES: list[Callable[[], Any]] = [loop, bias, streams, container]


def main() -> None:
    """Write all pictures."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "lccodec", "text.color": INK}
    for draw in PICTURES:
        draw().savefig(HERE / f"{draw.__name__}.svg", metadata={"Date": None}, facecolor=GROUND)


if __name__ == "__main__":
    main()
