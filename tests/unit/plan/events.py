"""Sums over many workers as single messages: a simulation by events, to hold the closed forms against.

Every host has one way out and one way in. A message occupies both for the time of its bytes, and is there one latency
later. What finds a way occupied waits in line. Nothing here knows a formula.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from stratagem.plan.costs import Link

Action = Callable[[], None]


@dataclass
class Simulation:
    """Messages between workers, in the order of their time.

    Args:
        network: Between hosts.
        loopback: Within a host, where each worker has a way of its own.
        per_host: Workers on each host.
    """

    network: Link
    loopback: Link = field(default_factory=Link)
    per_host: int = 1
    now: float = 0.0
    _events: list[tuple[float, int, Action]] = field(default_factory=list)
    _count: itertools.count[int] = field(default_factory=itertools.count)
    _free: dict[tuple[bool, str, int], float] = field(default_factory=dict)

    def at(self, when: float, action: Action) -> None:
        """Do something at a time."""
        heapq.heappush(self._events, (when, next(self._count), action))

    def send(self, sender: int, receiver: int, nbytes: float, combined: bool, then: Action) -> None:
        """Send a message; do something when it has arrived and, if it is to be, has been combined."""
        outside = sender // self.per_host != receiver // self.per_host
        link = self.network if outside else self.loopback
        places = (sender // self.per_host, receiver // self.per_host) if outside else (sender, receiver)
        seconds = nbytes * link.seconds_per_byte
        sent = self._after((outside, "out", places[0]), self.now) + seconds
        self._free[outside, "out", places[0]] = sent

        def come_in() -> None:  # as it is sent, or later where others come in; a switch keeps it meanwhile
            inside = (outside, "in", places[1])
            self._free[inside] = max(self.now, self._free.get(inside, 0.0) + seconds)
            self.at(self._free[inside] + link.latency, combine if combined else then)

        def combine() -> None:
            processor = (False, "processor", receiver)
            self._free[processor] = self._after(processor, self.now) + nbytes * link.combining
            self.at(self._free[processor], then)

        self.at(sent, come_in)

    def _after(self, what: tuple[bool, str, int], when: float) -> float:
        return max(when, self._free.get(what, 0.0))

    def run(self) -> float:
        """Let everything happen, and return when the last thing has."""
        while self._events:
            self.now, _, action = heapq.heappop(self._events)
            action()
        return self.now


def ring(network: Link, workers: int, nbytes: int, loopback: Link | None = None, per_host: int = 1) -> float:
    """Simulate a ring: each worker sends on what it has just received and combined; sizes of pieces are whole bytes.

    Nobody else uses the way between two neighbours, so one turn of all workers follows from the turn before it.
    """
    numbers = np.arange(workers)
    links = [network if (i + 1) % per_host == 0 or i == workers - 1 else loopback or network for i in range(workers)]
    per_byte, latency, combining = np.array([(x.seconds_per_byte, x.latency, x.combining) for x in links]).T
    sizes = nbytes // workers + (numbers < nbytes % workers)
    ready, way, processor = np.zeros((3, workers))
    for turn in range(2 * (workers - 1)):
        size = sizes[(numbers - turn) % workers]
        way = np.maximum(ready, way) + size * per_byte
        arrival = way + latency
        if turn < workers - 1:
            arrival = processor = np.maximum(arrival, processor) + size * combining
        ready = np.roll(arrival, 1)
    return float(ready.max())


def halves_and_doubles(simulation: Simulation, workers: int, nbytes: int) -> float:
    """Simulate halving and doubling: a worker goes on to the next round when its partner's part of this one is there.

    Those beyond the last power of two give what they have to a partner first, and get the sum at the end.
    """
    rounds = workers.bit_length() - 1
    whole = 1 << rounds
    came: set[tuple[int, int]] = set()  # what a worker has received, by round
    reached: dict[int, int] = {}

    def begin(worker: int, turn: int) -> None:
        reached[worker] = turn
        if turn == 2 * rounds:
            if worker + whole < workers:
                simulation.send(worker, worker + whole, nbytes, False, lambda: None)
            return
        level = turn if turn < rounds else 2 * rounds - 1 - turn
        partner = worker ^ (1 << level)
        simulation.send(worker, partner, nbytes / 2 ** (level + 1), turn < rounds, lambda: arrived(partner, turn))
        go_on(worker)

    def arrived(worker: int, turn: int) -> None:
        came.add((worker, turn))
        go_on(worker)

    def go_on(worker: int) -> None:
        turn = reached.get(worker)
        if turn is not None and (worker, turn) in came:
            came.discard((worker, turn))
            begin(worker, turn + 1)

    for worker in range(whole):
        if worker + whole < workers:
            giving = (worker + whole, worker, nbytes, True, lambda worker=worker: begin(worker, 0))
            simulation.at(0.0, lambda giving=giving: simulation.send(*giving))
        else:
            simulation.at(0.0, lambda worker=worker: begin(worker, 0))
    return simulation.run()
