"""Input that is no `stratagem.data.Dataset`: whatever else Keras accepts, read whole by every worker."""

from __future__ import annotations

import jax
import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.batches import RowsOf, State
from stratagem.feed.batch import as_numpy, count_rows
from stratagem.feed.kinds.base import Input, Pass
from stratagem.feed.same_batches import check_alike
from stratagem.feed.sources import READ_AHEAD, HasState, LocalRows, Reader, batch_spec_of, with_class_weight
from stratagem.mesh.mesh import Tree
from stratagem.replica.context import StrategyLike


class WholeBatches:
    """Any input that Keras accepts: every worker reads whole batches and keeps its rows.

    All workers must read the same batches in the same order (`feed.same_batches` compares the first of each pass).
    Batches are read when they are asked for; what reads ahead is the input itself.

    Args:
        batches: The input.
        rows_of: Which rows of a batch this worker needs.
        class_weight: Weight of each class, turned into sample weights; or None.
        pass_is_epoch: Whether the input hears of an epoch at each pass, as in a custom loop; Keras says so itself.
    """

    own = False

    def __init__(
        self,
        batches: Input,
        rows_of: RowsOf,
        class_weight: dict[int, float] | None = None,
        *,
        pass_is_epoch: bool = False,
    ) -> None:
        self.input = batches
        self.class_weight = class_weight
        self._rows_of = rows_of
        self._pass_is_epoch = pass_is_epoch
        self._reader: _WholeReader | None = None
        self._earlier: list[int] = []  # batches read in each pass that was begun
        self._first = 0
        self._sample: Tree = None
        self._batch: Tree = None

    @property
    def num_batches(self) -> int | None:
        return self.input.num_batches

    @property
    def may_end(self) -> bool:
        return self.input.may_end

    def open(self, *, read_ahead: int = READ_AHEAD, state: State | None = None) -> Reader:
        if state is not None:
            self.resume(state)
        self._end_reader()
        self._reader = _WholeReader(self)
        return self._reader

    def position(self, reading: HasState | None) -> State:
        if reading is not None:
            return reading.get_state()
        return {"passes": list(self._earlier), "batches": self._first, **self.input.note(in_pass=False)}

    def resume(self, state: State) -> None:
        try:
            earlier, first = [int(count) for count in state["passes"]], int(state["batches"])
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"The state of an input is {state!r}.",
                "Where to go on is not known; examples would be repeated or lost.",
                "Give set_state what get_state returned, for an input of the same kind.",
            ) from None
        self._end_reader()
        self.input.recall(state)
        self._earlier, self._first = earlier, first

    def first(self) -> Tree:
        if self._sample is None:
            sample = self._adapted(_standard(self.input.sample(self._earlier, self._first)))
            count_rows(sample)
            self._sample = jax.tree.map(np.zeros_like, sample)  # shapes and dtypes are all that is asked for
        return self._sample

    @property
    def element_spec(self) -> Tree:
        return batch_spec_of(self.first())

    def close(self) -> None:
        """End what the input has started: threads, processes. It may be read again."""
        self._end_reader()
        self.input.close()

    def begin(self) -> Pass:
        """Begin the next pass, for a reader."""
        if self._pass_is_epoch:
            self.input.on_epoch_begin()
        batches = self.input.begin(self._earlier, self._first)
        self._earlier.append(self._first)
        self._first = 0
        return batches

    def take(self, batches: Pass) -> LocalRows:
        """Return this worker's rows of the next batch, for the reader of the present pass."""
        batch = self._batch = _standard(next(batches))
        self._earlier[-1] += 1
        rows = count_rows(batch)
        part = self._rows_of(rows)
        return LocalRows(rows, self._adapted(jax.tree.map(lambda leaf: leaf[part], batch)))

    def check_alike(self, strategy: StrategyLike) -> None:
        """Compare the last batch with those of the other workers."""
        check_alike(strategy, self._batch, self.input.alike)

    def ended(self) -> None:
        """Hear that the present pass is over."""
        if self._pass_is_epoch:
            self.input.on_epoch_end()

    def place(self) -> State:
        """Return where the present pass stands."""
        return {"passes": self._earlier[:-1], "batches": self._earlier[-1], **self.input.note(in_pass=True)}

    def _end_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _adapted(self, data: Tree) -> Tree:
        return data if self.class_weight is None else with_class_weight(data, self.class_weight)


class _WholeReader:
    """One pass over `WholeBatches`, begun with its first batch."""

    def __init__(self, source: WholeBatches) -> None:
        self._source = source
        self._batches: Pass | None = None
        self._last: State | None = None  # where it stood when it ended

    def __iter__(self) -> _WholeReader:
        return self

    def __next__(self) -> LocalRows:
        if self._last is not None:
            raise StopIteration
        if self._batches is None:
            self._batches = self._source.begin()
        try:
            return self._source.take(self._batches)
        except BaseException:  # also the end
            self.close()
            raise

    def get_state(self) -> State:
        if self._last is not None:
            return self._last
        return self._source.position(None) if self._batches is None else self._source.place()

    def check_alike(self, strategy: StrategyLike) -> None:
        self._source.check_alike(strategy)

    def close(self) -> None:
        if self._last is None:
            self._last = self.get_state()
            if self._batches is not None:
                self._batches.close()
                self._source.ended()


def _standard(batch: Tree) -> Tree:
    """Return a batch as Keras nests one, in host memory: inputs, targets and weights in a tuple."""
    return as_numpy(tuple(batch) if isinstance(batch, list) else batch)
