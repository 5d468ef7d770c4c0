"""`Feed`: the last part of the way of a batch, from the rows of each step to arrays on the devices."""

from __future__ import annotations

from stratagem.core.progress import Phase
from stratagem.data.batches import State
from stratagem.feed.batch import GlobalBatch, place_batch, place_together
from stratagem.feed.kinds.base import no_batch
from stratagem.feed.source import Reader, Rows, Source
from stratagem.mesh.mesh import ReplicaMesh, Tree
from stratagem.mesh.split import Split


class Feed:
    """One pass over a source, as global batches on the mesh. Keras sees their arrays, the step takes them whole.

    The reader is opened with the first batch. Keras also asks for iterators that it never reads, and a pass over a
    dataset that nobody sees would change the order of the next epoch.

    Args:
        source: The batches.
        mesh: Where they go.
        taken: Batches of this pass that were taken before the program was restarted.
        epoch_steps: After how many batches an epoch ends, where the program says so; a pass may last several epochs.

    Attributes:
        fetches_ahead: Whether the next batches go to the devices while a step runs there.
    """

    def __init__(self, source: Source, mesh: ReplicaMesh, taken: int = 0, epoch_steps: int | None = None) -> None:
        self._source = source
        self._mesh = mesh
        self._epoch_steps = epoch_steps
        self._reader: Reader | None = None
        self._before: State | None = None  # the position before what is looked at or placed ahead
        self._seen: list[Rows | None] = []
        self._placed: list[GlobalBatch] | None = None
        self._ended = False
        self.fetches_ahead = mesh.fetches_ahead and source.reads_ahead
        self.taken = taken

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Tree:
        return self.take(1)[0].data

    def take(self, count: int) -> list[GlobalBatch]:
        """Return the batches of up to `count` steps, fewer where the data or the epoch ends; in one if they fit.

        Raises:
            InputError: The pass has none at all; Keras would fail without saying so.
            StopIteration: There is none left.
        """
        batches, self._placed, self._before = self._placed, None, None
        if batches is None:
            batches = self._place(count)
        if not batches:
            self._ended = True
            if not self.taken:
                raise no_batch()
            raise StopIteration
        self.taken += sum(batch.steps for batch in batches)
        return batches

    def due(self, count: int) -> int:
        """Return how many of the next `count` steps belong to this epoch."""
        return count if self._epoch_steps is None else min(count, self._epoch_steps - self.taken % self._epoch_steps)

    def is_at_end(self) -> bool:
        """Whether there is no further batch; reads it where that is not known. All workers ask at the same point."""
        if self._placed is not None:
            return not self._placed
        if not self._seen:
            self._before = self.position()
            self._seen.append(self._read())
        return self._seen[0] is None

    def fetch_ahead(self, count: int) -> None:
        """Put what `take` returns next on the devices, where a step runs now. All workers do it alike."""
        if not self._ended and self._placed is None:
            self._before = self.position()
            self._placed = self._place(count)

    @property
    def is_under_way(self) -> bool:
        """Whether the pass has begun and not ended."""
        return (self._reader is not None or self.taken > 0) and not self._ended

    def position(self) -> State:
        """Return where the pass stands, behind the last batch that was taken."""
        if self._before is not None:
            return self._before
        return self._source.position() if self._reader is None else self._reader.get_state()

    def close(self) -> None:
        """Stop reading, in the background too."""
        if self._reader is not None:
            self._reader.close()

    def _place(self, count: int) -> list[GlobalBatch]:
        rows: list[Rows] = []
        while len(rows) < self.due(count) and (one := self._seen.pop() if self._seen else self._read()) is not None:
            rows.append(one)
        splits, parts = [Split.of(one.shares) for one in rows], [one.local for one in rows]
        with self._mesh.progress.during(Phase.COPYING):
            if len(rows) == count > 1 and not self._mesh.central:  # each step of a centre stops there
                together = place_together(self._mesh, splits, parts)
                if together is not None:
                    return [together]
            return [place_batch(self._mesh, split, part) for split, part in zip(splits, parts, strict=True)]

    def _read(self) -> Rows | None:
        if self._reader is None:
            self._reader = self._source.open()
        return next(self._reader, None)
