"""Inputs that can only be read from their beginning: generators, any other iterables, `tf.data`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

from stratagem.core.errors import InputError, UsageError
from stratagem.core.log import logger
from stratagem.data.nodes import UNKNOWN_CARDINALITY
from stratagem.feed.kinds.base import Input, Pass, no_batch
from stratagem.mesh.mesh import Tree


class Peekable:
    """A pass whose next batch can be looked at.

    Args:
        batches: The pass.
    """

    def __init__(self, batches: Iterator[Tree]) -> None:
        self._batches = batches
        self._seen: list[Tree] = []
        self._last: Tree = None
        self.taken = 0
        """Batches that were handed out or skipped."""

    def __iter__(self) -> Iterator[Tree]:
        return self

    def __next__(self) -> Tree:
        batch = self._seen.pop() if self._seen else next(self._batches)
        self.taken += 1
        return batch

    def has_next(self) -> bool:
        """Whether there is a batch to peek at."""
        if not self._seen:
            self._seen.extend(itertools.islice(self._batches, 1))
        return bool(self._seen)

    def peek(self) -> Tree:
        """Return the next batch, which stays the next; at the end the last one that was skipped.

        Raises:
            InputError: There is none.
        """
        if not self.has_next() and self._last is None:
            raise no_batch()
        return self._seen[0] if self._seen else self._last

    def skip_to(self, batch: int) -> None:
        """Pass over the batches before a number.

        Raises:
            InputError: The pass ends before it.
        """
        while self.taken < batch:
            self._last = next(self, None)
            if self._last is None:
                raise InputError(
                    f"The input ended before batch {batch}, where training was interrupted.",
                    "This is not the input of the interrupted training, so training cannot continue from there.",
                    "Give `fit` the same input as before. A generator must be made again, from its beginning.",
                )

    def close(self) -> None:
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()


class ReadAgain(Input):
    """An input that can do no more than begin a pass.

    A restarted program reads again, and throws away, all that was read before: the order of a pass may depend
    on how far the earlier ones came.

    Args:
        batches: What is read.
        begin_pass: Begins the next pass.
        num_batches: Batches in a pass; None if unknown or endless.
        may_end: Whether a pass ends at a batch that no number tells beforehand.
        alike: What to write so that all workers read the same.
    """

    def __init__(
        self,
        batches: Iterable[Tree],
        *,
        begin_pass: Callable[[], Iterator[Tree]] | None = None,
        num_batches: int | None = None,
        may_end: bool = True,
        alike: str = "Give every worker the same dataset or generator, with the same seed.",
    ) -> None:
        self.num_batches, self.may_end, self.alike = num_batches, may_end, alike
        self._kind = type(batches).__name__
        self._once = isinstance(batches, Iterator)
        self._batches = batches
        self._begin_pass = begin_pass or self._own_pass
        self._keep, self._kept = 0, []
        self._begun = 0
        self._opened: Peekable | None = None  # the pass that comes next, its first batch looked at

    def keep_first(self) -> None:
        """Let each pass of an iterator begin with its first two batches: Keras does so with validation data.

        Keras looks at two batches to learn their shapes, and evaluates on them again after each epoch.
        """
        self._keep = 2

    def _own_pass(self) -> Iterator[Tree]:
        if not isinstance(self._batches, Iterator):
            return iter(self._batches)
        self._kept.extend(itertools.islice(self._batches, self._keep - len(self._kept)))
        # A chain cannot be closed: the end of a pass is not the end of an iterator.
        return itertools.chain(self._kept, self._batches)

    def begin(self, earlier: Sequence[int], first: int) -> Pass:
        batches = self._open(earlier, first)
        self._opened, self._begun = None, len(earlier) + 1
        return _not_used_up(batches, self._kind) if self._once else batches

    def sample(self, earlier: Sequence[int], first: int) -> Tree:
        return self._open(earlier, first).peek()

    def _open(self, earlier: Sequence[int], first: int) -> Peekable:
        if len(earlier) < self._begun or (self._opened is not None and self._opened.taken > first):
            raise UsageError(
                f"A position in pass {len(earlier)} of a {self._kind} was to be restored, but this program has begun "
                f"{self._begun} passes over it.",
                "It can only be read from its beginning, and has already been read too far.",
                "Make it again, and restore the position before anything is read.",
            )
        missing = list(earlier[self._begun :])
        skipped = 0 if self._opened is None else self._opened.taken
        if missing or first > skipped:
            logger.info("Reading %d batches of the input again, to continue after them", sum(missing) + first - skipped)
        for count in missing:
            again = self._next_pass()
            for _ in range(count):
                next(again, None)
            again.close()
            self._opened, self._begun = None, self._begun + 1
        self._opened = self._next_pass()
        self._opened.skip_to(first)
        return self._opened

    def _next_pass(self) -> Peekable:
        return self._opened or Peekable(self._begin_pass())


def _not_used_up(batches: Peekable, kind: str) -> Generator[Tree, None, None]:
    """Yield the batches of a pass over an iterator, which must not be used up."""
    yield from batches
    if not batches.taken:
        raise UsageError(
            f"A {kind} was already used up when a pass over it began.",
            "An iterator can be read once; this epoch would have no batch at all.",
            "Use stratagem.data.Dataset.from_generator(make_batches), which begins again for every pass. Or let the "
            "iterator yield batches without end, and write steps_per_epoch.",
        )


# `tf.data`, read by every worker once it is certain that all have one order --------------------------


def tf_data_input(dataset: Any, worker_count: int) -> ReadAgain:
    """Return how a `tf.data.Dataset` is read.

    Args:
        dataset: The user's, batched.
        worker_count: How many workers read it.

    Raises:
        InputError: Several workers would each have an order of their own.
    """
    if worker_count > 1:
        _check_order(dataset, worker_count)
    cardinality = int(dataset.cardinality())
    return ReadAgain(
        dataset,
        num_batches=cardinality if cardinality >= 0 else None,
        may_end=cardinality == UNKNOWN_CARDINALITY,
        alike=(
            "Give each random operation of the dataset a seed, such as shuffle(..., seed=1), and call "
            "tf.random.set_seed with the same number on all workers. Do not shard: Stratagem gives each worker its "
            "rows."
        ),
    )


def _check_order(dataset: Any, worker_count: int) -> None:
    """Refuse what makes the workers' orders differ. What is not seen here shows in the first batch of a pass."""
    if dataset.options().deterministic is False:
        raise InputError(
            f"The tf.data.Dataset of {worker_count} workers has options().deterministic = False.",
            "Its elements come as they are ready, in an order of their own on every worker.",
            "Leave the option out.",
        )
    for step in _steps(dataset):
        # TensorFlow writes two zeros where neither shuffle() nor tf.random.set_seed gave a seed.
        seeds = [getattr(step, name, None) for name in ("_seed", "_seed2")]
        if type(step).__name__ == "_ShuffleDataset" and all(seed is not None and int(seed) == 0 for seed in seeds):
            raise InputError(
                f"The tf.data.Dataset of {worker_count} workers has a shuffle() without a seed.",
                "Each worker would draw a different order, and take its rows from a different global batch.",
                "Write shuffle(buffer_size, seed=1), or tf.random.set_seed(1) before it.",
            )


def _steps(dataset: Any) -> Iterator[Any]:
    yield dataset
    for inner in getattr(dataset, "_inputs", list)():
        yield from _steps(inner)
