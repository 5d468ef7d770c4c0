"""Call of a function that is traced: which arguments are inputs of a program, and which are part of its signature."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from stratagem.core.errors import InputError
from stratagem.mesh.mesh import Tree
from stratagem.mesh.values import DistributedValues
from stratagem.program.captured_names import is_equal_by_value
from stratagem.program.guards import CapturedValue, is_number


class Call:
    """A function with its arguments, the arrays among them taken out.

    Attributes:
        arrays: The arrays among the arguments.
        numbers: Where the numbers among them stand.
        objects: Arguments that count by identity, not by value: a model, a configuration.
        plain: All arguments that are no arrays.

    Args:
        fn: The function.
        args: Positional arguments.
        kwargs: Keyword arguments.
        whole: Whether an object stands for one array, though JAX would look into it.
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
        for leaf in leaves:
            _check_numeric(fn, leaf)
        self.fn = fn
        self._places = [i for i, leaf in enumerate(leaves) if _is_array(leaf)]
        self._leaves = [None if _is_array(leaf) else leaf for leaf in leaves]
        self.plain = [leaf for leaf in leaves if not _is_array(leaf)]
        self.arrays = [leaves[i] for i in self._places]
        numbers = [i for i, leaf in enumerate(self._leaves) if is_number(leaf)]
        self.numbers = [CapturedValue((i, self._structure), self._leaves, i) for i in numbers]
        self.objects = [leaf for leaf in self.plain if not is_number(leaf) and not is_equal_by_value(leaf)]

    @property
    def name(self) -> str:
        """The function's name, for messages."""
        return getattr(self.fn, "__qualname__", None) or type(self.fn).__name__

    @property
    def given(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All arguments, by position and by name."""
        return self._with(self.arrays)

    @property
    def signature(self) -> Hashable:
        """A key for what a program depends on besides the function, objects, and the values of numbers."""
        plain = tuple([_fact(leaf) for leaf in self._leaves])
        arrays = [array.stacked if isinstance(array, DistributedValues) else array for array in self.arrays]
        shapes = tuple([(array.shape, str(array.dtype)) for array in arrays])
        return (self._structure, plain, tuple(self._places), shapes)

    def on(self, arrays: Sequence[jax.Array]) -> Tree:
        """Call the function with `arrays` in their places."""
        args, kwargs = self._with(arrays)
        return self.fn(*args, **kwargs)

    def _with(self, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        leaves = list(self._leaves)
        for place, array in zip(self._places, arrays, strict=True):
            leaves[place] = array
        return self._structure.unflatten(leaves)


class TextArgument(InputError):
    """A function that is to be compiled was given text."""


def _check_numeric(fn: Callable[..., Tree], leaf: object) -> None:
    if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in "USOMm":
        is_text = leaf.dtype.kind in "US" or all(isinstance(each, str | bytes) for each in np.ravel(leaf)[:1])
        raise (TextArgument if is_text else InputError)(
            f"{getattr(fn, '__qualname__', fn)!s} is compiled, and was given an array of dtype {leaf.dtype}.",
            "A compiled function computes on devices, and no device holds text, dates or objects.",
            "Compute with text, dates and objects outside, or in dataset.map(...); a str of Python may be an argument.",
        )


def _is_array(leaf: object) -> bool:
    return isinstance(leaf, DistributedValues | jax.Array | np.ndarray | np.generic)


def _fact(leaf: Any) -> Hashable:
    """Return the part of the signature for a plain argument: its type, and its value if it is compared by value."""
    return (type(leaf), leaf) if not is_number(leaf) and is_equal_by_value(leaf) else type(leaf)
