"""Methods of `tf.Tensor` and `tf.Variable` that JAX's arrays and Keras's variables get (`eager.compat`).

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/Variable
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import UsageError
from stratagem.mesh.device_names import device_of_task
from stratagem.program.compat import stored_value
from stratagem.program.tracing import is_traced
from stratagem.tf.dtypes import DType
from stratagem.tf.tensors import indexing
from stratagem.tf.tensors.creation import ensure_shape, own_tensor
from stratagem.tf.tensors.operation import tensor
from stratagem.tf.tensors.shapes import TensorShape


def numpy_of(array: Any) -> Any:
    """Return the values as a NumPy array (`tf.Tensor.numpy`).

    Raises:
        UsageError: There are no values yet, as in a function that is being compiled.
    """
    if is_traced(array):
        raise UsageError(
            f".numpy() was called on a tensor of shape {array.shape} in strategy.run or a compiled function.",
            "The function is being compiled: its tensors have no values yet.",
            "Return the tensor and call .numpy() outside, or print it with tf.print(tensor).",
        )
    return np.asarray(array)[()]


def backing_device_of(array: Any) -> str:
    """Return the device that holds an array; if several do, the first of this worker (`tf.Tensor.backing_device`)."""
    return device_of_task(array.addressable_shards[0].device)


def device_of_traced(tensor: Any) -> str:
    """Return no name: a tensor of a function that is being compiled is on no device yet (`tf.Tensor.device` there)."""
    return ""


def get_shape(array: Any) -> TensorShape:
    """Return the shape (`tf.Tensor.get_shape`)."""
    return TensorShape(array.shape)


def set_shape(array: Any, shape: Any) -> None:
    """Check the shape (`tf.Tensor.set_shape`), which is always known."""
    ensure_shape(array, shape)


class Reference:
    """A key for one variable or tensor, for dictionaries and sets; its value does not matter (`tf.Variable.ref`).

    Args:
        value: The variable or tensor.

    Example:
        >>> import stratagem.tf as tf
        >>> v = tf.Variable(1.0)
        >>> v.ref() in {v.ref()}, v.ref().deref() is v
        (True, True)
    """

    def __init__(self, value: Any) -> None:
        self._value = value

    def deref(self) -> Any:
        """Return the variable or tensor."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)

    def __repr__(self) -> str:
        return f"<Reference wrapping {self._value!r}>"


def _scattering(method: str, by: str) -> Callable[..., Any]:
    """Return a method that changes slices, by a method of JAX's `array.at[indices]`."""

    def change(whole: Any, indices: Any, updates: Any) -> Any:
        return getattr(whole.at[indices], by)(updates)

    def scatter(self: Any, sparse_delta: Any, use_locking: bool = False, name: str | None = None) -> Any:
        return self._assign_slices(method, change, sparse_delta.indices, sparse_delta.values)

    scatter.__doc__ = f"Change the slices at the indices of a `tf.IndexedSlices` ({by}); return the new value."
    return scatter


def _scattering_nd(method: str, change: Callable[..., Any]) -> Callable[..., Any]:
    def scatter(self: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
        at, new = jnp.asarray(indices), tensor(updates, self.dtype)
        slices = new.reshape(-1, *new.shape[at.ndim - 1 :])
        return self._assign_slices(method, change, at.reshape(-1, at.shape[-1]), slices)

    scatter.__doc__ = f"Change slices as `tf.{change.__name__}` does, and return the new value."
    return scatter


class TensorVariable:
    """A base of Keras's variables, with methods of `tf.Variable`."""

    value: Any
    __array_priority__ = 100
    """Lets `array + variable` ask the variable, whose value a compiled function has not yet; NumPy would convert it."""
    get_shape, set_shape, numpy = get_shape, set_shape, numpy_of

    @property
    def dtype(self) -> DType:
        """The dtype, which has TensorFlow's attributes: `v.dtype.name`."""
        variable: Any = super()
        return DType(variable.dtype)

    @property
    def device(self) -> str:
        """The device that holds the variable: "/job:ps/replica:0/task:1/device:CPU:0" on a parameter server.

        If several devices hold the variable, it is the first of this worker. If several servers hold parts, it is that
        of the first part.
        """
        if hasattr(self, "residence"):
            parts: Any = self.parts  # pyright: ignore[reportAttributeAccessIssue]
            return f"/job:ps/replica:0/task:{parts[0].server}/device:CPU:0"
        value = stored_value(self)
        own = value.addressable_shards[0].device if isinstance(value, jax.Array) else jax.local_devices()[0]
        return device_of_task(own)

    def ref(self) -> Reference:
        """Return a key for this variable, for dictionaries and sets (`tf.Variable.ref`)."""
        return Reference(self)

    experimental_ref = ref

    def read_value(self) -> Any:
        """Return the value as a separate tensor (`tf.Variable.read_value`)."""
        return own_tensor(self.value)

    initialized_value = read_value

    @property
    def initializer(self) -> None:
        """None, as in eager TensorFlow: a variable has its value without running anything."""

    def is_initialized(self, name: str | None = None) -> bool:
        """Return True: a variable has a value from the beginning."""
        return True

    def sparse_read(self, indices: Any, name: str | None = None) -> Any:
        """Return the rows at indices (`tf.gather`)."""
        return indexing.gather(self.value, indices)

    def gather_nd(self, indices: Any, name: str | None = None) -> Any:
        """Return the slices at indices of several axes (`tf.gather_nd`)."""
        return indexing.gather_nd(self.value, indices)

    def _assign_slices(self, method: str, change: Callable[..., Any], indices: Any, updates: Any) -> Any:
        """Change slices; a variable that replicas change together answers otherwise (`tf.tensors.assigned`).

        Args:
            method: Its name in TensorFlow.
            change: Function of the value, indices and updates that returns the new value.
            indices: Where the slices stand.
            updates: What changes them.
        """
        variable: Any = self
        return variable.assign(change(self.value, indices, updates))

    scatter_add = _scattering("scatter_add", "add")
    scatter_div = _scattering("scatter_div", "divide")
    scatter_max = _scattering("scatter_max", "max")
    scatter_min = _scattering("scatter_min", "min")
    scatter_mul = _scattering("scatter_mul", "multiply")
    scatter_sub = _scattering("scatter_sub", "subtract")
    scatter_update = _scattering("scatter_update", "set")
    scatter_nd_add = _scattering_nd("scatter_nd_add", indexing.tensor_scatter_nd_add)
    scatter_nd_sub = _scattering_nd("scatter_nd_sub", indexing.tensor_scatter_nd_sub)
    scatter_nd_update = _scattering_nd("scatter_nd_update", indexing.tensor_scatter_nd_update)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __iter__(self) -> Iterator[Any]:
        """Return its rows, one after the other (`for row in tf.Variable(...)`).

        Python would count indices up until one is refused, and JAX refuses none: it takes the last row again.

        Raises:
            TypeError: It is a scalar.
        """
        return iter(self.value)

    def __pow__(self, other: Any) -> Any:
        return self.value**other

    def __rpow__(self, other: Any) -> Any:
        return other**self.value
