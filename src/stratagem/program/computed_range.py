"""Results of `tf.range` in a compiled function: `ComputedRange` where it computes the length, else `KnownRange`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import jax
import jax.numpy as jnp

from stratagem.core.eager import EagerArray
from stratagem.program.autograph import rewrite_loop
from stratagem.program.python_values import NeedsValue

MOST_UNROLLED: Final = 64
"""Turns of a loop over `tf.range` that are traced one by one. XLA takes longer than linearly for a program of more: of
300 turns with two draws of random numbers, minutes, and gigabytes of memory."""


class KnownRange(EagerArray):
    """Result of `tf.range(n)` where n is known: an array.

    A loop over a long one is rewritten, and compiled as one. A loop without turns is rewritten too: what it would give
    to a variable decides its form.
    """

    def __iter__(self) -> Iterator[Any]:
        here = inspect.currentframe()
        if not 0 < len(self) <= MOST_UNROLLED and here is not None and here.f_back is not None:
            rewrite_loop(here.f_back)
        return super().__iter__()


class ComputedRange:
    """Result of `tf.range(n)` and `range(n)` where n is computed: a loop that is rewritten counts to it.

    It is no tensor, whose size would have to be known.

    Args:
        start: The first number.
        limit: Where it ends, not included.
        delta: The distance.
        dtype: The dtype of the numbers; None for that of the bounds.
    """

    def __init__(self, start: Any, limit: Any, delta: Any, dtype: Any = None) -> None:
        self._bounds = start, limit, delta
        self.dtype = jnp.result_type(*self._bounds) if dtype is None else jnp.dtype(dtype)

    @property
    def count(self) -> jax.Array:
        """Number of its numbers, which is computed."""
        start, limit, delta = (jnp.asarray(bound, self.dtype) for bound in self._bounds)
        if jnp.issubdtype(self.dtype, jnp.integer):
            return jnp.maximum(-((start - limit) // delta), 0)
        return jnp.maximum(jnp.ceil((limit - start) / delta), 0).astype(jnp.int32)

    def number(self, place: Any) -> jax.Array:
        """Return the number at a place."""
        start, _, delta = (jnp.asarray(bound, self.dtype) for bound in self._bounds)
        return start + place.astype(self.dtype) * delta

    def _used(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NeedsValue(
            "uses tf.range of a number that it computes",
            "Give tf.range a Python number or a size from a shape. A loop `for i in tf.range(n)` may count to a "
            "computed n. In place of n numbers, use tf.where(tf.range(most) < n, x, 0).",
        )

    __getattr__ = __iter__ = __len__ = __getitem__ = __array__ = __jax_array__ = __bool__ = _used
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = _used
    __lt__ = __le__ = __gt__ = __ge__ = _used
