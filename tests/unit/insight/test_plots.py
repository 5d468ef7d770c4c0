from __future__ import annotations

import math
import re

from stratagem.insight.plots import HEIGHT, WIDTH, Marker, lines, shares


def _points(text: str, tag: str) -> list[list[tuple[float, ...]]]:
    found = re.findall(rf'<{tag} [^>]*points="([^"]*)"', text)
    return [[tuple(map(float, pair.split(","))) for pair in each.split()] for each in found]


def test_lines_lie_within_the_plot_and_higher_values_higher() -> None:
    drawn = lines({"a": [(0.0, 1.0), (5.0, 3.0), (10.0, 2.0)]}, 10.0, "steps a second")
    (points,) = _points(drawn, "polyline")
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in points)
    heights = [y for _, y in points]
    assert heights[1] < heights[2] < heights[0]
    assert [x for x, _ in points] == sorted(x for x, _ in points)


def test_a_line_is_interrupted_where_there_is_no_number() -> None:
    drawn = lines({"a": [(0.0, 1.0), (1.0, math.nan), (2.0, math.inf), (3.0, 2.0), (4.0, 3.0)]}, 4.0, "")
    assert [len(points) for points in _points(drawn, "polyline")] == [1, 2]


def test_equal_values_and_no_values_are_drawn() -> None:
    assert len(_points(lines({"a": [(0.0, 0.0), (1.0, 0.0)]}, 1.0, ""), "polyline")) == 1
    assert _points(lines({"a": []}, 0.0, ""), "polyline") == []
    assert len(_points(lines({"a": [(0.0, -3.0), (1.0, -1.0)]}, 1.0, ""), "polyline")) == 1


def test_shares_lie_one_on_the_other() -> None:
    drawn = shares({"computing": [(0.0, 0.25), (1.0, 0.5)], "waiting": [(0.0, 0.75), (1.0, 0.5)]}, 1.0)
    lower, upper = _points(drawn, "polygon")
    assert lower[:2] == list(reversed(upper[2:]))  # the top of one is the bottom of the next
    assert {y for _, y in upper[:2]} == {10.0}  # together they are all of the time


def test_markers_are_written_safely() -> None:
    drawn = lines({"a": [(0.0, 1.0)]}, 1.0, "", [Marker(0.5, "a < b")])
    assert "a &lt; b" in drawn
