"""Parameter servers hold the variables, workers compute beside one another, the chief hands out the work."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from stratagem.cluster.ending import flush_output, leave
from stratagem.cluster.orphan import end_with_launcher
from stratagem.cluster.resolver import ClusterResolver, checked_resolver
from stratagem.cluster.spec import ClusterSpec, Task
from stratagem.cluster.tf_config import TFConfigClusterResolver
from stratagem.core import environment, exits
from stratagem.core.described import described_devices
from stratagem.core.errors import InputError, UnavailableError, UsageError
from stratagem.core.log import announce, announce_once
from stratagem.core.types import InputContext, InputOptions
from stratagem.data.dataset import Dataset
from stratagem.elastic.options import ElasticOptions
from stratagem.elastic.state import Rules
from stratagem.feed.adapter import ShareAdapter
from stratagem.feed.distributed import DistributedDataset
from stratagem.feed.functions import creator_among
from stratagem.feed.workers import DatasetOfWorkers, WorkerPass, WorkerSource
from stratagem.fit.compat import build_from_batch
from stratagem.fit.step_kinds import PREDICT, StepKind
from stratagem.mesh.mesh import ReplicaMesh, Tree
from stratagem.program.tracing import current_tracing, leave_tracing
from stratagem.ps.client import Servers
from stratagem.ps.cluster_terms import Terms
from stratagem.ps.coordinator import ClusterCoordinator, HasWorkers
from stratagem.ps.coordinator_thread import PATIENCE_SECONDS, Workers
from stratagem.ps.dispatch import Dispatch
from stratagem.ps.own_keys import check_others_can_join, own_keys
from stratagem.ps.per_worker import PerWorkerVariable
from stratagem.ps.placement import LAZY_UPDATE_BYTES, Placement
from stratagem.ps.serving import Server, Serving, end_all, require_servers, served_elsewhere
from stratagem.ps.synchronous.rounds import Rounds
from stratagem.ps.task import WorkerTask, current_task
from stratagem.strategy.base import Strategy
from stratagem.strategy.devices import local_devices
from stratagem.strategy.progress_line import ProgressLine
from stratagem.strategy.remote_fit import RemoteStep
from stratagem.transport.keys import Keys, Role, holder_for, make_keys

_EMBEDDED: Final = {"ps": 1, "worker": 2}
"""The cluster in this process where none is described."""

_chiefs: Final[weakref.WeakValueDictionary[tuple[str, ...], ParameterServerStrategy]] = weakref.WeakValueDictionary()
"""The newest strategy of this process for each cluster, by the addresses of its parameter servers."""


_ALONE_OPTIONS: Final = ElasticOptions(below_min_seconds=PATIENCE_SECONDS)
"""Those of a cluster in this process, whose workers are not lost."""

_ALONE: Final = InputContext(num_input_pipelines=1, input_pipeline_id=0, num_replicas_in_sync=1)
"""What an input function is told on each worker: nobody divides the data with it."""


class ParameterServerStrategy(Strategy, HasWorkers):
    """Training with parameter servers: asynchronous, or synchronous with backup workers.

    Variables live on the `ps` tasks. Functions that the chief schedules (`stratagem.coordinator.ClusterCoordinator`)
    run on the workers. Each function reads the variables that it needs, computes, and sends its gradients. The servers
    apply the gradients as they arrive. No worker waits for another, unless you set `max_staleness` or `synchronous`. A
    worker may be lost and return.

    In synchronous mode, as many functions as there are workers compute gradients at the same values (a *round*). The
    first gradients, all but `backup_workers` of them, are averaged and applied once. Later ones are dropped.

    The same program runs in every task. In a worker or ps task this constructor serves until the chief ends, and then
    ends the process with exit code 0 (43 if the chief was lost). Without a cluster, and in an evaluator task, two
    workers and one parameter server run in threads of this process.

    Each worker is one replica, on its first device.

    Source of the semantics:
    https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/ParameterServerStrategy

    Args:
        cluster_resolver: Describes the cluster; None means TF_CONFIG, else no cluster.
        variable_partitioner: Function of `shape` and `dtype` that returns the number of parts along each axis of a
            variable (`stratagem.experimental.partitioners`). None divides nothing.
        lazy_update_bytes: Size of a variable in bytes. In a larger embedding, optimizers update only the rows that a
            step has looked up, even if they would otherwise change all rows (docs/parameter_servers.md).
        max_staleness: Largest number of updates by others between the moment a function reads the variables and the
            moment its own update is applied. 0 runs one function at a time; None sets no bound.
        synchronous: Whether workers compute in rounds (Chen et al., "Revisiting Distributed Synchronous SGD",
            https://arxiv.org/abs/1604.00981; `tf.compat.v1.train.SyncReplicasOptimizer`).
        backup_workers: Number of workers for which a round does not wait; only with `synchronous`.
        elastic: How many workers there must be: with fewer than `min_workers` no function begins, and after
            `below_min_seconds` the functions that wait raise `UnavailableError`. None means one worker, for 300 s. The
            workers are those of the cluster, so `max_workers` is their number. `batch` and `shards` mean nothing here.

    Raises:
        ClusterError: The cluster lacks workers or parameter servers, its description is wrong, or its tasks are other
            processes without a secret (docs/parameter_servers.md).
        InputError: `max_staleness` or `backup_workers` is not a number in its range, or does not fit `synchronous`. Or
            the cluster does not have as many workers as `elastic` says.
        PeerError: `elastic` says other numbers than the command line.

    Example:
        >>> import stratagem
        >>> from stratagem import keras
        >>> strategy = stratagem.ParameterServerStrategy()
        >>> with strategy.scope():
        ...     weight = keras.Variable(2.0)
        >>> coordinator = stratagem.coordinator.ClusterCoordinator(strategy)
        >>> result = coordinator.schedule(lambda: weight * 3.0)
        >>> float(result.fetch())
        6.0
        >>> strategy.close()
    """

    hands_out_steps = True

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        variable_partitioner: Any = None,
        lazy_update_bytes: int = LAZY_UPDATE_BYTES,
        *,
        max_staleness: int | None = None,
        synchronous: bool = False,
        backup_workers: int = 0,
        elastic: ElasticOptions | None = None,
    ) -> None:
        resolver = TFConfigClusterResolver() if cluster_resolver is None else checked_resolver(cluster_resolver)
        if described_devices() is not None:
            raise UsageError(
                "ParameterServerStrategy was made in a program that is planned (stratagem plan --on).",
                "Each worker runs its own steps in its own process. There is no step of all devices that could be "
                "planned.",
                "Plan the program with OneDeviceStrategy: its step is that of a worker.",
            )
        task_type = resolver.task_type
        if task_type is not None:
            # Now: a task that nobody expects would wait for the others, and they for another one.
            resolver.cluster_spec().check_task(Task(task_type, resolver.task_id or 0))
        # An evaluator has no part in the cluster: a second chief would end the term of the first.
        self._spec = ClusterSpec({}) if task_type == "evaluator" else resolver.cluster_spec()
        self.synchronous = synchronous
        end_with_launcher(os.environ)
        self._embedded: list[Serving] = []
        self._closed = False
        if self._spec:
            require_servers(self._spec)
        number = self._spec.num_tasks("worker") if self._spec else _EMBEDDED["worker"]
        options = _options_of(number, elastic, os.environ) if self._spec else _ALONE_OPTIONS
        dispatch = _dispatch_of(number, max_staleness, synchronous, backup_workers, options.min_workers)
        if not self._spec:
            self._embed()
        elif task_type in ("worker", "ps"):
            _serve(Server(self._spec, task_type, resolver.task_id))
        else:
            check_others_can_join("The chief", served_elsewhere(self._spec))
            self._keys = own_keys(Role.CHIEF, self._spec)
        super().__init__(ReplicaMesh(local_devices()[:1]), cluster_resolver=resolver)
        workers, servers = (
            [self._spec.task_address(job, index) for index in self._spec.task_indices(job)] for job in ("worker", "ps")
        )
        self._servers = Servers(servers, self._keys)
        patience = options.below_min_seconds
        self.workers = Workers(workers, servers, self._keys, dispatch=dispatch, patience=patience)
        self._progress_line = ProgressLine(
            lambda: self.workers.counts()["workers up"], len(workers), lambda: ClusterCoordinator(self).metrics()
        )
        terms = Terms(self._servers, self.workers)
        self.placement = Placement(self._servers, variable_partitioner, lazy_update_bytes, terms.begin_if_lost)
        before = _chiefs.get(tuple(servers))
        if before is not None:
            before._give_way()
        _chiefs[tuple(servers)] = self
        self._show = sys.excepthook
        if not self._embedded:
            sys.excepthook = self._leave_after_loss
        atexit.register(self.close)
        terms.begin()
        announce(f"ParameterServerStrategy: {len(workers)} worker(s), {len(servers)} parameter server(s)")

    def _embed(self) -> None:
        """Start a cluster in this process, with keys of its own."""
        workers = _EMBEDDED["worker"]
        keys = make_keys(workers)
        self._keys: Keys | None = keys[Role.CHIEF]
        addresses: dict[str, list[str]] = {"ps": [], "worker": []}
        for job, number in _EMBEDDED.items():
            for index in range(number):
                task, own = Task(job, index), keys[holder_for(job, index)]
                self._embedded.append(Serving(task, "127.0.0.1:0", addresses["ps"], workers, keys=own))
                addresses[job].append(self._embedded[-1].address)
        self._spec = ClusterSpec(addresses)

    def close(self) -> None:
        """End the tasks of the cluster. It is called at the end of the program; a second call does nothing."""
        term = self._servers.term
        if not self._leave():
            return
        if self._embedded:
            for server in reversed(self._embedded):
                server.stop()
            self._embedded = []
        else:
            end_all(self.workers.addresses, self._keys, term)

    def _leave(self, because: Exception | None = None) -> bool:
        """Give up the connections; return whether there were any.

        Args:
            because: What those are told who wait for functions; None for the end of the strategy.
        """
        atexit.unregister(self.close)
        if self._closed:
            return False
        self._closed = True
        if sys.excepthook == self._leave_after_loss:
            sys.excepthook = self._show
        self.workers.close(because)
        self._servers.close()
        return True

    def _give_way(self) -> None:
        """Leave the cluster to another strategy of this process, which begins another term of it."""
        self._leave(
            UnavailableError(
                "This process has made a second ParameterServerStrategy of the same cluster, and the cluster now "
                "works for that one.",
                "Scheduled functions of the first one never run, and its variables are gone.",
                "Use one strategy for one cluster. To start again, also make a new coordinator, model and optimizer.",
            )
        )

    def _leave_after_loss(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Show an uncaught exception; end at once after a loss, with a code that says that another try may go well.

        The others are not told that it is over: they wait for the chief that comes next (`CHIEF_SECONDS`).
        """
        self._show(kind, error, trace)
        if isinstance(error, UnavailableError):
            flush_output()
            leave(exits.PEER_LOST)

    def run(
        self,
        fn: Callable[..., Tree],
        args: Sequence[Tree] = (),
        kwargs: Mapping[str, Tree] | None = None,
        options: Any = None,
    ) -> Tree:
        """Run a function here, on the chief's own device; in a scheduled function, on the worker's.

        A loop that calls it on the chief trains without the workers, as in TensorFlow. A line says so once.
        """
        announce_once(
            "strategy.run of a ParameterServerStrategy was called on the chief, which computes alone. For work on the "
            "workers call it in a function that is given to coordinator.schedule."
        )
        return super().run(fn, args, kwargs, options)

    def experimental_distribute_dataset(self, dataset: Any, options: InputOptions | None = None) -> DistributedDataset:
        """Return a dataset for `coordinator.create_per_worker_dataset`; each worker reads all of it."""
        made = super().experimental_distribute_dataset(dataset, options)
        return DatasetOfWorkers(made, self, "experimental_distribute_dataset", (dataset, options))

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
    ) -> DistributedDataset:
        """Return a dataset for `coordinator.create_per_worker_dataset`; each worker makes its own."""
        made = super().distribute_datasets_from_function(dataset_fn, options)
        return DatasetOfWorkers(made, self, "distribute_datasets_from_function", (dataset_fn, options))

    def take_variable(self, variable: Any) -> None:
        """Store a variable on the servers at once; variables of layers move when they are first needed."""
        if current_tracing() is None:
            self.placement.place([variable])

    def make_for_each_worker(self, make: Callable[[], Any]) -> PerWorkerVariable:
        """Return a variable for each worker (`tf.Variable(..., per_worker_variable=True)`).

        Args:
            make: Function that makes a variable; called for each worker.
        """
        return PerWorkerVariable([make() for _ in range(self.workers.worker_count)])

    def build(self, model: Any, kind: StepKind, batch: Tree) -> None:
        """Create all variables of a model here, before they move to the servers."""
        with self.mesh.making_variables():
            build_from_batch(model, batch, inputs_only=kind is PREDICT)

    def make_step(self, model: Any, kind: StepKind) -> Any:
        """Return the function that runs steps: on the workers for `fit` and `evaluate`, on the chief for `predict`."""
        return super().make_step(model, kind) if kind is PREDICT else RemoteStep(ClusterCoordinator(self), model, kind)

    def make_adapter(self, arguments: dict[str, Any], *, in_order: bool) -> ShareAdapter:
        """Return the adapter that reads the input of `fit` or `evaluate`, on the workers if it is made there."""
        creator = None if in_order else creator_among(arguments)
        if creator is None:
            return super().make_adapter(arguments, in_order=in_order)
        source = WorkerSource(self, creator, arguments.get("class_weight"))
        return ShareAdapter(source, self, steps_per_epoch=arguments["steps_per_epoch"], feed=WorkerPass)

    def finish_steps(self, model: Any) -> bool:
        """Wait for all scheduled functions; the servers hold the variables."""
        self.placement.make_ready()  # a checkpoint that is restored after a loss
        for step in (model.train_function, model.test_function):
            if isinstance(step, RemoteStep):
                step.finish()
        self.workers.join()
        return True

    def status(self) -> str:
        """Return the number of workers, their speed and their staleness, updated once a second."""
        return self._progress_line.line()

    def __reduce__(self) -> Any:
        return _strategy_of_worker, ()


class WorkerStrategy(Strategy):
    """What a `ParameterServerStrategy` is inside functions that a worker runs: one replica.

    Args:
        task: The worker's.
    """

    def __init__(self, task: WorkerTask) -> None:
        super().__init__(ReplicaMesh(local_devices()[:1]))
        self._task = task

    def experimental_distribute_dataset(self, dataset: Any, options: InputOptions | None = None) -> DistributedDataset:
        """Let this worker read a dataset, in an order of its own where it is shuffled without a seed."""
        return super().experimental_distribute_dataset(self._in_own_order(dataset), options)

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
    ) -> DistributedDataset:
        """Let this worker make its dataset, and read all of it, in an order of its own as above.

        The context counts one pipeline, as TensorFlow's does here: `shard` by it leaves the dataset whole.
        """
        leave_tracing()  # tutorials decorate the function that makes the dataset
        return super().distribute_datasets_from_function(lambda _: self._in_own_order(dataset_fn(_ALONE)), options)

    def datasets_in_parts(self, dataset_fn: Callable[[InputContext], Any]) -> DistributedDataset:
        """Let this worker make its part of an Estimator's data; its context counts the workers, as in TensorFlow 1."""
        context = InputContext(self._task.workers, self._task.index, 1)
        return super().distribute_datasets_from_function(lambda _: dataset_fn(context))

    def _in_own_order(self, dataset: Any) -> Any:
        return dataset.drawn_apart(self._task.stream) if isinstance(dataset, Dataset) else dataset


def _options_of(workers: int, asked: ElasticOptions | None, environ: Mapping[str, str]) -> ElasticOptions:
    """Return how many of some workers there must be, and how long the others are waited for.

    Raises:
        InputError: `asked` is for other numbers of workers.
        PeerError: It is for others than the command line.
    """
    given = environ.get(environment.MIN_WORKERS)
    least = 1 if given is None else int(given) if given.isdecimal() else 0
    options = ElasticOptions(least, workers, below_min_seconds=PATIENCE_SECONDS)
    rules = Rules(workers, options, is_given=given is not None)
    if asked is None:
        return rules.options
    if (asked.max_workers or 0) > workers:
        raise InputError(
            f"ParameterServerStrategy was given max_workers={asked.max_workers}, and the cluster has {workers} "
            "worker(s).",
            "No other worker could join: the tasks of the cluster are known when it starts.",
            f"Start the cluster with {asked.max_workers} workers, or leave max_workers out.",
        )
    return rules.with_options(asked).options


def _dispatch_of(
    workers: int, max_staleness: int | None, synchronous: bool, backup_workers: int, least: int
) -> Dispatch:
    """Return what says when functions may begin.

    Raises:
        InputError: The arguments cannot be.
    """
    if max_staleness is not None and (synchronous or not _is_count(max_staleness)):
        raise InputError(
            f"ParameterServerStrategy was given max_staleness={max_staleness!r}, synchronous={synchronous!r}.",
            "The bound is a number of updates, from 0; in the synchronous mode no gradient is ever stale.",
            "Write max_staleness=4, or synchronous=True, or neither.",
        )
    most = max(0, workers - 1) if synchronous else 0
    if not _is_count(backup_workers) or backup_workers > most:
        raise InputError(
            f"ParameterServerStrategy was given backup_workers={backup_workers!r}, synchronous={synchronous!r}, "
            f"and the cluster has {workers} worker(s).",
            "A round could end without any gradient. Without synchronous=True there are no rounds.",
            f"Write a number from 0 to {most}" + ("." if synchronous else ", or synchronous=True."),
        )
    rounds = Rounds(workers, workers - backup_workers) if synchronous else None
    return Dispatch(max_staleness=max_staleness, rounds=rounds, least=least)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _strategy_of_worker() -> Strategy:
    task = current_task()
    if task.strategy is None:
        task.strategy = WorkerStrategy(task)
    return task.strategy


def _serve(server: Server) -> None:
    """Serve until it is over, and end the process."""
    try:
        server.join()
    except UnavailableError as error:
        print(f"stratagem: {error}", file=sys.stderr)
        sys.exit(exits.PEER_LOST)
    sys.exit(0)
