"""Machines of a cluster: each a process with a network, host name and files of its own, in which tasks are started.

`python tests/machines.py` is such a machine: it reads what it is from its input, says when it has a network of its own,
waits for its card, and then runs the tasks that it is given.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.networks import Network, address_of, separate

SECONDS = 150.0
"""Longest time that all tasks of a test may take."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Task:
    """A command with its environment."""

    argv: list[str]
    variables: dict[str, str]


@dataclass
class Machine:
    """A machine as a platform sets it up.

    Args:
        name: Its host name.
        names: Names by which the others know it.
        tasks: What runs on it.
        files: Texts by path, in folders that this machine has for itself: /mnt, /opt, /run.
    """

    name: str
    tasks: list[Task]
    names: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)


@dataclass
class Ended:
    """How a task ended."""

    code: int
    output: str


def run(
    machines: Sequence[Machine],
    folder: Path,
    variables: Mapping[str, str],
    during: Callable[[Network], object] = lambda network: None,
) -> list[list[Ended]]:
    """Run the tasks of all machines to the end.

    Args:
        machines: The machines.
        folder: Where their output goes.
                variables: What all tasks have in their environment; what a task itself has goes before.
        during: Called while they run, with the network between the machines.

    Returns:
        For each machine the ends of its tasks.
    """
    known = {name: address_of(index) for index, each in enumerate(machines) for name in (each.name, *each.names)}
    with contextlib.ExitStack() as opened:
        running = [
            opened.enter_context(_started(index, machine, known, folder, variables))
            for index, machine in enumerate(machines)
        ]
        network = opened.enter_context(Network())
        network.connect(*running)
        during(network)
        return [machine.ends() for machine in running]


class _Running:
    """A machine that runs, as `Network.connect` takes it."""

    def __init__(self, index: int, process: subprocess.Popen[str], outputs: list[Path]) -> None:
        self.index, self._process, self._outputs = index, process, outputs

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for_point(self, name: str) -> None:
        assert _pipe(self._process.stdout).readline() == "separated\n", name

    def release(self, name: str) -> None:
        _pipe(self._process.stdin).write(f"{name}\n")
        _pipe(self._process.stdin).flush()

    def ends(self) -> list[Ended]:
        told, _ = self._process.communicate(timeout=SECONDS)
        return [Ended(code, path.read_text()) for code, path in zip(json.loads(told), self._outputs, strict=True)]


@contextlib.contextmanager
def _started(
    index: int, machine: Machine, known: dict[str, str], folder: Path, variables: Mapping[str, str]
) -> Iterator[_Running]:
    outputs = [folder / f"{machine.name}-{number}.log" for number in range(len(machine.tasks))]
    told = {"index": index, "known": known, "variables": dict(variables), "outputs": list(map(str, outputs))}
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # its tasks end with it
    ) as process:
        try:
            _pipe(process.stdin).write(json.dumps(asdict(machine) | told) + "\n")
            _pipe(process.stdin).flush()
            yield _Running(index, process, outputs)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _lay_down(files: Mapping[str, str]) -> None:
    """Write files into folders at the root that this machine alone sees."""
    for top in {Path(path).parts[1] for path in files}:
        if _libc.mount(b"none", f"/{top}".encode(), b"tmpfs", 0, None) != 0:
            raise OSError(ctypes.get_errno(), top)
    for path, text in files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)


def _be_a_machine(told: dict[str, Any]) -> list[int]:
    own = address_of(told["index"])
    separate(told["name"], own, {name: there for name, there in told["known"].items() if name != told["name"]})
    _lay_down(told["files"])
    print("separated", flush=True)
    sys.stdin.readline()
    processes = []
    for task, output in zip(told["tasks"], told["outputs"], strict=True):
        with Path(output).open("w") as log:
            variables = told["variables"] | task["variables"]
            processes.append(subprocess.Popen(task["argv"], env=variables, stdout=log, stderr=subprocess.STDOUT))
    try:
        return [process.wait(SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()


if __name__ == "__main__":
    print(json.dumps(_be_a_machine(json.loads(sys.stdin.readline()))))
