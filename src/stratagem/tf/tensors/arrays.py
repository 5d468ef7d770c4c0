"""`tf.TensorArray`: tensors by number, that a loop writes and reads.

As long as all numbers are known, its tensors are a list, which may grow and hold tensors of unlike shapes. The first
computed number makes one array of them, of which a compiled loop can carry no more than there is room for.
Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/TensorArray
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError
from stratagem.program.carried import Adapting
from stratagem.program.tracing import current_tracing, is_traced
from stratagem.tf.dtypes import as_dtype
from stratagem.tf.tensors.arranging import concat, split, stack, unstack
from stratagem.tf.tensors.checks import assert_less, assert_non_negative
from stratagem.tf.tensors.operation import held, refusal, tensor
from stratagem.tf.tensors.shapes import TensorShape


@jax.tree_util.register_pytree_node_class
class TensorArray(Adapting):
    """Tensors by number (`tf.TensorArray`).

    Outside compiled functions `write` changes the array. In a compiled function it returns a new array, which must be
    used: `array = array.write(i, x)`. Numbers outside the array are refused, also if a compiled function computes them.

    Args:
        dtype: The dtype of the tensors.
        size: The number of tensors.
        dynamic_size: Whether writing beyond the size makes the array larger. A compiled function can do this only for
            known numbers: those of Python, of shapes, and of loops over them.
        clear_after_read: No effect: a tensor may be read again.
        tensor_array_name: No effect.
        handle: Only None is supported.
        flow: Only None is supported.
        infer_shape: Whether all tensors must have one shape.
        element_shape: The shape of the tensors, with None for unknown sizes. Tensors that are read before they are
            written are zeros of this shape.
        colocate_with_first_write_call: No effect.
        name: No effect.

    Raises:
        InputError: There is no size, or a compiled function computes it.

    Example:
        >>> array = TensorArray("float32", size=3)
        >>> for i in range(3):
        ...     array = array.write(i, [float(i), 1.0])
        >>> array.stack().tolist()
        [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]
    """

    def __init__(
        self,
        dtype: Any,
        size: Any = None,
        dynamic_size: bool | None = None,
        clear_after_read: bool | None = None,
        tensor_array_name: str | None = None,
        handle: Any = None,
        flow: Any = None,
        infer_shape: bool = True,
        element_shape: Any = None,
        colocate_with_first_write_call: bool = True,
        name: str | None = None,
    ) -> None:
        if size is None or is_traced(size) or handle is not None or flow is not None:
            found = (
                "no size" if size is None else "a size that the function computes" if is_traced(size) else "a handle"
            )
            raise InputError(
                f"tf.TensorArray was given {found}.",
                "A compiled function reserves room for the tensors, so it must know their number.",
                "Write TensorArray(dtype, size=n) with a Python number or a size from a shape.",
            )
        self._dtype = as_dtype(dtype)
        self._size = int(size)
        self._dynamic = bool(dynamic_size)
        self._infer = infer_shape
        self._declared = None if element_shape is None else TensorShape(element_shape)
        self._written: dict[int, Any] = {}
        self._rows: jax.Array | None = None

    def tree_flatten(self) -> tuple[list[Any], Any]:
        """Return the tensors, and what else there is, for JAX."""
        declared = None if self._declared is None else tuple(self._declared)
        fixed = self._dtype.name, self._size, self._dynamic, self._infer, declared
        if self._rows is not None:
            return [self._rows], (fixed, None)
        return list(self._written.values()), (fixed, tuple(self._written))

    @classmethod
    def tree_unflatten(cls, aux: Any, leaves: Sequence[Any]) -> TensorArray:
        """Return the array that was flattened, with other tensors."""
        (dtype, size, dynamic, infer, declared), numbers = aux
        array = cls(dtype, size, dynamic, infer_shape=infer, element_shape=declared)
        if numbers is None:
            array._rows = leaves[0]
        else:
            array._written = dict(zip(numbers, leaves, strict=True))
        return array

    def like(self, other: Any) -> Any:
        """Return this array in the form of another: as one array if it is one, or has tensors at other places."""
        if not isinstance(other, TensorArray) or self._rows is not None:
            return self
        if not self._size and self._shape() is None and other._shape() is not None:  # it has no tensors of its own
            array = copy.copy(self)
            array._declared = TensorShape(other._shape())
            return array
        if self._size != other._size or (other._rows is None and set(other._written) == set(self._written)):
            return self
        shape = self._shape()
        shape = other._shape() if shape is None else shape
        return self if shape is None else copy.copy(self)._with(rows=self._as_rows(shape))

    def __repr__(self) -> str:
        return f"<TensorArray of {self._size} {self._dtype.name}, shape {self._shape()}>"

    dtype = property(lambda self: self._dtype, doc="The dtype of the tensors.")
    dynamic_size = property(lambda self: self._dynamic, doc="Whether it grows.")

    @property
    def element_shape(self) -> TensorShape:
        """The shape of the tensors, as far as it is known."""
        if self._declared is not None and (not self._infer or self._shape() is None):
            return self._declared
        return TensorShape(self._shape() if self._infer else None)

    def size(self, name: str | None = None) -> Any:
        """Return how many tensors there are."""
        return np.int32(self._size)

    def identity(self) -> TensorArray:
        """Return the same tensors."""
        return self._with()

    def close(self, name: str | None = None) -> None:
        """Accept the call, without effect."""

    def read(self, index: Any, name: str | None = None) -> Any:
        """Return the tensor with a number.

        Raises:
            InputError: No tensor has that number.
        """
        self._check(index, "read")
        if not is_traced(index) and self._rows is None:
            found = self._written.get(int(index))
            return self._zeros() if found is None else found
        return self._all()[index]

    def write(self, index: Any, value: Any, name: str | None = None) -> TensorArray:
        """Return the array with a tensor at a number; outside compiled functions this array itself is changed.

        Raises:
            InputError: There is no room at that number, or the tensor has another dtype or shape.
        """
        value = self._fitting(value)
        if is_traced(index):
            if self._dynamic and not self._size:
                raise refusal(
                    "A TensorArray of size 0 with dynamic_size=True is written at an index that the function computes.",
                    "Write TensorArray(dtype, size=most), or count with a Python number or tf.range of one.",
                    "A compiled function cannot make it larger while it runs.",
                )
            self._check(index, "write")
            shape = self._shape()
            rows = self._as_rows(value.shape if shape is None else shape)
            return self._with(rows=rows.at[index].set(value) if self._size else rows)
        index = int(index)
        size = max(self._size, index + 1) if self._dynamic else self._size
        if not 0 <= index < size:
            self._check(index, "write")
        if self._rows is None:
            return self._with(written={**self._written, index: value}, size=size)
        added = jnp.zeros((size - self._size, *self._rows.shape[1:]), self._rows.dtype)
        return self._with(rows=jnp.concatenate([self._rows, added]).at[index].set(value), size=size)

    def stack(self, name: str | None = None) -> Any:
        """Return all tensors as one, along a new first axis.

        Without tensors and with an unknown shape the result has the shape (0,), as in TensorFlow.

        Raises:
            InputError: No tensor was written and their shape is not known, in an array whose size is not 0 or in a
                compiled function.
        """
        return self._all()

    def gather(self, indices: Any, name: str | None = None) -> Any:
        """Return the tensors with these numbers as one, along a new first axis."""
        indices = tensor(indices)
        if np.shape(indices) == (0,):
            return (
                self._none() if current_tracing() is None else jnp.zeros((0, *self._zeros().shape), held(self._dtype))
            )
        self._check(indices, "read")
        return self._all()[indices]

    def concat(self, name: str | None = None) -> Any:
        """Return all tensors as one, along their first axis.

        Raises:
            InputError: There are no tensors. In a compiled function: only if their shape is not known either.
        """
        if self._size:
            return concat([self.read(i) for i in range(self._size)], 0)
        rest = None if self._declared is None or current_tracing() is None else tuple(self._declared)[1:]
        if rest is None or None in rest or not len(self._declared or ()):
            raise refusal(
                "concat was called on a TensorArray without tensors.", "Write tensors first: array = array.write(i, x)."
            )
        return jnp.zeros((0, *rest), held(self._dtype))

    def unstack(self, value: Any, name: str | None = None) -> TensorArray:
        """Return an array of the rows of a tensor."""
        value = tensor(value)
        array = self._filled(unstack(value))
        if not len(value) and array is not self and array._declared is None:  # outside functions TensorFlow forgets it
            array._declared = TensorShape(value.shape[1:])
        return array

    def split(self, value: Any, lengths: Any, name: str | None = None) -> TensorArray:
        """Return an array of parts of a tensor that have these lengths along its first axis."""
        return self._filled(split(tensor(value), [int(length) for length in lengths]))

    def scatter(self, indices: Any, value: Any, name: str | None = None) -> TensorArray:
        """Return the array with the rows of a tensor at these numbers."""
        numbers = tensor(indices)
        array, rows = self, unstack(tensor(value))
        for number, row in zip(numbers if is_traced(numbers) else np.asarray(numbers), rows, strict=True):
            array = array.write(number, row)
        return array

    def _filled(self, values: Sequence[Any]) -> TensorArray:
        if len(values) != self._size and not self._dynamic:
            raise refusal(
                f"Cannot unstack {len(values)} tensors into a TensorArray of static size {self._size}.",
                "Make it with the size, or with dynamic_size=True.",
            )
        written = {i: self._fitting(value) for i, value in enumerate(values)}
        return self._with(written=written, size=len(values), rows=None)

    def _with(self, **changes: Any) -> TensorArray:
        """Return an array with other tensors, or change this one where nothing is compiled."""
        array = copy.copy(self) if current_tracing() is not None else self
        if changes.get("rows") is not None:
            changes["written"] = {}
        vars(array).update({f"_{name}": value for name, value in changes.items()})
        return array

    def _fitting(self, value: Any) -> Any:
        value = tensor(value, None if hasattr(value, "dtype") else self._dtype)
        if value.dtype != held(self._dtype):
            raise refusal(
                f"TensorArray dtype is {self._dtype.name} but Op is trying to write dtype {value.dtype}.",
                "Write tf.cast(value, dtype), or make the TensorArray with the dtype.",
            )
        shape = self._shape() if self._infer else self._declared
        if shape is not None and not TensorShape(shape).is_compatible_with(value.shape):
            raise refusal(
                f"Incompatible shape for value ({tuple(value.shape)}), expected ({tuple(shape)}).",
                "Write tensors of one shape; for concat, make the TensorArray with infer_shape=False.",
            )
        return value

    def _check(self, index: Any, what: str) -> None:
        """Refuse numbers outside the array."""
        wrong = "to write to" if what == "write" else "to read from"
        place = "" if is_traced(index) or np.ndim(index) else f" {int(index)}"
        grows = " is not resizeable and" if what == "write" else ""
        message = f"Tried {wrong} index{place} but array{grows} size is: {self._size}"
        assert_non_negative(index, message)
        assert_less(index, self._size, message)

    def _shape(self) -> tuple[int, ...] | None:
        """The shape of a tensor, None where it is not known as a whole."""
        if self._rows is not None:
            return self._rows.shape[1:]
        for value in self._written.values():
            return tuple(value.shape)
        return None if self._declared is None or not self._declared.is_fully_defined() else tuple(self._declared)

    def _zeros(self) -> Any:
        shape = self._shape()
        if shape is None:
            raise refusal(
                "A TensorArray without tensors and without element_shape is read or stacked.",
                "Write tensors first (`array = array.write(i, x)`), or make the array with element_shape=...",
                "The shape of the zeros to return is not known.",
            )
        return tensor(np.zeros(shape), self._dtype)

    def _none(self) -> Any:
        """Return what TensorFlow gives for no tensors where nothing is compiled, whatever their shape."""
        return tensor(np.zeros(0), self._dtype)

    def _as_rows(self, shape: Sequence[int]) -> jax.Array:
        if self._rows is not None:
            return self._rows
        if not self._size:
            return jnp.zeros((0, *shape), held(self._dtype))
        zeros = jnp.zeros(tuple(shape), held(self._dtype))
        return jnp.stack([jnp.asarray(self._written.get(i, zeros)) for i in range(self._size)])

    def _all(self) -> Any:
        if self._rows is not None:
            return self._rows
        if not self._size and self._shape() is None and current_tracing() is None:
            return self._none()
        if not self._written:
            return self._as_rows(self._zeros().shape)
        zeros = self._zeros()
        return stack([self._written.get(i, zeros) for i in range(self._size)])
