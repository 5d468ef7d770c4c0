"""Run whose workers may die while the others train on: `stratagem run --elastic`.

The launcher is the coordinator (`stratagem.elastic`). It starts the workers and the spares, tells the coordinator at
once which process has ended, and starts another one in its place, which waits as a spare.
"""

from __future__ import annotations

import selectors
import signal
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Final

from stratagem.cluster.secret import read_secret
from stratagem.core import environment, exits
from stratagem.core.clock import Clock, Deadline
from stratagem.elastic.events import Failed, Lost
from stratagem.elastic.options import ElasticOptions
from stratagem.elastic.server import Server
from stratagem.elastic.state import Rules
from stratagem.elastic.world import Member
from stratagem.launch.guard import Guard, signal_group
from stratagem.launch.local import RunningTask, Signals, open_logs
from stratagem.launch.machine import LOOPBACK, Machine
from stratagem.launch.output import Screen, TaskLog, failure_report, stdout_screen, tell
from stratagem.launch.plan import Request, TaskPlan, make_plan
from stratagem.launch.supervise import Failure

LOOK_SECONDS: Final = 0.1
"""How often the launcher asks whether the run has ended."""

MOST_STARTS: Final = 1000
"""Processes that are started at most, so that a program which cannot start ends the run."""


@dataclass
class ElasticRun:
    """One elastic run on this machine.

    Args:
        request: What to run, and with how many workers.
        options: How far the number of workers may change.
        spares: How many processes wait to take the place of a worker.
        machine: What this machine offers.
        folder: Where logs go.
        grace_seconds: Time that processes have to end before they are killed.
        variables: The environment that processes inherit.
        clock: Where time comes from.
    """

    request: Request
    options: ElasticOptions
    spares: int
    machine: Machine
    folder: Path
    _: KW_ONLY
    grace_seconds: float
    variables: Mapping[str, str]
    clock: Clock = field(default_factory=Clock)
    interrupt: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._plans = make_plan(self.request, self.machine, self.variables)
        self._running: dict[int, RunningTask] = {}
        self._num_started = 0
        self._failure: Failure | None = None
        self._logs: dict[str, TaskLog] = {}

    def run(self) -> int:
        """Run to the end; return the exit code."""
        with ExitStack() as stack:
            signals = stack.enter_context(Signals())
            guard = stack.enter_context(Guard(self.grace_seconds))
            selector = stack.enter_context(selectors.DefaultSelector())
            selector.register(signals, selectors.EVENT_READ)
            listener = socket.create_server((LOOPBACK, 0))
            own = {environment.ELASTIC: f"{LOOPBACK}:{listener.getsockname()[1]}"}
            secret = read_secret({**self.variables, **self._plans[0].environment})
            self._server = Server(
                listener, secret, Rules(self.request.workers, self.options), kill=self._kill, say=tell
            )
            self._server.start()
            screen = stdout_screen(
                [plan.name for plan in self._plans], no_color=bool(self.variables.get(environment.NO_COLOR))
            )
            start = _Starter(self, own, selector, guard, screen)
            try:
                for plan in self._plans:
                    start(plan, is_spare=False)
                for number in range(self.spares):
                    start(self._plans[number % len(self._plans)], is_spare=True)
                code = self._follow(start, selector, signals, guard)
            finally:
                for task in self._running.values():
                    task.end()
                self._server.stop()
            if self._failure is not None and code:
                tell(failure_report(self._failure, self._logs[self._failure.task]))
            for log in self._logs.values():
                log.close()
            return code

    def _follow(self, start: _Starter, selector: selectors.BaseSelector, signals: Signals, guard: Guard) -> int:
        grace: Deadline | None = None
        began = self.clock.now()
        while True:
            for key, _ in selector.select(LOOK_SECONDS):
                if key.data is None:
                    for number in signals.interrupts():
                        self.interrupt = number
                        grace = grace or Deadline(self.grace_seconds, self.clock)
                        self._signal(number)
                elif not key.data.read():
                    selector.unregister(key.fileobj)
            code = self._server.wait(0)
            for pid, task in list(self._running.items()):
                returncode = task.process.returncode
                if returncode is None:
                    continue
                del self._running[pid]
                guard.ended(pid)
                failure = Failure(task.name, returncode, self.clock.now() - began)
                self._tell_server(pid, failure)
                if returncode == exits.FAILED:
                    self._failure = self._failure or failure
                elif code is None and self.interrupt is None and returncode and self._num_started < MOST_STARTS:
                    start(task.plan, is_spare=True)
            if not self._running and (code is not None or self.interrupt is not None):
                return 128 + self.interrupt if self.interrupt is not None else code or 0
            if not self._running and self._failure is not None:
                return exits.FAILED
            if code is not None and grace is None:
                grace = Deadline(self.grace_seconds, self.clock)
            if grace is not None and grace.expired:
                self._signal(signal.SIGKILL)

    def _tell_server(self, pid: int, failure: Failure) -> None:
        member = self._server.member(socket.gethostname(), pid)
        if member is None:
            return
        if failure.returncode == exits.FAILED:
            self._server.report(Failed(member.number, f"{failure.task} {failure.reason}"))
        self._server.report(Lost(member.number, failure.reason, has_exited=True))

    def _kill(self, member: Member, reason: str) -> None:
        """Kill the process of a member, if it is one of this launcher's. The server calls it in its thread."""
        if member.host == socket.gethostname() and member.pid in self._running:
            signal_group(member.pid, signal.SIGKILL)

    def _signal(self, number: int) -> None:
        for pid in self._running:
            signal_group(pid, number)
            signal_group(pid, signal.SIGCONT)

    def started(self, task: RunningTask) -> None:
        """Note a process that has been started."""
        self._running[task.process.pid] = task
        self._num_started += 1

    def log_of(self, plan: TaskPlan) -> TaskLog:
        """Return the log of the processes that bear the name of a worker."""
        if plan.name not in self._logs:
            self._logs.update(open_logs([plan], self.folder))
        return self._logs[plan.name]


class _Starter:
    """Starts processes of an elastic run."""

    def __init__(
        self,
        run: ElasticRun,
        own: Mapping[str, str],
        selector: selectors.BaseSelector,
        guard: Guard,
        screen: Screen,
    ) -> None:
        self._run, self._own, self._selector, self._guard, self._screen = run, own, selector, guard, screen

    def __call__(self, plan: TaskPlan, *, is_spare: bool) -> None:
        """Start a process.

        Args:
            plan: The worker whose cores and name it gets.
            is_spare: Whether it waits until a worker is missing.
        """
        settings = {name: value for name, value in plan.environment.items() if name != environment.TF_CONFIG}
        settings |= {**self._own, **({environment.SPARE: "1"} if is_spare else {})}
        own_plan = replace(plan, environment=settings, is_chief=False)
        variables = {name: value for name, value in self._run.variables.items() if name != environment.TF_CONFIG}
        task = RunningTask(own_plan, self._run.log_of(plan), self._screen, variables, self._guard.pipe)
        self._guard.started(task.process.pid)
        self._selector.register(task.output, selectors.EVENT_READ, task)
        self._run.started(task)


def elastic_options(text: str) -> ElasticOptions:
    """Return the options that `--elastic` says: "2:8", least and most workers.

    Args:
        text: What was written.

    Example:
        >>> elastic_options("2:8").max_workers
        8
    """
    least, _, most = text.partition(":")
    return ElasticOptions(min_workers=int(least), max_workers=int(most or least))
