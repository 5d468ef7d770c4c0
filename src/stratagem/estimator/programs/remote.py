"""Training and evaluation under a `ParameterServerStrategy`: workers run the steps of a model function.

The chief calls the model function once, which makes variables and optimizers; the variables move to the parameter
servers. Each worker calls it again with those, on batches of its own input function, and sends gradients, or what its
rows add to metrics. Hooks, checkpoints and log lines are the chief's: it hears of each step when it has been done.
"""

from __future__ import annotations

import contextlib
import functools
import math
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final

import jax

from stratagem.core.errors import InputError, UnavailableError
from stratagem.estimator import text
from stratagem.estimator.programs.model_function import ModelFunction, Program, StepResults, own_value
from stratagem.estimator.updates import install
from stratagem.mesh.mesh import Tree
from stratagem.mesh.values import DistributedValues
from stratagem.program.compile import Executables
from stratagem.ps.coordinator import ClusterCoordinator, RemoteValue
from stratagem.ps.task import WorkerTask, current_task

_AHEAD: Final = 2
"""Steps that may be under way for each worker: one that runs, and one for when it has ended."""


_executables: Final[weakref.WeakKeyDictionary[WorkerTask, Executables]] = weakref.WeakKeyDictionary()
"""The programs that a worker has compiled, for the next session of the same Estimator."""


class RemoteProgram(Program):
    """The step of a model function, on workers; its variables live on parameter servers.

    Args:
        function: The model function.
        mode: To train or to evaluate.
        strategy: A `ParameterServerStrategy`.
        seed: Of what the model function draws; None for another one each time.
        begin: Begins a pass over the data, on each worker.

    Raises:
        InputError: The strategy trains in rounds, or a worker's dataset is empty.
    """

    def __init__(
        self,
        function: ModelFunction,
        mode: str,
        strategy: Any,
        seed: int | None,
        begin: Callable[[], Generator[tuple[Tree, Tree]]],
    ) -> None:
        super().__init__(function, mode, strategy, seed)
        if strategy.synchronous:
            raise InputError(
                "Estimator was given a ParameterServerStrategy(synchronous=True).",
                "The steps of an Estimator are counted by worker, but the weights would change by round.",
                "Leave synchronous out. To limit the age of the weights, use max_staleness.",
            )

        def step(batches: Iterator[Any]) -> tuple[int | None, Tree]:
            batch = next(batches, None)
            return (current_task().index, {}) if batch is None else (None, self.run(*batch))

        self._coordinator = ClusterCoordinator(strategy)
        self._dataset = self._coordinator.create_per_worker_dataset(functools.partial(_Batches, begin))
        self._scheduled = step
        self._under_way: deque[RemoteValue] = deque()
        self._left: float = math.inf
        self._at_end: set[int] = set()
        batch = self._fetched(self._coordinator.schedule(_first_batch, args=(self._dataset,)))
        self.prepare(*text.restored(batch))

    def batches(self, steps: int | None, max_steps: int | None) -> Iterator[tuple[Tree, Tree]]:
        """Let workers do steps; yield what each computed, in the order in which they were begun, for `step`.

        Args:
            steps: Number of steps; None for all of the data.
            max_steps: The global step to stop at; None for none.
        """
        if steps is not None:
            self._left = steps
        elif max_steps is not None:
            self._left = max_steps - int(self.store.global_step.value)
        iterators = iter(self._dataset)
        most = _AHEAD * max(1, self._coordinator.worker_count)
        while True:
            while self._left > 0 and len(self._under_way) < most:
                self._under_way.append(self._coordinator.schedule(self._scheduled, args=(iterators,)))
                self._left -= 1
            if not self._under_way:
                return
            results = self._settle_one()
            if results is not None:
                yield results, None

    def step(self, features: Tree, labels: Tree) -> StepResults:
        """Return what a worker's step has computed.

        Args:
            features: What `batches` yielded.
            labels: None.
        """
        return features

    def settle(self) -> None:
        """Wait for all steps that were begun; their results are dropped."""
        while self._under_way:
            self._settle_one()

    def release(self) -> None:
        """Let servers forget its variables, and workers its step."""
        with contextlib.suppress(Exception):  # of the steps that are under way; they must not find them gone
            self.settle()
        self._coordinator.forget(self._scheduled)
        optimizers, step, variables = self.store.made()
        with contextlib.suppress(UnavailableError):  # of servers that were lost nothing is left
            self.strategy.placement.remove([step, *variables], optimizers)
        super().release()

    def _settle_one(self) -> StepResults | None:
        """Wait for the oldest step; where its worker had no batch left, another one does it."""
        ended, outputs = self._fetched(self._under_way.popleft())
        if ended is None:
            return StepResults(outputs, self._tensors)
        self._at_end.add(ended)
        self._left += 1
        if len(self._at_end) >= max(1, self._coordinator.metrics()["workers up"]):
            self._left = 0
        return None

    def _fetched(self, result: RemoteValue) -> Any:
        try:
            return result.fetch()
        except Exception:
            self._under_way.clear()
            self._coordinator.join()  # raises it too, and leaves nothing running
            raise

    def __reduce__(self) -> Any:
        """Travel to a worker, which calls the model function itself, with these variables and optimizers."""
        store = self.store
        return _program_of_worker, (
            store.made(), self._function, self.mode, self.strategy, store.seed, self.counts_by_itself
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Batches:
    """A worker's dataset: each of its iterators begins a pass."""

    begin: Callable[[], Generator[tuple[Tree, Tree]]]

    def __iter__(self) -> Generator[tuple[Tree, Tree]]:
        return self.begin()


def _first_batch(batches: _Batches) -> Tree:
    """Return the first batch of a worker's dataset; its iterators start with it too."""
    iterator = iter(batches)
    try:
        first = next(iterator)
    finally:
        iterator.close()
    return text.plain(jax.tree.map(own_value, first, is_leaf=lambda leaf: isinstance(leaf, DistributedValues)))


def _program_of_worker(
    made: tuple[list[Any], Any, list[Any]],
    function: ModelFunction,
    mode: str,
    strategy: Any,
    seed: int,
    counts_by_itself: bool | None,
) -> Program:
    install()
    executables = _executables.setdefault(current_task(), Executables())
    program = Program(function, mode, strategy, seed, executables)
    program.store.take(*made)
    program.counts_by_itself = counts_by_itself
    return program
