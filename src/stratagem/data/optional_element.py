"""Elements that may be missing: what `get_next_as_optional` of an iterator returns."""

from __future__ import annotations

from stratagem.core.errors import InputError, OutOfRangeError
from stratagem.data.structure import Tree


class NoValueError(OutOfRangeError, InputError):
    """There is no element. `get_next` raises the first kind of error in TensorFlow, `get_value` the second."""


class OptionalElement:
    """An element, or none (`tf.experimental.Optional`).

    Args:
        elements: The element, if there is one.
        element_spec: Structure of `TensorSpec` of it; of a distributed dataset, of one replica's part.

    Attributes:
        element_spec: The same.
    """

    def __init__(self, *elements: Tree, element_spec: Tree) -> None:
        self._elements = elements
        self.element_spec = element_spec

    def has_value(self) -> bool:
        """Whether there is an element: a Python bool, equal on all workers."""
        return bool(self._elements)

    def get_value(self) -> Tree:
        """Return the element.

        Raises:
            NoValueError: There is none.
        """
        if not self._elements:
            raise NoValueError(
                "The dataset has no more elements in this pass.",
                "Iterate with `for`, ask get_next_as_optional().has_value(), or begin again with iter(dataset).",
            )
        return self._elements[0]
