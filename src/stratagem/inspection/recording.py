"""Recording of the last steps: the state before them, their batches, and what the program changed between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from stratagem.feed.batch import GlobalBatch
from stratagem.inspection.states import State, copied


class Recorded(NamedTuple):
    """One step, or several that ran as one.

    Args:
        first: The number of the step, or of the first of them; `fit` begins with step 1.
        batch: The batch.
        changed: Values that the program assigned to variables before it, by the place of the variable: a learning rate,
            a metric that begins again.
    """

    first: int
    batch: GlobalBatch
    changed: Mapping[int, jax.Array]

    def before(self, state: Sequence[jax.Array]) -> State:
        """Return the state that it began with.

        Args:
            state: The state after the previous step.
        """
        return [self.changed.get(i, value) for i, value in enumerate(state)]

    @property
    def last(self) -> int:
        """The number of the last step."""
        return self.first + self.batch.steps - 1

    def singly(self) -> Iterator[Recorded]:
        """Yield its steps one by one."""
        for i in range(self.batch.steps):
            data = jax.tree.map(lambda leaf, i=i: leaf[i], self.batch.data) if self.batch.steps > 1 else self.batch.data
            yield Recorded(self.first + i, GlobalBatch(data, self.batch.split), self.changed if i == 0 else {})


class Recording:
    """Everything that is needed to run the last steps again.

    Args:
        values: The state before the first of them.
        last: The result of the step before; its batch is known to be harmless. None if there is none.
    """

    def __init__(self, values: Sequence[jax.Array], last: Recorded | None) -> None:
        self.start = copied(values)
        self.steps: list[Recorded] = []
        self.last_before = last
        self._known: Sequence[jax.Array] = list(values)

    def before_step(self, number: int, values: Sequence[jax.Array], batch: GlobalBatch) -> None:
        """Note a step that is about to run.

        Args:
            number: Its number.
            values: The state that it is given.
            batch: The batch.
        """
        places = [i for i, value in enumerate(values) if value is not self._known[i]]
        changed = dict(zip(places, copied([values[i] for i in places]) if places else [], strict=True))
        self.steps.append(Recorded(number, _kept(batch), changed))

    def after_step(self, values: Sequence[jax.Array]) -> None:
        """Note what the step returned."""
        self._known = list(values)


def _kept(batch: GlobalBatch) -> GlobalBatch:
    """Return a batch that the program does not change: a generator may fill the same array again."""
    return GlobalBatch(jax.tree.map(_kept_leaf, batch.data), batch.split, batch.steps)


def _kept_leaf(leaf: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
    return leaf.copy() if isinstance(leaf, np.ndarray) and leaf.flags.writeable else leaf
