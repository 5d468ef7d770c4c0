"""The processes of a contender: started on their cores, asked for one epoch at a time."""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from stratagem.core import environment
from stratagem.core.tunables import c_library_version, to_start_with
from stratagem.launch.machine import LOOPBACK, free_ports

HERE = Path(__file__).parent

START_SECONDS = 300.0
"""Longest start-up, with compilation and the first epoch."""

TURN_SECONDS = 120.0
"""Longest epoch."""

_SECRET = secrets.token_hex(32)
"""Secret of the clusters, without which parameter servers refuse to work."""

END_SECONDS = 10.0
"""Longest time to end unforced."""


@dataclass(frozen=True)
class Contender:
    """One row of the table.

    Args:
        name: As `--only` takes it.
        title: What it is.
        program: File in this folder.
        tasks: The type of each process. A chief answers for all, else each worker does.
        peer: Folder in `peers` with its environment; None runs in this one.
        arguments: More arguments of the program.
        shares_cores: Whether it takes part where there are fewer cores than workers.
        gpus: NVIDIA GPUs that it has, as CUDA_VISIBLE_DEVICES names them. It has all cores then; without any it
            computes on the CPU, with a core for each task.
    """

    name: str
    title: str
    program: str
    tasks: tuple[str, ...] = ("worker",)
    peer: str | None = None
    arguments: tuple[str, ...] = ()
    shares_cores: bool = False
    gpus: tuple[str, ...] = ()

    @property
    def workers(self) -> int:
        """How many tasks compute."""
        return self.tasks.count("worker")

    @property
    def described(self) -> str:
        """What it is, and of how many workers if there are several."""
        return f"{self.title}, {self.workers} workers" if self.workers > 1 else self.title

    @property
    def python(self) -> Path:
        """The interpreter to run."""
        return Path(sys.executable) if self.peer is None else HERE / "peers" / self.peer / ".venv" / "bin" / "python"


class _Process(NamedTuple):
    process: subprocess.Popen[bytes]
    asks: IO[bytes]
    answers: IO[bytes]


class ContenderError(Exception):
    """A contender ended or did not answer in time."""


@dataclass(frozen=True)
class Turn:
    """One epoch of a contender.

    Args:
        ms: Wall time of the epoch over its steps, in milliseconds; that of the slowest worker.
        cpu_ms: Likewise, the time that a worker's core worked for it; the mean over workers.
        loss: Mean loss over the epoch.
        others: Share of its cores that other processes took meanwhile.
        peak_mib: Most memory that a worker has had since its start, in MiB; that of the largest.
    """

    ms: float
    cpu_ms: float
    loss: float
    others: float
    peak_mib: float


class Running:
    """A contender's processes.

    Args:
        contender: Which.
        data: File with `x` and `y`.
        steps: Steps of an epoch.
        cores: The cores of each task.
        logs: Folder for what the processes print.
    """

    def __init__(
        self, contender: Contender, data: Path, steps: int, cores: Sequence[Collection[int]], logs: Path
    ) -> None:
        self.contender = contender
        self.cores = cores
        self._logs = [logs / f"{contender.name}-{number}.log" for number in range(len(contender.tasks))]
        addresses = [f"{LOOPBACK}:{port}" for port in free_ports(len(contender.tasks))]
        command = [str(contender.python), str(HERE / contender.program), str(data), str(steps), *contender.arguments]
        self._processes = [
            _start(command, own, _variables(contender, addresses, number), self._logs[number])
            for number, own in enumerate(cores)
        ]
        answering = "chief" if "chief" in contender.tasks else "worker"
        self._answering = [number for number, task in enumerate(contender.tasks) if task == answering]

    def warm_up(self) -> tuple[dict[str, str], float]:
        """Wait for the first epoch, which every contender runs unasked.

        Returns:
            Versions of what it runs on, and the loss.

        Raises:
            ContenderError: It failed.
        """
        answers = self._answers(START_SECONDS)
        if [answer["cores"] for answer in answers] != [sorted(self.cores[number]) for number in self._answering]:
            raise ContenderError(f"{self.contender.title}: its tasks are not bound to cores {self.cores}.")
        return answers[0]["versions"], answers[0]["loss"]

    def turn(self) -> Turn:
        """Run one epoch.

        Raises:
            ContenderError: It failed.
        """
        cores = set().union(*self.cores)
        begin, used, busy = time.perf_counter(), self._cpu_seconds(), _busy_seconds(cores)
        for number in self._answering:
            try:
                self._processes[number].asks.write(b"go\n")
            except BrokenPipeError:
                raise ContenderError(self._failure("ended")) from None
        answers = self._answers(TURN_SECONDS)
        others = _busy_seconds(cores) - busy - (self._cpu_seconds() - used)
        return Turn(
            ms=max(answer["ms"] for answer in answers),
            cpu_ms=sum(answer["cpu_ms"] for answer in answers) / len(answers),
            loss=answers[0]["loss"],
            others=max(0.0, others / (time.perf_counter() - begin) / len(cores)),
            peak_mib=max(answer["peak_mib"] for answer in answers),
        )

    def end(self) -> None:
        """End the processes, by force those that do not end when nobody asks any more."""
        for each in self._processes:
            each.asks.close()
        for process, _, answers in self._processes:
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            answers.close()

    def _answers(self, seconds: float) -> list[dict[str, Any]]:
        """Return one answer of each worker."""
        deadline = time.monotonic() + seconds
        answers = []
        for number in self._answering:
            source = self._processes[number].answers
            ready, _, _ = select.select([source], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise ContenderError(self._failure(f"did not answer in {seconds:.0f} s"))
            line = source.readline()  # a task writes a line at once
            if not line:
                raise ContenderError(self._failure("ended"))
            answers.append(json.loads(line))
        return answers

    def _failure(self, what: str) -> str:
        tails = [f"--- {log.name}\n{''.join(log.read_text().splitlines(True)[-15:])}" for log in self._logs]
        return "\n".join([f"{self.contender.title} {what}.", *tails])

    def _cpu_seconds(self) -> float:
        """Return the time that cores spent on the processes, children excluded."""
        ticks = 0
        for each in self._processes:
            # The name of the program, in parentheses, may hold anything; utime and stime are fields 14 and 15.
            fields = Path(f"/proc/{each.process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


def _start(command: Sequence[str], cores: Collection[int], variables: Mapping[str, str], log: Path) -> _Process:
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),  # before the first thread: all inherit it
        )
    assert process.stdin is not None
    assert process.stdout is not None
    return _Process(process, process.stdin, process.stdout)


def _variables(contender: Contender, addresses: Sequence[str], number: int) -> dict[str, str]:
    """Return the environment of a task: on the CPU alone, with a thread for its core; or with its GPUs."""
    variables = {name: value for name, value in os.environ.items() if name != environment.TF_CONFIG}
    if contender.gpus:
        # All contenders are alive at once: none may take more of a GPU's memory than it needs.
        variables |= {
            environment.JAX_PLATFORMS: "cuda,cpu",
            environment.CUDA_VISIBLE_DEVICES: ",".join(contender.gpus),
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
    else:
        variables |= dict.fromkeys([*environment.THREAD_COUNTS, "TF_NUM_INTRAOP_THREADS"], "1")
        variables |= {environment.JAX_PLATFORMS: "cpu", environment.CUDA_VISIBLE_DEVICES: "-1"}
        if len(addresses) > 1 and not contender.peer:  # `stratagem run` does the same
            variables |= to_start_with(variables, c_library_version())
    variables |= {
        environment.KERAS_BACKEND: "jax",
        environment.SECRET: _SECRET,
        "TF_USE_LEGACY_KERAS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
    }
    if len(addresses) > 1:
        cluster: dict[str, list[str]] = {}
        for each, address in zip(contender.tasks, addresses, strict=True):
            cluster.setdefault(each, []).append(address)
        task = contender.tasks[number]
        this = {"type": task, "index": contender.tasks[:number].count(task)}
        variables[environment.TF_CONFIG] = json.dumps({"cluster": cluster, "task": this})
    return variables


def _busy_seconds(cores: Collection[int]) -> float:
    """Return the time that cores worked, for anybody on this machine or beside it (steal).

    Interrupts are left out: those of its own messages would look like work of others.
    """
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *counts = line.split()
        if name in {f"cpu{core}" for core in cores}:
            user, nice, system, _idle, _iowait, _irq, _softirq, steal = map(int, counts[:8])
            ticks += user + nice + system + steal
    return ticks / os.sysconf("SC_CLK_TCK")
