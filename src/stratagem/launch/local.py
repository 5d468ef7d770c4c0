"""Processes of this machine: start the tasks of a plan and follow them to their end, by the rules of `Supervisor`.

One thread waits for everything at once: output of the tasks, their end (SIGCHLD), signals to the launcher. So nothing
is polled, and nothing races.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stratagem.core import environment
from stratagem.core.clock import Clock, Deadline
from stratagem.core.errors import ClusterError, StartupError
from stratagem.launch.guard import Guard, signal_group
from stratagem.launch.output import Lines, Screen, TaskLog, tell
from stratagem.launch.plan import TaskPlan
from stratagem.launch.supervise import Supervisor

_READ_SIZE = 65536
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_tasks(
    tasks: Sequence[TaskPlan],
    logs: Mapping[str, TaskLog],
    screen: Screen,
    *,
    grace_seconds: float,
    signals: Signals,
    variables: Mapping[str, str] = os.environ,
    replacements: int = 0,
    replaces_workers: bool = False,
    clock: Clock | None = None,
) -> Supervisor:
    """Run tasks until all of them have ended.

    Args:
        tasks: What to start.
        logs: Where the output of each task is kept, by its name.
        screen: Where the output of all tasks is shown.
        grace_seconds: Time between the signal that asks the tasks to end and SIGKILL.
        signals: Where the signals to this process arrive.
        variables: The environment below that of the tasks.
        replacements: How many lost tasks may be started again alone, where a chief hands out the work.
        replaces_workers: Whether lost workers are started again each time there, which does not count.
        clock: Where time comes from.

    Returns:
        The outcome: the first failure or interrupt, and the exit code that follows from it.

    Raises:
        StartupError: A task could not be started.
    """
    names = [task.name for task in tasks]
    own_clock = clock or Clock()
    supervisor = Supervisor(
        names, grace_seconds, own_clock, replacements=replacements, replaces_workers=replaces_workers
    )
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        selector.register(signals, selectors.EVENT_READ)
        guard = stack.enter_context(Guard(grace_seconds))
        plans = {task.name: task for task in tasks}
        running: list[RunningTask] = []

        def start(name: str) -> RunningTask:
            task = RunningTask(plans[name], logs[name], screen, variables, guard.pipe)
            running.append(task)
            guard.started(task.process.pid)
            selector.register(task.output, selectors.EVENT_READ, task)
            return task

        try:
            _follow({name: start(name) for name in plans}, start, selector, supervisor, signals, guard, screen)
        finally:
            for task in running:
                task.end()
    return supervisor


def _follow(
    alive: dict[str, RunningTask],
    start: Callable[[str], RunningTask],
    selector: selectors.BaseSelector,
    supervisor: Supervisor,
    signals: Signals,
    guard: Guard,
    screen: Screen,
) -> None:
    someone_reads = True
    while alive:
        for key, _ in selector.select(supervisor.seconds_until_due()):
            if key.data is None:
                for number in signals.interrupts():
                    supervisor.interrupted(number)
            elif not key.data.read():
                selector.unregister(key.fileobj)
        if someone_reads and screen.is_gone:
            someone_reads = False
            supervisor.interrupted(signal.SIGPIPE)
        returncodes = {name: code for name, task in alive.items() if (code := task.process.returncode) is not None}
        for name in returncodes:
            guard.ended(alive.pop(name).process.pid)
        supervisor.ended(returncodes)
        for lost in supervisor.lost_tasks():
            tell(f"stratagem: {lost.task} {lost.reason}; it is started again.")
            alive[lost.task] = start(lost.task)
        due = supervisor.signal_due()
        if due is not None:
            for task in alive.values():
                signal_group(task.process.pid, due)
                signal_group(task.process.pid, signal.SIGCONT)  # a frozen task would not hear that it is asked to end


class TaskProcess:
    """A task as a process of this machine, at the head of a group of its own: all that it starts can be ended with it.

    Args:
        plan: What it runs, and on which cores.
        variables: The environment below that of the plan.
        output: A file or pipe for its standard output and standard error.
        launcher: A pipe that closes when nobody is left who would end the task; None for a test, which ends it itself.
    """

    def __init__(self, plan: TaskPlan, variables: Mapping[str, str], output: int, launcher: int | None = None) -> None:
        pipe = {} if launcher is None else {environment.LAUNCHER_PIPE: f"{launcher}:{os.fstat(launcher).st_ino}"}
        with bound_to(plan.cores):
            self._process = subprocess.Popen(
                plan.command,
                env={**variables, **plan.environment, **pipe},
                pass_fds=() if launcher is None else (launcher,),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code once the process has ended; what it left running is killed then."""
        if self._process.returncode is None and self._process.poll() is not None:
            # Now or never: later the number of the group could belong to somebody else.
            signal_group(self.pid, signal.SIGKILL)
        return self._process.returncode

    def terminate(self) -> None:
        """Ask the process alone to end: SIGTERM."""
        self._process.terminate()

    def end(self) -> None:
        """Kill it, and all that it started, if it still runs."""
        if self.returncode is None:
            signal_group(self.pid, signal.SIGKILL)
            self._process.wait()


class RunningTask:
    """A started task: its process, and where its output goes."""

    def __init__(
        self, plan: TaskPlan, log: TaskLog, screen: Screen, variables: Mapping[str, str], launcher: int
    ) -> None:
        self.name = plan.name
        self.plan = plan
        self._log = log
        self._screen = screen
        # The chief sees a terminal where we have one, so that it draws its progress bar as it would alone.
        self._is_live = plan.is_chief and screen.is_terminal
        self._lines = Lines()
        self.output, writer = _terminal(screen.columns_of(plan.name)) if self._is_live else os.pipe()
        os.set_blocking(self.output, False)
        try:
            self.process = TaskProcess(plan, variables, writer, launcher)
        except OSError as error:
            os.close(self.output)
            raise StartupError(
                f"{plan.name} could not be started: {error}.",
                f"Check that this command runs: {' '.join(plan.command)}",
            ) from error
        finally:
            os.close(writer)

    def read(self) -> bool:
        """Take over what the task has written; return False when it will write no more."""
        try:
            data = os.read(self.output, _READ_SIZE)
        except BlockingIOError:
            return True
        except OSError:  # Linux answers EIO when the other end of a pseudo-terminal is closed
            data = b""
        self._pass_on(self._lines.feed(data) if data else self._lines.close())
        return bool(data)

    def end(self) -> None:
        """Kill the task if it still runs, and take over the last of its output."""
        self.process.end()
        while self._has_more() and self.read():
            pass
        self._pass_on(self._lines.close())
        os.close(self.output)

    def _has_more(self) -> bool:
        """Whether a read would return at once. A stranger that left the group may hold the pipe open for ever."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.output, selectors.EVENT_READ)
            return bool(selector.select(0))

    def _pass_on(self, lines: list[str]) -> None:
        self._log.write(lines)
        if self._is_live:
            self._screen.show_live(self.name, self._lines.unfinished)
        self._screen.show(self.name, lines)


def _terminal(columns: int) -> tuple[int, int]:
    """Return both ends of a new pseudo-terminal of this width that changes nothing on its way."""
    ours, theirs = os.openpty()
    attributes = termios.tcgetattr(theirs)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return ours, theirs


@contextmanager
def bound_to(cores: Sequence[int]) -> Iterator[None]:
    """Bind this thread to cores while a process is started, which inherits them, from its first thread on.

    Args:
        cores: Numbers of the cores; empty changes nothing.
    """
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Signals:
    """The signals to this process, as bytes in a pipe: each SIGCHLD and each interrupt, from `with` to its end."""

    def __enter__(self) -> Signals:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        # A signal that our parent made us ignore (nohup, a shell's background job) stays ignored.
        handled = [signal.SIGCHLD, *(number for number in _INTERRUPTS if signal.getsignal(number) != signal.SIG_IGN)]
        self._old_wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        # A handler must be there for the byte to be written; the work is done by who reads it.
        self._old_handlers = [(number, signal.signal(number, lambda *_: None)) for number in handled]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old_handlers:
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_wakeup)
        os.close(self._reader)
        os.close(self._writer)

    def fileno(self) -> int:
        """Return the pipe, for a selector."""
        return self._reader

    def interrupts(self) -> list[int]:
        """Return the interrupts that came since the last call."""
        try:
            return [number for number in os.read(self._reader, _READ_SIZE) if number in _INTERRUPTS]
        except BlockingIOError:
            return []

    def wait(self, seconds: float, clock: Clock) -> int | None:
        """Let time pass. Return the first interrupt, at once when it comes; None without one."""
        deadline = Deadline(seconds, clock)
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            while not deadline.expired:
                if selector.select(deadline.remaining) and (numbers := self.interrupts()):
                    return numbers[0]
        return None


def open_logs(tasks: Sequence[TaskPlan], folder: Path) -> dict[str, TaskLog]:
    """Open the log of each task.

    Args:
        tasks: What will be started.
        folder: Where the logs go; made if it is not there.

    Returns:
        The logs, by name of the task.

    Raises:
        ClusterError: The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return {task.name: TaskLog(folder / task.log_name) for task in tasks}
    except OSError as error:
        raise ClusterError(
            f"The log folder {folder} cannot be written: {error}.",
            "Name another folder with --log-dir.",
        ) from error
