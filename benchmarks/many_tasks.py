"""What coordination costs as a cluster grows: its tasks are threads of one process here, so all of it is simulated.

    python benchmarks/many_tasks.py [--tasks 64 256 1024]

Tasks meet at process 0, agree on what they run, and tell process 0 every second what they do. All is done by the
classes that clusters run, over sockets of this machine and JAX's own coordination service. Threads of one process take
turns, so the seconds of a meeting and of an agreement are an upper bound: each task has a processor of its own in life.
What process 0 pays by itself is its processor time.
"""

from __future__ import annotations

import argparse
import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from jax._src.lib import _jax  # of the whole of JAX, this alone starts several clients in one process

from stratagem.cluster.agreement import Peers
from stratagem.cluster.hello import Hello, Peer
from stratagem.cluster.lifeline import Lifeline
from stratagem.cluster.rendezvous import gather, visit
from stratagem.cluster.spec import ClusterSpec, Task
from stratagem.core.clock import Deadline
from stratagem.core.progress import Phase, Progress

SECONDS: Final = 300.0
STACK_BYTES: Final = 256 * 1024
BEATS: Final = 3
"""Seconds for which process 0 is watched."""


class Found(NamedTuple):
    """What one size of cluster took.

    Args:
        tasks: How many there are.
        meeting: Seconds from the first task that says hello until all may go on.
        first: Processor seconds of process 0 for that.
        agreement: Seconds in which all agree on three fields.
        values: Seconds until each has a value of every other.
        programs: Seconds until each knows that all are about to run the same new program.
        watching: Processor seconds that process 0 spends on each second of hearing all and looking who holds up whom.
    """

    tasks: int
    meeting: float
    first: float
    agreement: float
    values: float
    programs: float
    watching: float


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def seconds_of_all(calls: Sequence[Callable[[], object]]) -> float:
    """Return the seconds in which all of these end, each in a thread of its own."""
    threads = [threading.Thread(target=call) for call in calls]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin


def meet(tasks: int) -> tuple[float, float]:
    """Return the seconds in which this many tasks meet, and the processor seconds of process 0."""
    addresses = [f"10.0.{index // 250}.{index % 250}:2222" for index in range(1, tasks)]
    cluster = ClusterSpec({"worker": [f"127.0.0.1:{free_port()}", *addresses]})
    hellos = [Hello(Peer(Task("worker", i), f"node{i}", 100 + i), cluster, {"stratagem": "1"}) for i in range(tasks)]
    spent = []

    def host() -> None:
        begin = time.thread_time()
        gather(hellos[0], Deadline(SECONDS))
        spent.append(time.thread_time() - begin)

    guests = [lambda hello=hello: visit(hello, Deadline(SECONDS)) for hello in hellos[1:]]
    return seconds_of_all([host, *guests]), spent[0]


def agree(tasks: int) -> tuple[float, float, float]:
    """Return the seconds in which this many tasks agree, have a value of every other, and have compared a program."""
    address, life = f"127.0.0.1:{free_port()}", {"heartbeat_timeout": 86400, "shutdown_timeout": 10}
    service = _jax.get_distributed_runtime_service(address, tasks, **life)
    start: dict[str, Any] = {"init_timeout": int(SECONDS), "shutdown_on_destruction": False, **life}
    clients = [_jax.get_distributed_runtime_client(address, index, **start) for index in range(tasks)]
    seconds_of_all([client.connect for client in clients])
    peers = [Peer(Task("worker", index), f"node{index}", 100 + index) for index in range(tasks)]
    groups = [Peers(client, peers, index, SECONDS) for index, client in enumerate(clients)]
    fields = {"settings": "a" * 64, "data": "b" * 64, "program": "c" * 64}
    agreement = seconds_of_all([lambda own=own: own.agree("start of fit", fields) for own in groups])
    values = seconds_of_all([lambda own=own: own.from_all("rows", own.own_index) for own in groups])
    programs = seconds_of_all([lambda own=own: own.distinct("program", "d" * 32, waits=True) for own in groups])
    seconds_of_all([client.shutdown for client in clients])
    service.shutdown()
    return agreement, values, programs


def watch(tasks: int) -> float:
    """Return the processor seconds that process 0 spends on each second in which all tasks tell what they do."""
    with socket.create_server(("127.0.0.1", 0), backlog=tasks) as door:
        clients = [socket.create_connection(door.getsockname()) for _ in range(1, tasks)]
        pairs = dict(enumerate(((door.accept()[0], client) for client in clients), start=1))
    peers = [Peer(Task("worker", index), f"node{index}", 100 + index) for index in range(tasks)]
    own = {index: (pair[0], b"") for index, pair in pairs.items()}
    lifeline = Lifeline(peers, 0, own, Progress(), None, show=print, leave=print)
    lifeline.start()
    clock = time.pthread_getcpuclockid(lifeline._thread.ident or 0)
    begin = time.clock_gettime(clock)
    for step in range(BEATS):
        next_beat = Deadline(1.0)
        line = json.dumps({"at": [Phase.STEP, step, 0.5, 1.0, 0.5, step, "train_step", True, "fit"]}).encode() + b"\n"
        for _, other in pairs.values():
            other.sendall(line)
        next_beat.clock.wait(next_beat.remaining)
    spent = time.clock_gettime(clock) - begin
    lifeline._is_over = True
    lifeline._thread.join()
    for pair in pairs.values():
        for end in pair:
            end.close()
    return spent / BEATS


def measured(tasks: int) -> Found:
    """Measure one size of cluster."""
    return Found(tasks, *meet(tasks), *agree(tasks), watch(tasks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, nargs="+", default=[64, 256, 1024])
    print("| tasks | meeting | of it process 0 | agreement | values of all | a program | watching, of a core |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for found in map(measured, parser.parse_args().tasks):
        print(
            f"| {found.tasks:,} | {found.meeting:.2f} s | {found.first:.2f} s | {found.agreement:.2f} s "
            f"| {found.values:.2f} s | {found.programs:.2f} s | {100 * found.watching:.1f} % |"
        )


if __name__ == "__main__":
    threading.stack_size(STACK_BYTES)
    main()
