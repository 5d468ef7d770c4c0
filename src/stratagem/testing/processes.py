"""Real workers for tests: processes that run a function or a script.

Each worker is a new process with its own TF_CONFIG, never a fork: JAX does not survive one.
"""

from __future__ import annotations

import inspect
import os
import pickle
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stratagem.core import environment
from stratagem.core.clock import Clock, Deadline
from stratagem.core.errors import InputError, PeerError, UsageError
from stratagem.launch.guard import signal_group
from stratagem.launch.local import TaskProcess
from stratagem.launch.machine import this_machine
from stratagem.launch.plan import Request, TaskPlan, make_plan
from stratagem.testing import call
from stratagem.testing.call import ARGUMENTS_FILE, LOADING_FILE, VALUE_FILE
from stratagem.testing.points import point_path, reached_line

_SHOWN_LINES = 40
_LOOK_SECONDS = 0.01


@dataclass(frozen=True)
class WorkerResult:
    """The result of one worker.

    Args:
        index: Its index in the cluster.
        returncode: The exit code, or minus the number of the signal that ended it.
        output: Everything it wrote to standard output and standard error.
        value: The return value of the function; None for a script or a failed worker.
    """

    index: int
    returncode: int
    output: str
    value: Any = None


def run_workers(
    program: Callable[..., object] | str | Path,
    num_workers: int,
    *,
    args: Sequence[Any] = (),
    servers: int = 0,
    devices_per_worker: int | None = None,
    timeout_seconds: float = 120.0,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    clock: Clock | None = None,
) -> list[WorkerResult]:
    """Run a program on the workers of a new cluster on this machine, and wait for all of them.

    Processes that the program leaves behind are killed. The workers use CPU devices unless `env` sets JAX_PLATFORMS.

    Args:
        program: A function at the top level of a file, or the path of a script. The function's arguments and its result
            must be picklable; return `np.asarray(array)` for a JAX array.
        num_workers: Number of workers.
        args: Arguments of the function, or of the script (as strings).
        servers: Number of parameter servers. If there are any, there is also a chief. Its result comes first, and
            theirs come last.
        devices_per_worker: Number of virtual CPU devices of each worker; None means one.
        timeout_seconds: Time limit for all workers, in seconds.
        env: Variables to add to the environment of the workers.
        check: Whether a failed worker raises an error. If not, the results show the failure.
        clock: The source of time, for tests.

    Returns:
        One result for each worker, in the order of their index.

    Raises:
        InputError: Another process cannot find `program`.
        UsageError: This process is itself a worker that is loading its function.
        PeerError: A worker failed, or some did not end in time. The message contains the output.

    Example:
        >>> import string
        >>> [result.value for result in run_workers(string.capwords, 2, args=["two words"])]
        ['Two Words', 'Two Words']
    """
    clock = clock or Clock()
    with start_workers(
        program,
        num_workers,
        args=args,
        servers=servers,
        devices_per_worker=devices_per_worker,
        timeout_seconds=timeout_seconds,
        env=env,
        clock=clock,
    ) as workers:
        ended = _wait(workers, workers[0].deadline)
        late = [worker for worker in workers if worker not in ended]
        failed = next((worker for worker in ended if worker.returncode != 0), None)
        if failed is not None and (check or late):
            waiting = f" These workers had not ended, and were killed: {_names(late)}." if late else ""
            raise PeerError(
                f"{failed.name} ended with exit code {failed.returncode}.{waiting}",
                f"Correct the error in its output.\n{failed.last_lines()}",
            )
        if late:
            raise PeerError(
                f"These workers did not end within {timeout_seconds:g} s: {_names(late)}.",
                "The test would hang. They were killed.",
                "Look at the last output of each worker.\n" + "\n".join(worker.last_lines() for worker in late),
            )
        return [worker.wait() for worker in workers]


@contextmanager
def start_workers(
    program: Callable[..., object] | str | Path,
    num_workers: int,
    *,
    args: Sequence[Any] = (),
    servers: int = 0,
    devices_per_worker: int | None = None,
    timeout_seconds: float = 120.0,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> Iterator[list[Worker]]:
    """Start a program on the workers of a new cluster on this machine, to test faults.

    When the `with` block ends, all remaining processes are killed. The arguments are those of `run_workers`.

    Args:
        program: A function at the top level of a file, or the path of a script.
        num_workers: Number of workers.
        args: Arguments of the function, or of the script (as strings).
        servers: Number of parameter servers. If there are any, there is also a chief. It comes first, and they come
            last.
        devices_per_worker: Number of virtual CPU devices of each worker; None means one.
        timeout_seconds: Time limit for all waits together, in seconds.
        env: Variables to add to the environment of the workers.
        clock: The source of time, for tests.

    Yields:
        The workers, in the order of their index.

    Raises:
        InputError: Another process cannot find `program`.
        UsageError: This process is itself a worker that is loading its function.

    Example:
        >>> from stratagem.testing import block_point
        >>> with start_workers(block_point, 2, args=["here"]) as workers:
        ...     for worker in workers:
        ...         worker.wait_for_point("here")
        ...     workers[0].release("here")
        ...     workers[1].kill()
        ...     [worker.wait().returncode for worker in workers]
        [0, -9]
    """
    _refuse_while_loading()
    clock = clock or Clock()
    deadline = Deadline(timeout_seconds, clock)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stratagem-test-")))
        variables = {
            **os.environ,
            environment.JAX_PLATFORMS: "cpu",
            environment.BLOCK_POINTS: str(folder),
            **(env or {}),
        }
        request = Request(
            _command(program, args, folder), workers=num_workers, devices_per_worker=devices_per_worker, ps=servers
        )

        def start(plan: TaskPlan) -> Worker:
            own = replace(plan, environment={**plan.environment, **(env or {})})
            return stack.enter_context(Worker(own, variables, folder, deadline, start))

        yield [start(plan) for plan in make_plan(request, this_machine(variables), variables)]


class Worker:
    """A started worker. It is killed, with all its child processes, when the `with` block of `start_workers` ends.

    Args:
        plan: The command and environment of the worker.
        variables: The environment to which the plan adds its own.
        folder: The folder for its output.
        deadline: The deadline of every wait for it.
        start: Function that starts a process from a plan.
    """

    def __init__(
        self,
        plan: TaskPlan,
        variables: Mapping[str, str],
        folder: Path,
        deadline: Deadline,
        start: Callable[[TaskPlan], Worker],
    ) -> None:
        self._plan, self._start = plan, start
        self.name = plan.name
        self.index = plan.index
        self.deadline = deadline
        self._folder = folder
        self._output = folder / plan.log_name
        with self._output.open("ab") as output:
            self._process = TaskProcess(plan, variables, output.fileno())
        self.pid = self._process.pid
        self._value = folder / VALUE_FILE.format(pid=self.pid)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.end()

    def kill(self) -> None:
        """Kill the worker without warning, as a crash of its machine would (SIGKILL)."""
        signal_group(self.pid, signal.SIGKILL)

    def start_again(self) -> Worker:
        """Start another process in the place of this one, which has ended. Its output is appended."""
        self.wait()
        return self._start(self._plan)

    def terminate(self) -> None:
        """Ask the worker to end, as a scheduler does before it takes the machine (SIGTERM)."""
        self._process.terminate()

    def freeze(self) -> None:
        """Freeze the worker: it stays alive, but does nothing (SIGSTOP)."""
        signal_group(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen worker continue. To make a worker slow, freeze and resume it in turn."""
        signal_group(self.pid, signal.SIGCONT)

    def wait_for(self, text: str) -> None:
        """Wait until the worker's output contains a text.

        Raises:
            PeerError: The worker ended before, or did not write the text in time. The message contains its output.
        """
        while text not in self.output():
            is_over = self.returncode is not None
            if (is_over or self.deadline.expired) and text not in self.output():
                raise _silence(self, f"did not write {text!r}")
            self.deadline.clock.wait(_LOOK_SECONDS)

    def wait_for_point(self, name: str) -> None:
        """Wait until the worker has reached `block_point(name)`.

        Raises:
            PeerError: The worker ended before, or did not reach the point in time.
        """
        self.wait_for(reached_line(name))

    def release(self, name: str) -> None:
        """Let the worker continue from `block_point(name)`, once it has reached that point.

        Raises:
            PeerError: The worker ended before, or did not reach the point in time.
        """
        self.wait_for_point(name)
        while self.returncode is None and not self.deadline.expired:
            try:
                os.close(os.open(point_path(self._folder, self.pid, name), os.O_WRONLY | os.O_NONBLOCK))
                return
            except OSError:  # between making the pipe and opening it
                self.deadline.clock.wait(_LOOK_SECONDS)
        raise _silence(self, f"did not go on from block point {name!r}")

    def wait(self) -> WorkerResult:
        """Wait for the end of the worker, and return its result.

        Raises:
            PeerError: The worker did not end in time. The message contains its output.
        """
        if not _wait([self], self.deadline):
            raise _silence(self, "did not end")
        code = self._process.returncode or 0
        value = pickle.loads(self._value.read_bytes()) if code == 0 and self._value.exists() else None
        return WorkerResult(self.index, code, self.output(), value)

    @property
    def returncode(self) -> int | None:
        """The exit code, once the worker has ended. Its remaining child processes are killed then."""
        return self._process.returncode

    def output(self) -> str:
        """Return the output of the worker so far, from standard output and standard error."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def last_lines(self) -> str:
        """Return its last lines of output under a heading."""
        lines = self.output().splitlines()[-_SHOWN_LINES:]
        return "\n".join([f"Last output of {self.name}:", *lines]) if lines else f"{self.name} wrote nothing."


def _wait(workers: Sequence[Worker], deadline: Deadline) -> list[Worker]:
    """Return the workers that ended before the deadline, in the order in which they did."""
    ended: list[Worker] = []
    while len(ended) < len(workers) and not deadline.expired:
        new = [worker for worker in workers if worker not in ended and worker.returncode is not None]
        # Seen together, their order is unknown; one that a signal ended did not end because of its peers.
        ended += sorted(new, key=lambda worker: (worker.returncode or 0) >= 0)
        if not new:
            deadline.clock.wait(_LOOK_SECONDS)
    return ended


def _refuse_while_loading() -> None:
    folder = os.environ.get(environment.BLOCK_POINTS)
    if folder is not None and (Path(folder) / LOADING_FILE.format(pid=os.getpid())).exists():
        raise UsageError(
            "A worker was told to start workers while it loaded the file of its function.",
            "Those workers would start workers too, without end.",
            'Write the call in that file under `if __name__ == "__main__":`.',
        )


def _command(program: Callable[..., object] | str | Path, args: Sequence[Any], folder: Path) -> tuple[str, ...]:
    """Return what the Python of each worker runs."""
    if not callable(program):
        if not Path(program).is_file():
            raise InputError(f"There is no file {str(program)!r}.", "Pass the path of a script.")
        return (str(program), *map(str, args))
    file = inspect.getsourcefile(program) if inspect.isfunction(program) else None
    name = getattr(program, "__qualname__", "<unknown>")
    if file is None or "<" in name:
        raise InputError(
            f"run_workers got {program!r}.",
            "Another process cannot find such a function.",
            "Pass a function defined at the top level of a Python file, or the path of a script.",
        )
    (folder / ARGUMENTS_FILE).write_bytes(pickle.dumps(tuple(args)))
    # -P: the folder of call.py must not hide other modules.
    return ("-P", call.__file__, file, program.__module__, name, str(folder))


def _silence(worker: Worker, what: str) -> PeerError:
    end = "in time" if worker.returncode is None else f"before it ended with exit code {worker.returncode}"
    return PeerError(f"{worker.name} {what} {end}.", f"Look at its last output.\n{worker.last_lines()}")


def _names(workers: Sequence[Worker]) -> str:
    return ", ".join(worker.name for worker in workers)
