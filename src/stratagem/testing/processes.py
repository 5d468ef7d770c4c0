"""Run a function or a script on real workers, from a test.

Each worker is a new process with its own TF_CONFIG, never a fork: JAX does not survive one.
"""

from __future__ import annotations

import inspect
import os
import pickle
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stratagem.core import environment
from stratagem.core.clock import Clock, Deadline
from stratagem.core.errors import InputError, PeerError, explain
from stratagem.launch.guard import signal_group
from stratagem.launch.local import bound_to
from stratagem.launch.machine import this_machine
from stratagem.launch.plan import Request, TaskPlan, make_plan
from stratagem.testing import call
from stratagem.testing.call import ARGUMENTS_FILE, VALUE_FILE

_SHOWN_LINES = 40


@dataclass(frozen=True)
class WorkerResult:
    """What became of one worker.

    Args:
        index: Its index in the cluster.
        returncode: Exit code; minus the number of the signal that ended it.
        output: Everything it wrote to standard output and standard error.
        value: What the function returned; None for a script or a worker that failed.
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
    devices_per_worker: int | None = None,
    timeout_seconds: float = 50.0,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    clock: Clock | None = None,
) -> list[WorkerResult]:
    """Run a program on the workers of a new cluster on this machine, and wait for all of them.

    Nothing of it survives the call: processes that the program leaves behind are killed. The workers
    use CPU devices unless `env` sets JAX_PLATFORMS.

    Args:
        program: A function at the top level of a file, or the path of a script. The function's arguments and
            what it returns must pickle; of a JAX array return `np.asarray(array)`.
        num_workers: How many workers.
        args: Arguments of the function, or of the script (as strings).
        devices_per_worker: Virtual CPU devices of each worker; None leaves JAX's one.
        timeout_seconds: How long all of it may take, in seconds.
        env: Variables to set on top of this process's environment and of what a worker gets.
        check: Whether a worker that fails is an error. Without it the results tell.
        clock: Where time comes from.

    Returns:
        One result for each worker, in the order of their index.

    Raises:
        InputError: `program` cannot be found by another process.
        PeerError: A worker failed (its output is in the message), or some did not end in time.

    Example:
        >>> import string
        >>> [result.value for result in run_workers(string.capwords, 2, args=["two words"])]
        ['Two Words', 'Two Words']
    """
    clock = clock or Clock()
    deadline = Deadline(timeout_seconds, clock)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stratagem-test-")))
        variables = {**os.environ, environment.JAX_PLATFORMS: "cpu", **(env or {})}
        request = Request(_command(program, args, folder), workers=num_workers, devices_per_worker=devices_per_worker)
        workers = [
            stack.enter_context(_Worker(plan, {**variables, **plan.environment, **(env or {})}, folder))
            for plan in make_plan(request, this_machine(variables), variables)
        ]
        ended = _wait(workers, deadline, clock)
        results = [worker.result() for worker in workers]
        late = [worker for worker in workers if worker not in ended]
        failed = next((worker for worker in ended if worker.returncode != 0), None)
        if failed is not None and (check or late):
            raise PeerError(_failure(failed, late))
        if late:
            raise PeerError(_lateness(late, timeout_seconds))
    return results


class _Worker:
    """One started worker, killed with all it started when the `with` block ends."""

    def __init__(self, plan: TaskPlan, variables: Mapping[str, str], folder: Path) -> None:
        self.name = plan.name
        self._index = plan.index
        self._output = folder / plan.log_name
        with self._output.open("wb") as output, bound_to(plan.cores):
            self._process = subprocess.Popen(
                plan.command,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._value = folder / VALUE_FILE.format(pid=self._process.pid)

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is None:
            signal_group(self._process.pid, signal.SIGKILL)
            self._process.wait()

    @property
    def returncode(self) -> int | None:
        """The exit code once the worker has ended; what it left running is killed then."""
        if self._process.returncode is None and self._process.poll() is not None:
            signal_group(self._process.pid, signal.SIGKILL)
        return self._process.returncode

    def result(self) -> WorkerResult:
        code = self._process.returncode
        value = pickle.loads(self._value.read_bytes()) if code == 0 and self._value.exists() else None
        return WorkerResult(self._index, -signal.SIGKILL if code is None else code, self.output(), value)

    def output(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")

    def last_lines(self) -> str:
        lines = self.output().splitlines()[-_SHOWN_LINES:]
        return "\n".join([f"Last output of {self.name}:", *lines]) if lines else f"{self.name} wrote nothing."


def _wait(workers: Sequence[_Worker], deadline: Deadline, clock: Clock) -> list[_Worker]:
    """Return the workers that ended before the deadline, in the order in which they did."""
    ended: list[_Worker] = []
    while len(ended) < len(workers) and not deadline.expired:
        new = [worker for worker in workers if worker not in ended and worker.returncode is not None]
        # Seen together, their order is unknown; one that a signal ended did not end because of its peers.
        ended += sorted(new, key=lambda worker: (worker.returncode or 0) >= 0)
        if not new:
            clock.wait(0.01)
    return ended


def _command(program: Callable[..., object] | str | Path, args: Sequence[Any], folder: Path) -> tuple[str, ...]:
    """Return what the Python of each worker runs."""
    if not callable(program):
        if not Path(program).is_file():
            raise InputError(
                explain(f"There is no file {str(program)!r}.", "No worker could run it.", "Pass the path of a script.")
            )
        return (str(program), *map(str, args))
    file, name = _source_file(program), getattr(program, "__qualname__", "<unknown>")
    if file is None or "<" in name or not inspect.isfunction(program):
        raise InputError(
            explain(
                f"run_workers got {program!r}.",
                "Another process could not find that function.",
                "Pass a function defined at the top level of a Python file, or the path of a script.",
            )
        )
    (folder / ARGUMENTS_FILE).write_bytes(pickle.dumps(tuple(args)))
    # -P: the folder of call.py must not hide other modules.
    return ("-P", call.__file__, file, program.__module__, name, str(folder))


def _source_file(program: Callable[..., object]) -> str | None:
    try:
        return inspect.getsourcefile(program)
    except TypeError:  # built-in
        return None


def _failure(failed: _Worker, late: Sequence[_Worker]) -> str:
    waiting = f" Killed, because they had not ended: {_names(late)}." if late else ""
    return explain(
        f"{failed.name} ended with exit code {failed.returncode}.{waiting}",
        "The program does not run on this cluster.",
        f"Mend what it says.\n{failed.last_lines()}",
    )


def _lateness(late: Sequence[_Worker], timeout_seconds: float) -> str:
    return explain(
        f"Not ended after {timeout_seconds:g} s: {_names(late)}.",
        "The test would hang. They were killed.",
        "See where each of them was.\n" + "\n".join(worker.last_lines() for worker in late),
    )


def _names(workers: Sequence[_Worker]) -> str:
    return ", ".join(worker.name for worker in workers)
