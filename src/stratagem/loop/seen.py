"""Arguments that a compiled function has seen, as shapes: what files of its programs are written for."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np

from stratagem.data.specs import TensorSpec
from stratagem.mesh.mesh import Tree
from stratagem.program.guards import reference_to
from stratagem.program.lru import LastUsed

PLAIN: Final = (bool, int, float, str, type(None))
"""Kinds of arguments that count by value."""

_MOST: Final = 128

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments by position and by name."""


class SeenArguments:
    """The arguments of a function's calls that were traced. Objects among them are not kept alive."""

    def __init__(self) -> None:
        self._seen: LastUsed[Tree] = LastUsed(_MOST)

    def add(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Note the arguments of a call. `TensorSpec`s may stand for tensors."""
        try:
            seen = jax.tree.map(_kind, (tuple(args), dict(kwargs)), is_leaf=lambda leaf: leaf is None)
        except jax.errors.InconclusiveDimensionOperation:  # any size: the function is being written to a file
            return
        leaves, structure = jax.tree.flatten(seen, is_leaf=lambda leaf: leaf is None)
        self._seen.keep(repr((leaves, structure)), seen)

    def of(self, owner: Any = None) -> list[Arguments]:
        """Return the arguments, tensors as `TensorSpec`. Calls with other objects are left out.

        Args:
            owner: The object whose method it is; None for a function. It is not among the arguments.
        """
        found = []
        for args, kwargs in self._seen.values():
            if owner is not None:
                first, *args = args or (None,)
                if not (isinstance(first, _Object) and first.refer() is owner):
                    continue
            if not any(isinstance(leaf, _Object) for leaf in jax.tree.leaves((tuple(args), kwargs))):
                found.append((tuple(args), kwargs))
        return found


class _Object:
    def __init__(self, value: Any) -> None:
        self.refer = reference_to(value)
        self._said = f"{type(value).__name__} {id(value)}"

    def __repr__(self) -> str:
        return self._said


def _kind(leaf: Any) -> Any:
    if isinstance(leaf, (TensorSpec, *PLAIN)):
        return leaf
    if isinstance(leaf, jax.Array | np.ndarray | np.generic):
        return TensorSpec(leaf.shape, leaf.dtype)
    return _Object(leaf)


def filled(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Return the arguments of a call, those given by name in their places, with the defaults of those not given.

    Args:
        signature: The function's.
        args: Arguments by position.
        kwargs: Arguments by name.

    Raises:
        TypeError: The function does not take them.
    """
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args, bound.kwargs
