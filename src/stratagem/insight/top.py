"""`stratagem top`: show a running cluster in the terminal, once a second. It reads, and changes nothing."""

from __future__ import annotations

import json
import math
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stratagem.cluster.stragglers import Stragglers
from stratagem.core.clock import Clock
from stratagem.core.errors import ClusterError
from stratagem.core.spent import LABELS
from stratagem.insight.metrics import token_of
from stratagem.insight.runs import KnownRun, known_runs
from stratagem.insight.samples import Sample, rate, take_samples

LOOK_SECONDS: Final = 1.0
"""Seconds between two looks at the run."""

WINDOW: Final = 10
"""Number of looks that shares and rates are computed from."""

ANSWER_SECONDS: Final = 5.0
"""Longest wait for the answer of a launcher on another machine."""

_SHOWN_EVENTS: Final = 5
_PARTS: Final = ("computing", "exchanging", "waiting", "input", "copying", "between", "saving")
_MUCH_WAITING: Final = 0.3
"""A share of waiting that is shown in colour."""


@dataclass
class View:
    """The result of one look.

    Args:
        command: The command of the run.
        began: When it began, in seconds since 1970.
        tasks: The newest sample of each task, by its name.
        events: The events, each with its time.
    """

    command: str
    began: float
    tasks: dict[str, Sample]
    events: Sequence[tuple[float, str]] = ()


Look = Callable[[], View | None]
"""Function that returns the present view, or None if the run has ended."""


def look_at_run(pid: int | None) -> Look:
    """Return a function that looks at a run of this user on this machine.

    Args:
        pid: The process of its launcher; None for the newest one.

    Raises:
        ClusterError: There is no such run.
    """
    runs = known_runs()
    chosen = next((run for run in runs if pid in (None, run.pid)), None)
    if chosen is None:
        listed = "".join(f"\n    {run.pid}  {run.command}" for run in runs)
        raise ClusterError(
            f"There is no run {pid} of this user on this machine{f'; there are:{listed}' if runs else ''}."
            if pid is not None
            else "This user has no run on this machine.",
            "Start one with stratagem run. Or name the address of a run on another machine that was started with "
            "--metrics-port PORT: stratagem top HOST:PORT.",
        )

    def look() -> View | None:
        run: KnownRun | None = next((each for each in known_runs() if each.pid == chosen.pid), None)
        if run is None:
            return None
        samples = take_samples({name: Path(path) for name, path in run.files.items()})
        return View(run.command, run.began, samples, run.events)

    return look


def look_at_address(address: str, secret: bytes) -> Look:
    """Return a function that looks at a run by the address of its metrics.

    Args:
        address: HOST:PORT.
        secret: The secret of the cluster; empty if there is none.
    """
    request = urllib.request.Request(f"http://{address}/state")
    if secret:
        request.add_header("Authorization", f"Bearer {token_of(secret)}")
    has_answered = False

    def look() -> View | None:
        nonlocal has_answered
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                said = json.load(answer)
        except urllib.error.HTTPError as error:
            raise ClusterError(
                f"{address} answered {error.code} ({error.reason}).",
                "The run has a secret. Set STRATAGEM_SECRET_FILE to the same file here."
                if error.code == 401
                else "Name the port that was given to --metrics-port.",
            ) from error
        except (OSError, ValueError) as error:
            if has_answered:
                return None
            raise ClusterError(
                f"No run answers at {address}: {error}.",
                "Start it with --metrics-port PORT. Without a secret it listens only on its own machine: "
                "ssh -L PORT:localhost:PORT HOST, then stratagem top localhost:PORT.",
            ) from error
        has_answered = True
        tasks = {name: Sample.from_dict(sample) for name, sample in said["tasks"].items()}
        return View(said["command"], said["began"], tasks, [(moment, text) for moment, text in said["events"]])

    return look


@dataclass
class Screen:
    """The screen of `top`: rates and shares of the last seconds."""

    _before: dict[str, deque[Sample]] = field(default_factory=dict)
    _slow: dict[str, str] = field(default_factory=dict)
    _rule: Stragglers = field(default_factory=Stragglers)

    def shown(self, view: View) -> Group:
        """Return what the screen shows for a look."""
        for name, sample in view.tasks.items():
            kept = self._before.setdefault(name, deque(maxlen=WINDOW))
            if kept and kept[-1].pid != sample.pid:
                kept.clear()
            kept.append(sample)
        self._find_slow(view.tasks)
        return Group(self._head(view), self._table(view.tasks), *self._notes(view))

    def _find_slow(self, tasks: Mapping[str, Sample]) -> None:
        workers = {name: sample for name, sample in tasks.items() if sample.joined}
        found = self._rule.look([sample.reading for sample in workers.values()])
        if found is not None:
            name = list(workers)[found.task]
            self._slow[name] = found.described(name)

    def _head(self, view: View) -> Text:
        seconds = int(time.time() - view.began)
        steps = max((sample.steps for sample in view.tasks.values()), default=0)
        losses = [sample.loss for sample in view.tasks.values() if math.isfinite(sample.loss)]
        loss = f"   loss {losses[0]:.4g}" if losses else ""
        clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return Text.assemble((view.command, "bold"), f"   {clock}   step {steps:,}{loss}")

    def _table(self, tasks: Mapping[str, Sample]) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("task")
        for name in ("pid", "step", "steps/s", *(LABELS[part] for part in _PARTS), "memory"):
            table.add_column(name, justify="right")
        queues = [name for name in ("ready", "pending") if any(getattr(each, name) >= 0 for each in tasks.values())]
        for name in queues:
            table.add_column(name, justify="right")
        table.add_column("now")
        for name, sample in tasks.items():
            first = self._before[name][0]
            spent = sample.spent.since(first.spent)
            whole = spent.total
            shares = [_share(part, getattr(spent, part) / whole if whole else 0.0) for part in _PARTS]
            memory = f"{sample.memory / 2**20:,.0f} MB" if sample.memory else ""
            style = "red" if name in self._slow else ""
            table.add_row(
                Text(sample.title(name), style=style),
                str(sample.pid),
                f"{sample.steps:,}",
                f"{rate(first, sample):.1f}",
                *shares,
                memory,
                *(_count(getattr(sample, queue)) for queue in queues),
                LABELS.get(sample.doing, sample.doing),
            )
        return table

    def _notes(self, view: View) -> list[Text]:
        slow = [Text(f"\n{text}", style="red") for text in self._slow.values()]
        events = [
            Text(f"{time.strftime('%H:%M:%S', time.localtime(moment))}  {text}", style="dim")
            for moment, text in list(view.events)[-_SHOWN_EVENTS:]
            if not any(text.startswith(f"{name} is slow") for name in self._slow)
        ]
        return [*slow, *([Text("")] if events else []), *events]


def _count(number: int) -> str:
    return f"{number:,}" if number >= 0 else ""


def _share(part: str, share: float) -> Text:
    style = "yellow" if part in ("waiting", "input") and share > _MUCH_WAITING else ""
    return Text(f"{share:.0%}", style=style)


def show(look: Look, console: Console, clock: Clock, looks: int | None = None) -> None:
    """Show a run until it ends, or Ctrl-C.

    Args:
        look: Function that looks at it.
        console: The terminal.
        clock: The source of time.
        looks: How often to look; None means until the end.
    """
    screen = Screen()
    view = look()
    if view is not None and not console.is_terminal:
        screen.shown(view)  # rates and shares are those between two looks
        clock.wait(LOOK_SECONDS)
        view = look() or view
        console.print(screen.shown(view))
        return
    with Live(console=console, auto_refresh=False, screen=looks is None) as live:
        try:
            while view is not None and (looks is None or looks > 0):
                live.update(screen.shown(view), refresh=True)
                clock.wait(LOOK_SECONDS)
                looks = None if looks is None else looks - 1
                view = look()
        except KeyboardInterrupt:
            return
    if view is None:
        console.print("The run has ended.")
