"""The call of a traced function: which of its arguments are inputs of a program, and which part of its signature."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from stratagem.replica.captured import Place, is_number
from stratagem.replica.mesh import Tree
from stratagem.replica.values import DistributedValues


class Call:
    """A function with its arguments, the arrays among them taken out.

    Args:
        fn: The function.
        args: Positional arguments.
        kwargs: Keyword arguments.
        whole: What stands for one array, though JAX would look into it.
    """

    def __init__(
        self,
        fn: Callable[..., Tree],
        args: Sequence[Tree],
        kwargs: Mapping[str, Tree],
        whole: Callable[[object], bool] | None = None,
    ) -> None:
        leaves, self._structure = jax.tree.flatten((tuple(args), dict(kwargs)), is_leaf=whole)
        leaves: list[Any] = [leaf.full_lower() if isinstance(leaf, Tracer) else leaf for leaf in leaves]
        self.fn = fn
        self._places = [i for i, leaf in enumerate(leaves) if _is_array(leaf)]
        self._leaves = [None if _is_array(leaf) else leaf for leaf in leaves]
        self.plain = [leaf for leaf in leaves if not _is_array(leaf)]
        self.arrays = [leaves[i] for i in self._places]
        self.numbers = [
            Place((i, self._structure), self._leaves) for i, leaf in enumerate(self._leaves) if is_number(leaf)
        ]

    @property
    def signature(self) -> Hashable:
        """What a program depends on, besides the function and the values of numbers."""
        plain = tuple(int if is_number(leaf) else _fact(leaf) for leaf in self._leaves)
        arrays = [array.stacked if isinstance(array, DistributedValues) else array for array in self.arrays]
        shapes = tuple((array.shape, str(array.dtype)) for array in arrays)
        return (self._structure, plain, tuple(self._places), shapes)

    def forget_arrays(self) -> None:
        """Keep only the places of arrays: a program lives longer than the batch that it was made for."""
        self.arrays = []

    def on(self, arrays: Sequence[jax.Array]) -> Tree:
        """Call the function with `arrays` in their places."""
        leaves = list(self._leaves)
        for place, array in zip(self._places, arrays, strict=True):
            leaves[place] = array
        args, kwargs = self._structure.unflatten(leaves)
        return self.fn(*args, **kwargs)


def _is_array(leaf: object) -> bool:
    return isinstance(leaf, DistributedValues | jax.Array | np.ndarray | np.generic)


def _fact(leaf: Any) -> Hashable:
    """Return what of a plain argument a program depends on: its type and value, or which object it is.

    The program must hold the object, so that its identity stays its own.
    """
    try:
        hash(leaf)
    except TypeError:
        return (type(leaf), id(leaf))
    return (type(leaf), leaf)
