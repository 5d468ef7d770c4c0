"""Parts that all operations share: what a tensor is, and which library computes.

Two places, two libraries. A function that a dataset calls on its elements (`Dataset.map`) meets NumPy arrays of
any shape, thousands a second: there NumPy computes, which compiles nothing. Everywhere else JAX does.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, ParamSpec

import jax
import jax.numpy as jnp
import keras
import numpy as np

from stratagem.core.eager import EagerArray, EagerText
from stratagem.core.errors import InputError
from stratagem.data.ragged import RaggedTensor
from stratagem.data.sparse import SparseTensor
from stratagem.data.structure import as_array, encoded
from stratagem.data.transforms import in_element_function
from stratagem.program.assertions import are_numbers_checked
from stratagem.program.tracing import is_traced, own_array
from stratagem.tf.derivatives import OF_NUMPY
from stratagem.tf.dtypes import as_dtype

P = ParamSpec("P")

_TEXT: Final = (str, bytes)


def on_host(*values: Any) -> bool:
    """Whether NumPy computes: for text, and in a function that a dataset calls if no value is an array of JAX."""
    if any(isinstance(value, bytes | np.ndarray) and is_text(value) for value in values):
        return True
    return in_element_function() and not any(isinstance(value, jax.Array) for value in values)


class _Library:
    """`jax.numpy` with TensorFlow's derivatives where those of JAX differ."""

    def __init__(self) -> None:
        vars(self).update(OF_NUMPY)

    def __getattr__(self, name: str) -> Any:
        return getattr(jnp, name)


tnp: Final[Any] = _Library()
"""The library that computes outside functions of datasets."""


def xp(*values: Any) -> Any:
    """Return the library that computes with these values: `numpy`, or `jax.numpy` with TensorFlow's derivatives."""
    return np if on_host(*values) else tnp


def held(dtype: Any) -> np.dtype:
    """Return the dtype that holds numbers of this one: JAX holds int64 as int32, and float64 as float32."""
    numpy = np.dtype(as_dtype(dtype).as_numpy_dtype)
    return numpy if in_element_function() else np.dtype(jax.dtypes.canonicalize_dtype(numpy))


def tensor(value: Any, dtype: Any = None) -> Any:
    """Return a tensor of a value (`tf.convert_to_tensor`).

    Args:
        value: A tensor, a variable, an array, a number, text, or a nested list of them. Numbers of Python become int32
            and float32, text becomes UTF-8 in bytes.
        dtype: The dtype; None for the value's.

    Returns:
        An array of JAX, in functions of datasets of NumPy. Text is always NumPy's (dtype object).
    """
    if isinstance(value, keras.Variable):
        value = value.value
    if isinstance(value, keras.KerasTensor):
        return value if dtype is None else keras.ops.cast(value, str(as_dtype(dtype)))
    if hasattr(value, "todense"):
        value = value.todense()
    if isinstance(value, jax.Array):
        return value if dtype is None else value.astype(held(dtype))
    if is_text(value) or (dtype is not None and as_dtype(dtype) == "string"):
        return hosted(encoded(value))
    if isinstance(value, list | tuple) and _is_symbolic(value):
        return TensorFunction(f"{__name__}:{tensor.__name__}")(value, dtype)
    if isinstance(value, list | tuple) and any(_is_traced_or_variable(leaf) for leaf in jax.tree.leaves(value)):
        leaves, structure = jax.tree.flatten(value)
        array = jnp.asarray(structure.unflatten([tensor(leaf) for leaf in leaves]))
        return array if dtype is None else array.astype(held(dtype))
    array = np.asarray(as_array(value))
    if dtype is not None:
        array = array.astype(held(dtype))
    if in_element_function():
        return hosted(array)
    # A constant is known while a function is traced: `if`, `for` and shapes use it.
    with jax.ensure_compile_time_eval():
        return jnp.asarray(array)


def _is_traced_or_variable(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | keras.Variable)


def operands(*values: Any) -> list[Any]:
    """Return values as tensors; a number of Python beside a tensor takes the tensor's dtype."""
    if all(_is_number(value) for value in values):
        return [tensor(value) for value in values]
    given = [value if _is_number(value) else tensor(value) for value in values]
    beside = next(each for each in given if not _is_number(each))
    return [beside_tensor(each, beside) if _is_number(each) else each for each in given]


def beside_tensor(number: Any, beside: Any) -> Any:
    """Return a number of Python that stands beside a tensor: a whole one of more than 32 bits as JAX takes it.

    TensorFlow makes it a number of the tensor's dtype, as in `scores * (-2**32 + 1)`; JAX makes 32-bit integers first.

    Args:
        number: The number, or anything else, which is returned as it is.
        beside: The tensor. Integers keep the number, which they cannot hold either.
    """
    if type(number) is int and not -(2**31) <= number < 2**31 and jnp.issubdtype(beside.dtype, jnp.inexact):
        return float(number)
    return number


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic)


def is_text(value: Any) -> bool:
    """Whether a value is text or bytes, or a list or an array of them."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return isinstance(value, _TEXT) or (isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "OSU")


def texts(value: Any) -> Any:
    """Return text as a tensor: an array of bytes, without axes for one text."""
    return np.asarray(encoded(value), object).view(EagerArray)


def hosted(value: Any) -> Any:
    """Return a value of NumPy as a tensor: an array that answers `.numpy()`, or a text that does."""
    return EagerText(value) if isinstance(value, bytes) else np.asarray(value).view(EagerArray)


def integers(value: Any) -> Any:
    """Return a shape or another list of whole numbers, which may hold tensors, as a tuple that NumPy and JAX take."""
    if isinstance(value, keras.Variable):
        value = value.value
    if np.ndim(value) == 0 and not isinstance(value, list | tuple):
        return (int(value),)
    return tuple(-1 if size is None else int(size) if isinstance(size, _WHOLE) else size for size in value)


_WHOLE: Final = (int, float, np.generic, np.ndarray, jax.Array)
"""Not the symbolic sizes that JAX has for a dimension that is not known."""


def refusal(
    found: str, repair: str, why: str = "The result would not be the intended one; TensorFlow refuses it too."
) -> InputError:
    """Return the error for arguments that do not fit.

    Args:
        found: What they are.
        repair: What to write.
        why: What would go wrong.
    """
    return InputError(found, why, repair)


def refuse_outside(indices: Any, size: int, what: str, of: str, *, negative: bool = False) -> None:
    """Refuse whole numbers that are known and not from 0 to size - 1; those a compiled function computes pass.

    Args:
        indices: The numbers.
        size: How many there are to choose from.
        what: What the numbers are.
        of: What they choose from.
        negative: Whether negative numbers pass, which mean nothing.

    Raises:
        InputError: One lies outside.
    """
    if is_traced(indices):
        return
    known = np.asarray(indices)
    if known.size and (known.max() >= size or (known.min() < 0 and not negative)):
        wrong = known[(known >= size) | (known < 0)].flat[0]
        raise refusal(
            f"{what} contain {int(wrong)}, but there are {size} {of}.",
            "Correct the numbers, or what they choose from.",
            "JAX would use another one instead; TensorFlow refuses it too.",
        )


def axes(axis: Any) -> Any:
    """Return `axis` as NumPy and JAX take it: None, a number, or a tuple."""
    if axis is None:
        return None
    return int(axis) if np.ndim(axis) == 0 else tuple(int(a) for a in np.asarray(axis))


class TensorFunction(keras.Operation):
    """A function of `stratagem.tf` in a model of symbolic inputs (`tf.nn.relu(keras.Input((4,)))`).

    Args:
        function: Where it is defined: `"package.module:name"`.
        name: The layer's name.
    """

    def __init__(self, function: str, name: str | None = None) -> None:
        super().__init__(name=name)
        self._function = function

    def call(self, *args: Any, **kwargs: Any) -> Any:
        module, _, name = self._function.partition(":")
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = jax.tree.flatten((args, kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, keras.KerasTensor)]

        def call(*tensors: Any) -> Any:
            filled = list(leaves)
            for place, each in zip(places, tensors, strict=True):
                filled[place] = each
            own_args, own_kwargs = structure.unflatten(filled)
            return self.call(*own_args, **own_kwargs)

        return _Filled(call).compute_output_spec(*(leaves[place] for place in places))

    def get_config(self) -> dict[str, Any]:
        return {"function": self._function, "name": self.name}


class _Filled(keras.Operation):
    """A function of nothing but symbolic tensors: Keras would trace the numbers in a list too."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call


keras.saving.register_keras_serializable("stratagem")(TensorFunction)


def _is_symbolic(values: Sequence[Any]) -> bool:
    return any(
        isinstance(value, keras.KerasTensor) or (isinstance(value, list | tuple) and _is_symbolic(value))
        for value in values
    )


_of_ragged: Final[dict[str, Callable[..., Any]]] = {}
"""Operations on ragged tensors, by where the one on tensors is defined; see `of_ragged`."""


def of_ragged(operation: Callable[..., Any], function: Callable[..., Any]) -> None:
    """Let an operation on tensors do this where one of its arguments is a ragged tensor.

    Args:
        operation: The operation.
        function: Takes the same arguments.
    """
    _of_ragged[f"{operation.__module__}:{operation.__qualname__}"] = function


_of_sparse: Final[dict[str, Callable[..., Any]]] = {}
"""The same on sparse tensors; see `of_sparse`."""


def of_sparse(operation: Callable[..., Any], function: Callable[..., Any]) -> None:
    """Let an operation on tensors do this where its first argument is a sparse tensor.

    Args:
        operation: The operation.
        function: Takes the same arguments.
    """
    _of_sparse[f"{operation.__module__}:{operation.__qualname__}"] = function


def _first_ragged(values: Sequence[Any]) -> RaggedTensor | None:
    for value in values:
        if isinstance(value, RaggedTensor):
            return value
        found = _first_ragged(value) if isinstance(value, list | tuple) else None
        if found is not None:
            return found
    return None


def _on_rows(home: str, ragged: RaggedTensor) -> Callable[..., Any]:
    """Return the operation on ragged tensors.

    Raises:
        InputError: There is none.
    """
    if home not in _of_ragged:
        raise InputError(
            f"{home.rpartition(':')[2]} was given a ragged tensor of shape {ragged.shape}.",
            "It computes with rows of one length.",
            "Write ragged.to_tensor(); or tf.ragged.map_flat_values(function, ragged) for each value separately.",
        )
    return _of_ragged[home]


_MARKS: Final[dict[str, Callable[[Any], Any]]] = {
    "Tensor": tensor,
    "Array": lambda value: jnp.asarray(tensor(value)),
    "Sizes": integers,
    "Axes": axes,
}


def _unless_none(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


_CONVERSIONS: Final = {**_MARKS, **{f"{mark} | None": _unless_none(convert) for mark, convert in _MARKS.items()}}


def _converting(function: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> Callable[..., Any]:
    """Return the function with its arguments converted as they are marked."""
    beside = [each.name for each in parameters if each.annotation == "Operand"]
    marked = [
        (place, each.name, _CONVERSIONS[each.annotation])
        for place, each in enumerate(parameters)
        if each.annotation in _CONVERSIONS
    ]
    if not beside and not marked:
        return function

    def converted(*args: Any, **kwargs: Any) -> Any:
        given = list(args)
        if beside:
            if len(given) < len(beside):
                given += [kwargs.pop(name) for name in beside[len(given) :] if name in kwargs]
            given[: len(beside)] = operands(*given[: len(beside)])
        for place, name, convert in marked:
            if place < len(given):
                given[place] = convert(given[place])
            elif name in kwargs:
                kwargs[name] = convert(kwargs[name])
        return function(*given, **kwargs)

    return converted


def _of_its_own(result: Any, given: Sequence[Any]) -> Any:
    """Return the result of an operation that had nothing to do, such as a cast to the same dtype, as a copy.

    JAX returns what it was given. The array of a variable is gone when `fit` has given the variable another value.

    Args:
        result: The result.
        given: What it was computed of.
    """
    if isinstance(result, jax.Array):
        for each in given:
            if isinstance(each, keras.Variable) and each.value is result:
                return own_array(result)
            if isinstance(each, list | tuple) and each and isinstance(each[0], keras.Variable):
                result = _of_its_own(result, each)
    return result


_MOVING: Final = frozenset(
    [
        *("concat", "constant", "convert_to_tensor", "expand_dims", "fill", "gather", "identity", "maximum"),
        *("minimum", "reshape", "slice", "squeeze", "stack", "transpose", "unstack"),
    ]
)
"""Operations whose result holds numbers that were there before; TensorFlow does not check them either."""


def _require_finite(name: str, result: Any, given: Any) -> None:
    """Check the result of an operation outside compiled functions (`tf.debugging.enable_check_numerics`).

    Raises:
        InputError: It has NaN, or infinity that none of the operands had.
    """
    largest = _largest(result)
    if np.isnan(largest) or (np.isinf(largest) and np.isfinite(_largest(given))):
        raise InputError(
            f"`{name}` computed NaN or infinity: {result}.",
            "Check its inputs: a batch, a variable, a division by zero, a logarithm of zero.",
        )


def _largest(values: Any) -> Any:
    """Return the largest number of arrays whose values are known, without signs; NaN if one is."""
    leaves = (leaf.value if isinstance(leaf, keras.Variable) else leaf for leaf in jax.tree.leaves(values))
    known = (leaf for leaf in leaves if isinstance(leaf, jax.Array | np.ndarray | float) and not is_traced(leaf))
    numbers = [np.asarray(leaf) for leaf in known if jnp.issubdtype(jnp.result_type(leaf), np.inexact)]
    return np.max([np.max(np.abs(each), initial=0) for each in numbers], initial=0)


def operation(function: Callable[P, Any], name: str | None = None, text: str | None = None) -> Callable[P, Any]:
    """Make a function of tensors an operation.

    Its arguments are converted as they are marked (`stratagem.tf.tensors.marks`). It takes Keras's symbolic tensors,
    and gives NumPy in functions of datasets. All operations of TensorFlow take a `name`: where the function does not,
    it is accepted as its last argument, and has no effect.

    Args:
        function: The function.
        name: Its name, where another function makes it.
        text: Its docstring, where another function makes it.
    """
    if name is not None:
        function.__name__ = function.__qualname__ = name
        function.__doc__ = text
    home = f"{function.__module__}:{function.__qualname__}"
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    takes_no_name = "name" not in signature.parameters and all(each.kind is kind for each in parameters)
    compute = _converting(function, parameters)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if takes_no_name:
            kwargs.pop("name", None)
            args = args[:-1] if len(args) == len(parameters) + 1 else args
        ragged = _first_ragged([*args, *kwargs.values()])
        if ragged is not None:
            return _on_rows(home, ragged)(*args, **kwargs)
        if args and isinstance(args[0], SparseTensor) and home in _of_sparse:
            return _of_sparse[home](*args, **kwargs)
        if _is_symbolic(args) or _is_symbolic(tuple(kwargs.values())):
            return TensorFunction(home)(*args, **kwargs)
        if not in_element_function() or any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves((args, kwargs))):
            result = _of_its_own(compute(*args, **kwargs), (*args, *kwargs.values()))
            if are_numbers_checked() and function.__name__ not in _MOVING:
                _require_finite(function.__name__, result, (args, kwargs))
            return result
        with np.errstate(all="ignore"):  # 1 / 0 is infinity, and no reason to warn
            return jax.tree.map(hosted, compute(*args, **kwargs))

    if takes_no_name:
        last = inspect.Parameter("name", kind, default=None)
        call.__signature__ = signature.replace(parameters=[*parameters, last])  # pyright: ignore[reportAttributeAccessIssue]
    return call
