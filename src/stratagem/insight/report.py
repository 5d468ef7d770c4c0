"""The page of a run: one file of HTML with plots, which needs no network and can be sent by mail."""

from __future__ import annotations

import html
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from stratagem.core.log import logger
from stratagem.core.spent import LABELS
from stratagem.insight.observer import Observer
from stratagem.insight.plots import Marker, Points, lines, shares
from stratagem.insight.samples import Sample, rate
from stratagem.insight.summary import table_of

_STYLE: Final = """
:root { --ink: #1b1f24; --paper: #ffffff; --soft: #6b7280; --rule: #e5e7eb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #14171b; --soft: #9aa3ad; --rule: #2b3138; } }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 900px; color: var(--ink); background: var(--paper);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0 0 .2rem; overflow-wrap: anywhere; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
h3 { font-size: .9rem; margin: .8rem 0 0; color: var(--soft); font-weight: 600; }
p { margin: .2rem 0; color: var(--soft); } code, pre { font: 13px/1.5 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .7rem; border: 1px solid var(--rule); border-radius: 6px; }
svg { width: 100%; height: auto; display: block; } svg text { font: 11px system-ui, sans-serif; fill: var(--soft); }
.grid { stroke: var(--rule); stroke-width: 1; } .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.marker { stroke: #d9480f; stroke-width: 1.5; stroke-dasharray: 3 3; } .part { stroke: none; opacity: .9; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin: 0 .35em 0 .9em; }
.slow { color: #d9480f; } li { margin: .15rem 0; overflow-wrap: anywhere; }
"""

_LINES: Final = ("#2f6fde", "#e8871e", "#1a9e77", "#c2386b", "#7a5bd0", "#8a6d1d", "#3aa6c1", "#8c8c8c")
_PARTS: Final = {
    "computing": "#2f6fde",
    "exchanging": "#3aa6c1",
    "waiting": "#f2b134",
    "input": "#d9480f",
    "copying": "#e79a76",
    "between": "#7a5bd0",
    "saving": "#1a9e77",
    "compiling": "#8c8c8c",
    "starting": "#c9ccd1",
}
"""Colours of the parts of time."""


def write_report(observer: Observer, path: Path) -> None:
    """Write the page. If the disk is full, a line in the log says so.

    Args:
        observer: The observer of the run.
        path: The file.
    """
    draft = path.with_name(f"{path.name}.draft")
    try:
        draft.write_text(page(observer), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        logger.warning("The report %s could not be written: %s", path, error)


def page(observer: Observer) -> str:
    """Return the page as text.

    Args:
        observer: The observer of the run.
    """
    histories = {name: history.samples for name, history in observer.histories.items() if history.samples}
    ends = [samples[-1].moment for samples in histories.values()]
    seconds = max([*ends, observer.began + 1.0]) - observer.began
    plot = _Plots(histories, observer.began, seconds, _markers(observer))
    table = table_of(observer.present())
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(observer.began))
    steps = max((samples[-1].steps for samples in histories.values()), default=0)
    body = [
        f"<h1><code>{html.escape(observer.command)}</code></h1>",
        f"<p>Began {began}, {seconds:.0f} s, {len(histories)} tasks, {steps:,} steps.</p>",
        *(f'<p class="slow">{html.escape(each.described(name))}</p>' for name, each in observer.stragglers.items()),
        f"<pre>{html.escape(table)}</pre>" if table else "",
        "<h2>Steps a second</h2>",
        plot.keys(),
        plot.of(_rates, "steps a second"),
        "<h2>What time was spent on</h2>",
        _keys({LABELS[part]: colour for part, colour in _PARTS.items()}),
        *plot.spent(),
        "<h2>Loss</h2>",
        plot.of(_losses, ""),
        "<h2>Memory</h2>",
        plot.of(_memory, "MB"),
        "<h2>What happened</h2>",
        _list_of_events(observer),
    ]
    colours = "".join(f".c{number} {{ stroke: {colour}; }}" for number, colour in enumerate(_LINES))
    colours += "".join(f".p-{part} {{ fill: {colour}; }}" for part, colour in _PARTS.items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(observer.command)}</title><style>{_STYLE}{colours}</style></head>"
        f"<body>{''.join(body)}</body></html>"
    )


class _Plots:
    """The plots of one run, which have one axis of time."""

    def __init__(
        self, histories: Mapping[str, Sequence[Sample]], began: float, seconds: float, markers: Sequence[Marker]
    ) -> None:
        self._histories = histories
        self._began = began
        self._seconds = seconds
        self._markers = markers

    def keys(self) -> str:
        return _keys({name: _LINES[number % len(_LINES)] for number, name in enumerate(self._histories)})

    def of(self, values: Callable[[Sequence[Sample]], Points], unit: str) -> str:
        series = {name: self._since(values(samples)) for name, samples in self._histories.items()}
        if not any(series.values()):
            return "<p>There is nothing to show.</p>"
        return lines(series, self._seconds, unit, self._markers)

    def spent(self) -> list[str]:
        drawn = []
        for name, samples in self._histories.items():
            parts: dict[str, list[tuple[float, float]]] = {part: [] for part in _PARTS}
            for earlier, later in _pairs(samples):
                spent = later.spent.since(earlier.spent)
                for part, points in parts.items():
                    points.append((later.moment, getattr(spent, part) / (spent.total or 1.0)))
            drawn.append(f"<h3>{html.escape(name)}</h3>")
            since = {part: self._since(points) for part, points in parts.items()}
            drawn.append(shares(since, self._seconds, self._markers))
        return drawn

    def _since(self, points: Points) -> Points:
        return [(moment - self._began, value) for moment, value in points]


def _pairs(samples: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    """Return samples that follow one another, of one process."""
    return [(a, b) for a, b in itertools.pairwise(samples) if a.pid == b.pid and b.clock > a.clock]


def _rates(samples: Sequence[Sample]) -> Points:
    return [(later.moment, rate(earlier, later)) for earlier, later in _pairs(samples)]


def _losses(samples: Sequence[Sample]) -> Points:
    points = [(sample.moment, sample.loss) for sample in samples]
    return points if any(loss == loss for _, loss in points) else []


def _memory(samples: Sequence[Sample]) -> Points:
    return [(sample.moment, sample.memory / 2**20) for sample in samples if sample.memory]


def _markers(observer: Observer) -> list[Marker]:
    return [Marker(event.moment - observer.began, event.text) for event in observer.events]


def _keys(colours: Mapping[str, str]) -> str:
    keys = "".join(
        f'<span class="key" style="background:{colour}"></span>{html.escape(name)}' for name, colour in colours.items()
    )
    return f"<p>{keys}</p>"


def _list_of_events(observer: Observer) -> str:
    if not observer.events:
        return "<p>No failure, no restart and no slow worker.</p>"
    rows = [
        f"<li>{event.moment - observer.began:.0f} s: {html.escape(event.text)}</li>" for event in observer.events[:200]
    ]
    return f"<ul>{''.join(rows)}</ul>"
