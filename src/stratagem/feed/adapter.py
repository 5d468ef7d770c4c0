"""`ShareAdapter`: the data of `fit`, `evaluate` and `predict`, as Keras sees it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import optree

from stratagem.core.errors import InputError
from stratagem.data.batches import State
from stratagem.data.dataset import Dataset
from stratagem.data.nodes import INFINITE_CARDINALITY
from stratagem.data.options import Options
from stratagem.data.sources import ArraySource, Indexed
from stratagem.feed import compat
from stratagem.feed.batch import as_it_is, as_numpy, weighing
from stratagem.feed.dataset_source import DatasetSource
from stratagem.feed.distributed import DistributedDataset
from stratagem.feed.feed import Feed
from stratagem.feed.kinds.again import ReadAgain
from stratagem.feed.kinds.base import no_batch
from stratagem.feed.kinds.choose import input_of
from stratagem.feed.on_host import HostPart, row_numbers, with_inputs
from stratagem.feed.source import Source
from stratagem.feed.whole_batches import WholeBatches
from stratagem.replica.context import StrategyLike


class FitPosition(NamedTuple):
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
        feed: The kind of pass, where it is a special one.
    """

    has_partial_batch = False  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    partial_batch_size = None  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    def __init__(
        self,
        source: Source,
        strategy: StrategyLike,
        batch_size: int | None = None,
        steps_per_epoch: int | None = None,
        feed: type[Feed] | None = None,
    ) -> None:
        self.source = source
        self.strategy = strategy
        self._batch_size = batch_size
        self._steps_per_epoch = steps_per_epoch
        self._make_feed = feed or Feed
        self._feed: Feed | None = None
        self._taken = 0
        self._skipped = (0, 0)
        self._has_heard = False

    def on_epoch_begin(self) -> None:
        self._has_heard = False
        self.source.on_epoch_begin()

    def on_epoch_end(self) -> None:
        if not self._has_heard:
            self.source.on_epoch_end()
        self._has_heard = False

    def get_jax_iterator(self) -> Feed:
        if self._feed is not None:
            self._feed.close()
        self.source.begin_pass()
        self._feed = self._make_feed(self.source, self.strategy.mesh, self._taken, self._steps_per_epoch)
        self._taken = 0
        return self._feed

    get_numpy_iterator = get_jax_iterator

    def close(self) -> None:
        """End what reads ahead. Without this the thread that reads in endless data would stay after `fit`."""
        self.source.close()
        if self._feed is not None:
            self._feed.close()

    def place(self, *, epoch_ended: bool) -> FitPosition:
        """Return where reading goes on.

        Args:
            epoch_ended: Whether the epoch is over, so that a new pass begins unless a pass lasts several epochs.
        """
        feed = self._feed
        if feed is None or not feed.is_under_way or (epoch_ended and self._steps_per_epoch is None):
            return FitPosition(self.source.position(), 0)
        return FitPosition(feed.position(), feed.taken)

    def resume(self, place: FitPosition, skipped: int | None = None) -> None:
        """Begin at a place.

        Args:
            place: What `place` returned.
            skipped: Batches of the epoch before it, whose steps Keras must not count again; None for data of
                validation.
        """
        self.source.resume(place.source)
        self._taken = place.taken
        self._skipped = (skipped or 0, place.taken - (skipped or 0))
        # Keras tells data of the end of an epoch before the first epoch of a `fit`, and before each validation. The
        # first was told before the place; the next validation comes behind it.
        self._has_heard = skipped is not None

    def take_skipped(self) -> tuple[int, int]:
        """Return, once, how many batches before the place belong to this epoch, and how many to earlier ones."""
        skipped, self._skipped = self._skipped, (0, 0)
        return skipped

    def epoch_ends_after(self, steps: int) -> bool:
        """Whether an epoch ends after so many steps. All workers ask at the same point."""
        if self.epoch_batches is not None:
            return steps >= self.epoch_batches
        return self._feed is None or self._feed.is_at_end()

    @property
    def epoch_batches(self) -> int | None:
        """How many batches an epoch has; None where only its end will tell."""
        return self._steps_per_epoch or self.num_batches

    @property
    def num_batches(self) -> int | None:
        return self.source.num_batches

    @property
    def batch_size(self) -> int | None:
        return self._batch_size


class _LentAdapter(ShareAdapter):
    """The view of a source that a distributed dataset owns: the program may iterate over it again."""

    def close(self) -> None:
        if self._feed is not None:
            self._feed.close()


def make_adapter(strategy: StrategyLike, arguments: dict[str, Any], *, in_order: bool = False) -> ShareAdapter:
    """Choose how the input of `fit`, `evaluate` or `predict` is read.

    Args:
        strategy: Whose workers share it.
        arguments: x, y, sample_weight, batch_size, steps_per_epoch, shuffle, class_weight, as Keras
            hands them to its own choice of adapter; steps_per_execution; validates: whether `fit` only evaluates on
            it; and on_host: the part of the model that the host computes, or None.
        in_order: Whether the rows within a batch must keep their order, as for `predict`.
    """
    x, y, sample_weight = arguments["x"], arguments.get("y"), arguments.get("sample_weight")
    class_weight, steps = arguments.get("class_weight"), arguments.get("steps_per_epoch")
    together, on_host = arguments.get("steps_per_execution", 1), arguments.get("on_host")
    if isinstance(x, DistributedDataset):
        check_alone(x, y, sample_weight)
        _check_length(x, steps)
        lent = _lent(x, strategy, class_weight, in_order, on_host)
        return _LentAdapter(lent, strategy, steps_per_epoch=steps)
    if isinstance(x, Dataset):
        check_alone(x, y, sample_weight)
        _check_length(x, steps)
        x = x if on_host is None else on_host.of_dataset(x)
        source = DatasetSource(x, strategy, weighing(class_weight), in_order=in_order, together=together)
        return ShareAdapter(source, strategy, steps_per_epoch=steps)
    if compat.is_array_input(x, y, sample_weight):
        batch_size, shuffle = arguments.get("batch_size"), arguments.get("shuffle", False)
        both = class_weight is not None and sample_weight is not None  # Keras takes one of them
        of_classes = None if both else class_weight
        given = x if on_host is None else row_numbers(x)  # Keras takes arrays of numbers alone
        arrays, batch_size = compat.array_inputs(given, y, sample_weight, batch_size, steps, class_weight=of_classes)
        arrays = arrays if on_host is None else with_inputs(as_numpy(x), arrays)
        arrays = weighing(class_weight if both else None)(arrays)
        # Keras nests arrays in lists as well; to a dataset, as in tf.data, a list is one array.
        leaves, structure = optree.tree_flatten(arrays)
        dataset, unflatten = _array_dataset(tuple(leaves), batch_size, shuffle), structure.unflatten
        if on_host is not None:
            dataset, unflatten = dataset.map(lambda *leaves: on_host(structure.unflatten(leaves))), as_it_is
        source = DatasetSource(dataset, strategy, unflatten, together=together)
        return ShareAdapter(source, strategy, batch_size, steps)
    batches = input_of(x, strategy.from_chief, strategy.worker_count, shuffle=bool(arguments.get("shuffle")))
    check_alone(x, y, sample_weight)
    if arguments.get("validates") and steps is not None and isinstance(batches, ReadAgain):
        batches.keep_first()
    source = WholeBatches(batches, strategy, weighing(class_weight), on_host=on_host or as_it_is)
    return ShareAdapter(source, strategy, steps_per_epoch=steps)


def _lent(
    dataset: DistributedDataset, strategy: StrategyLike, class_weight: Any, in_order: bool, on_host: HostPart | None
) -> Source:
    """Return the source of a distributed dataset, where it can be read as the dataset itself would be."""
    found = None
    if dataset.mesh is not strategy.mesh:
        found = "The dataset was distributed by another strategy than the model's."
    elif class_weight is not None:
        found = "class_weight was given with a distributed dataset, whose batches already go to the devices."
    elif on_host is not None:
        found = "A model that looks up text was given a distributed dataset, whose batches are already divided."
    elif in_order and strategy.worker_count > 1:
        found = "predict was given a distributed dataset, whose batches may not keep the order of their rows."
    if found:
        raise InputError(found, "Give fit, evaluate or predict the dataset itself: they distribute it.")
    return dataset.source


def _array_dataset(arrays: tuple[Any, ...], batch_size: int, shuffle: bool | str) -> Dataset:
    dataset = Dataset(Indexed(ArraySource(arrays, lends=True)), Options())
    # NumPy's generator follows keras.utils.set_random_seed, as Keras's own shuffle does.
    seed = int(np.random.randint(2**31)) if shuffle else None
    if shuffle == "batch":
        dataset = dataset.batch(batch_size)
    if shuffle:
        dataset = dataset.shuffle(max(1, int(dataset.cardinality())), seed=seed)
    return dataset if shuffle == "batch" else dataset.batch(batch_size)


def _check_length(dataset: Dataset | DistributedDataset, steps: int | None) -> None:
    if not dataset.cardinality():
        raise no_batch()
    if steps is None and dataset.cardinality() == INFINITE_CARDINALITY:
        kind = "distributed dataset" if isinstance(dataset, DistributedDataset) else "dataset"
        raise InputError(
            f"The dataset has no end, and of such a {kind}, you must specify the number of steps to run.",
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
