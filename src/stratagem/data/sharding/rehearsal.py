"""Reading an input as each of several workers would, in one process and without a strategy."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Generator, Iterable
from typing import Any

import numpy as np

from stratagem.core.errors import InputError
from stratagem.core.types import InputContext
from stratagem.data.batches import Batch, DatasetIterator, RowsOf, State, whole
from stratagem.data.blocks import ColumnsBlock
from stratagem.data.dataset import Dataset
from stratagem.data.options import AutoShardPolicy
from stratagem.data.sharding.autoshard import choose_policy
from stratagem.data.sharding.digests import row_digests
from stratagem.data.structure import as_arrays, flatten


class Rehearsal:
    """An input, divided among workers by the rules that training follows.

    Args:
        given: A batched dataset, another iterable of batches, or a function that returns one of these; the function
            is called for each worker, with an `InputContext` if it takes an argument.
        workers: How many workers.
        most: Batches to read of each pass, None for all.

    Raises:
        InputError: There are no batches in what is given, or its policy cannot be followed.
    """

    def __init__(self, given: Any, workers: int, most: int | None) -> None:
        self.workers = workers
        self._most = most
        self._given = given
        self.is_function = callable(given)
        self.takes_context = self.is_function and _takes_argument(given)
        self.first = self.make(1, 0)
        """The input of a single worker, made once."""
        self._seeds = self.first.random_seeds() if isinstance(self.first, Dataset) else []
        self.policy, self.reason, self.even = self._choose()
        self.own_streams = self.takes_context or self.policy not in (None, AutoShardPolicy.DATA)
        """Whether each worker reads a stream of its own instead of its rows of the global batches."""

    def _choose(self) -> tuple[AutoShardPolicy | None, str, bool]:
        each = f"each of {self.workers} workers reads"
        if self.takes_context:
            return None, f"{each} the dataset that the function returns for its InputContext", False
        if isinstance(self.first, Dataset):
            return choose_policy(self.first.options(), self.first, self.workers)
        return None, f"{each} whole batches of the {type(self.first).__name__}, and keeps its rows", True

    def make(self, workers: int, worker: int) -> Any:
        """Return the input as the program of a worker makes it: anew, if a function does."""
        made = self._given
        if self.is_function:
            made = made(InputContext(workers, worker, workers)) if self.takes_context else made()
        return _checked(made)

    def part(self, made: Any, workers: int, worker: int) -> Any:
        """Return what a strategy makes of an input for a worker: the chief's seeds, and its part of the dataset."""
        if not isinstance(made, Dataset):
            return made
        if len(made.random_seeds()) == len(self._seeds):
            made = made.with_random_seeds(self._seeds)
        if self.policy is AutoShardPolicy.HINT:
            return made.with_shard_hint(workers, worker)
        if self.policy is AutoShardPolicy.FILE:
            return made.with_files_of(workers, worker, divide_batches=self.even)
        return made

    def batches(
        self, part: Any, rows_of: RowsOf = whole, state: State | None = None
    ) -> DatasetIterator[Batch] | Generator[Batch, None, None]:
        """Begin a pass. Close what it returns.

        Args:
            part: What `part` returned.
            rows_of: Which rows of each batch.
            state: Where to begin, or None.
        """
        if not isinstance(part, Dataset):
            return _cut(part, rows_of)
        batches = part.unread().batches(rows_of, iteration=0)
        if state is not None:
            batches.set_state(state)
        return batches

    def read(
        self, part: Any, rows_of: RowsOf = whole, state: State | None = None, done: int = 0
    ) -> tuple[list[np.ndarray], bool]:
        """Read a pass as far as the limit goes.

        Args:
            part: What `part` returned.
            rows_of: Which rows of each batch.
            state: Where to begin, or None.
            done: How many batches come before the state.

        Returns:
            The digests of the rows of each batch, and whether the pass has no more.
        """
        most = None if self._most is None else self._most - done
        with contextlib.closing(self.batches(part, rows_of, state)) as batches:
            limited = itertools.islice(batches, None if most is None else most + 1)
            steps = [row_digests([np.asarray(leaf) for leaf in flatten(batch.data)[0]]) for batch in limited]
        return steps[:most], most is None or len(steps) <= most


def length_of(made: Any) -> int | None:
    """Return how many batches an input says it has, None where it does not."""
    if isinstance(made, Dataset):
        length = int(made.cardinality())
        return length if length >= 0 else None
    try:
        return len(made)
    except (TypeError, NotImplementedError):
        return None


def _cut(batches: Any, rows_of: RowsOf) -> Generator[Batch, None, None]:
    for batch in batches:
        # Loaders like to put the arrays of a batch into a list, which is one array everywhere else.
        rows = ColumnsBlock(as_arrays(tuple(batch) if isinstance(batch, list) else batch))
        yield Batch(len(rows), rows.select(rows_of(len(rows))).gather())


def _takes_argument(function: Callable[..., Any]) -> bool:
    required = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    if len(required) > 1:
        raise InputError(
            f"The function that makes the dataset takes {len(required)} arguments.",
            "Let it take none, or one: a stratagem.InputContext.",
        )
    return bool(required)


def _checked(made: Any) -> Any:
    has_batches = isinstance(made, Iterable) or hasattr(made, "__getitem__")
    if isinstance(made, tuple | list | dict | str | bytes | np.ndarray) or not has_batches:
        raise InputError(
            f"The input is {type(made).__name__}.",
            "Give a batched dataset, or a function that returns one. From arrays, make it with "
            "Dataset.from_tensor_slices((x, y)).batch(GLOBAL_BATCH_SIZE).",
        )
    return made
