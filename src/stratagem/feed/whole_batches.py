"""Inputs of `fit` that are no `stratagem.data.Dataset`: every worker reads whole batches, and keeps its rows."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from stratagem.core.errors import InputError, PeerError
from stratagem.data.batches import Batch, RowsOf, State
from stratagem.feed.batch import Adapt, as_it_is, as_numpy, count_rows
from stratagem.feed.kinds.base import Input, Pass
from stratagem.feed.source import Reader, Source, read_together
from stratagem.mesh.mesh import Tree
from stratagem.replica.context import StrategyLike


class WholeBatches(Source):
    """Any input that Keras accepts, read whole.

    All workers must read the same batches in the same order (`check_alike` compares the first of each pass).
    Batches are read when they are asked for; what reads ahead is the input itself.

    Args:
        batches: The input.
        strategy: Whose workers read it.
        adapt: What is done to the arrays of each batch.
        rows_of: Which rows of a batch this worker needs, where these are not its share of a global batch.
        on_host: What is done to whole batches, before their rows are taken.
        pass_is_epoch: Whether the input hears of an epoch at each pass, as in a custom loop; Keras says so itself.
    """

    def __init__(
        self,
        batches: Input,
        strategy: StrategyLike,
        adapt: Adapt = as_it_is,
        *,
        rows_of: RowsOf | None = None,
        on_host: Adapt = as_it_is,
        pass_is_epoch: bool = False,
    ) -> None:
        self.input = batches
        self.pass_is_epoch = pass_is_epoch
        self.rows_of: RowsOf = rows_of or strategy.mesh.local_rows
        self._strategy, self._adapt, self._on_host = strategy, adapt, on_host
        self._reading: _WholePass | None = None
        self._earlier: list[int] = []  # batches read in each pass that was begun
        self._first = 0
        self._sample: Tree = None

    @property
    def num_batches(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]  it may change
        return self.input.num_batches

    @property
    def may_end(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.input.may_end

    def open(self, state: State | None = None) -> Reader:
        batches = self.batches(state)
        return read_together(
            batches,
            self._strategy,
            self._adapt,
            asks=self.may_end,
            compare=lambda: check_alike(self._strategy, batches.batch, self.input.alike),
        )

    def batches(self, state: State | None = None) -> _WholePass:
        """Begin a pass of this worker alone.

        Args:
            state: A position of an earlier pass to go on from; later passes follow that one.
        """
        if state is not None:
            self.resume(state)
        self._end_pass()
        self._reading = _WholePass(self)
        return self._reading

    def position(self) -> State:
        return {"passes": list(self._earlier), "batches": self._first, **self.input.note(in_pass=False)}

    def resume(self, state: State) -> None:
        try:
            earlier, first = [int(count) for count in state["passes"]], int(state["batches"])
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"The state of an input is {state!r}.",
                "Give set_state what get_state returned, for an input of the same kind.",
            ) from None
        self._end_pass()
        self.input.recall(state)
        self._earlier, self._first = earlier, first

    def first(self) -> Tree:
        if self._sample is None:
            sample = self._adapt(self.standard(self.input.sample(self._earlier, self._first)))
            count_rows(sample)
            self._sample = jax.tree.map(np.zeros_like, sample)  # shapes and dtypes are all that is asked for
        return self._sample

    def close(self) -> None:
        """End what the input has started: threads, processes. It may be read again."""
        self._end_pass()
        self.input.close()

    def on_epoch_begin(self) -> None:
        self.input.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self.input.on_epoch_end()

    def begin(self) -> tuple[list[int], Pass]:
        """Begin the next pass of the input: return the batches that were read in each pass, and the pass."""
        if self.pass_is_epoch:
            self.input.on_epoch_begin()
        batches = self.input.begin(self._earlier, self._first)
        self._earlier.append(self._first)
        self._first = 0
        return self._earlier, batches

    def standard(self, batch: Tree) -> Tree:
        """Return a batch as Keras nests one, in host memory: inputs, targets and weights in a tuple."""
        return as_numpy(self._on_host(as_numpy(tuple(batch) if isinstance(batch, list) else batch)))

    def _end_pass(self) -> None:
        if self._reading is not None:
            self._reading.close()
            self._reading = None


class _WholePass:
    """One pass over whole batches, begun with its first one.

    Args:
        source: The batches.

    Attributes:
        batch: The last batch, whole.
    """

    def __init__(self, source: WholeBatches) -> None:
        self._source = source
        self._batches: Pass | None = None
        self._counts: list[int] = []
        self._last: State | None = None  # where it stood when it ended
        self.batch: Tree = None

    def __iter__(self) -> _WholePass:
        return self

    def __next__(self) -> Batch:
        if self._last is not None:
            raise StopIteration
        if self._batches is None:
            self._counts, self._batches = self._source.begin()
        try:
            self.batch = self._source.standard(next(self._batches))
            self._counts[-1] += 1
            rows = count_rows(self.batch)
        except BaseException:  # also the end
            self.close()
            raise
        part = self._source.rows_of(rows)
        return Batch(rows, jax.tree.map(lambda leaf: leaf[part], self.batch))

    def get_state(self) -> State:
        if self._last is not None:
            return self._last
        if self._batches is None:
            return self._source.position()
        *earlier, now = self._counts
        return {"passes": earlier, "batches": now, **self._source.input.note(in_pass=True)}

    def close(self) -> None:
        if self._last is None:
            self._last = self.get_state()
            if self._batches is not None:
                self._batches.close()
                if self._source.pass_is_epoch:
                    self._source.input.on_epoch_end()


# Whether all workers read the same ones -------------------------------------------------------------

_TOLERANCE = 1e-3
"""Part of a row's size by which processors of two kinds may differ, when they compute floats."""


def check_alike(strategy: StrategyLike, batch: Tree, remedy: str) -> None:
    """Compare a batch with what the other workers read. All workers must call it at the same point.

    Workers tell each other a digest; only where these differ, they compare row by row, as machines of two kinds may
    compute the last bits of a float differently.

    Args:
        strategy: Whose workers.
        batch: Structure of arrays, each with the rows along its first axis.
        remedy: What to write so that all read the same.

    Raises:
        PeerError: The batches differ; the message names the workers.
    """
    digests = strategy.from_all("digest of the first batch", _digest(batch))
    if len(set(digests)) == 1:
        return
    rows = strategy.from_all("rows of the first batch", _row_sketches(batch))
    groups: list[list[int]] = []
    for worker, sketch in enumerate(rows):
        like = next((group for group in groups if _close(rows[group[0]], sketch)), None)
        if like is None:
            groups.append([worker])
        else:
            like.append(worker)
    if len(groups) > 1:
        named = "; ".join(f"worker{'s' * (len(group) > 1)} {', '.join(map(str, group))}" for group in groups)
        raise PeerError(
            f"The first batch of this pass is not the same on all workers. Workers that read the same batch: {named}.",
            "Each worker takes its rows of the batch that it reads. Some examples would be trained on twice, and "
            "others never.",
            remedy,
        )


def _digest(batch: Tree) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for leaf in jax.tree.leaves(batch):
        digest.update(f"{leaf.dtype}{leaf.shape}".encode())
        # By its bytes: not every dtype, such as bfloat16, has a buffer of its own.
        values = repr(leaf.tolist()).encode() if leaf.dtype.hasobject else np.ascontiguousarray(leaf).reshape(-1)
        digest.update(values if isinstance(values, bytes) else values.view(np.uint8).data)
    return digest.hexdigest()


def _row_sketches(batch: Tree) -> list[list[list[float]]]:
    """Return, for each array and each of its rows, a number that depends on all values in their order, and the size."""
    sketches = []
    for leaf in jax.tree.leaves(batch):
        try:
            values = leaf.reshape(len(leaf), -1).astype(np.float64)
        except (TypeError, ValueError):  # text
            values = np.array([[zlib.crc32(repr(row).encode())] for row in leaf.tolist()], np.float64)
        along = np.cos(np.arange(values.shape[1]) + 1.0)
        sketches.append([(values @ along).tolist(), np.linalg.norm(values, axis=1).tolist()])
    return sketches


def _close(one: Sequence[Any], other: Sequence[Any]) -> bool:
    if [len(sums) for sums, _ in one] != [len(sums) for sums, _ in other]:
        return False
    return all(
        bool(np.all(np.abs(np.subtract(a, b)) <= _TOLERANCE * np.maximum(size_a, size_b)))
        for (a, size_a), (b, size_b) in zip(one, other, strict=True)
    )
