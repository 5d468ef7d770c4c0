"""Parameter servers hold the variables, workers compute beside one another, the chief hands out the work."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from stratagem.cluster.resolver import ClusterResolver
from stratagem.cluster.spec import ClusterSpec, Task
from stratagem.cluster.tf_config import TFConfigClusterResolver
from stratagem.core import exits
from stratagem.core.errors import UnavailableError, UsageError, explain
from stratagem.core.log import announce
from stratagem.core.types import InputContext, InputOptions
from stratagem.fit.steps import PREDICT, StepKind
from stratagem.ps.client import Servers
from stratagem.ps.coordinator import ClusterCoordinator, HasWorkers
from stratagem.ps.crew import Crew
from stratagem.ps.placement import Placement
from stratagem.ps.server import Server, Serving, end_all, require_servers
from stratagem.ps.task import WorkerTask, current_task
from stratagem.replica.mesh import ReplicaMesh, Tree
from stratagem.replica.untraced import leave_tracing
from stratagem.strategy.base import Strategy
from stratagem.strategy.devices import local_devices
from stratagem.strategy.input import DistributedDataset
from stratagem.strategy.remote_fit import RemoteStep
from stratagem.transport.keys import Role, keys_of_environment, make_keys

_EMBEDDED: Final = {"ps": 1, "worker": 2}
"""The cluster in this process where none is described."""


class ParameterServerStrategy(Strategy, HasWorkers):
    """Asynchronous training with parameter servers.

    Variables live on the `ps` tasks. Functions that the chief schedules (`stratagem.coordinator.ClusterCoordinator`)
    run on the workers: each reads the variables it needs, computes, and sends its gradients, which the servers apply
    as they come. Nobody waits for anybody; a worker may be lost and come back.

    The same program runs in every task. In a worker or ps task this constructor serves until the chief says that it
    is over, then ends the process with exit code 0 (43 when the chief was lost). Without a cluster, one of two workers
    and one parameter server runs in threads of this process.

    Each worker is one replica, on its first device. Source of the semantics:
    https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/ParameterServerStrategy

    Args:
        cluster_resolver: Who is in the cluster; None means TF_CONFIG, else no cluster.
        variable_partitioner: Called with `shape` and `dtype`, returns into how many parts each axis of a variable is
            divided (`stratagem.experimental.partitioners`). None divides nothing.

    Raises:
        ClusterError: The cluster lacks workers or parameter servers, or its description is wrong.

    Example:
        >>> import keras, stratagem
        >>> strategy = stratagem.ParameterServerStrategy()
        >>> with strategy.scope():
        ...     weight = keras.Variable(2.0)
        >>> coordinator = stratagem.coordinator.ClusterCoordinator(strategy)
        >>> result = coordinator.schedule(lambda: weight * 3.0)
        >>> float(result.fetch())
        6.0
        >>> strategy.close()
    """

    def __init__(self, cluster_resolver: ClusterResolver | None = None, variable_partitioner: Any = None) -> None:
        resolver = cluster_resolver or TFConfigClusterResolver()
        self._spec = resolver.cluster_spec()
        self._keys = keys_of_environment(os.environ)
        self._embedded: list[Serving] = []
        if not self._spec:
            self._embed()
        require_servers(self._spec)
        if resolver.task_type in ("worker", "ps"):
            _serve(Server(self._spec, resolver.task_type, resolver.task_id))
        super().__init__(ReplicaMesh(local_devices()[:1]), cluster_resolver=resolver)
        workers, servers = (
            [self._spec.task_address(job, index) for index in self._spec.task_indices(job)] for job in ("worker", "ps")
        )
        self._servers = Servers(servers, self._keys)
        self.placement = Placement(self._servers, variable_partitioner)
        self.crew = Crew(workers, servers, self._keys)
        atexit.register(self.close)
        announce(f"ParameterServerStrategy: {len(workers)} worker(s), {len(servers)} parameter server(s)")

    def _embed(self) -> None:
        """Start a cluster in this process, with keys of its own."""
        keys = make_keys()
        self._keys = keys[Role.CHIEF]
        workers = _EMBEDDED["worker"]
        addresses: dict[str, list[str]] = {"ps": [], "worker": []}
        for job, number in _EMBEDDED.items():
            for index in range(number):
                task, own = Task(job, index), keys[Role(job)]
                self._embedded.append(Serving(task, "127.0.0.1:0", addresses["ps"], workers, keys=own))
                addresses[job].append(self._embedded[-1].address)
        self._spec = ClusterSpec(addresses)

    def close(self) -> None:
        """Tell the cluster that it is over: its tasks end. Called at the end of the program; harmless when closed."""
        atexit.unregister(self.close)
        self.crew.close()
        self._servers.close()
        if self._embedded:
            for server in reversed(self._embedded):
                server.stop()
            self._embedded = []
        else:
            end_all(self._spec, self._keys)

    def run(
        self,
        fn: Callable[..., Tree],
        args: Sequence[Tree] = (),
        kwargs: Mapping[str, Tree] | None = None,
        options: Any = None,
    ) -> Tree:
        """Run a function on the worker's replica; only inside a scheduled function.

        Raises:
            UsageError: Called on the chief.
        """
        raise UsageError(
            explain(
                "strategy.run was called on the chief.",
                "The chief computes nothing; the function would run on no worker.",
                "Put it into a function and call coordinator.schedule(function, args=(per_worker_iterator,)).",
            )
        )

    def make_step(self, model: Any, kind: StepKind) -> Any:
        """Return what runs the steps of `fit` and `evaluate`: on the workers. `predict` runs on the chief."""
        return super().make_step(model, kind) if kind is PREDICT else RemoteStep(ClusterCoordinator(self), model, kind)

    def finish_steps(self) -> bool:
        """Wait for all scheduled functions; the variables live on the servers."""
        self.crew.join()
        return True

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

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
    ) -> DistributedDataset:
        """Let this worker make its dataset; the context tells which of the workers it is."""
        leave_tracing()  # tutorials decorate the function that makes the dataset
        context = InputContext(self._task.workers, self._task.index, 1)
        return super().distribute_datasets_from_function(lambda _: dataset_fn(context), options)


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
