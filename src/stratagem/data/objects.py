"""Elements of an object that is read by position: Hugging Face datasets, map-style datasets of torch, Grain sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.specs import spec_of
from stratagem.data.structure import Tree, as_arrays, flatten, objects, stack


class ObjectSource:
    """What an object returns for each position from 0 to its length.

    Args:
        value: Has `__len__` and `__getitem__`; its `__getitems__` is asked for several elements at once, if it has one.
    """

    in_memory = False

    def __init__(self, value: Any) -> None:
        if not hasattr(value, "__len__") or not hasattr(value, "__getitem__"):
            raise InputError(
                f"from_source got a {type(value).__module__}.{type(value).__qualname__}.",
                "It has no length, or no elements by position, so that workers could not read some rows only.",
                "Give an object with __len__ and __getitem__; what can only be iterated over goes to "
                "Dataset.from_generator(lambda: iterable).",
            )
        self._value = value

    def __len__(self) -> int:
        return len(self._value)

    def take(self, index: np.ndarray) -> Tree:
        """Return the elements at these positions as columns, of dtype object where elements differ in shape."""
        elements = [as_arrays(element) for element in self._read(index.tolist())]
        flat = [flatten(element) for element in elements]
        if len({structure for _, structure in flat}) > 1:
            return stack(elements)  # says how they differ
        columns = zip(*(leaves for leaves, _ in flat), strict=True)
        return flat[0][1].unflatten([_column(column) for column in columns])

    def _read(self, index: list[int]) -> list[Any]:
        if hasattr(self._value, "__getitems__"):
            return list(self._value.__getitems__(index))
        return [self._value[place] for place in index]

    @property
    def spec(self) -> Tree:
        """Spec of an element, as the first one has it."""
        if not len(self):
            raise InputError(
                f"The {type(self._value).__name__} given to from_source is empty.",
                "Give one with at least one element.",
            )
        return spec_of(as_arrays(self._read([0])[0]))


def _column(leaves: Sequence[Any]) -> np.ndarray:
    return stack(leaves) if len({np.shape(leaf) for leaf in leaves}) == 1 else objects(leaves)
