"""Scopes, printing, Python functions and custom gradients: `tf.device`, `tf.name_scope`, `tf.print`, `tf.py_function`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import keras
import numpy as np

from stratagem.core.errors import UsageError
from stratagem.core.log import announce_once
from stratagem.program.tracing import current_tracing, is_traced
from stratagem.tf.derivatives import constant
from stratagem.tf.dtypes import as_dtype
from stratagem.tf.tensors.marks import Tensor
from stratagem.tf.tensors.operation import hosted, is_text, on_host, operation, tensor
from stratagem.tf.tensors.texts import shown_tensor

Tuple: Any = type(())
"""Python's own; `tuple` is TensorFlow's here."""


def device(device_name: Any) -> contextlib.AbstractContextManager[None]:
    """Return a context without effect (`tf.device`): strategies and JAX place values."""
    announce_once("tf.device has no effect: the strategy or JAX decides where values are.")
    return contextlib.nullcontext()


def name_scope(name: str) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which operations have a name in profiles (`tf.name_scope`)."""
    return jax.named_scope(str(name))


def control_dependencies(control_inputs: Any) -> contextlib.AbstractContextManager[None]:
    """Return a context without effect (`tf.control_dependencies`): assignments stay in the order of the program."""
    return contextlib.nullcontext()


def init_scope() -> contextlib.AbstractContextManager[None]:
    """Return a context that computes constants at once, also while a function is compiled (`tf.init_scope`)."""
    return jax.ensure_compile_time_eval()


def group(*inputs: Any, name: str | None = None) -> None:
    """Do nothing (`tf.group`): the inputs are already computed."""


def no_op(name: str | None = None) -> None:
    """Do nothing (`tf.no_op`)."""


def tuple(tensors: Sequence[Any], control_inputs: Any = None, name: str | None = None) -> list[Any]:
    """Return the tensors (`tf.tuple`)."""
    return [None if each is None else tensor(each) for each in tensors]


def executing_eagerly() -> bool:
    """Return whether operations compute at once: not in a function that is compiled (`tf.executing_eagerly`)."""
    return current_tracing() is None


def inside_function() -> bool:
    """Return whether a function is being compiled (`tf.inside_function`)."""
    return current_tracing() is not None


@operation
def stop_gradient(input: Tensor) -> Any:
    """Return a tensor that gradients treat as a constant (`tf.stop_gradient`)."""
    return input if on_host(input) else constant(input)


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function a custom gradient (`tf.custom_gradient`).

    Args:
        f: Function of tensors that returns its result and a second function. That function takes the gradient with
            respect to the result, and returns the gradients with respect to the arguments. `f` is called again when the
            gradient is taken.

    Example:
        >>> @custom_gradient
        ... def twice(x):
        ...     return 2.0 * x, lambda upstream: 5.0 * upstream
        >>> float(jax.grad(twice)(1.0))
        5.0
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        @jax.custom_vjp
        def own(*values: Any) -> Any:
            return f(*values, **kwargs)[0]

        def backward(values: Any, upstream: Any) -> Any:
            upstream = upstream if isinstance(upstream, list | Tuple) else [upstream]
            found = f(*values, **kwargs)[1](*upstream)
            found = found if isinstance(found, list | Tuple) else [found]
            pairs = zip(found, values, strict=True)
            return Tuple(jax.numpy.zeros_like(value) if g is None else g for g, value in pairs)

        own.defvjp(lambda *values: (f(*values, **kwargs)[0], values), backward)
        return own(*(tensor(arg) for arg in args))

    return call


def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function the gradient of the identity (`tf.grad_pass_through`)."""
    return custom_gradient(lambda x: (f(x), lambda upstream: upstream))


def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """Recompute a function's intermediate values for its gradient, instead of keeping them (`tf.recompute_grad`)."""
    return jax.checkpoint(f)


def py_function(func: Callable[..., Any], inp: Any, Tout: Any, name: str | None = None) -> Any:
    """Call a function of Python on tensors (`tf.py_function`): in `Dataset.map`, or outside compiled functions.

    Args:
        func: Function of tensors, which have `.numpy()`. Outside functions of datasets a tape records it.
        inp: The tensors.
        Tout: The dtype of its result, or a list of dtypes.
        name: No effect.

    Returns:
        A tensor, or a list of tensors if `Tout` is a list.

    Raises:
        UsageError: A compiled function computes a tensor.

    Example:
        >>> float(py_function(lambda x: x.numpy() * 2, [3.0], "float32"))
        6.0
    """
    tensors = [_checked(tensor(x)) for x in inp]
    return _called(func, [hosted(_plain(x)) if on_host(x) else x for x in tensors], Tout)


def numpy_function(
    func: Callable[..., Any], inp: Any, Tout: Any, stateful: bool = True, name: str | None = None
) -> Any:
    """Call a function of NumPy arrays on tensors (`tf.numpy_function`); otherwise like `py_function`."""
    return _called(func, [np.asarray(_plain(x))[()] for x in inp], Tout)


def _plain(value: Any) -> Any:
    value = _checked(tensor(value))
    return np.asarray(value, object if isinstance(value, bytes) else None)


def _checked(value: Any) -> Any:
    if is_traced(value):
        raise UsageError(
            "tf.py_function or tf.numpy_function was called in a compiled function.",
            "Its arguments have no values there yet, and the shapes of its results are not known.",
            "Call it in Dataset.map, or write jax.pure_callback(func, shape_and_dtype, *arguments).",
        )
    return value


def _called(func: Callable[..., Any], values: Sequence[Any], kinds: Any) -> Any:
    results = func(*values)
    if not isinstance(kinds, list | Tuple):
        return _of_kind(results, kinds)
    if not kinds:
        return []
    results = results if isinstance(results, list | Tuple) else [results]
    return [_of_kind(result, kind) for result, kind in zip(results, kinds, strict=True)]


def _of_kind(value: Any, kind: Any) -> Any:
    return tensor(value, as_dtype(getattr(kind, "dtype", kind)))


def print(
    *inputs: Any,
    output_stream: Any = None,
    summarize: int = 3,
    sep: str = " ",
    end: str = "\n",
    name: str | None = None,
) -> None:
    """Print tensors and other values to standard error; compiled functions print at each run (`tf.print`).

    Args:
        inputs: The values to print: tensors, structures of tensors, text, or anything else.
        output_stream: A file, or its name after "file://"; None for standard error.
        summarize: The number of elements to show at each end of an axis; -1 for all.
        sep: The text between values.
        end: The text at the end.
        name: No effect.
    """
    tracing = current_tracing()
    if tracing is not None and tracing.again:
        return  # traced for a gradient; the first tracing prints
    leaves, structure = jax.tree.flatten(inputs, is_leaf=lambda leaf: isinstance(leaf, keras.Variable))
    values = [leaf.value if isinstance(leaf, keras.Variable) else leaf for leaf in leaves]
    traced = [i for i, value in enumerate(values) if is_traced(value)]

    def show(*found: Any) -> None:
        for i, value in zip(traced, found, strict=True):
            values[i] = value
        text = sep.join(_shown(part, summarize) for part in structure.unflatten(values)) + end
        if isinstance(output_stream, str):
            with open(output_stream.removeprefix("file://"), "a", encoding="utf-8") as file:
                file.write(text)
        else:
            stream = sys.stderr if output_stream is None else output_stream
            stream.write(text)
            stream.flush()

    if tracing is None and not traced:
        show()
    else:
        jax.debug.callback(show, *(values[i] for i in traced), ordered=False)


def _shown(part: Any, summarize: int) -> str:
    if isinstance(part, bytes):
        return part.decode(errors="replace")
    if isinstance(part, jax.Array | np.ndarray | np.generic):
        if is_text(part) and np.ndim(part) == 0:
            return _shown(np.asarray(part, object).item(), summarize)
        return shown_tensor(part, summarize)
    if isinstance(part, dict):
        return "{" + ", ".join(f"{key!r}: {_shown(value, summarize)}" for key, value in part.items()) + "}"
    if isinstance(part, list | Tuple):
        inside = ", ".join(_shown(value, summarize) for value in part)
        return f"[{inside}]" if isinstance(part, list) else f"({inside})"
    return str(part)
