"""All devices of several workers."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Final

import jax

from stratagem.cluster.bootstrap import Membership, join
from stratagem.cluster.detect import detect
from stratagem.cluster.resolver import ClusterResolver, SimpleClusterResolver
from stratagem.cluster.secret import read_secret
from stratagem.cluster.spec import DEFAULT_PORT, ClusterSpec
from stratagem.core import environment
from stratagem.core.described import described_devices
from stratagem.core.errors import InputError, UnsupportedError, UsageError
from stratagem.core.log import announce
from stratagem.core.types import CommunicationImplementation, CommunicationOptions, checked_options
from stratagem.elastic.options import ElasticOptions
from stratagem.host_memory.memory import HostMemory
from stratagem.mesh.described import mesh_on
from stratagem.mesh.layouts import LayoutMap, Layouts, layouts_of
from stratagem.mesh.linking import Reach
from stratagem.mesh.mesh import Device, ReplicaMesh
from stratagem.mesh.shards import Sharding, sharding_of
from stratagem.mesh.worker_counts import Layout
from stratagem.strategy.base import Strategy
from stratagem.strategy.devices import check_groups, device_names, devices_of_all_workers, local_devices
from stratagem.strategy.host_memory import shared_memory
from stratagem.strategy.joining import devices_in, joined_run

BACKUP: Final = "stratagem.callbacks.BackupAndRestore"


class MultiWorkerMirroredStrategy(Strategy):
    """Synchronous training on all devices of all workers; every worker runs the same program.

    The constructor starts this worker's part of the cluster and waits for the others. Call it before any JAX or Keras
    computation. Without a cluster the strategy trains on the devices of this machine.

    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/distribute/MultiWorkerMirroredStrategy

    Args:
        cluster_resolver: Describes the cluster. None means TF_CONFIG, else the variables of the launcher (JAX, MPI,
            Horovod, torchrun, Slurm, SageMaker), else one worker.
        communication_options: How gradients travel. `timeout_seconds` also limits how long this worker waits for the
            others. `compression` must be the same on all workers.
        shard: State that is divided among the devices between steps. "optimizer": the optimizer's slots (stage 1 of
            ZeRO). "gradients": accumulated gradients too (stage 2). "parameters": the weights too (stage 3, FSDP). None
            keeps the whole model on each device. See docs/sharding.md.
        shard_min_size: Least number of elements of a variable that is divided.
        layout_map: How weights are divided among the devices of each replica: "auto", Keras's
            `keras.distribution.LayoutMap`, or a dict of patterns of paths and axes, `{".*dense/kernel": (None,
            "model")}`.
        model_parallel: Number of devices of each replica; None means one, or the number in a `LayoutMap`.
        elastic: How far the number of workers may change while they train, for programs that `stratagem run --spares`
            or `--elastic` starts. None leaves that to the command line. See docs/elastic.md.

    Raises:
        ClusterError: The description of the cluster is wrong.
        StartupError: A worker did not arrive in time, or a port is busy.
        InputError: `shard` is unknown.
        PeerError: The workers differ in `compression` or `shard`.
        UsageError: A computation ran before, or the cluster changed since it was joined.

    Example:
        >>> import stratagem
        >>> stratagem.MultiWorkerMirroredStrategy().worker_count  # no TF_CONFIG: one worker
        1
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        communication_options: CommunicationOptions | None = None,
        *,
        shard: str | None = None,
        shard_min_size: int | None = None,
        layout_map: LayoutMap | None = None,
        model_parallel: int | None = None,
        elastic: ElasticOptions | None = None,
    ) -> None:
        options = checked_options(communication_options)
        _check_elastic_options(elastic)
        resolver = detect(cluster_resolver)
        alone = described_devices() is not None  # one process stands for those of all hosts
        address = None if alone else os.environ.get(environment.ELASTIC)
        if address is not None:
            world, membership = joined_run(address, elastic)
            devices = devices_in(world)
        else:
            world = None
            if elastic is not None and not alone:
                _check_alone(resolver)
            membership = join(detect(environ={}) if alone else resolver, timeout_seconds=options.timeout_seconds)
            devices = local_devices() if membership.process_count == 1 else devices_of_all_workers()
        layouts = layouts_of(layout_map, model_parallel)
        check_groups(devices, layouts)
        group = 1 if layouts is None else layouts.devices
        replicas = len(devices) // group
        if world is None:
            sharding = sharding_of(shard, shard_min_size, replicas, layouts)
        else:
            _check_replaceable(options, layouts)
            largest = sharding_of(shard, shard_min_size, world.membership.bounds.most)
            sharding = None if largest is None else largest.among(replicas)
            if largest is not None:
                world.own_state.axis_among = functools.partial(_axis_among, largest)
        if sharding is not None and options.compression is not None:
            raise UnsupportedError(
                f"compression={str(options.compression)!r} and {'shard' if layouts is None else 'model_parallel'} were "
                "both asked for.",
                "Compression must store what it leaves out of a whole gradient, but each device holds only a shard "
                "of the gradient.",
                "Use one of the two.",
            )
        memory = world.memory if world is not None else _memory(membership, devices, options)
        mesh = mesh_on(devices, None, memory if group == 1 else None, group)
        mesh.world = world
        super().__init__(
            mesh,
            communication_options=options,
            sharding=sharding,
            peers=membership.peers,
            worker_count=membership.process_count,
            worker_index=membership.process_index,
        )
        if world is not None and world.is_catching_up:
            self._replicas_at_start = world.membership.bounds.wanted
        # Sums of other shapes, or of other codes in the same bytes, would never meet or mean nothing.
        facts = {"compression": str(options.compression), "compression_rank": options.rank}
        in_shards = {"shard": str(shard), "shard_min_size": str(shard_min_size)}
        in_shards |= {"model_parallel": str(group), "layout_map": str(layouts)}
        self.check_agreement("options of the strategy", facts | in_shards)
        self._resolver = resolver
        # Under the launcher all workers share one terminal, where the chief's line is enough.
        if membership.is_chief or environment.LAUNCHED not in os.environ:
            announce(_description(membership, self.mesh, options))

    @property
    def cluster_resolver(self) -> ClusterResolver:
        """The resolver of this worker's cluster, given or detected; of the current workers, if these may change."""
        self._take_place()
        world = self.mesh.world
        return self._resolver if world is None else _resolver_in(world.layout)


def _resolver_in(layout: Layout) -> ClusterResolver:
    """Return a description of the current workers for programs that ask whether they are the chief.

    Their addresses stand for them only: the workers exchange through memory, and the launcher brings them together.
    """
    addresses = [f"localhost:{DEFAULT_PORT + rank}" for rank in range(layout.size)]
    return SimpleClusterResolver(ClusterSpec({"worker": addresses}), task_type="worker", task_id=layout.rank)


def _memory(membership: Membership, devices: Sequence[Device], options: CommunicationOptions) -> HostMemory | None:
    reach = Reach(membership.own_host, read_secret(os.environ))
    return shared_memory(membership.peers, reach, devices, options)


def _check_elastic_options(elastic: object) -> None:
    if elastic is not None and not isinstance(elastic, ElasticOptions):
        raise InputError(
            f"elastic is {elastic!r}, of type {type(elastic).__name__}.",
            "It says how far the number of workers may change.",
            "Write for instance elastic=stratagem.ElasticOptions(min_workers=2).",
        )


def _check_alone(resolver: ClusterResolver) -> None:
    """Refuse workers that nobody could replace, where the program asks for that.

    Raises:
        UsageError: They were started without a coordinator that outlives each of them.
    """
    jobs = resolver.cluster_spec().as_dict()
    count = sum(len(jobs.get(job, ())) for job in ("chief", "worker"))
    if count > 1:
        raise UsageError(
            f"elastic= was given, and the {count} workers were started without a coordinator.",
            "When a worker dies, nobody could bring the others together again.",
            f"Start them with `stratagem run --workers {count} --spares 1` or `stratagem run --elastic 1:{count}`, on "
            "several machines with --nodes; or leave elastic= out.",
        )


def _axis_among(sharding: Sharding, shape: Sequence[int], workers: int) -> int | None:
    """Return the axis along which an array is divided among so many workers; None where each has the whole."""
    return sharding.among(workers).axis_of(shape)


def _check_replaceable(options: CommunicationOptions, layouts: Layouts | None) -> None:
    """Refuse what would be lost with a worker.

    Raises:
        UnsupportedError: Each worker would hold something that no other one has, or compute on what is not described.
    """
    if jax.default_backend() != "cpu":
        raise UnsupportedError(
            f"The workers of stratagem run --spares compute on {jax.default_backend().upper()}.",
            "Such workers exchange data through the memory of their host, because XLA's collectives fail when a "
            "worker dies.",
            f"Set JAX_PLATFORMS=cpu; or leave --spares out, and use --max-restarts with {BACKUP}.",
        )
    if layouts is not None or options.compression is not None:
        what = "compression" if layouts is None else "model_parallel"
        raise UnsupportedError(
            f"{what} was given to a strategy whose workers run under stratagem run --spares.",
            "Each worker would hold values that no other worker has. They would be lost with the worker.",
            f"Leave it out; or leave --spares out, and use --max-restarts with {BACKUP}.",
        )


def _description(membership: Membership, mesh: ReplicaMesh, options: CommunicationOptions) -> str:
    """Return the strategy in one line."""
    local = [mesh.devices[i] for i in mesh.local_replicas]
    communication = _communication(options, mesh)
    if membership.process_count == 1:
        return (
            f"Single-worker MultiWorkerMirroredStrategy with local_devices = ({device_names(local)}), "
            f"communication = {options.implementation}"
        )
    return (
        f"MultiWorkerMirroredStrategy: {mesh.size} replicas on {membership.process_count} workers "
        f"({device_names(local)} here), this is {membership.task}, communication = {communication}"
    )


def _communication(options: CommunicationOptions, mesh: ReplicaMesh) -> str:
    """Return what moves the bytes, and say so where it is not what was asked for."""
    if mesh.memory is not None:
        hosts = mesh.memory.hosts.number
        return "memory of this host" if hosts == 1 else f"memory within each of {hosts} hosts, sockets between them"
    platform = mesh.devices[0].platform
    used = "Gloo" if platform == "cpu" else "NCCL" if platform in ("gpu", "cuda", "rocm") else "XLA"
    if options.implementation is CommunicationImplementation.AUTO or options.implementation.name == used:
        return used
    return f"{used} ({options.implementation.name} was asked for; on {platform.upper()} XLA uses {used})"


class _EitherSpelling(type):
    """Metaclass of the old spelling: programs ask `isinstance` by it, whatever the strategy was made by."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, MultiWorkerMirroredStrategy)


class ExperimentalMultiWorkerMirroredStrategy(MultiWorkerMirroredStrategy, metaclass=_EitherSpelling):
    """`MultiWorkerMirroredStrategy` with the older arguments (`tf.distribute.experimental`).

    Args:
        communication: AUTO, RING or NCCL.
        cluster_resolver: Who is in the cluster.
    """

    def __init__(
        self,
        communication: CommunicationImplementation = CommunicationImplementation.AUTO,
        cluster_resolver: ClusterResolver | None = None,
    ) -> None:
        super().__init__(cluster_resolver, CommunicationOptions(implementation=communication))
