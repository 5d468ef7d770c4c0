"""Batches that have numbers: reader processes read them from copies of the object that makes them."""

from __future__ import annotations

import functools
import pickle
from typing import Any

from stratagem.data.structure import Tree


class Copy:
    """An object as it was when it was pickled; each process unpickles it once.

    Args:
        pickled: Its pickle.
    """

    def __init__(self, pickled: bytes) -> None:
        self.pickled = pickled

    @functools.cached_property
    def value(self) -> Any:
        """The object, in a process that reads from it."""
        return pickle.loads(self.pickled)


class NumberedBatch:
    """A batch of a copied object; takes the place of a `Block` in a request to a reader process.

    Args:
        copy: What it belongs to.
        number: Its index there.
    """

    def __init__(self, copy: Copy, number: int) -> None:
        self.constants = (copy,)
        self._number = number

    def gather(self) -> Tree:
        """Read the batch."""
        return self.constants[0].value[self._number]
