"""Joining of a run whose workers may change: `stratagem run --spares`, `--elastic`."""

from __future__ import annotations

import atexit
import os
import socket
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NamedTuple

import jax

from stratagem.cluster import compat
from stratagem.cluster.bootstrap import Membership as Place
from stratagem.cluster.bootstrap import library_versions, take_place
from stratagem.cluster.ending import exit_code, flush_output, leave
from stratagem.cluster.orphan import end_with_launcher
from stratagem.cluster.secret import read_secret
from stratagem.cluster.spec import ClusterSpec, Task
from stratagem.core import environment, exits
from stratagem.core.clock import Deadline
from stratagem.core.cores import HostCores, bind_process
from stratagem.core.errors import UnsupportedError, UsageError
from stratagem.core.progress import progress
from stratagem.elastic.client import Membership, join
from stratagem.elastic.events import End, Order
from stratagem.elastic.hello import JoinHello
from stratagem.elastic.options import ElasticOptions
from stratagem.mesh.changing import ChangingWorld
from stratagem.mesh.lending import lend_by
from stratagem.mesh.linking import Reach
from stratagem.mesh.mesh import Device
from stratagem.program.rules.exchanges import let_programs_call

STAND_INS: Final = 63
"""Devices that stand for those of other workers."""

DEFAULT_SECONDS: Final = 300.0
"""How long start-up and meetings wait for others."""


class Joined(NamedTuple):
    """A run that this process has joined.

    Args:
        world: The workers, which may change.
        place: This process among them.
    """

    world: ChangingWorld
    place: Place


_runs: dict[str, tuple[ElasticOptions | None, Joined]] = {}
"""Runs that this process has joined, by address, with what its program asked for."""


def joined_run(address: str, options: ElasticOptions | None = None) -> Joined:
    """Join the run, once in the life of this process. Wait for the others, unless they train already.

    Args:
        address: Where the coordinator listens.
        options: What the program asks for; None where it does not.

    Raises:
        UsageError: JAX is already in use, or this process has joined with other options.
        StartupError: The coordinator did not answer.
        PeerError: The coordinator refuses this process.
    """
    if address not in _runs:
        _runs[address] = options, _joined(address, options)
    asked, joined = _runs[address]
    if options != asked:
        raise UsageError(
            f"This strategy is made with elastic={options}; the first of this process was made with elastic={asked}.",
            "Both have the same workers, which joined with the first options.",
            "Write the same for both.",
        )
    return joined


def _joined(address: str, options: ElasticOptions | None) -> Joined:
    if compat.backends_started() or compat.joined_elsewhere():
        raise UsageError(
            "JAX was used before this worker joined its run: an array, a model, a seed or a list of devices was made.",
            "JAX has opened the devices of this process alone.",
            "Create the strategy first, right after the imports, and everything else after it.",
        )
    end_with_launcher(os.environ)
    cores = HostCores.decode(os.environ.get(environment.CORES, ""))
    bind_process(cores.own)
    compat.start_with_stand_ins(STAND_INS)
    hello = JoinHello(
        socket.gethostname(),
        os.getpid(),
        "",
        is_spare=environment.SPARE in os.environ,
        options=None if options is None else options.encode(),
        versions=library_versions(),
    )
    known: list[ChangingWorld] = []

    def obey(order: Order) -> None:
        for world in known:
            world.obey(order)

    secret = read_secret(os.environ)
    membership = join(address, hello, secret, Deadline(DEFAULT_SECONDS), on_order=obey)
    _end_together(membership, known)
    asked = ElasticOptions() if options is None else options
    world = ChangingWorld(
        membership,
        DEFAULT_SECONDS,
        Reach(membership.own_host, secret),
        keeps_rows_of_workers=asked.batch == "per_worker",
        keeps_copies=asked.shards == "copies",
        cores=cores.every,
    )
    known.append(world)
    let_programs_call(world.memory)
    lend_by(world.put_together)
    progress.join()
    return Joined(world, place_in(world))


def place_in(world: ChangingWorld) -> Place:
    """Return this process's place among the workers that there are now, and note it for all who ask."""
    count, rank = world.layout
    place = Place(Task("worker", rank), ClusterSpec({}), rank, count, rank == 0, world.peers)
    take_place(place, world.take_place)
    return place


def devices_in(world: ChangingWorld) -> Sequence[Device]:
    """Return a device for each worker: this one's at its place, and devices that stand for those of the others."""
    own, *others = jax.devices("cpu")
    count, rank = world.layout
    most = world.membership.bounds.most
    if most > len(others) + 1:
        raise UnsupportedError(
            f"The run may have {most} workers; with --spares or --elastic there may be {len(others) + 1}.",
            "The mesh would have no place for the other workers.",
            "Start fewer workers, or leave --spares and --elastic out.",
        )
    devices = others[: count - 1]
    devices.insert(rank, own)
    return devices


def _end_together(membership: Membership, known: Sequence[ChangingWorld]) -> None:
    """Let this process end with the others, or tell them why it fails.

    Args:
        membership: The connection to the coordinator.
        known: The workers, once they are known. If one of them is gone, its end is the cause of an exception.
    """
    show = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        show(kind, error, trace)
        flush_output()
        if not isinstance(error, SystemExit):
            code = exits.PEER_LOST if any(world.memory.is_cut for world in known) else exit_code(error)
            if code == exits.FAILED:
                membership.failed(f"{kind.__name__}: {error}")
                if any(world.is_preparing for world in known):
                    code = exits.FAILED_APART
            leave(code)

    def finish() -> None:
        membership.finished()
        while not isinstance(order := membership.next_order(), End):
            pass
        flush_output()
        if order.code:
            leave(order.code)
        compat.abandon()

    sys.excepthook = tell
    atexit.register(finish)
