"""The tutorials as their authors wrote them, in one folder each; the tests run them with their import changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import translated

from stratagem.core import environment
from stratagem.core.cores import divide_cores
from stratagem.launch.local import bound_to
from stratagem.launch.machine import free_ports, this_machine

SEED = 1


def run_alone(program: Path, devices: int = 1, variables: Mapping[str, str] | None = None) -> str:
    """Run a program that `translated.lay` laid, in a process of its own; return what it wrote."""
    done = subprocess.run(
        [sys.executable, translated.__file__, str(SEED), str(program)],
        env={**os.environ, environment.JAX_PLATFORMS: "cpu", "JAX_NUM_CPU_DEVICES": str(devices), **(variables or {})},
        capture_output=True,
        check=False,
        cwd=program.parent,
    )
    output = (done.stdout + done.stderr).decode()  # with its carriage returns: text=True would make lines of them
    assert done.returncode == 0, output
    return output


def run_by_hand(program: Path, variables: Sequence[Mapping[str, str]]) -> list[bytes]:
    """Start a program as a person does on each machine, once for each set of variables; return what each wrote."""
    cores = divide_cores(this_machine(os.environ).cores, len(variables))
    workers: list[subprocess.Popen[bytes]] = []
    logs = [program.parent / f"job_{index}.log" for index in range(len(variables))]
    try:
        for log, own_cores, own in zip(logs, cores, variables, strict=True):
            threads = dict.fromkeys(environment.THREAD_COUNTS, str(len(own_cores) or 1))
            environ = {**os.environ, environment.JAX_PLATFORMS: "cpu", **threads, **own}
            with log.open("wb") as output, bound_to(own_cores):  # half the time of two that fight for the same cores
                command = [sys.executable, translated.__file__, str(SEED), str(program)]
                workers.append(
                    subprocess.Popen(command, env=environ, stdout=output, stderr=subprocess.STDOUT, cwd=program.parent)
                )
        for worker in workers:
            worker.wait()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    written = [log.read_bytes() for log in logs]
    assert [worker.returncode for worker in workers] == [0] * len(workers), b"".join(written).decode()
    return written


def two_workers() -> tuple[list[str], list[dict[str, str]]]:
    """Return the addresses of two workers on this machine, and the TF_CONFIG of each."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    configs = [{"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}} for index in (0, 1)]
    return addresses, [{environment.TF_CONFIG: json.dumps(config)} for config in configs]
