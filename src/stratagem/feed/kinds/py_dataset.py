"""`keras.utils.PyDataset`: batches by number, in an order that depends on a seed and the number of the pass alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

import keras
import numpy as np

from stratagem.core.errors import UsageError
from stratagem.data.batches import State
from stratagem.feed.kinds.base import ChiefSeed
from stratagem.feed.kinds.by_number import NumberedInput, Processes
from stratagem.mesh.mesh import Tree

_BEGIN: Final = "b"
_END: Final = "e"
"""What a dataset hears of epochs, in the order in which it does: Keras 3 tells of an end before the first begins."""


class PyDatasetInput(NumberedInput):
    """A PyDataset, read with its own `workers`, `use_multiprocessing` and `max_queue_size`.

    Keras draws the order of a shuffled PyDataset from Python's `random` at each pass: workers would each have
    their own, and a restarted program another one. Its processes are forks, which hang or fail beside JAX's
    threads; here they are those of `stratagem.data.processes`, once for all epochs.

    Args:
        dataset: The user's.
        shuffle: Whether the order of its batches is random.
        chief_seed: Makes the workers agree on a seed.
    """

    alike = (
        "Let __getitem__ return the same batch for the same index on every worker. If it draws random numbers, "
        "use the index as their seed."
    )

    def __init__(self, dataset: keras.utils.PyDataset, shuffle: bool, chief_seed: ChiefSeed) -> None:
        super().__init__(dataset)
        self._dataset = dataset
        # Python's generator follows keras.utils.set_random_seed, as Keras's own shuffle does.
        self._seed = chief_seed("order of a PyDataset", random.getrandbits(31)) if shuffle else None
        self._heard = ""
        self._processes: Processes | None = None

    @property
    def num_batches(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]  it may change
        try:
            return self._dataset.num_batches
        except NotImplementedError:  # it says nothing of its length
            return None

    def note(self, *, in_pass: bool) -> State:
        # An epoch that is under way begins again where it is gone on with.
        return {"seed": self._seed, "heard": self._heard.removesuffix(_BEGIN)}

    def recall(self, note: State) -> None:
        """Take the seed, and let the dataset hear of the epochs before.

        Raises:
            UsageError: The dataset has heard of later ones, which it cannot take back.
        """
        kind, heard = type(self._dataset), str(note["heard"])
        hears = kind.on_epoch_begin, kind.on_epoch_end
        if not heard.startswith(self._heard.removesuffix(_BEGIN)) and hears != (
            keras.utils.PyDataset.on_epoch_begin,
            keras.utils.PyDataset.on_epoch_end,
        ):
            raise UsageError(
                f"A position in epoch {heard.count(_END)} of a {kind.__name__} was to be restored, but its "
                f"on_epoch_end has already been called for {self._heard.count(_END)} epochs.",
                "The changes that on_epoch_end made cannot be undone.",
                "Make it again, and restore the position before anything is read.",
            )
        for each in heard[len(self._heard) :]:
            self.on_epoch_begin() if each == _BEGIN else self.on_epoch_end()
        self._seed, self._heard = note["seed"], heard

    def on_epoch_begin(self) -> None:
        self._dataset.on_epoch_begin()
        self._heard += _BEGIN

    def on_epoch_end(self) -> None:
        if self._reading is not None:
            self._reading.pause()  # what the dataset changes now must not be read at the same time, nor before
        self._dataset.on_epoch_end()
        self._heard += _END

    def close(self) -> None:
        if self._processes is not None:
            self._processes.close()
        self._processes = None
        super().close()

    def _at_once(self) -> tuple[int, int]:
        workers = self._dataset.workers
        return 0 if workers == 1 and not self._dataset.use_multiprocessing else workers, self._dataset.max_queue_size

    def _numbers(self, number: int, first: int) -> Iterator[int]:
        count = self.num_batches
        if count is None or self._seed is None:
            return super()._numbers(number, first)
        bits = np.random.Philox(np.random.SeedSequence(self._seed, spawn_key=(number,)))
        return iter(np.argsort(bits.random_raw(count), kind="stable")[first:].tolist())

    def _read_by(self) -> Callable[[int], Tree]:
        if not self._dataset.use_multiprocessing:
            return super()._read_by()
        self._processes = self._processes or Processes(self._dataset.workers)
        self._processes.send(self._dataset)
        return self._processes.read
