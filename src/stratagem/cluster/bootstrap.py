"""Start-up: from a resolver to a running cluster of JAX processes."""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import multiprocessing
import os
import socket
import sys
import threading
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from multiprocessing import util
from typing import Final, NamedTuple

import jax

from stratagem.cluster import compat
from stratagem.cluster.agreement import Peers
from stratagem.cluster.ending import leave, leave_at_once_on_failure, show_end
from stratagem.cluster.hello import Hello, Peer
from stratagem.cluster.lifeline import Lifeline
from stratagem.cluster.orphan import end_with_launcher
from stratagem.cluster.other_hosts import notes_other_hosts
from stratagem.cluster.rendezvous import Meeting, await_service, gather, visit
from stratagem.cluster.resolver import ClusterResolver, master_url
from stratagem.cluster.secret import read_secret
from stratagem.cluster.spec import ClusterSpec, Task, join_address, split_address
from stratagem.core import environment as env
from stratagem.core.clock import Deadline
from stratagem.core.descriptors import allow_descriptors
from stratagem.core.errors import ClusterError, InputError, StartupError, UsageError, explain
from stratagem.core.freed_memory import keep_freed_memory_for_cpu
from stratagem.core.hosts import bind_host, is_loopback, own_end
from stratagem.core.log import announce, logger
from stratagem.core.progress import progress

DEFAULT_TIMEOUT_SECONDS: Final = 300.0
"""How long start-up waits for peers: image pulls and imports differ by minutes between machines."""

SERVICE_SECONDS: Final = 30.0
"""Least time for JAX's own start, once all tasks have met."""


@dataclass(frozen=True)
class Membership:
    """This process's place among the processes that train together.

    Args:
        task: Which task of the cluster this process is.
        cluster: The cluster; empty for a process on its own.
        process_index: This process among those that train together.
        process_count: How many processes train together.
        is_chief: Whether this process also writes. An evaluator, which trains with nobody, is its own chief.
        peers: The processes that train together; None for a process on its own.
        own_host: The address of this host on the network of the others; empty where it is not known.
    """

    task: Task
    cluster: ClusterSpec
    process_index: int
    process_count: int
    is_chief: bool
    peers: Peers | None
    own_host: str = ""


class _Timeouts(NamedTuple):
    """How many seconds to wait. `hang` is None where the steps of the program decide."""

    startup: float
    hang: float | None


_lock = threading.Lock()
_joined: Membership | None = None
_lifeline: Lifeline | None = None
_awaits_place: Callable[[], object] | None = None
_hooked = False


def join(resolver: ClusterResolver, timeout_seconds: float | None = None) -> Membership:
    """Join the cluster that a resolver describes; do nothing for a cluster of one worker.

    A process joins one cluster in its life, before JAX opens its devices. Joining the same one again
    returns the same membership.

    Args:
        resolver: Who is in the cluster, and which task this is.
        timeout_seconds: How long to wait for all tasks, and how long a step may make no progress;
            STRATAGEM_STARTUP_TIMEOUT and STRATAGEM_HANG_TIMEOUT when None.

    Returns:
        The place of this process in the cluster.

    Raises:
        ClusterError: The resolver contradicts itself, or the tasks describe different clusters.
        StartupError: Tasks are missing, or the port of the first one is busy.
        PeerError: The tasks run different versions.
        UsageError: JAX is already in use, the cluster changed, the task does not train, or this process is one that
            the program started to read data, and is importing the program.

    Example:
        >>> from stratagem.cluster.detect import detect
        >>> membership = join(detect(environ={}))
        >>> membership.process_count, membership.is_chief
        (1, True)
    """
    global _joined
    _check_not_importing()
    keep_freed_memory_for_cpu()
    with _lock:
        cluster = resolver.cluster_spec()
        task = _own_task(resolver, cluster)
        if _joined is None or _joined.process_count == 1:
            # Read before they are needed: wrong ones fail on one worker too.
            _joined = _enter(task, cluster, _timeouts(timeout_seconds))
        elif (task, cluster) != (_joined.task, _joined.cluster):
            raise UsageError(
                f"This process is {_joined.task} of {_joined.cluster}, and should now be {task} of {cluster}.",
                "A process joins one cluster only; TF_CONFIG is read when the first strategy is made.",
                f"Set {env.TF_CONFIG} once, before the first strategy, or start a new process.",
            )
        return _joined


def current_peers() -> Peers | None:
    """Return the processes that train together with this one; None for a process on its own.

    A process that may have to wait for its place among them waits here.
    """
    if _awaits_place is not None:
        _awaits_place()
    return None if _joined is None else _joined.peers


def take_place(membership: Membership, awaits: Callable[[], object]) -> None:
    """Note the place of this process where another way than `join` has led to it.

    Args:
        membership: The place.
        awaits: Waits until it is sure.
    """
    global _joined, _awaits_place
    with _lock:
        _joined, _awaits_place = membership, awaits


def _own_task(resolver: ClusterResolver, cluster: ClusterSpec) -> Task:
    task_type, task_id = resolver.task_type, resolver.task_id
    if not cluster and task_type is None:
        return Task("worker", 0)
    if task_type is None or task_id is None:
        raise ClusterError(
            f"{type(resolver).__name__} describes {cluster}, its task_type is {task_type!r} and "
            f"its task_id is {task_id!r}.",
            "Give the resolver task_type and task_id.",
        )
    task = Task(task_type, task_id)
    cluster.check_task(task)
    return task


def _enter(task: Task, cluster: ClusterSpec, timeouts: _Timeouts) -> Membership:
    global _hooked
    end_with_launcher(os.environ)
    if task.type == "ps":
        raise UsageError(
            f"This process is {task}, a parameter server.",
            "Parameter servers take no part in training in which all workers step together.",
            "Use ParameterServerStrategy, or leave out the ps tasks in the cluster.",
        )
    together = cluster.training_tasks
    if task.type == "evaluator" or len(together) < 2:
        return Membership(task, cluster, process_index=0, process_count=1, is_chief=True, peers=None)
    _check_jax_unused(task, cluster)
    allow_descriptors()
    own = Peer(task, socket.gethostname(), os.getpid())
    if not _hooked:
        leave_at_once_on_failure(str(own), lambda: _lifeline)
        _hooked = True
    peers, own_host = _start(own, cluster, timeouts)
    progress.join()
    index = together.index(task)
    if index > 0:  # the first task said so when it began to wait for the others
        announce(f"Started server with target: {master_url(cluster.address_of(task), 'grpc')}")
    return Membership(task, cluster, index, len(together), index == 0, peers, own_host)


def _start(own: Peer, cluster: ClusterSpec, timeouts: _Timeouts) -> tuple[Peers, str]:
    """Meet the other tasks, then start JAX's runtime where they met; return them, and the address of this host."""
    deadline = Deadline(timeouts.startup)
    index = cluster.training_tasks.index(own.task)
    coordinator = cluster.address_of(cluster.training_tasks[0])
    host, port = split_address(coordinator)
    hello = Hello(own, cluster, library_versions())
    _reach_without_proxy(host, os.environ)
    meeting = (gather if index == 0 else visit)(hello, deadline, read_secret(os.environ))
    own_host = _own_host(meeting, own.host)
    lifeline = _watch(meeting, index, timeouts.hang)
    if index > 0:
        compat.delay_abort()
        # The first task may have arrived just in time: what is left of the deadline would be too little.
        await_service(hello, Deadline(max(deadline.remaining, SERVICE_SECONDS)))
    _warn_of_loopback_name(meeting.peers, own)
    if env.OWN_PROGRAMS in os.environ:
        compat.keep_programs(os.environ[env.OWN_PROGRAMS])
    try:
        client = compat.start_distributed(
            coordinator,
            join_address(bind_host(host), port),
            len(meeting.peers),
            index,
            max(deadline.remaining, SERVICE_SECONDS),
        )
    except RuntimeError as error:
        raise StartupError(
            f"{own.task} could not start JAX's distributed runtime at {coordinator}: {error}",
            f"Check that no other program uses port {port}, and start all tasks again.",
        ) from error
    # A forked child that ends in Python's way would take part in JAX's barrier in the name of this task.
    os.register_at_fork(after_in_child=compat.abandon)
    atexit.register(_end_together, lifeline)  # after JAX's own handler was registered, so that it runs before it
    # Before Python 3.13 such a process runs no exit handlers, and its end looks like a death.
    if multiprocessing.parent_process() is not None and sys.version_info < (3, 13):
        util.Finalize(None, _end_child, (lifeline,), exitpriority=100)
    return Peers(client, meeting.peers, index, timeouts.startup), own_host


def _own_host(meeting: Meeting, name: str) -> str:
    """Return the address of this host by which it met the others, those of other hosts before those of this one."""
    connections = sorted(meeting.connections.items(), key=lambda each: meeting.peers[each[0]].host == name)
    return own_end(connections[0][1][0])


def _watch(meeting: Meeting, index: int, hang_timeout: float | None) -> Lifeline:
    """Start to follow what becomes of the other tasks."""
    global _lifeline
    _lifeline = Lifeline(
        meeting.peers,
        index,
        meeting.connections,
        progress,
        hang_timeout,
        show=functools.partial(show_end, meeting.peers[index], index),
        leave=leave,
        note=notes_other_hosts(meeting.peers[index], os.environ),
    )
    _lifeline.start()
    return _lifeline


def _end_together(lifeline: Lifeline) -> None:
    """At the end of the program: wait for the others, so that nobody waits for minutes at JAX's own barrier."""
    if not compat.is_abandoned():
        if not lifeline.finish():
            compat.abandon()
    elif lifeline.claim_end():
        lifeline.fail(f"{lifeline.own} waited for others too long, and ended its program.")


def _end_child(lifeline: Lifeline) -> None:
    """At the end of a `multiprocessing.Process`: tell the others of the exception, or end together with them."""
    kind, error, trace = sys.exc_info()
    if kind is None or error is None or (isinstance(error, SystemExit) and not error.code):
        _end_together(lifeline)
    else:
        sys.excepthook(kind, error, trace)


def library_versions() -> dict[str, str]:
    """Return the versions of what computes; "source" for what runs from a tree that was never installed."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {"python": python, "stratagem": "source", "jax": jax.__version__}
    for name in ("stratagem", "jaxlib", "keras", "keras-nightly", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _reach_without_proxy(host: str, environ: MutableMapping[str, str]) -> None:
    """Keep gRPC from sending the cluster's traffic to a proxy, where JAX's start would hang until it aborts."""
    proxies = [name for name in env.PROXIES if environ.get(name)]
    direct = environ.get(env.NO_GRPC_PROXY) or environ.get(env.NO_PROXY) or ""
    if proxies and host not in direct.split(","):
        environ[env.NO_GRPC_PROXY] = ",".join(filter(None, [direct, host]))
        logger.info("%s is set: %s now lists %s", ", ".join(proxies), env.NO_GRPC_PROXY, host)


def _warn_of_loopback_name(peers: Sequence[Peer], own: Peer) -> None:
    """Gloo, which sums on CPUs, tells the others the address of this host's name: 127.0.1.1 on a fresh Ubuntu."""
    if any(peer.host != own.host for peer in peers) and is_loopback(own.host):
        logger.warning(
            explain(
                f"{own}: the name of this host, {own.host!r}, means 127.x or ::1 on this host itself.",
                "On CPUs, the tasks on other hosts cannot reach it to sum gradients.",
                f"Give {own.host!r} the address of its network in /etc/hosts.",
            )
        )


def _timeouts(given: float | None) -> _Timeouts:
    """Return the program's own timeout, or those of the environment."""
    startup = _seconds(given, env.STARTUP_TIMEOUT, f"{DEFAULT_TIMEOUT_SECONDS:g}", may_be_0=False)
    hang = _seconds(given, env.HANG_TIMEOUT, "the default", may_be_0=True)
    return _Timeouts(startup or DEFAULT_TIMEOUT_SECONDS, math.inf if hang == 0 else hang)


def _seconds(given: float | None, variable: str, default: str, *, may_be_0: bool) -> float | None:
    """Return the program's own timeout, or that of the environment; None without both."""
    value = os.environ.get(variable) or None if given is None else given
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    # Waits have no infinity, and a NaN is in no range.
    if not 0 <= seconds < threading.TIMEOUT_MAX or (seconds == 0 and not may_be_0):
        raise InputError(
            f"{variable if given is None else 'timeout_seconds'} is {value!r}.",
            f"Write a positive number of seconds, or leave it out for {default}.",
        )
    return seconds


def _check_not_importing() -> None:
    """Refuse to join from a process that reads data: the cluster has its task already, and would wait or break."""
    # What multiprocessing itself looks at before it starts a process; set while a spawned one imports the program.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UsageError(
            f"A strategy is made while process {os.getpid()} imports the program, to run a part of it for process "
            f"{os.getppid()}, such as reading data.",
            "It would join the cluster a second time as the same task.",
            'Make the strategy, and train, under `if __name__ == "__main__":`.',
        )


def _check_jax_unused(task: Task, cluster: ClusterSpec) -> None:
    if compat.joined_elsewhere():
        raise UsageError(
            f"jax.distributed.initialize was called before {task} joined {cluster}.",
            "A process joins one cluster only.",
            "Leave out the call: the strategy joins the cluster by itself.",
        )
    if compat.backends_started():
        raise UsageError(
            f"JAX was used before {task} joined its cluster: an array, a model, a seed or a list of devices was made.",
            "JAX has opened the devices of this process alone and cannot see those of the other tasks.",
            "Create the strategy first, right after the imports, and everything else after it.",
        )
