"""One-shot iterators of TensorFlow 1: `get_next()` is called once, and its result stands for all elements."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from stratagem.core.errors import UsageError
from stratagem.data.structure import Tree, flatten

_standing_in: contextvars.ContextVar[bool] = contextvars.ContextVar("stratagem_standing_in", default=False)


class Elements(Protocol):
    """A dataset, as far as its iterators know it."""

    @property
    def element_spec(self) -> Tree: ...

    def __iter__(self) -> Iterator[Tree]: ...

    def map(self, map_func: Callable[..., Tree]) -> Any: ...


class OneShotIterator:
    """An iterator over a dataset (`tf.compat.v1.data.Iterator`).

    Args:
        dataset: The dataset.
    """

    def __init__(self, dataset: Elements) -> None:
        self._dataset = dataset
        self._elements: Iterator[Tree] | None = None

    def get_next(self, name: str | None = None) -> Tree:
        """Return the next element; in an `input_fn`, a placeholder for the element of each step.

        Args:
            name: Accepted as in TensorFlow.
        """
        if _standing_in.get():
            leaves, structure = flatten(self._dataset.element_spec)
            return structure.unflatten([Upcoming(self._dataset, place, spec) for place, spec in enumerate(leaves)])
        if self._elements is None:
            self._elements = iter(self._dataset)
        return next(self._elements)

    def __iter__(self) -> OneShotIterator:
        return self

    def __next__(self) -> Tree:
        return self.get_next()

    @property
    def element_spec(self) -> Tree:
        """The tree of `TensorSpec` of an element."""
        return self._dataset.element_spec

    @property
    def initializer(self) -> None:
        """None: it needs none."""


class Upcoming:
    """Placeholder for a component of the element of each step.

    Args:
        dataset: The dataset of the elements.
        place: Number of the component among the leaves of an element.
        spec: The `TensorSpec` of the component.
    """

    def __init__(self, dataset: Elements, place: int, spec: Any) -> None:
        self.dataset = dataset
        self.place = place
        self.shape = spec.shape
        self.dtype = spec.dtype

    def _no_value(self, *args: Any, **kwargs: Any) -> Any:
        raise UsageError(
            f"input_fn computed with the result of get_next(), of shape {self.shape} and dtype {self.dtype}.",
            "The result stands for the elements of all steps, and has no value.",
            "Compute in dataset.map(function) before make_one_shot_iterator, or return the dataset itself.",
        )

    __array__ = __jax_array__ = __getitem__ = _no_value


@contextlib.contextmanager
def standing_in() -> Iterator[None]:
    """Let `get_next` return placeholders: the function that runs is called once, not at each step."""
    token = _standing_in.set(True)
    try:
        yield
    finally:
        _standing_in.reset(token)


def dataset_of_upcoming(tree: Tree) -> Any:
    """Return the dataset of the elements that a function made of `get_next`; None where it made no use of it.

    Raises:
        UsageError: Parts are those of several iterators, or something else is among them.
    """
    leaves, structure = flatten(tree)
    if not any(isinstance(leaf, Upcoming) for leaf in leaves):
        return None
    dataset = next(leaf.dataset for leaf in leaves if isinstance(leaf, Upcoming))
    if not all(isinstance(leaf, Upcoming) and leaf.dataset is dataset for leaf in leaves):
        raise UsageError(
            "input_fn returned the result of get_next() together with other values.",
            "The other values would stay the same at each step.",
            "Return the dataset itself, and add the other values to it with Dataset.zip and map.",
        )
    places = [leaf.place for leaf in leaves]

    def chosen(first: Tree, *others: Tree) -> Tree:
        values = flatten((first, *others) if others else first)[0]
        return structure.unflatten([values[place] for place in places])

    return dataset.map(chosen)
