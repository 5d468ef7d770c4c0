"""Base class of all strategies. It documents all semantics; each strategy documents its difference.

The file is long because every public method has its arguments, errors and a tested example here.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import jax
import keras

from stratagem.backup.callback import Backup
from stratagem.backup.place import PlaceInFit
from stratagem.cluster.agreement import Peers
from stratagem.cluster.resolver import ClusterResolver
from stratagem.compression.methods import compression_of
from stratagem.core import environment
from stratagem.core.described import described_devices
from stratagem.core.errors import InputError, UsageError
from stratagem.core.log import announce_once
from stratagem.core.types import CommunicationOptions, InputContext, InputOptions, ReduceOp, ValueContext
from stratagem.feed.adapter import ShareAdapter, make_adapter
from stratagem.feed.distributed import DistributedDataset, shared_dataset
from stratagem.feed.functions import FunctionSource, creator_among, datasets_from_function
from stratagem.fit import bind
from stratagem.fit.records import note_made, note_used
from stratagem.fit.step_function import StepFunction
from stratagem.fit.step_kinds import StepKind
from stratagem.mesh.changing import ChangingWorld
from stratagem.mesh.described import mesh_on
from stratagem.mesh.mesh import ReplicaMesh, Tree
from stratagem.mesh.shards import Sharding
from stratagem.mesh.values import local_results
from stratagem.mesh.worker_counts import Layout
from stratagem.program.options import pack_bytes
from stratagem.program.profiled import record_steps
from stratagem.program.tracing import current_tracing
from stratagem.replica import reduce as reduction
from stratagem.replica.context import current_replica_context, merging_context, strategy_scope
from stratagem.replica.on_read import OnReadVariable, apart
from stratagem.replica.run import ReplicaRunner
from stratagem.strategy import first_arrays, first_values
from stratagem.strategy.devices import install, local_devices
from stratagem.strategy.extended import StrategyExtended
from stratagem.strategy.joining import devices_in, place_in
from stratagem.strategy.values import of_each_worker, values_from_function


class Strategy:
    """A way of running one model on several devices (`tf.distribute.Strategy`).

    Models made or compiled inside `scope()` train, evaluate and predict on all replicas with the
    numbers of one device and the same global batch
    (https://www.tensorflow.org/api_docs/python/tf/distribute/Strategy).

    Args:
        mesh: The devices, one for each replica.
        communication_options: How values travel between replicas.
        cluster_resolver: Describes the cluster; None for strategies of one process.
        sharding: The state that rests in shards between steps; None means none.
        peers: The other workers; None without any.
        worker_count: Number of workers.
        worker_index: Index of this worker.

    Attributes:
        layout: The number of workers and which of them this is, for which programs and inputs are made. Those of a
            spare are made anew if its place turns out to be another.
        hands_out_steps: Whether a chief sends the steps to workers, as with parameter servers.
        is_default: Whether it is the default strategy, outside every scope.
    """

    hands_out_steps: bool = False
    is_default: bool = False
    _replicas_at_start: int | None = None

    def __init__(
        self,
        mesh: ReplicaMesh,
        *,
        communication_options: CommunicationOptions | None = None,
        cluster_resolver: ClusterResolver | None = None,
        sharding: Sharding | None = None,
        peers: Peers | None = None,
        worker_count: int = 1,
        worker_index: int = 0,
    ) -> None:
        self.mesh = mesh
        self.communication_options = communication_options or CommunicationOptions()
        self.pack_bytes = pack_bytes(mesh, self.communication_options.bytes_per_pack)
        self.compression = compression_of(mesh, self.communication_options)
        self.sharding = sharding
        self.layout = Layout(worker_count, worker_index)
        self._cluster_resolver = cluster_resolver
        self._peers = peers
        self._runner = ReplicaRunner(self)
        prepare_fit()
        install()
        first_arrays.install()
        first_values.install()
        note_made(self)
        record_steps()
        for line in environment.misspelt(os.environ):
            announce_once(line)

    @property
    def num_replicas_in_sync(self) -> int:
        """Number of replicas over which gradients are combined.

        A worker that joins a run and has not reached `fit` yet sees the number at the start of the run. So its program
        computes the same batch size as the others.
        """
        return self._replicas_at_start or self.mesh.size

    @property
    def worker_count(self) -> int:
        """Number of workers."""
        self._take_place()
        return self.layout.size

    @property
    def worker_index(self) -> int:
        """Index of this worker. A spare that asks for it, or for anything else of its place, waits until it has one."""
        self._take_place()
        return self.layout.rank

    @property
    def is_chief(self) -> bool:
        """Whether this worker also prints output and writes files."""
        self._take_place()
        world = self.mesh.world
        return (self.layout if world is None else world.layout).rank == 0

    @property
    def cluster_resolver(self) -> ClusterResolver | None:
        """The resolver the strategy was made with, or None."""
        return self._cluster_resolver

    @property
    def extended(self) -> StrategyExtended:
        """Less common methods: `update`, `reduce_to` and others."""
        return StrategyExtended(self)

    @contextlib.contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Make this strategy current: models made or compiled inside belong to it.

        When the scope ends, variables that were made inside have the chief's initial values on all workers.

        Raises:
            UsageError: The scope of another strategy is open.
            PeerError: A worker did not reach the end of the scope.

        Example:
            >>> import stratagem
            >>> from stratagem import keras
            >>> strategy = stratagem.OneDeviceStrategy("cpu:0")
            >>> with strategy.scope():
            ...     model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
            ...     model.compile(loss="mse")
        """
        if current_replica_context() is not None:
            raise UsageError(
                f"The scope of {type(self).__name__} was entered inside a function that strategy.run is running.",
                "A scope is for making variables, once. The function is compiled and runs at each step.",
                "Make models, optimizers and metrics outside, and leave the scope out of the function.",
            )
        note_used(self)
        with strategy_scope(self), self.mesh.making_variables(), first_values.of_the_chief(self):
            yield self

    def __enter__(self) -> NoReturn:
        raise UsageError(f"`with` was given a {type(self).__name__} itself.", "Write `with strategy.scope():`.")

    def __exit__(self, *_: object) -> None:
        """Never called; `with` looks for it first."""

    def run(
        self,
        fn: Callable[..., Tree],
        args: Sequence[Tree] = (),
        kwargs: Mapping[str, Tree] | None = None,
        options: Any = None,
    ) -> Tree:
        """Run a function once on every replica, compiled into one program.

        Inside, `get_replica_context()` returns the context of the replica. Read and assign Keras variables as in eager
        code. Assignments are combined by the variable's aggregation.

        Args:
            fn: Function of one replica's values.
            args: Its arguments, a tuple or list. `PerReplica` values are split among the replicas; other values go
                whole to every replica. Arrays and Python numbers are inputs of the program; inside, a number is a
                scalar array. If `fn` needs a number in Python (`if step > 5`, `range(n)`, a shape), each value has its
                own program. Strings, booleans and None are compiled into the program.
            kwargs: Its keyword arguments.
            options: Accepted as in TensorFlow, where only TPUs use it.

        Returns:
            The result of `fn`, with a `PerReplica` for each array; with one replica, the arrays themselves.

        Raises:
            InputError: `fn` is not callable; `args` is not a tuple or list, or contains a dataset; or `fn` returns
                something other than numbers.
            UsageError: Called inside `run`, outside `merge_call`.

        Example:
            >>> import stratagem
            >>> strategy = stratagem.OneDeviceStrategy("cpu:0")
            >>> float(strategy.run(lambda x: x * 2, args=(3.0,)))
            6.0
        """
        if not callable(fn):
            raise InputError(
                f"The first argument of strategy.run is {fn!r}, of type {type(fn).__name__}.",
                "Give it a function, and its arguments as args: strategy.run(step, args=(batch,)).",
            )
        if not isinstance(args, list | tuple):
            raise InputError(
                f"strategy.run was given args={args!r} of type {type(args).__name__}.",
                "Write args=(value,), with the comma.",
            )
        if kwargs is not None and not isinstance(kwargs, Mapping):
            raise InputError(
                f"strategy.run was given kwargs={kwargs!r} of type {type(kwargs).__name__}.",
                'Write a dict from the names of arguments to values: kwargs={"training": True}.',
            )
        note_used(self)
        return self._runner(fn, args, dict(kwargs or {}))

    def experimental_run_v2(
        self,
        fn: Callable[..., Tree],
        args: Sequence[Tree] = (),
        kwargs: Mapping[str, Tree] | None = None,
        options: Any = None,
    ) -> Tree:
        """Old name of `run`; says so with a DeprecationWarning."""
        warnings.warn("strategy.experimental_run_v2 is now strategy.run", DeprecationWarning, stacklevel=2)
        return self.run(fn, args, kwargs, options)

    def reduce(self, reduce_op: ReduceOp | str, value: Tree, axis: int | tuple[int, ...] | None) -> Tree:
        """Combine a per-replica value over all replicas.

        Args:
            reduce_op: SUM, MEAN, MIN or MAX.
            value: Structure of results of `run`. If each worker has one replica, a plain value counts as that worker's.
            axis: None keeps the shape of one replica's value. One or more axes are reduced too; MEAN then counts every
                row once, even if replicas have different numbers of rows. Replicas without rows of the batch do not
                count.

        Returns:
            A structure of arrays, the same on every worker.

        Raises:
            UsageError: Called inside `run`, outside `merge_call`.
            InputError: The value has no such axis, or a plain value is summed over several replicas.
        """
        self.require_cross_replica("reduce", "get_replica_context().all_reduce")
        return self._beside_variables(
            reduction.reduce(
                ReduceOp.of(reduce_op), of_each_worker(self, apart(value)), axis, self.num_replicas_in_sync
            )
        )

    def gather(self, value: Tree, axis: int) -> Tree:
        """Concatenate a per-replica value along an axis, in the order of the replicas.

        Args:
            value: Structure of results of `run`, of rank 1 or more; plain values as in `reduce`.
            axis: The axis of one replica's value.

        Raises:
            UsageError: Called inside `run`, outside `merge_call`.
            InputError: The values are scalars, or their shapes do not match.
        """
        self.require_cross_replica("gather", "get_replica_context().all_gather")
        return self._beside_variables(reduction.gather(of_each_worker(self, apart(value)), axis))

    def _beside_variables(self, tree: Tree) -> Tree:
        """Return values where a program can combine them with variables: JAX mixes no arrays of different devices."""
        traced = current_replica_context() or merging_context() or current_tracing()
        if not self.mesh.central or traced is not None:
            return tree
        return jax.tree.map(self.mesh.keep, tree)

    def experimental_local_results(self, value: Tree) -> tuple[Any, ...]:
        """Return the components of a per-replica value that lie on this worker, in order.

        Args:
            value: A result of `run`. A plain value gives a tuple with that value; a variable gives its copy on each
                replica.

        Raises:
            UsageError: Called in a function that is being compiled, with several workers.
        """
        if isinstance(value, OnReadVariable):
            return value.copies()
        parts = apart(value)
        if isinstance(parts, keras.Variable):
            return (parts,) * len(self.mesh.local_replicas)
        return local_results(reduction.side_by_side(parts))

    def experimental_distribute_dataset(self, dataset: Any, options: InputOptions | None = None) -> DistributedDataset:
        """Share a dataset among the replicas, for a custom loop.

        Batch the dataset by the *global* batch size. At each step the shares of all replicas together are the next
        global batch, whatever the number of workers. Each worker reads only its rows (or what the dataset's auto-shard
        policy says), and reads ahead in the background.
        (https://www.tensorflow.org/api_docs/python/tf/distribute/Strategy#experimental_distribute_dataset)

        Args:
            dataset: A batched `stratagem.data.Dataset`, or another input of `fit` except arrays: a PyDataset, a
                generator or other iterable of batches, a dataset of Grain, torch or `tf.data`. Every worker reads these
                other inputs whole, and they must yield the same batches on all workers: the first of each pass is
                compared.
            options: Options for reading.

        Returns:
            The distributed dataset. All workers must make it, and iterate over it, at the same point.

        Raises:
            InputError: The argument is not a dataset, is already distributed, or has another order on each worker.
            PeerError: The workers' datasets differ in shapes, dtypes or number of batches. While reading: their
                batches differ.

        Example:
            >>> import stratagem
            >>> strategy = stratagem.OneDeviceStrategy("cpu:0")
            >>> dataset = stratagem.data.Dataset.from_tensor_slices([1.0, 2.0, 3.0]).batch(2)
            >>> for batch in strategy.experimental_distribute_dataset(dataset):
            ...     print(float(strategy.run(lambda x: x.sum(), args=(batch,))))
            3.0
            3.0
        """
        return shared_dataset(self, dataset, options)

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
    ) -> DistributedDataset:
        """Let each worker make its own dataset, for a custom loop.

        The function is called once on each worker (with `InputReplicationMode.PER_REPLICA` once for each replica). The
        returned dataset is used as it is: the function batches it by the *per-replica* batch size, and shards it. At
        each step every local replica gets the next batch of the worker's dataset. If the streams end at different
        steps, replicas without a batch get one without rows until the last stream ends.
        (https://www.tensorflow.org/api_docs/python/tf/distribute/Strategy#distribute_datasets_from_function)

        Args:
            dataset_fn: Gets an `InputContext`, returns a dataset.
            options: Options for reading.

        Returns:
            The distributed dataset. All workers must make it, and iterate over it, at the same point.

        Raises:
            InputError: The function returned no dataset, or PER_REPLICA was used with several workers.
            PeerError: The workers' datasets differ in shapes or dtypes.

        Example:
            >>> import stratagem
            >>> strategy = stratagem.OneDeviceStrategy("cpu:0")
            >>> def dataset_fn(context):
            ...     dataset = stratagem.data.Dataset.range(6)
            ...     dataset = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
            ...     return dataset.batch(context.get_per_replica_batch_size(4))
            >>> [batch.tolist() for batch in strategy.distribute_datasets_from_function(dataset_fn)]
            [[0, 1, 2, 3], [4, 5]]
        """
        return datasets_from_function(self, dataset_fn, options)

    def experimental_distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
    ) -> DistributedDataset:
        """Old name of `distribute_datasets_from_function`; says so with a DeprecationWarning."""
        warnings.warn(
            "strategy.experimental_distribute_datasets_from_function is now strategy.distribute_datasets_from_function",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.distribute_datasets_from_function(dataset_fn, options)

    def experimental_distribute_values_from_function(self, value_fn: Callable[[ValueContext], Tree]) -> Tree:
        """Make a per-replica value from the results of a function, which is called for each replica.

        (https://www.tensorflow.org/api_docs/python/tf/distribute/Strategy#experimental_distribute_values_from_function)

        Args:
            value_fn: Called on each worker for each of its replicas; returns an array or number, or a structure of
                them. Shapes may differ between replicas.

        Returns:
            A structure of `PerReplica` values; with one replica, of arrays. All workers must call it at the
            same point.

        Raises:
            InputError: The values differ in structure or dtype, or are not numbers.

        Example:
            >>> import stratagem
            >>> strategy = stratagem.OneDeviceStrategy("cpu:0")
            >>> int(strategy.experimental_distribute_values_from_function(lambda c: c.num_replicas_in_sync))
            1
        """
        return values_from_function(self, value_fn)

    def from_chief(self, name: str, value: Any) -> Any:
        """Return the chief's value on every worker. All workers must call it at the same point.

        Args:
            name: Name of the value, for error messages.
            value: A value that JSON can represent.
        """
        if self._peers is None:
            return value
        return json.loads(self._peers.from_chief(name, json.dumps(value).encode(), self._wait_seconds))

    def from_all(self, name: str, value: Any) -> list[Any]:
        """Return every worker's value, in order. All workers must call it at the same point.

        Args:
            name: Name of the values, for error messages.
            value: A value that JSON can represent.
        """
        return [value] if self._peers is None else self._peers.from_all(name, value, self._wait_seconds)

    def check_agreement(self, name: str, fields: Mapping[str, str | int]) -> None:
        """Check that all workers are at the same point with the same facts.

        Args:
            name: Name of the comparison, for error messages.
            fields: The facts.

        Raises:
            PeerError: Workers differ, or one did not arrive; the message names them.
        """
        if self._peers is not None:
            self._peers.agree(name, fields, self._wait_seconds)

    @property
    def _wait_seconds(self) -> float | None:
        return self.communication_options.timeout_seconds

    def require_cross_replica(self, method: str, instead: str) -> None:
        """Check that a method is not called inside a replica function.

        Args:
            method: Name of the method, for the error message.
            instead: The method to call instead.

        Raises:
            UsageError: It is called inside a replica function.
        """
        if current_replica_context() is not None:
            raise UsageError(
                f"strategy.{method} was called inside a function that strategy.run is running.",
                "Only one replica's value is available there.",
                f"Inside, use stratagem.{instead}; or return the value and call strategy.{method} on the result.",
            )

    def take_variable(self, variable: Any) -> None:
        """Register a `tf.Variable` that was made in the scope; parameter servers store it from then on."""

    def make_adapter(self, arguments: dict[str, Any], *, in_order: bool) -> ShareAdapter:
        """Return the adapter that reads the input of `fit`, `evaluate` or `predict`.

        Args:
            arguments: x, y, sample_weight, batch_size, steps_per_epoch, shuffle, class_weight, as Keras hands them
                to its own choice of adapter.
            in_order: Whether the rows within a batch must keep their order, as for `predict`.
        """
        creator = creator_among(arguments)
        if creator is None:
            return make_adapter(self, arguments, in_order=in_order)
        source = FunctionSource(self, creator, creator.input_options, arguments.get("class_weight"))
        return ShareAdapter(source, self, steps_per_epoch=arguments["steps_per_epoch"])

    def build(self, model: Any, kind: StepKind, batch: Tree) -> None:
        """Create all variables that a step of a model uses.

        Args:
            model: A compiled model.
            kind: The kind of step.
            batch: Structure of arrays (x, y, sample_weight), as `fit` gets it.
        """
        bind.build(model, self, kind, batch)

    def make_step(self, model: Any, kind: StepKind) -> Any:
        """Return the function that Keras calls for each step of `fit`, `evaluate` or `predict`.

        Args:
            model: A built and compiled model.
            kind: The kind of step.
        """
        return StepFunction(model, self, kind)

    def finish_steps(self, model: Any) -> bool:
        """Wait for the running steps of a model; return whether their results are outside this process."""
        return False

    def follow_workers(self) -> None:
        """Adapt to the current workers, if these may change. Programs are compiled again for another number."""
        world = self.mesh.world
        self._replicas_at_start = None
        if world is not None:
            self._follow(world)

    def _follow(self, world: ChangingWorld) -> None:
        """Let the mesh, and what is made for it, fit the workers of a world."""
        world.followed = world.layout
        if world.layout != self.layout:
            self.mesh.lie_on(devices_in(world))
            place_in(world)
            self.layout = world.layout
            self.pack_bytes = pack_bytes(self.mesh, self.communication_options.bytes_per_pack)
            self.sharding = None if self.sharding is None else self.sharding.among(self.mesh.size)
            self._runner = ReplicaRunner(self)

    def _take_place(self) -> None:
        """Wait until this worker has its place, if it is new."""
        world = self.mesh.world
        if world is not None and not world.own_state.has_begun:
            world.take_place()
            self._follow(world)

    def status(self) -> str:
        """Return the state of the cluster for the progress bar; nothing if all workers run together."""
        return ""

    def __deepcopy__(self, memo: dict[int, Any]) -> Strategy:
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} replicas={self.num_replicas_in_sync} workers={self.layout.size}>"


def one_replica() -> Strategy:
    """Return the strategy that holds outside every scope: one replica on the first device. It changes nothing."""
    return _one_replica(described_devices())


@functools.cache
def _one_replica(described: tuple[Any, ...] | None) -> Strategy:
    strategy = Strategy(mesh_on(local_devices()[:1]))
    strategy.is_default = True
    return strategy


def prepare_fit() -> None:
    """Let Keras's `fit` and its siblings know strategies. A second call does nothing."""
    bind.install(one_replica, bind.Resumers(Backup.like, PlaceInFit))
