"""Members of elastic training as processes that are killed and frozen, with the coordinator in this one. No JAX."""

from __future__ import annotations

import itertools
import random
import signal
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple

import pytest

from stratagem.core import exits
from stratagem.core.clock import Clock, Deadline
from stratagem.elastic.events import Lost
from stratagem.elastic.limits import Limits
from stratagem.elastic.options import ElasticOptions
from stratagem.elastic.server import Server
from stratagem.elastic.state import Phase, Rules
from stratagem.elastic.world import Member

pytestmark = pytest.mark.multiprocess

SECRET = b"the secret of this cluster"
ROUNDS = 6

PROGRAM = """
import os, socket, sys, time, zlib
from stratagem.core.clock import Deadline
from stratagem.elastic.client import join
from stratagem.elastic.events import End, Form, Go, Prepare
from stratagem.elastic.hello import JoinHello
from stratagem.elastic.world import WorldChangedError
from stratagem.elastic.world_store import WorldClient

address, secret, last, is_spare = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3]), sys.argv[4] == "spare"
member = join(address, JoinHello(socket.gethostname(), os.getpid(), "x:1", is_spare), secret, Deadline(60.0))
value, world, store = 0, None, None

def train():
    global value
    while member.gate.completed < last:
        if not member.may_begin():
            return False
        step = member.gate.begun
        store.wait_at_barrier(f"step {step}", 30_000)  # the exchange: nobody gets on without all
        value = zlib.crc32(b"%d %d" % (value, step))
        member.completed()
        print("step", world.number, step, value, time.monotonic(), flush=True)
    return True

while True:
    order = member.next_order(120.0)
    try:
        if isinstance(order, Form):
            world, store = order.world, WorldClient(member, order.world)
            if world.rank_of(member.number) == world.donor:
                store.key_value_set_bytes("state", b"%d" % value)
            elif not (member.gate.holds_state and member.gate.completed == world.step):
                value = int(store.blocking_key_value_get_bytes("state", 30_000))
            member.formed(world.number)
        elif isinstance(order, Prepare):
            member.prepared()
        elif isinstance(order, Go):
            member.finished() if train() else member.stopped()
        elif isinstance(order, End):
            sys.exit(order.code)
    except WorldChangedError:
        member.stopped()
"""


class Step(NamedTuple):
    """A step that a process has completed."""

    world: int
    step: int
    value: int
    moment: float


class Launched:
    """A coordinator, and the processes that a launcher would start."""

    def __init__(self, folder: Path, workers: int, last: int, stack: ExitStack) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        self.lines: SimpleQueue[str] = SimpleQueue()
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._folder, self._last, self._stack = folder, last, stack
        rules = Rules(workers, ElasticOptions(), Limits(settle=0.2))
        self.server = Server([listener], SECRET, rules, kill=self._kill, say=self.lines.put)
        self.server.start()
        stack.callback(self.server.stop)

    def start(self, kind: str) -> None:
        log = self._stack.enter_context((self._folder / f"{len(self.processes)}.log").open("wb"))
        command = [sys.executable, "-c", PROGRAM, self.address, SECRET.decode(), str(self._last), kind]
        process = self._stack.enter_context(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
        self._stack.callback(process.kill)
        self.processes[process.pid] = process

    def _kill(self, member: Member, reason: str) -> None:
        self.processes[member.pid].kill()

    def until(self, phase: Phase, world: int, spares: int) -> None:
        """Wait until a world is in a phase, and so many members wait and are prepared."""
        deadline = Deadline(60.0)
        while True:
            state = self.server.state
            number = 0 if state.world is None else state.world.number
            if (state.phase, number, len(state.ready)) == (phase, world, spares):
                return
            assert not deadline.expired, (state.phase, number, state.waiting, self.logs())
            Clock().wait(0.01)

    def until_steps(self, more: int) -> None:
        """Wait until so many steps of this world are completed."""
        deadline = Deadline(60.0)
        world = self.server.state.world
        assert world is not None
        while min(place.step for place in self.server.state.present) < world.step + more:
            assert not deadline.expired, self.logs()
            Clock().wait(0.01)

    def logs(self) -> str:
        return "\n".join(file.read_text()[-2000:] for file in sorted(self._folder.glob("*.log")))

    def steps(self) -> list[list[Step]]:
        """Return the steps of each process, in its order."""
        found = []
        for file in sorted(self._folder.glob("*.log"), key=lambda file: int(file.stem)):
            lines = [line.split() for line in file.read_text().splitlines()]
            assert all(line[0] == "step" for line in lines), file.read_text()
            found.append([Step(int(w), int(s), int(v), float(t)) for _, w, s, v, t in lines if t])
        return found

    def say(self) -> Iterator[str]:
        try:
            while True:
                yield self.lines.get_nowait()
        except Empty:
            return


@pytest.mark.timeout(300)
def test_processes_are_killed_and_frozen_one_after_another(tmp_path: Path) -> None:
    """Three workers and a spare; each fault hits any rank, the first included, and a new spare comes after it."""
    choices = random.Random(3)
    with ExitStack() as stack:
        run = Launched(tmp_path, workers=3, last=100_000, stack=stack)
        for kind in ("worker", "worker", "worker", "spare"):
            run.start(kind)
        for world in range(1, ROUNDS + 1):
            run.until(Phase.RUNNING, world, spares=1)
            trained = run.server.state.world
            assert trained is not None
            assert len(trained.members) == 3
            rank = (world - 1) % 3
            victim = run.processes[trained.members[rank].pid]
            run.until_steps(choices.randint(1, 50))
            victim.send_signal(choices.choice([signal.SIGKILL, signal.SIGSTOP]))
            run.until(Phase.RUNNING, world + 1, spares=0)
            run.start("spare")
        run.until(Phase.RUNNING, ROUNDS + 1, spares=1)
        run.until_steps(1)
        for member in run.server.state.present:  # nobody is left who holds the state
            run.server.report(Lost(member.member.number, "is taken away by the test"))
        assert run.server.wait(60.0) == exits.PEER_LOST
        for process in run.processes.values():
            process.wait(60.0)
        by_process = run.steps()
        said = list(run.say())
    values: dict[int, int] = {}
    for steps in filter(None, by_process):
        assert [each.step for each in steps] == list(range(steps[0].step, steps[0].step + len(steps)))
        for each in steps:
            assert values.setdefault(each.step, each.value) == each.value, "a step has two results"
    assert sorted(values) == list(range(1, len(values) + 1)), "a step is missing"
    moments: dict[int, list[float]] = {}
    for each in itertools.chain(*by_process):
        moments.setdefault(each.world, []).append(each.moment)
    pauses = [min(moments[world + 1]) - max(moments[world]) for world in range(1, ROUNDS + 1)]
    print(f"pauses: {[round(pause, 3) for pause in pauses]}")
    assert statistics.median(pauses) < 1.0, pauses
    assert max(pauses) < 3.0, pauses
    assert len([line for line in said if " later." in line]) == ROUNDS
