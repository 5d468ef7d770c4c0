"""Run whose workers may change while it trains: `stratagem run --spares`, `--elastic`.

The launcher of node 0 is the coordinator (`stratagem.elastic`). Each launcher starts the workers and the spares of its
machine, tells the coordinator at once which process has ended, and starts another one, which waits as a spare.
"""

from __future__ import annotations

import functools
import selectors
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Final

from stratagem.cluster.reception import listen_at
from stratagem.cluster.secret import read_secret
from stratagem.cluster.spec import split_address
from stratagem.core import environment, exits
from stratagem.core.clock import Clock, Deadline
from stratagem.core.cores import HostCores
from stratagem.core.counters import file_of_other_hosts, write_of_other_hosts
from stratagem.core.errors import ClusterError
from stratagem.elastic.hello import LauncherHello
from stratagem.elastic.launchers import Ended, Tasks
from stratagem.elastic.options import ElasticOptions
from stratagem.elastic.remote import RemoteCoordinator
from stratagem.elastic.server import Server
from stratagem.elastic.state import Rules
from stratagem.elastic.world import Member
from stratagem.insight.observer import Observer
from stratagem.launch.compiled import CompiledPrograms, cache_variables, kind_of_programs
from stratagem.launch.guard import Guard, signal_group
from stratagem.launch.local import RunningTask, Signals, open_logs
from stratagem.launch.machine import LOOPBACK, Machine
from stratagem.launch.output import Screen, TaskLog, failure_report, stdout_screen, tell
from stratagem.launch.plan import Request, TaskPlan, make_plan
from stratagem.launch.supervise import MOST_STARTS, Failure

LOOK_SECONDS: Final = 0.1
"""How often the launcher asks whether the run has ended."""

KNOWN_SECONDS: Final = 0.5
"""After how long the coordinator surely knows that a process was lost, so that its status counts. A replacement that
was started at once took the core of the spare: training paused for 1.9 s, and pauses for 1.0 s now."""


@dataclass
class ElasticRun:
    """The processes of this machine in one run.

    Args:
        request: What to run, and with how many workers.
        least: With fewer workers of all machines training waits; with as many as at the start it waits for a spare.
        spares: How many processes of this machine wait to take the place of a worker.
        machine: What this machine offers.
        folder: Where logs go.
        is_given: Whether the user has named `least`, which the program cannot change then.
        grace_seconds: Time that processes have to end before they are killed.
        variables: The environment that processes inherit.
        observer: Told which processes there are, and what becomes of them.
        programs: Compiled programs that processes find, and add to; None keeps none from one run to the next.
        clock: Where time comes from.

    Attributes:
        interrupt: The signal that ended the run, if one did.
        failure: The exception of a program that ended it, if one did.

    Raises:
        ClusterError: The request is for more than workers with a device each.
    """

    request: Request
    least: int
    spares: int
    machine: Machine
    folder: Path
    _: KW_ONLY
    is_given: bool = False
    grace_seconds: float
    variables: Mapping[str, str]
    observer: Observer = field(default_factory=lambda: Observer("a run"))
    programs: CompiledPrograms | None = None
    clock: Clock = field(default_factory=Clock)
    interrupt: int | None = field(init=False, default=None)
    failure: Failure | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        request = self.request
        if request.ps or request.evaluator or (request.devices_per_worker or 1) > 1:
            raise ClusterError(
                "--spares or --elastic was given with --ps, --evaluator or --devices-per-worker.",
                "Only workers with one CPU device each can be replaced while they train.",
                "Leave out the other options; or leave out --spares and --elastic, and use --max-restarts.",
            )
        plans = make_plan(request, self.machine, self.variables)
        every = [*plans, *(plans[number % len(plans)] for number in range(self.spares))]
        # Not "worker": which worker a process is, its place in the world says.
        first = request.node_rank * len(every)
        self._plans = [replace(plan, type="process", index=first + number) for number, plan in enumerate(every)]
        self._host = socket.gethostname()
        self._running: dict[int, RunningTask] = {}
        self._num_started = 0
        self._lost: list[TaskPlan] = []
        self._known = Deadline(0.0, self.clock)
        """Until when the coordinator may not know of all that were lost."""
        self._has_lost = self._have_left = False
        self._logs: dict[str, TaskLog] = {}
        self._elsewhere: dict[str, Tasks] = {}
        """Processes of other machines, by the name of the machine."""
        self._grace: Deadline | None = None

    def run(self) -> int:
        """Run to the end; return the exit code."""
        with ExitStack() as stack:
            signals = stack.enter_context(Signals())
            self._guard = stack.enter_context(Guard(self.grace_seconds))
            self._selector = stack.enter_context(selectors.DefaultSelector())
            self._selector.register(signals, selectors.EVENT_READ)
            self._programs = stack.enter_context(self._folder_of_programs())
            self._screen = self._shown()
            self.folder.mkdir(parents=True, exist_ok=True)
            self._counters = {plan.name: self.folder / f"process-{plan.index}.counters" for plan in self._plans}
            self.observer.follow(self._counters)
            self._coordinator = self._made_coordinator()
            self._coordinator.start()
            try:
                for number, plan in enumerate(self._plans):
                    self._start(plan, is_spare=number >= self.request.workers)
                return self._follow(signals)
            finally:
                for task in self._running.values():
                    task.end()
                self._coordinator.stop()
                self.observer.look()
                for file in self._counters.values():
                    file.unlink(missing_ok=True)
                    file_of_other_hosts(file).unlink(missing_ok=True)
                if self.failure is not None:
                    tell(failure_report(self.failure, self._logs[self.failure.task]))
                for log in self._logs.values():
                    log.close()

    @contextmanager
    def _folder_of_programs(self) -> Iterator[Path]:
        """Give the folder of compiled programs. All processes share it: a new worker loads those of the lost one."""
        with ExitStack() as stack:
            kind, folders = kind_of_programs(self.machine, self.request.workers), {}
            if self.programs is not None:
                folders = stack.enter_context(self.programs.lent(kind, [kind]))
            yield folders.get(kind) or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stratagem-")))

    def _shown(self) -> Screen:
        names = [plan.name for plan in self._plans]
        return stdout_screen(names, no_color=bool(self.variables.get(environment.NO_COLOR)))

    def _made_coordinator(self) -> Server | RemoteCoordinator:
        """Return the coordinator, or the connection to that of node 0."""
        request = self.request
        secret = read_secret({**self.variables, **self._plans[0].environment})
        workers = request.workers * request.nodes
        if request.node_rank:
            self._address = str(request.coordinator)
            hello = LauncherHello(self._host, self.least, workers)
            pids = functools.partial(list, self._running)
            remote = RemoteCoordinator(self._address, secret, hello, pids=pids, kill=self._kill, say=self._say)
            self.observer.listeners.append(
                lambda samples: remote.show({name: each.as_dict() for name, each in samples.items()})
            )
            return remote
        if request.coordinator is None:
            listeners = [socket.create_server((LOOPBACK, 0))]
            self._address = f"{LOOPBACK}:{listeners[0].getsockname()[1]}"
        else:
            self._address = request.coordinator
            host, port = split_address(self._address)
            remedy = "Name another port with --coordinator, the same on every node."
            listeners = listen_at(host, port, "The launcher of node 0", remedy)
        rules = Rules(workers, ElasticOptions(min_workers=self.least, max_workers=workers), is_given=self.is_given)
        return Server(listeners, secret, rules, kill=self._kill_member, say=self._say, show=self._show_others)

    def _say(self, line: str) -> None:
        tell(f"stratagem: {line}")
        self.observer.note(line)

    def _show_others(self, host: str, tasks: Tasks) -> None:
        """Let what shows this run show the processes of another machine, too. The server calls it in its thread."""
        now = time.time()  # the clock of another machine may differ
        self._elsewhere[host] = {name: {**each, "host": host, "moment": now} for name, each in tasks.items()}
        everyone = {name: each for tasks in self._elsewhere.values() for name, each in tasks.items()}
        write_of_other_hosts(next(iter(self._counters.values())), everyone)

    def _start(self, plan: TaskPlan, *, is_spare: bool) -> None:
        """Start a process.

        Args:
            plan: Its command, name and cores.
            is_spare: Whether it waits until a worker is missing.
        """
        if plan.name not in self._logs:
            self._logs.update(open_logs([plan], self.folder))
        own = {environment.ELASTIC: self._address} | ({environment.SPARE: "1"} if is_spare else {})
        settings = {name: value for name, value in plan.environment.items() if name != environment.TF_CONFIG}
        variables = {name: value for name, value in self.variables.items() if name != environment.TF_CONFIG}
        own |= cache_variables(self._programs, variables)
        own[environment.CORES] = HostCores(plan.cores, self.machine.cores if plan.cores else ()).encode()
        own[environment.GRACE] = f"{self.grace_seconds:g}"
        own[environment.COUNTERS_FILE] = str(self._counters[plan.name].absolute())
        # The core of a spare is that of a worker too, whom it would slow by half. On any core it slows all, but less.
        plan = replace(plan, environment=settings | own, is_chief=False, cores=() if is_spare else plan.cores)
        task = RunningTask(plan, self._logs[plan.name], self._screen, variables, self._guard.pipe)
        self._guard.started(task.process.pid)
        self._selector.register(task.output, selectors.EVENT_READ, task)
        self._running[task.process.pid] = task
        self._num_started += 1

    def _follow(self, signals: Signals) -> int:
        """Follow the processes to their end; return the exit code."""
        began = self.clock.now()
        while True:
            for key, _ in self._selector.select(LOOK_SECONDS):
                if key.data is None:
                    for number in signals.interrupts():
                        self._interrupted(number)
                elif not key.data.read():
                    self._selector.unregister(key.fileobj)
            code = self._coordinator.status.code
            for pid in [pid for pid, task in self._running.items() if task.process.returncode is not None]:
                self._ended(pid, self.clock.now() - began)
            self._replace_lost()
            if not self._running and (code is not None or not (self._goes_on_elsewhere or self._others_leave)):
                return self._code(code)
            if code is not None:
                self._begin_to_end(signal.SIGTERM if code else None)
            if self._grace is not None and self._grace.expired:
                self._signal(signal.SIGKILL)

    @property
    def _goes_on_elsewhere(self) -> bool:
        """Whether the run may go on without the processes of this machine: it has lost some, and ends nobody.

        Where the launcher of node 0 ended, the coordinator would, and with it the workers of all machines.
        """
        return self._has_lost and self._grace is None and self.failure is None

    @property
    def _others_leave(self) -> bool:
        """Whether members of other machines still leave, as this launcher was told to end."""
        is_told = self._grace is not None and self.interrupt is not None and not self._grace.expired
        return is_told and isinstance(self._coordinator, Server) and bool(self._coordinator.state.places)

    def _code(self, code: int | None) -> int:
        if self.interrupt is not None:
            have_left = code == exits.PREEMPTED or (code is None and self._have_left)
            return exits.PREEMPTED if have_left else 128 + self.interrupt
        return (code or 0) if self.failure is None else self.failure.exit_code

    def _ended(self, pid: int, seconds: float) -> None:
        """Take note of a process that has ended; start another one where it was lost."""
        task = self._running.pop(pid)
        self._guard.ended(pid)
        failure = Failure(task.name, task.process.returncode or 0, seconds)
        is_over = self._grace is not None or self._coordinator.status.code is not None
        is_apart = failure.returncode == exits.FAILED_APART  # the run goes on
        has_failed = failure.returncode > 0 and not exits.is_retryable(failure.returncode) and not is_apart
        if has_failed:  # by itself: one that was told to end does so with another code
            self.failure = self.failure or failure
        self._has_lost |= failure.returncode != 0
        self._have_left |= failure.returncode == exits.PREEMPTED
        error = f"{failure.task} {failure.reason}" if has_failed else ""
        self._coordinator.ended(Ended(pid, failure.reason, error))
        is_lost = exits.is_retryable(failure.returncode) and not is_over
        if is_lost and self._num_started < MOST_STARTS:
            self._lost.append(task.plan)
            self._known = Deadline(KNOWN_SECONDS, self.clock)

    def _replace_lost(self) -> None:
        """Start processes in the place of those that were lost, once the others train on: a start takes their cores."""
        if self._grace is not None or self._coordinator.status.is_closed:
            self._lost.clear()
        elif self._known.expired and not self._coordinator.status.is_forming:
            for plan in self._lost:
                self._start(plan, is_spare=True)
            self._lost.clear()

    def _interrupted(self, number: int) -> None:
        """Follow a signal to this launcher. The first lets processes end, after a last step; a second one kills."""
        if self.interrupt is not None:
            self._signal(signal.SIGKILL)
            return
        self.interrupt = number
        if number != signal.SIGINT and isinstance(self._coordinator, Server):
            self._coordinator.let_all_leave(self.grace_seconds)  # also those of other machines
        self._begin_to_end(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)

    def _kill_member(self, member: Member, reason: str) -> None:
        """Kill the process of a member, if it is one of this launcher's. The server calls it in its thread."""
        if member.host == self._host and member.pid in self._running:
            self._kill(member.pid)

    def _kill(self, pid: int) -> None:
        signal_group(pid, signal.SIGKILL)

    def _begin_to_end(self, number: int | None) -> None:
        if self._grace is None:
            self._grace = Deadline(self.grace_seconds, self.clock)
            if number is not None:
                self._signal(number)

    def _signal(self, number: int) -> None:
        for pid in self._running:
            signal_group(pid, number)
            signal_group(pid, signal.SIGCONT)  # a frozen one would not hear that it is asked to end
