"""Costs of a sum over all workers, in seconds of messages and of bytes.

Hockney's model (Parallel Computing 20, 1994): a message of m bytes takes `latency + m * seconds_per_byte`. Combining
is counted beside it, as Thakur, Rabenseifner and Gropp do (IJHPCA 19, 2005): a byte that is received and added costs a
worker `combining` seconds. All workers begin at the same time.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Link:
    """The connection between two workers.

    Args:
        latency: Seconds from sending an empty message to receiving it.
        seconds_per_byte: Seconds for each byte on the wire, in each direction.
        combining: Seconds that a worker spends on each byte that it receives and adds, copies included.
        start: Seconds that each exchange costs once, independent of its size and its workers.
    """

    latency: float = 0.0
    seconds_per_byte: float = 0.0
    combining: float = 0.0
    start: float = 0.0

    def __add__(self, other: Link) -> Link:
        """Return the sum of two links, as a host's own cost is added to that of the wire."""
        return Link(
            self.latency + other.latency,
            self.seconds_per_byte + other.seconds_per_byte,
            self.combining + other.combining,
            self.start + other.start,
        )


class Cost(NamedTuple):
    """The time of an exchange.

    Args:
        messages: Seconds that do not depend on its size.
        bytes: Seconds that grow with its size.
    """

    messages: float
    bytes: float

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.messages + self.bytes

    def then(self, other: Cost) -> Cost:
        """Return the cost of this and then the other."""
        return Cost(self.messages + other.messages, self.bytes + other.bytes)

    def times(self, number: float) -> Cost:
        """Return the cost of several of them."""
        return Cost(self.messages * number, self.bytes * number)


NOTHING = Cost(0.0, 0.0)
"""One worker alone exchanges nothing."""


def ring(workers: int, nbytes: float, link: Link) -> Cost:
    """Return the cost of a sum around a ring: n - 1 rounds that add, n - 1 that pass on, with 1/n of the bytes each.

    No sum moves fewer bytes (Patarasuk and Yuan, JPDC 69, 2009).

    Args:
        workers: Number of workers.
        nbytes: Size of the array.
        link: The link between two neighbours.

    Example:
        >>> ring(4, 1000, Link(latency=2.0, seconds_per_byte=0.1, combining=0.2))
        Cost(messages=12.0, bytes=300.0)
    """
    if workers == 1:
        return NOTHING
    sent = (workers - 1) / workers * nbytes
    return Cost(link.start + 2 * (workers - 1) * link.latency, sent * (2 * link.seconds_per_byte + link.combining))


def tree(workers: int, nbytes: float, link: Link) -> Cost:
    """Return the cost of a sum in halves and doubles (Rabenseifner's; section 4.4 of Thakur, Rabenseifner and Gropp).

    With p, the largest power of two up to n: log p rounds exchange and add 1/2, 1/4, 1/8 ... of the bytes, log p rounds
    exchange them back. The other n - p workers first send all their bytes to another one, and get the sum from it at
    the end. Double binary trees (Sanders, Speck and Träff, Parallel Computing 35, 2009; NCCL's) come near to it with
    small pieces, and have no extra exchange.

    Args:
        workers: Number of workers, each with its own link to all the others.
        nbytes: Size of the array.
        link: The link between two workers.

    Example:
        >>> tree(4, 1000, Link(latency=2.0, seconds_per_byte=0.1, combining=0.2))
        Cost(messages=8.0, bytes=300.0)
        >>> tree(5, 1000, Link(latency=2.0, seconds_per_byte=0.1, combining=0.2))
        Cost(messages=12.0, bytes=700.0)
    """
    if workers == 1:
        return NOTHING
    rounds = workers.bit_length() - 1
    halves = 1 - 0.5**rounds
    cost = Cost(link.start + 2 * rounds * link.latency, halves * nbytes * (2 * link.seconds_per_byte + link.combining))
    if workers == 1 << rounds:
        return cost
    return cost.then(Cost(2 * link.latency, nbytes * (2 * link.seconds_per_byte + link.combining)))


def memory(workers: int, nbytes: float, link: Link) -> Cost:
    """Return the cost of a sum through memory that the workers of a host share (`host_memory.memory`).

    Two workers copy in and add: two passes over the bytes, and they meet once. More workers copy in, add a share of 1/n
    each, meet again and copy the other shares: three passes. At a meeting each worker tells all others, and waits for
    each of them.

    Args:
        workers: Number of workers, each with its own core.
        nbytes: Size of the array.
        link: `latency` is the time to tell another worker, `combining` the time of a byte in one pass.

    Example:
        >>> memory(2, 1000, Link(latency=2.0, combining=0.2)), memory(4, 1000, Link(latency=2.0, combining=0.2))
        (Cost(messages=2.0, bytes=400.0), Cost(messages=12.0, bytes=600.0))
    """
    if workers == 1:
        return NOTHING
    meetings, passes = (1, 2) if workers == 2 else (2, 3)
    return Cost(link.start + meetings * (workers - 1) * link.latency, passes * nbytes * link.combining)


@dataclass(frozen=True)
class Hosts:
    """The hosts that the workers run on.

    Args:
        network: The link between hosts through connections of Stratagem's own.
        memory: The link within a host through shared memory (`memory`).
        loopback: The link within a host through Gloo's connections.
        per_host: Workers on each host, which share its network.
        by_gloo: The link between hosts through Gloo's connections; None if it costs the same as `network`.
    """

    network: Link
    memory: Link
    loopback: Link
    per_host: int = 1
    by_gloo: Link | None = None

    @property
    def network_of_gloo(self) -> Link:
        """The link between hosts through Gloo's connections."""
        return self.network if self.by_gloo is None else self.by_gloo

    def number(self, workers: int) -> int:
        """Return how many hosts a number of workers needs."""
        return math.ceil(workers / self.per_host)


def flat_ring(workers: int, nbytes: float, hosts: Hosts) -> Cost:
    """Return the cost of one ring through all workers, with those of a host one after another, as in Gloo.

    No worker waits for all the others at the end of a round. So half of the rounds last as long as a piece needs
    through n - 1 links, fast and slow ones, or as long as the network needs for n - 1 pieces, if that is longer.
    """
    number = hosts.number(workers)
    if number == 1:
        return ring(workers, nbytes, hosts.loopback)
    rounds, piece, outside = workers - 1, nbytes / workers, number / workers
    links = ((hosts.network_of_gloo, outside), (hosts.loopback, 1 - outside))
    latency = sum(share * link.latency for link, share in links)
    passing = piece * sum(share * link.seconds_per_byte for link, share in links)
    busiest = Cost(0.0, rounds * piece * hosts.network_of_gloo.seconds_per_byte)
    adding = Cost(rounds * latency, rounds * (passing + piece * hosts.network_of_gloo.combining))
    handing_on = Cost(rounds * latency, rounds * passing)
    started = Cost(hosts.network_of_gloo.start, 0.0)
    return started.then(max(adding, busiest, key=_seconds)).then(max(handing_on, busiest, key=_seconds))


def _seconds(cost: Cost) -> float:
    return cost.seconds


def flat_tree(workers: int, nbytes: float, hosts: Hosts) -> Cost:
    """Return the cost of halving and doubling among all workers, with those of a host first.

    Between hosts each of k workers has 1/k of the bytes left. All of them send at once, so the network carries all
    bytes, and each worker adds its own part.
    """
    local = min(workers, hosts.per_host)
    shared = dataclasses.replace(hosts.network_of_gloo, combining=hosts.network_of_gloo.combining / local)
    return tree(local, nbytes, hosts.loopback).then(tree(hosts.number(workers), nbytes, shared))


def two_levels(workers: int, nbytes: float, hosts: Hosts) -> Cost:
    """Return the cost of sums through the memory of each host, and between hosts by shares (`program.rules`).

    The workers of a host copy in and add their shares; those that have the same share of each host sum it over the
    hosts' networks, all at once; all copy their shares in and the others' out. That is three passes over the bytes, and
    the workers of a host meet twice. Between hosts each worker sends all others a part of its share, and gets sums back
    (`host_memory.links`): the messages and bytes of a ring, at once. They are counted as if they came in rounds.
    """
    number = hosts.number(workers)
    if number == 1:
        return memory(workers, nbytes, hosts.memory)
    if hosts.per_host == 1:
        return ring(workers, nbytes, hosts.network)
    sharers = workers % hosts.per_host or hosts.per_host
    between = ring(number, nbytes, dataclasses.replace(hosts.network, combining=hosts.network.combining / sharers))
    meeting = 2 * (hosts.memory.start + (hosts.per_host - 1) * hosts.memory.latency)
    return Cost(meeting, 3 * nbytes * hosts.memory.combining).then(between)
