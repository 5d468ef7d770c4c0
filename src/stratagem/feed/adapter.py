"""The data of `fit`, `evaluate` and `predict`, as Keras sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import optree

from stratagem.core.errors import InputError
from stratagem.data.batches import State
from stratagem.data.dataset import Dataset
from stratagem.data.nodes import INFINITE_CARDINALITY
from stratagem.data.options import Options
from stratagem.data.sources import ArraySource, Indexed
from stratagem.feed import compat
from stratagem.feed.batch import GlobalBatch, place_batch, place_together
from stratagem.feed.keras_input import WholeBatches
from stratagem.feed.kinds.base import no_batch
from stratagem.feed.kinds.choose import input_of
from stratagem.feed.reading import StepRows, Steps, begin
from stratagem.feed.sources import DatasetSource, Resumable, Source
from stratagem.mesh.mesh import Tree
from stratagem.mesh.split import Split
from stratagem.replica.context import StrategyLike


class ShareIterator:
    """Global batches on the mesh. Keras sees their arrays, the step function takes them whole.

    Args:
        source: The batches.
        strategy: Where they go.
        begin_pass: Begins a pass over the source.
        taken: Batches of this pass that were taken before the program was restarted.
    """

    def __init__(
        self, source: Resumable, strategy: StrategyLike, begin_pass: Callable[[], Steps], taken: int = 0
    ) -> None:
        # Begun with the first batch: Keras also asks for iterators that it never reads, and a pass of the
        # dataset that nobody sees would change the order of the next epoch.
        self._begin = begin_pass
        self._reading: Steps | None = None
        self._mesh = strategy.mesh
        self._source = source
        self._peeked: list[tuple[State, StepRows | None]] = []
        self._fetched: list[tuple[State, list[GlobalBatch]]] = []
        self._ended = False
        # Not an input that makes its batches when they are asked for: what is read of a generator is lost to others.
        self.fetches_ahead = strategy.mesh.fetches_ahead and isinstance(source, DatasetSource)
        self.taken = taken

    def __iter__(self) -> ShareIterator:
        return self

    def __next__(self) -> Tree:
        return self.take(1)[0].data

    def take(self, count: int) -> list[GlobalBatch]:
        """Return the batches of up to `count` steps, fewer where the data ends; those of all steps in one if they fit.

        Raises:
            InputError: The pass has none at all; Keras would fail without saying so.
            StopIteration: There is none left.
        """
        batches = self._fetched.pop()[1] if self._fetched else self._placed(count)
        if not batches:
            self._ended = True
            if not self.taken:
                raise no_batch()
            raise StopIteration
        self.taken += sum(batch.steps for batch in batches)
        return batches

    def is_at_end(self) -> bool:
        """Whether there is no further batch; reads it where that is not known. All workers ask at the same point."""
        if self._fetched:
            return not self._fetched[-1][1]
        if not self._peeked:
            position = self.position()
            self._peeked.append((position, self._read()))
        return self._peeked[-1][1] is None

    def fetch_ahead(self, count: int) -> None:
        """Put what `take` returns next on the devices, where a step runs now. All workers do it alike."""
        if not self._ended and not self._fetched:
            position = self.position()
            self._fetched.append((position, self._placed(count)))

    def _placed(self, count: int) -> list[GlobalBatch]:
        rows: list[StepRows] = []
        while len(rows) < count and (one := self._peeked.pop()[1] if self._peeked else self._read()) is not None:
            rows.append(one)
        splits, parts = [Split.of(one.shares) for one in rows], [one.local for one in rows]
        if len(rows) == count > 1 and not self._mesh.central:  # each step of a centre stops there
            together = place_together(self._mesh, splits, parts)
            if together is not None:
                return [together]
        return [place_batch(self._mesh, split, part) for split, part in zip(splits, parts, strict=True)]

    @property
    def is_under_way(self) -> bool:
        """Whether the pass has begun and not ended."""
        return (self._reading is not None or self.taken > 0) and not self._ended

    def position(self) -> State:
        """Return where the pass stands, behind the last batch that was taken."""
        if ahead := self._fetched or self._peeked:
            return ahead[-1][0]
        return self._source.position(self._reading)

    def close(self) -> None:
        """Stop reading, in the background too."""
        if self._reading is not None:
            self._reading.close()

    def _read(self) -> StepRows | None:
        if self._reading is None:
            self._reading = self._begin()
        return next(self._reading, None)


class Place(NamedTuple):
    """Where `fit` stands in one of its inputs, between two batches or two epochs; plain JSON.

    Args:
        source: Position in the source.
        taken: Batches of the current pass that were taken; a pass may last several epochs.
    """

    source: State
    taken: int


class ShareAdapter(compat.DataAdapter):
    """Keras's view of a source.

    Args:
        source: The batches.
        strategy: Where they go.
        batch_size: Rows in a full global batch, where known.
        steps_per_epoch: Batches in an epoch, if the program says so.
    """

    def __init__(
        self,
        source: Resumable,
        strategy: StrategyLike,
        batch_size: int | None = None,
        steps_per_epoch: int | None = None,
    ) -> None:
        self.source = source
        self.strategy = strategy
        self._batch_size = batch_size
        self._steps_per_epoch = steps_per_epoch
        self._reading: ShareIterator | None = None
        self._taken = 0
        self._skipped = (0, 0)
        self._in_epoch = False

    def on_epoch_begin(self) -> None:
        self._in_epoch = True
        if isinstance(self.source, WholeBatches):
            self.source.input.on_epoch_begin()

    def on_epoch_end(self) -> None:
        # Keras says so before the first epoch too.
        if self._in_epoch and isinstance(self.source, WholeBatches):
            self.source.input.on_epoch_end()
        self._in_epoch = False

    def get_jax_iterator(self) -> ShareIterator:
        self._stop_reading()
        self._reading = self.new_pass(self._taken)
        self._taken = 0
        return self._reading

    def new_pass(self, taken: int) -> ShareIterator:
        """Return the next pass over the source.

        Args:
            taken: Batches of it that were taken before the program was restarted.
        """
        source = cast(Source, self.source)  # subclasses have others
        return ShareIterator(source, self.strategy, lambda: begin(source, self.strategy), taken)

    def close(self) -> None:
        """End what reads ahead. Without this the thread that reads in endless data would stay after `fit`."""
        self.source.close()
        self._stop_reading()

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.close()

    def place(self, *, epoch_ended: bool) -> Place:
        """Return where reading goes on.

        Args:
            epoch_ended: Whether the epoch is over, so that a new pass begins unless a pass lasts several epochs.
        """
        reading = self._reading
        if reading is None or not reading.is_under_way or (epoch_ended and self._steps_per_epoch is None):
            return Place(self.source.position(None), 0)
        return Place(reading.position(), reading.taken)

    def resume(self, place: Place, skipped: int) -> None:
        """Begin at a place.

        Args:
            place: What `place` returned.
            skipped: Batches of the epoch before it, whose steps Keras must not count again.
        """
        self.source.resume(place.source)
        self._taken = place.taken
        self._skipped = (skipped, place.taken - skipped)

    def take_skipped(self) -> tuple[int, int]:
        """Return, once, how many batches before the place belong to this epoch, and how many to earlier ones."""
        skipped, self._skipped = self._skipped, (0, 0)
        return skipped

    def epoch_ends_after(self, steps: int) -> bool:
        """Whether an epoch ends after so many steps. All workers ask at the same point."""
        count = self._steps_per_epoch or self.num_batches
        if count is not None:
            return steps >= count
        return self._reading is None or self._reading.is_at_end()

    get_numpy_iterator = get_jax_iterator

    @property
    def num_batches(self) -> int | None:
        return self.source.num_batches

    @property
    def batch_size(self) -> int | None:
        return self._batch_size

    @property
    def has_partial_batch(self) -> bool:
        return False

    @property
    def partial_batch_size(self) -> int | None:
        return None


def make_adapter(strategy: StrategyLike, arguments: dict[str, Any], *, in_order: bool = False) -> ShareAdapter:
    """Choose how the input of `fit`, `evaluate` or `predict` is read.

    Args:
        strategy: Whose workers share it.
        arguments: x, y, sample_weight, batch_size, steps_per_epoch, shuffle, class_weight, as Keras
            hands them to its own choice of adapter; and steps_per_execution.
        in_order: Whether the rows within a batch must keep their order, as for `predict`.
    """
    x, y, sample_weight = arguments["x"], arguments.get("y"), arguments.get("sample_weight")
    class_weight, steps = arguments.get("class_weight"), arguments.get("steps_per_epoch")
    together = arguments.get("steps_per_execution", 1)
    if isinstance(x, Dataset):
        check_alone(x, y, sample_weight)
        _check_length(x, steps)
        source = DatasetSource(x, strategy, class_weight, in_order=in_order, together=together)
        return ShareAdapter(source, strategy, steps_per_epoch=steps)
    if compat.is_array_input(x, y, sample_weight):
        arrays, batch_size = compat.array_inputs(
            x,
            y,
            sample_weight,
            arguments.get("batch_size"),
            steps,
            class_weight=class_weight,
        )
        # Keras nests arrays in lists as well; to a dataset, as in tf.data, a list is one array.
        leaves, structure = optree.tree_flatten(arrays)
        dataset = _array_dataset(tuple(leaves), batch_size, arguments.get("shuffle", False))
        source = DatasetSource(dataset, strategy, structure=structure, together=together)
        return ShareAdapter(source, strategy, batch_size, steps)
    batches = input_of(x, strategy.from_chief, strategy.worker_count, shuffle=bool(arguments.get("shuffle")))
    check_alone(x, y, sample_weight)
    return ShareAdapter(WholeBatches(batches, strategy.mesh.local_rows, class_weight), strategy, steps_per_epoch=steps)


def _array_dataset(arrays: tuple[Any, ...], batch_size: int, shuffle: bool | str) -> Dataset:
    dataset = Dataset(Indexed(ArraySource(arrays, lends=True)), Options())
    # NumPy's generator follows keras.utils.set_random_seed, as Keras's own shuffle does.
    seed = int(np.random.randint(2**31)) if shuffle else None
    if shuffle == "batch":
        dataset = dataset.batch(batch_size)
        return dataset.shuffle(max(1, int(dataset.cardinality())), seed=seed)
    if shuffle:
        dataset = dataset.shuffle(max(1, int(dataset.cardinality())), seed=seed)
    return dataset.batch(batch_size)


def _check_length(dataset: Dataset, steps: int | None) -> None:
    if not dataset.cardinality():
        raise no_batch()
    if steps is None and dataset.cardinality() == INFINITE_CARDINALITY:
        raise InputError(
            "The dataset has no end, and how many steps to run is not said.",
            "The first epoch would last for ever.",
            "Write steps_per_epoch=... in fit, validation_steps=... for its validation_data, steps=... in evaluate "
            "and predict; or leave out repeat().",
        )


def check_alone(x: Any, y: Any, sample_weight: Any) -> None:
    """Make sure that targets and weights are not given beside a dataset.

    Raises:
        InputError: They are.
    """
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is not None:
            raise InputError(
                f"`x` is a {type(x).__name__}, and `{name}` was given too.",
                "Rows of the two could not be paired: a dataset may be shuffled.",
                f"Put `{name}` into the dataset, which yields tuples (x, y, sample_weight): "
                "`Dataset.from_tensor_slices((x, y))`.",
            )
