"""Plots as SVG: lines over time and stacked shares, drawn without a library, so that a page contains all it needs.

matplotlib would draw them as well, but weighs 60 MB for six polylines, and its pictures do not follow a dark page.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

WIDTH: Final = 860
HEIGHT: Final = 180
_LEFT: Final = 64
_RIGHT: Final = 12
_TOP: Final = 10
_BOTTOM: Final = 24

Points = Sequence[tuple[float, float]]
"""Pairs of seconds since the beginning, and a value."""


class Marker(NamedTuple):
    """A moment that is marked in a plot.

    Args:
        seconds: Time since the beginning.
        text: What happened.
    """

    seconds: float
    text: str


def lines(series: Mapping[str, Points], seconds: float, unit: str, markers: Sequence[Marker] = ()) -> str:
    """Return a plot of lines over time.

    Args:
        series: The points of each line, by its name.
        seconds: Where the axis of time ends.
        unit: What the values are, for tooltips.
        markers: Moments that are marked.
    """
    values = [value for points in series.values() for _, value in points if math.isfinite(value)]
    low, high = (min(0.0, *values), max(values)) if values else (0.0, 1.0)
    ticks = _ticks(low, high)
    axis = _Axes(seconds, min(low, ticks[0]), max(high, ticks[-1]))
    drawn = [
        f'<polyline class="line c{number % 8}" points="{axis.path(run)}"><title>{html.escape(name)}: '
        f"{run[-1][1]:.4g} {html.escape(unit)}</title></polyline>"
        for number, (name, points) in enumerate(series.items())
        for run in _runs(points)
    ]
    return _svg([*axis.grid(ticks), *drawn, *axis.marked(markers)])


def shares(parts: Mapping[str, Points], seconds: float, markers: Sequence[Marker] = ()) -> str:
    """Return a plot of stacked shares over time, from 0 to 100%.

    Args:
        parts: The share of each part at each moment, from 0 to 1; all parts have the same moments.
        seconds: Where the axis of time ends.
        markers: Moments that are marked.
    """
    axis = _Axes(seconds, 0.0, 1.0)
    moments = [moment for moment, _ in next(iter(parts.values()), ())]
    below, drawn = [0.0] * len(moments), []
    for part, points in parts.items():
        above = [least + value for least, (_, value) in zip(below, points, strict=True)]
        outline = [*zip(moments, above, strict=True), *reversed(list(zip(moments, below, strict=True)))]
        mean = sum(value for _, value in points) / len(points) if points else 0.0
        drawn.append(
            f'<polygon class="part p-{part}" points="{axis.path(outline)}"><title>{part}: {mean:.0%}</title></polygon>'
        )
        below = above
    return _svg([*drawn, *axis.grid([0.0, 0.5, 1.0], as_shares=True), *axis.marked(markers)])


class _Axes:
    """Time to the right, values upwards."""

    def __init__(self, seconds: float, low: float, high: float) -> None:
        self._seconds = max(seconds, 1e-9)
        self._low = low
        self._span = (high - low) or 1.0

    def x(self, seconds: float) -> float:
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * seconds / self._seconds, 1)

    def y(self, value: float) -> float:
        return round(HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * (value - self._low) / self._span, 1)

    def path(self, points: Points) -> str:
        return " ".join(f"{self.x(seconds)},{self.y(value)}" for seconds, value in points)

    def grid(self, ticks: Sequence[float], *, as_shares: bool = False) -> list[str]:
        drawn = []
        for tick in ticks:
            y, text = self.y(tick), f"{tick:.0%}" if as_shares else f"{tick:.4g}"
            drawn.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
            drawn.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{text}</text>')
        for tick in _ticks(0.0, self._seconds):
            drawn.append(
                f'<text x="{self.x(tick)}" y="{HEIGHT - 6}" text-anchor="middle">{_written(tick)}</text>'
                if tick <= self._seconds
                else ""
            )
        return drawn

    def marked(self, markers: Sequence[Marker]) -> list[str]:
        return [
            f'<line class="marker" x1="{self.x(seconds)}" x2="{self.x(seconds)}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}">'
            f"<title>{html.escape(text)}</title></line>"
            for seconds, text in markers
        ]


def _svg(drawn: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(drawn)}</svg>'


def _runs(points: Points) -> list[list[tuple[float, float]]]:
    """Return the points in pieces without a gap: where a value is no number, the line is interrupted."""
    runs: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if math.isfinite(point[1]):
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return round numbers from about `low` to about `high`.

    Example:
        >>> _ticks(0.0, 97.0)
        [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    """
    span = (high - low) or 1.0
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.8)
    first = math.floor(low / step)
    last = math.ceil(high / step - 1e-9)
    return [round(step * number, 10) for number in range(first, last + 1)]


def _written(seconds: float) -> str:
    """Return a time as people write it.

    Example:
        >>> _written(40), _written(90), _written(7200)
        ('40 s', '1:30', '2:00 h')
    """
    if seconds < 60:
        return f"{seconds:g} s"
    whole = int(seconds)
    if seconds < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    return f"{whole // 3600}:{whole // 60 % 60:02} h"
