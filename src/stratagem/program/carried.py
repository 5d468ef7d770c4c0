"""Values that leave branches and go through loops of a compiled function: what they are made of, and what fits them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import jax
import jax.numpy as jnp
import keras
import numpy as np

from stratagem.core.errors import InputError, UsageError
from stratagem.program.python_values import NeedsValue

_PYTHON: Final = (bool, int, float, complex)
ARRAYS: Final = (jax.Array, np.ndarray, np.generic, *_PYTHON)
"""What a compiled branch or loop carries."""


class Unassigned:
    """Stands for a variable of Python without a value; using it raises.

    Args:
        why: What is the matter with which variable.
    """

    def __init__(self, why: str) -> None:
        self.why = why

    def _used(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise UsageError(
            f"A variable without a value is used: {self.why}.",
            "A compiled function contains both branches, and after them the variable needs a value from either one.",
            "Give it a value of one shape and dtype before the condition or the loop, or in both branches.",
        )

    __getattr__ = __call__ = __iter__ = __len__ = __bool__ = __getitem__ = __float__ = __int__ = __index__ = _used
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = __pow__ = (
        _used
    )
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __matmul__ = __array__ = __jax_array__ = _used  # pyright: ignore
    __hash__ = object.__hash__


class Adapting(ABC):
    """Base of values that take the form of another value with which they are carried, as theirs is not known yet."""

    @abstractmethod
    def like(self, other: Any) -> Any:
        """Return this value in the form of another, as far as it has none of its own."""


class Awaited(Adapting):
    """Stands for a value that nobody reads before it is given, so that any value of its form may take its place."""

    def like(self, other: Any) -> Any:
        """Return zeros in the form of the other value; this one, if that is none."""
        if isinstance(other, Awaited | Unassigned):
            return self
        leaves, structure = flat(other)
        return structure.unflatten(
            [jnp.zeros(np.shape(leaf), jnp.result_type(leaf)) if isinstance(leaf, ARRAYS) else leaf for leaf in leaves]
        )


def alike(first: Any, second: Any) -> tuple[Any, Any]:
    """Return two values, those in them that adapt in the form of those in their places."""
    firsts, structure = jax.tree.flatten(first, is_leaf=_adapts)
    seconds, other = jax.tree.flatten(second, is_leaf=_adapts)
    if isinstance(first, Awaited) or isinstance(second, Awaited):
        return _adapted(first, second)
    if structure != other or not any(map(_adapts, firsts)):
        return first, second
    pairs = [_adapted(a, b) for a, b in zip(firsts, seconds, strict=True)]
    return structure.unflatten([a for a, _ in pairs]), structure.unflatten([b for _, b in pairs])


def alike_in_form(first: Any, second: Any) -> tuple[Any, Any]:
    """Return two values as `alike` does, of which only shapes and dtypes count: their tracing has ended."""
    if not any(map(_adapts, [*parts(first), *parts(second)])):
        return first, second
    return alike(*[value if isinstance(value, Awaited) else Awaited().like(value) for value in (first, second)])


def parts(value: Any) -> list[Any]:
    """Return the parts of a value; one that adapts is a part."""
    return jax.tree.leaves(value, is_leaf=_adapts)


def _adapts(leaf: Any) -> bool:
    return isinstance(leaf, Adapting)


def _adapted(first: Any, second: Any) -> tuple[Any, Any]:
    first = first.like(second) if isinstance(first, Adapting) else first
    return first, second.like(first) if isinstance(second, Adapting) else second


def read(value: Any) -> Any:
    """Return the value of a variable; anything else as it is."""
    return value.value if isinstance(value, keras.Variable) else value


def values_of(names: Sequence[str], scope: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of variables of Python; `Unassigned` for those without one."""
    return tuple([scope[name] if name in scope else Unassigned(name) for name in names])


def flat(value: Any) -> tuple[list[Any], Any]:
    """Return the parts of a value, and its structure."""
    leaves, structure = jax.tree.flatten(value, is_leaf=lambda leaf: leaf is None or isinstance(leaf, Unassigned))
    return [read(leaf) for leaf in leaves], structure


def is_weak(value: Any) -> bool:
    """Whether a number takes the dtype of one beside it."""
    return isinstance(value, _PYTHON) or bool(getattr(value, "weak_type", False))


def common_dtype(first: Any, second: Any) -> Any:
    """Return the dtype that two values have in common; None where they are no arrays of one shape and dtype.

    A number of Python takes the dtype of the other.
    """
    if not isinstance(first, ARRAYS) or not isinstance(second, ARRAYS) or np.shape(first) != np.shape(second):
        return None
    kinds = [jnp.result_type(value) for value in (first, second)]
    if kinds[0] == kinds[1]:
        return kinds[0]
    return jnp.result_type(first, second) if is_weak(first) or is_weak(second) else None


def shown(value: Any) -> str:
    """Return a value as an error shows it: dtypes and shapes of tensors."""
    if isinstance(value, ARRAYS) and not isinstance(value, _PYTHON):
        return f"{jnp.result_type(value)}{list(np.shape(value))}"
    leaves, structure = flat(value)
    if len(leaves) == 1 and leaves[0] is value:
        return repr(value)
    return str(structure.unflatten([shown(leaf) for leaf in leaves]))


def scalar(test: Any) -> jax.Array:
    """Return a computed condition as a boolean.

    Raises:
        InputError: It has several elements.
    """
    if np.size(test) != 1:
        raise InputError(
            f"A condition is a tensor of shape {np.shape(test)}.",
            "Such a tensor is neither true nor false as a whole.",
            "Write tf.reduce_all(condition), tf.reduce_any(condition), or tf.where(condition, x, y).",
        )
    return jnp.asarray(test, bool).reshape(())


def used_at_once(value: Any) -> Any:
    """Return a value that is used where it is made, so that it must be one."""
    return value._used() if isinstance(value, Unassigned) else value


def refused(what: str) -> NeedsValue:
    """Return the error for what a function does where its condition is computed."""
    return NeedsValue(what, "Leave that out of the statement, or write tf.cond, tf.where or tf.while_loop.")
