"""The processes of a contender: started on their cores, asked for one epoch at a time."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from stratagem.core import environment
from stratagem.launch.machine import LOOPBACK, free_ports

HERE = Path(__file__).parent

START_SECONDS = 300.0
"""Longest start-up, with compilation and the first epoch."""

TURN_SECONDS = 120.0
"""Longest epoch."""

END_SECONDS = 10.0
"""Longest time to end unforced."""


@dataclass(frozen=True)
class Contender:
    """One row of the table.

    Args:
        name: As `--only` takes it.
        title: What it is.
        program: File in `mnist_cnn`.
        workers: Processes, each on its own core.
        peer: Folder in `peers` with its environment; None runs in this one.
        arguments: More arguments of the program.
    """

    name: str
    title: str
    program: str
    workers: int = 1
    peer: str | None = None
    arguments: tuple[str, ...] = ()

    @property
    def python(self) -> Path:
        """The interpreter to run."""
        return Path(sys.executable) if self.peer is None else HERE / "peers" / self.peer / ".venv" / "bin" / "python"


class _Worker(NamedTuple):
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
    """

    ms: float
    cpu_ms: float
    loss: float
    others: float


class Running:
    """A contender's processes.

    Args:
        contender: Which.
        data: File with `x` and `y`.
        steps: Steps of an epoch.
        cores: The core of each worker.
        logs: Folder for what the processes print.
    """

    def __init__(self, contender: Contender, data: Path, steps: int, cores: Sequence[int], logs: Path) -> None:
        self.contender = contender
        self.cores = cores
        self._logs = [logs / f"{contender.name}-{worker}.log" for worker in range(contender.workers)]
        addresses = [f"{LOOPBACK}:{port}" for port in free_ports(contender.workers)]
        program = HERE / "mnist_cnn" / contender.program
        command = [str(contender.python), str(program), str(data), str(steps), *contender.arguments]
        self._workers = [
            _start(command, core, _variables(contender, addresses, worker), self._logs[worker])
            for worker, core in enumerate(cores)
        ]

    def warm_up(self) -> tuple[dict[str, str], float]:
        """Wait for the first epoch, which every contender runs unasked.

        Returns:
            Versions of what it runs on, and the loss.

        Raises:
            ContenderError: It failed.
        """
        answers = self._answers(START_SECONDS)
        if [answer["cores"] for answer in answers] != [[core] for core in self.cores]:
            raise ContenderError(f"{self.contender.title}: its workers are not bound to cores {self.cores}.")
        return answers[0]["versions"], answers[0]["loss"]

    def turn(self) -> Turn:
        """Run one epoch.

        Raises:
            ContenderError: It failed.
        """
        begin, used, busy = time.perf_counter(), self._cpu_seconds(), _busy_seconds(self.cores)
        for worker in self._workers:
            try:
                worker.asks.write(b"go\n")
            except BrokenPipeError:
                raise ContenderError(self._failure("ended")) from None
        answers = self._answers(TURN_SECONDS)
        others = _busy_seconds(self.cores) - busy - (self._cpu_seconds() - used)
        return Turn(
            ms=max(answer["ms"] for answer in answers),
            cpu_ms=sum(answer["cpu_ms"] for answer in answers) / len(answers),
            loss=answers[0]["loss"],
            others=max(0.0, others / (time.perf_counter() - begin) / len(self.cores)),
        )

    def end(self) -> None:
        """End the processes, by force those that do not end when nobody asks any more."""
        for worker in self._workers:
            worker.asks.close()
        for process, _, answers in self._workers:
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
        for worker in self._workers:
            ready, _, _ = select.select([worker.answers], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise ContenderError(self._failure(f"did not answer in {seconds:.0f} s"))
            line = worker.answers.readline()  # a worker writes a line at once
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
        for worker in self._workers:
            # The name of the program, in parentheses, may hold anything; utime and stime are fields 14 and 15.
            fields = Path(f"/proc/{worker.process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


def _start(command: Sequence[str], core: int, variables: Mapping[str, str], log: Path) -> _Worker:
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),  # before the first thread: all inherit it
        )
    assert process.stdin is not None
    assert process.stdout is not None
    return _Worker(process, process.stdin, process.stdout)


def _variables(contender: Contender, addresses: Sequence[str], worker: int) -> dict[str, str]:
    """Return the environment of a worker: CPU only, as many threads as it has cores."""
    variables = {name: value for name, value in os.environ.items() if name != environment.TF_CONFIG}
    variables |= dict.fromkeys([*environment.THREAD_COUNTS, "TF_NUM_INTRAOP_THREADS"], "1")
    variables |= {
        environment.KERAS_BACKEND: "jax",
        environment.JAX_PLATFORMS: "cpu",
        environment.CUDA_VISIBLE_DEVICES: "-1",
        "TF_USE_LEGACY_KERAS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    if len(addresses) > 1:
        cluster = {"cluster": {"worker": list(addresses)}, "task": {"type": "worker", "index": worker}}
        variables[environment.TF_CONFIG] = json.dumps(cluster)
    return variables


def _busy_seconds(cores: Sequence[int]) -> float:
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
