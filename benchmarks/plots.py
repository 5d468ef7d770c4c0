"""Plots of the suite: SVG that follows a light or a dark page, in colours that colour-blind people can tell apart.

Drawing loads matplotlib, importing this module does not: Keras loads it wherever it is installed, so tests do without.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLUE, ORANGE, GREEN, GREY, PINK = "#0072B2", "#D55E00", "#009E73", "#8C8C8C", "#CC79A7"
"""Of the palette by Okabe and Ito."""

WIDTH = 8.0
"""In inches of 72 points, so 576 of the SVG's units."""

INK, FAINT = "#010203", "#040506"
"""Stand-ins for the colours of text and of the grid, which `_finish` replaces: they depend on the page."""

STYLE = (
    "<style>:root{--ink:#1f2328;--faint:#d1d9e0}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--faint:#3d444d}}</style>"
)


@dataclass(frozen=True)
class Line:
    """One line of a plot.

    Args:
        label: What it is.
        x: Where.
        y: How much.
        colour: Of those above.
        dashed: Whether it is drawn dashed, with open markers.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    dashed: bool = False


def bars(
    file: Path,
    title: str,
    unit: str,
    heights: Mapping[str, tuple[float, float, float]],
    own: Sequence[str],
    *,
    shown: str = "median and quartiles",
) -> None:
    """Draw a bar for each contender, the first at the top, with its value behind it.

    Args:
        file: Where to.
        title: What was measured.
        unit: Of the values.
        heights: Of each contender the median and its two quartiles.
        own: Those that are Stratagem's; they have the colour, the others are grey.
        shown: What the three values are.
    """
    names = list(heights)
    figure, axes = _canvas(1.1 + 0.55 * len(names))
    medians = [median for median, _, _ in heights.values()]
    spread = [
        [median - low for median, low, _ in heights.values()],
        [high - median for median, _, high in heights.values()],
    ]
    colours = [BLUE if name in own else GREY for name in names]
    labels = [name.replace(", ", ",\n", 1) for name in names]
    axes.barh(
        labels,
        medians,
        xerr=spread,
        color=colours,
        height=0.65,
        error_kw={"elinewidth": 1.2, "capsize": 3, "ecolor": INK},
    )
    for place, (median, _, high) in enumerate(heights.values()):
        axes.annotate(f"{median:.1f}", (max(median, high), place), (6, 0), textcoords="offset points", va="center")
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * max(high for _, _, high in heights.values()))
    axes.set_xlabel(f"{unit}, {shown}; less is better")
    axes.tick_params(axis="y", length=0)
    _finish(figure, axes, file, title, grid="x")


def grouped_bars(
    file: Path, title: str, label: str, groups: Mapping[str, Mapping[str, float]], colours: Mapping[str, str]
) -> None:
    """Draw a group of bars for each thing that was measured, the first at the top, on a logarithmic axis.

    Args:
        file: Where to.
        title: What was measured.
        label: Of the axis.
        groups: Of each thing the values by contender.
        colours: Of each contender, in order.
    """
    height = 0.8 / len(colours)
    figure, axes = _canvas(1.2 + 0.16 * len(groups) * (len(colours) + 1))
    for number, (contender, colour) in enumerate(colours.items()):
        drawn = [(place, values[contender]) for place, values in enumerate(groups.values()) if contender in values]
        places, widths = zip(*drawn, strict=True)
        middles = [place + (number - (len(colours) - 1) / 2) * height for place in places]
        axes.barh(middles, widths, height, color=colour, label=contender)
    axes.set_yticks(range(len(groups)), list(groups))
    axes.invert_yaxis()
    axes.set_xscale("log", base=2)
    axes.set_xlim(left=0.5)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_xlabel(label)
    axes.tick_params(axis="y", length=0)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    _finish(figure, axes, file, title, grid="x")


def lines(
    file: Path,
    title: str,
    x_label: str,
    y_label: str,
    drawn: Sequence[Line],
    *,
    x_ticks: Mapping[float, str],
    logarithmic: bool = False,
) -> None:
    """Draw lines with markers.

    Args:
        file: Where to.
        title: What was measured.
        x_label: What goes to the right, with its unit.
        y_label: What goes up, with its unit.
        drawn: The lines.
        x_ticks: What stands below the axis, and where.
        logarithmic: Whether both axes are; else the upward one begins at zero.
    """
    figure, axes = _canvas(4.5)
    for line in drawn:
        style: dict[str, Any] = {"linestyle": "--", "markerfacecolor": "white"} if line.dashed else {}
        axes.plot(line.x, line.y, color=line.colour, marker="o", linewidth=1.8, label=line.label, **style)
    if logarithmic:
        axes.loglog()
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xticks(list(x_ticks), list(x_ticks.values()))
    axes.minorticks_off()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.legend(frameon=False)
    _finish(figure, axes, file, title, grid="both")


def _canvas(height: float) -> tuple[Any, Any]:
    """Return an empty figure, which nobody shows on a screen, and its axes."""
    figure = importlib.import_module("matplotlib.figure").Figure(figsize=(WIDTH, height), facecolor="none")
    return figure, figure.subplots()


def _finish(figure: Any, axes: Any, file: Path, title: str, *, grid: str) -> None:
    figure.suptitle(title, x=0.01, horizontalalignment="left", fontweight="bold", fontsize="medium", color=INK)
    axes.grid(axis=grid, color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.tick_params(colors=INK)
    for label in (axes.xaxis.label, axes.yaxis.label, *axes.texts, *_legend_of(axes)):
        label.set_color(INK)
    figure.tight_layout()
    drawn = io.StringIO()
    with importlib.import_module("matplotlib").rc_context({"svg.fonttype": "none", "svg.hashsalt": file.name}):
        figure.savefig(drawn, format="svg", metadata={"Date": None}, transparent=True)
    head, end, rest = drawn.getvalue().partition("<defs>")
    themed = f"{head}{STYLE}{end}{rest}".replace(INK, "var(--ink)").replace(FAINT, "var(--faint)")
    file.write_text(themed, "utf-8")


def _legend_of(axes: Any) -> list[Any]:
    legend = axes.get_legend()
    return legend.get_texts() if legend else []
