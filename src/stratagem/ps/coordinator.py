"""`ClusterCoordinator`, with which the user schedules functions, and what these return."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

import jax.numpy as jnp
import keras

from stratagem.core.advancing import AdvancedByPython
from stratagem.core.errors import CancelledError, InputError, UsageError
from stratagem.core.log import announce_once
from stratagem.data.dataset import Dataset
from stratagem.program.captured_names import captured_by
from stratagem.program.tracing import leave_tracing
from stratagem.ps.coordinator_thread import Workers
from stratagem.ps.pickling import Copied, SharedValue, dumps
from stratagem.ps.placement import Placement
from stratagem.ps.shared import Shared
from stratagem.ps.task import ClosesWhenDropped, current_task
from stratagem.ps.work import Job

_MOST_FUNCTIONS: Final = 128
"""How many functions workers keep. A program that makes a new one for each call must not fill their memory."""

_MOST_IN_A_ROW: Final = 5
"""After a function was sent so many times in a row, a line says so."""


class RemoteValue:
    """The future result of a scheduled function (`tf.distribute.coordinator.RemoteValue`)."""

    def __init__(self, workers: Workers, result: Future[Any]) -> None:
        self._workers = workers
        self._result = result

    def fetch(self, timeout: float | None = None) -> Any:
        """Wait for the result.

        Args:
            timeout: Longest time to wait, in seconds; None waits until the result arrives, or cannot arrive any more.

        Returns:
            The result of the function, with NumPy arrays.

        Raises:
            CancelledError: The function was aborted because another one failed.
            UnavailableError: The function was aborted because a parameter server was lost, or because the work ended
                for another reason.
            TimeoutError: The result did not arrive in time.
            Exception: The exception of the function.
        """
        if not self._workers.wait_for(self.done, timeout):
            raise TimeoutError(f"The function has not ended within {timeout:g} s.")
        if self._result.cancelled():
            self._workers.raise_if_broken()
            raise CancelledError(
                "Another scheduled function failed first: this one was not run, or was aborted.",
                "See the error that coordinator.join() raises.",
            )
        error = self._result.exception()
        if error is not None:
            self._workers.tell(error)
        return self._result.result()

    def done(self) -> bool:
        """Return whether the result has arrived, or cannot arrive any more.

        `fetch` may still wait while the round of the function is applied.
        """
        return self._result.done()

    def get(self, timeout: float | None = None) -> Any:
        """Wait for the result, as `fetch` does, and return it with JAX arrays."""
        return keras.tree.map_structure(
            lambda leaf: jnp.asarray(leaf) if hasattr(leaf, "dtype") else leaf, self.fetch(timeout)
        )

    def __reduce__(self) -> Any:
        raise InputError(
            "A RemoteValue was given to coordinator.schedule.",
            "A RemoteValue is kept by the chief, and its value may not be there yet.",
            "Call its fetch() first, or do both steps in one function.",
        )


class _CoordinatorElsewhere:
    """Stand-in for the coordinator on a worker: a function that travels may refer to it (`self.coordinator`).

    Args:
        strategy: The worker's own.
    """

    def __init__(self, strategy: Any) -> None:
        self.strategy = strategy

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UsageError(
            f"coordinator.{name} was asked for in a function that a worker runs.",
            "The coordinator exists only on the chief, which distributes the work.",
            f"Call coordinator.{name} outside scheduled functions, and give them the results that they need.",
        )


class PerWorkerValues(SharedValue):
    """One value on each worker (`tf.distribute.experimental.coordinator.PerWorkerValues`).

    A scheduled function gets the value of its own worker.
    """

    def __init__(self, coordinator: ClusterCoordinator, make: Callable[[], Any]) -> None:
        self._coordinator = coordinator
        self.shared = coordinator._share(make, to_call=True)


PerWorkerValue = PerWorkerValues


class _PerWorkerDataset(PerWorkerValues):
    """A dataset on each worker."""

    def __iter__(self) -> _PerWorkerIterator:
        dataset = self
        return _PerWorkerIterator(self._coordinator, lambda: _WorkerIterator(dataset))


class _PerWorkerIterator(PerWorkerValues):
    """An iterator on each worker."""

    def __iter__(self) -> _PerWorkerIterator:
        return self

    def __next__(self) -> Any:
        raise UsageError(
            "next() was called on a per-worker iterator on the chief.",
            "Its elements are on the workers.",
            "Give it to a function: coordinator.schedule(step, args=(iterator,)), which calls next(iterator).",
        )


class _WorkerIterator(ClosesWhenDropped, AdvancedByPython):
    """A worker's iterator over its dataset."""

    def __init__(self, dataset: Any) -> None:
        self._iterator = iter(dataset)

    def __iter__(self) -> _WorkerIterator:
        return self

    def __next__(self) -> Any:
        leave_tracing()  # its element would be a constant of the program
        return next(self._iterator)

    def get_next(self) -> Any:
        """Return the next element (`tf.data.Iterator.get_next`)."""
        return next(self)

    def close(self) -> None:
        if hasattr(self._iterator, "close"):
            self._iterator.close()


class HasWorkers:
    """A strategy whose chief hands functions to workers.

    Attributes:
        workers: Runs them.
        placement: Moves variables to the servers.
        coordinator: The `ClusterCoordinator`, once there is one.
    """

    workers: Workers
    placement: Placement
    coordinator: ClusterCoordinator | None = None


class ClusterCoordinator:
    """Schedules functions, which the workers run in parallel (`tf.distribute.coordinator.ClusterCoordinator`).

    A function is sent once, and the workers keep it. It is sent again when an object that it refers to has changed:
    another model under a global name, an attribute, a number. Variables are always those of the parameter servers.

    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/distribute/coordinator/ClusterCoordinator

    Args:
        strategy: A `ParameterServerStrategy`. All coordinators of one strategy are the same object.

    Raises:
        UsageError: The strategy is of another kind.

    Example:
        >>> import stratagem
        >>> from stratagem import keras
        >>> strategy = stratagem.ParameterServerStrategy()
        >>> coordinator = stratagem.coordinator.ClusterCoordinator(strategy)
        >>> with strategy.scope():
        ...     total = keras.Variable(0.0)
        >>> results = [coordinator.schedule(lambda x: total.assign_add(x) * 0 + x, args=(x,)) for x in (1.0, 2.0)]
        >>> coordinator.join()
        >>> coordinator.fetch([float(result.fetch()) for result in results]), float(total.value)
        ([1.0, 2.0], 3.0)
        >>> strategy.close()
    """

    def __new__(cls, strategy: HasWorkers) -> ClusterCoordinator:
        if not isinstance(strategy, HasWorkers):
            raise UsageError(
                f"ClusterCoordinator was given a {type(strategy).__name__}.",
                "Give it a stratagem.ParameterServerStrategy.",
            )
        if strategy.coordinator is None:
            strategy.coordinator = super().__new__(cls)
            strategy.coordinator._begin(strategy)
        return strategy.coordinator

    def __reduce__(self) -> Any:
        return _CoordinatorElsewhere, (self.strategy,)

    def _begin(self, strategy: HasWorkers) -> None:
        self.strategy = strategy
        self._workers = strategy.workers
        self._functions: dict[Any, _SharedFunction] = {}

    def schedule(
        self, fn: Callable[..., Any], args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> RemoteValue:
        """Schedule a function, which some worker runs at least once; return at once.

        Args:
            fn: The function. One compiled by `stratagem.function` runs as one program.
            args: Its arguments; for `PerWorkerValues` it gets the value of its worker.
            kwargs: The same, by name.

        Returns:
            A `RemoteValue`, which will hold its result.

        Raises:
            Exception: The exception of an earlier function. No function is running any more, and all waiting functions
                are aborted.
            UnavailableError: A parameter server was lost, or all workers were lost for too long.
            UsageError: `fn` is not a function, `args` is not a tuple, they cannot be sent, or the strategy was closed.
        """
        if not callable(fn):
            raise UsageError(
                f"coordinator.schedule was given {fn!r}, which is not a function.",
                "Write coordinator.schedule(step, args=(iterator,)), not coordinator.schedule(step(iterator)).",
            )
        if not isinstance(args or (), list | tuple) or not isinstance(kwargs or {}, Mapping):
            raise UsageError(
                f"coordinator.schedule was given args of type {type(args).__name__} and kwargs of type "
                f"{type(kwargs).__name__}.",
                "Write args=(value,), with the comma, and kwargs as a dict.",
            )
        function = self._shared_function(fn)
        job = Job(*dumps((function, tuple(args or ()), dict(kwargs or {})), self.strategy.placement))
        self._workers.schedule(job)
        return RemoteValue(self._workers, job.result)

    def prepare(self, fn: Callable[..., Any]) -> None:
        """Move the variables that a function refers to to the parameter servers now, before it is first scheduled."""
        self._shared_function(fn)

    def forget(self, fn: Callable[..., Any]) -> None:
        """Free a function and its compiled programs on the workers, once it is not scheduled any more."""
        self._functions.pop(_key(fn), None)

    def join(self) -> None:
        """Wait until all scheduled functions have run. It raises the errors of `schedule`."""
        self._workers.join()

    def done(self) -> bool:
        """Return whether all scheduled functions have run. It raises the errors of `schedule`."""
        return self._workers.done()

    def fetch(self, val: Any) -> Any:
        """Return a structure in which each `RemoteValue` is replaced by its result."""
        return keras.tree.map_structure(lambda leaf: leaf.fetch() if isinstance(leaf, RemoteValue) else leaf, val)

    def create_per_worker_dataset(self, dataset_fn: Any) -> Any:
        """Make a dataset on each worker when the worker first needs it, and again when it returns.

        Args:
            dataset_fn: A function without arguments that returns a dataset; or a dataset, distributed or not, which is
                sent to the workers. Each worker reads all of it. If it is shuffled without a seed, each worker has an
                order of its own.

        Returns:
            A dataset for each worker. Pass `iter(...)` of it to `schedule`.
        """
        if not callable(dataset_fn) and not hasattr(dataset_fn, "__iter__"):
            raise UsageError(
                f"coordinator.create_per_worker_dataset was given {dataset_fn!r}, of type {type(dataset_fn).__name__}.",
                "Give it a function that returns a dataset; each worker calls it.",
            )
        if not callable(dataset_fn):
            return _PerWorkerDataset(self, functools.partial(_read_by_this_worker, dataset_fn))
        # A dataset is no result of a compiled function; tutorials decorate what makes it.
        return _PerWorkerDataset(self, getattr(dataset_fn, "python_function", dataset_fn))

    @property
    def worker_count(self) -> int:
        """Number of workers in the cluster."""
        return self._workers.worker_count

    def metrics(self) -> dict[str, int]:
        """Return counts of the work of the cluster, since the chief started and at the moment.

        Functions at the moment: `queued` (waiting for a worker) and `in flight` (sent to a worker). Functions so far:
        `scheduled`, `finished`, `failed` (raised an error), `aborted` (not run after another's error) and `retried`
        (sent again because their worker was lost). In synchronous mode there are also `rounds` (applied) and `dropped`
        (too late for their round).

        Workers: `workers up` at the moment, and `workers lost` so far, where each loss counts. Bytes between this chief
        and all other tasks: `bytes sent` and `bytes received`.

        Servers, where one that does not answer counts as 0: `updates` (gradients applied to parts of variables),
        `staleness` and `max staleness`. The staleness of an update is the number of other changes between the reading
        of a part and the update by its gradient. `staleness` is the sum over all updates; divide it by `updates` for
        the average.

        Example:
            >>> import stratagem
            >>> strategy = stratagem.ParameterServerStrategy()
            >>> coordinator = stratagem.coordinator.ClusterCoordinator(strategy)
            >>> coordinator.schedule(lambda: 1).fetch()
            1
            >>> counts = coordinator.metrics()
            >>> counts["finished"], counts["updates"]
            (1, 0)
            >>> strategy.close()
        """
        residence = self.strategy.placement.residence
        received, sent = residence.servers.traffic
        counts = self._workers.counts()
        counts["bytes received"] += received
        counts["bytes sent"] += sent
        return {**counts, **residence.servers.report()}

    def _share(self, value: Any, *, to_call: bool, copied: list[Copied] | None = None) -> Shared:
        return self._workers.share(*dumps(value, self.strategy.placement, copied), to_call=to_call)

    def _shared_function(self, fn: Callable[..., Any]) -> _SharedFunction:
        """Return a function as workers hold it, and share it with them if it is not there as it is now."""
        known = self._functions.pop(_key(fn), None)
        if known is not None and known.is_current():
            known.in_a_row = 0
        else:
            in_a_row = 0 if known is None else known.in_a_row + 1
            if in_a_row == _MOST_IN_A_ROW:
                announce_once(
                    f"coordinator.schedule has sent {getattr(fn, '__qualname__', fn)} to the workers {in_a_row} times "
                    "in a row, because the values that it refers to change from call to call. Give values that "
                    "change as arguments."
                )
            copied: list[Copied] = []
            known = _SharedFunction(fn, self._share(fn, to_call=False, copied=copied), in_a_row, copied)
        self._functions[_key(fn)] = known  # last: most recently used
        if len(self._functions) > _MOST_FUNCTIONS:
            del self._functions[next(iter(self._functions))]
        return known


def _read_by_this_worker(dataset: Any) -> Any:
    return dataset.drawn_apart(current_task().stream) if isinstance(dataset, Dataset) else dataset


def _key(fn: Callable[..., Any]) -> Any:
    return fn if isinstance(fn, Hashable) else id(fn)


class _SharedFunction(SharedValue):
    """A function that workers hold, as it was when it was sent.

    Args:
        function: The function.
        shared: What workers hold.
        in_a_row: How often it was sent since it was last scheduled unchanged.
        copied: What was copied with it that the program may change.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        shared: Shared,
        in_a_row: int,
        copied: Sequence[Copied],
    ) -> None:
        self.function = function  # while it is known, no other has its id
        self.shared = shared
        self.in_a_row = in_a_row
        self._copied = copied
        self._guards = captured_by(function)  # after it was sent, which moves variables and builds optimizers
        self._facts = self._guards.facts()

    def is_current(self) -> bool:
        """Whether the function still refers to the same things."""
        as_sent = all(each.is_current() for each in self._copied)
        return as_sent and self._guards.hold(self.function) and self._guards.facts() == self._facts


def experimental_get_current_worker_index() -> int:
    """Return the index of the worker that runs this function.

    (https://www.tensorflow.org/api_docs/python/tf/distribute/coordinator/experimental_get_current_worker_index)

    Raises:
        UsageError: The caller does not run on a worker.
    """
    return current_task().index
