"""Assertions (`tf.debugging`): on known values at once, on what a compiled function computes when the step has ended.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/debugging
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import keras
import numpy as np

from stratagem.core.errors import InputError
from stratagem.core.log import announce_once
from stratagem.program.assertions import check, check_numbers
from stratagem.program.tracing import is_traced
from stratagem.replica.context import current_replica_context
from stratagem.tf.dtypes import as_dtype
from stratagem.tf.tensors.operation import tensor

_MOST_SHOWN: Final = 6
"""Elements of a tensor that an error shows, where the assertion does not say how many."""


def _failed(
    what: str, message: str | None, values: Sequence[Any], where: str = "", summarize: int | None = None
) -> InputError:
    most = _MOST_SHOWN if summarize is None else summarize
    shown = "; ".join(_summary(np.asarray(value), most) for value in values)
    found = f"{message + ': ' if message else ''}{what} does not hold{where}{': ' if shown else ''}{shown}."
    return InputError(found, "Correct the values, or the assertion.")


def _summary(value: np.ndarray, most: int) -> str:
    if not value.ndim:
        return str(value[()])
    if most < 0 or value.size <= most:
        return np.array2string(value, threshold=max(value.size, 1))
    first = " ".join(map(str, value.ravel()[:most]))
    return f"[{first} ...] of shape {value.shape}"


def _holds(
    what: str,
    is_true: Callable[..., Any],
    values: Sequence[Any],
    message: str | None,
    summarize: int | None = None,
    data: Sequence[Any] | None = None,
) -> None:
    """Check values now, or in the compiled function that computes them; the error shows the values, or the data."""
    tensors = [tensor(value) for value in values]
    shown = tensors if data is None else [tensor(part) for part in data]
    if not any(is_traced(value) for value in tensors):
        if not np.all(is_true(*map(np.asarray, tensors))):
            raise _failed(what, message, shown, summarize=summarize)
        return
    places = [i for i, value in enumerate(shown) if is_traced(value)]

    def describe(found: Sequence[Any], where: str) -> InputError:
        known = dict(zip(places, found, strict=True))
        return _failed(what, message, [known.get(i, value) for i, value in enumerate(shown)], where, summarize)

    holds, computed = is_true(*tensors), [shown[i] for i in places]
    context = current_replica_context()
    if context is None or context.strategy.mesh.size == 1:
        check(holds, computed, describe)
        return
    strategy, share = context.strategy, context.share
    if share.present is not True and not share.empty:
        holds = jnp.logical_or(holds, jnp.logical_not(share.present))  # a stand-in row is none of the program's
    worker = f" (worker {strategy.worker_index})" if strategy.worker_count > 1 else ""
    check(
        holds,
        computed,
        describe,
        context.replica_id_in_sync_group,
        lambda number: f"replica {number} of {strategy.mesh.size}{worker}",
    )


def _of_two(name: str, is_true: Callable[[Any, Any], Any]) -> Callable[..., None]:
    def function(
        x: Any, y: Any, message: str | None = None, summarize: int | None = None, name: str | None = None
    ) -> None:
        _holds(function.__name__, is_true, (x, y), message, summarize)

    function.__name__ = function.__qualname__ = f"assert_{name}"
    function.__doc__ = f"Check that x {name.replace('_', ' ')} y, element by element (`tf.debugging.assert_{name}`)."
    return function


def _of_one(name: str, is_true: Callable[[Any], Any]) -> Callable[..., None]:
    def function(x: Any, message: str | None = None, summarize: int | None = None, name: str | None = None) -> None:
        _holds(function.__name__, is_true, (x,), message, summarize)

    function.__name__ = function.__qualname__ = f"assert_{name}"
    function.__doc__ = f"Check that all elements are {name.replace('_', ' ')} (`tf.debugging.assert_{name}`)."
    return function


assert_equal: Final = _of_two("equal", operator.eq)
assert_less: Final = _of_two("less", operator.lt)
assert_less_equal: Final = _of_two("less_equal", operator.le)
assert_greater: Final = _of_two("greater", operator.gt)
assert_greater_equal: Final = _of_two("greater_equal", operator.ge)
assert_positive: Final = _of_one("positive", lambda x: x > 0)
assert_negative: Final = _of_one("negative", lambda x: x < 0)
assert_non_negative: Final = _of_one("non_negative", lambda x: x >= 0)
assert_non_positive: Final = _of_one("non_positive", lambda x: x <= 0)


def assert_none_equal(
    x: Any, y: Any, summarize: int | None = None, message: str | None = None, name: str | None = None
) -> None:
    """Check that no element of x is the one of y (`tf.debugging.assert_none_equal`)."""
    _holds("assert_none_equal", operator.ne, (x, y), message, summarize)


def assert_near(
    x: Any,
    y: Any,
    rtol: float | None = None,
    atol: float | None = None,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> None:
    """Check that x and y are nearly equal: by default within ten times the precision (`tf.debugging.assert_near`)."""
    kind = jnp.result_type(tensor(x), jnp.float32)
    least = 10 * float(jnp.finfo(kind).eps)
    relative, absolute = (least if tolerance is None else tolerance for tolerance in (rtol, atol))
    _holds("assert_near", lambda a, b: abs(a - b) <= absolute + relative * abs(b), (x, y), message, summarize)


def Assert(condition: Any, data: Any, summarize: int | None = None, name: str | None = None) -> None:
    """Check a condition; the error shows the data (`tf.debugging.Assert`)."""
    _holds("Assert", lambda c: c, (condition,), None, summarize, data)


def check_numerics(tensor: Any, message: str, name: str | None = None) -> Any:
    """Return a tensor, checked to hold neither NaN nor infinity (`tf.debugging.check_numerics`).

    Raises:
        InputError: The tensor holds NaN or infinity.
    """
    x = _tensor(tensor)
    _holds("check_numerics", lambda x: jnp.isfinite(x) if is_traced(x) else np.isfinite(x), (x,), message)
    return x


_tensor = tensor


def assert_all_finite(x: Any, message: str, name: str | None = None) -> Any:
    """Return a tensor, checked as by `check_numerics` (`tf.debugging.assert_all_finite`)."""
    return check_numerics(x, message)


def enable_check_numerics(stack_height_limit: int = 30, path_length_limit: int = 50) -> None:
    """Check all numbers from now on (`tf.debugging.enable_check_numerics`).

    Compiled functions (`tf.function`, `strategy.run`, `fit` under a strategy) raise an InputError after the step. It
    names the first operation that computed NaN or infinity, with its layer, line and replica. Functions that are
    already compiled are compiled again. Outside compiled functions, operations of this namespace raise the error at
    once, and operators (`x / y`) are not checked. Infinity that comes from infinity passes, as in masks; TensorFlow
    refuses it.

    Args:
        stack_height_limit: No effect.
        path_length_limit: No effect.
    """
    check_numbers(True)


def disable_check_numerics() -> None:
    """Undo `enable_check_numerics` (`tf.debugging.disable_check_numerics`)."""
    check_numbers(False)


def disable_traceback_filtering() -> None:
    """Show the frames of JAX and Keras in tracebacks too (`tf.debugging.disable_traceback_filtering`)."""
    jax.config.update("jax_traceback_filtering", "off")
    keras.config.disable_traceback_filtering()


def enable_traceback_filtering() -> None:
    """Leave the frames of JAX and Keras out of tracebacks; this is the default."""
    jax.config.update("jax_traceback_filtering", "auto")
    keras.config.enable_traceback_filtering()


def is_traceback_filtering_enabled() -> bool:
    """Return whether tracebacks leave the frames of JAX and Keras out."""
    return bool(keras.config.is_traceback_filtering_enabled())


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(x.shape) if hasattr(x, "shape") else np.shape(x)


def assert_rank(x: Any, rank: Any, message: str | None = None, name: str | None = None) -> None:
    """Check how many axes a tensor has (`tf.debugging.assert_rank`)."""
    if len(_shape(x)) != int(rank):
        raise _failed(f"rank {int(rank)} of shape {_shape(x)}", message, [])


def assert_rank_at_least(x: Any, rank: Any, message: str | None = None, name: str | None = None) -> None:
    """Check that a tensor has at least a number of axes (`tf.debugging.assert_rank_at_least`)."""
    if len(_shape(x)) < int(rank):
        raise _failed(f"rank of at least {int(rank)} of shape {_shape(x)}", message, [])


def assert_rank_in(x: Any, ranks: Any, message: str | None = None, name: str | None = None) -> None:
    """Check that a tensor has one of several numbers of axes (`tf.debugging.assert_rank_in`)."""
    if len(_shape(x)) not in [int(rank) for rank in ranks]:
        raise _failed(f"rank in {list(ranks)} of shape {_shape(x)}", message, [])


def assert_scalar(tensor: Any, message: str | None = None, name: str | None = None) -> None:
    """Check that a tensor has no axis (`tf.debugging.assert_scalar`)."""
    assert_rank(tensor, 0, message)


def assert_shapes(
    shapes: Any, data: Any = None, summarize: int | None = None, message: str | None = None, name: str | None = None
) -> None:
    """Check shapes that have sizes in common (`tf.debugging.assert_shapes`).

    Args:
        shapes: Pairs of a tensor and its shape: numbers, None for any size, names for sizes that must agree.
        data: No effect.
        summarize: No effect.
        message: The text of the error.
        name: No effect.

    Raises:
        InputError: A tensor has another shape.
    """
    pairs = shapes.items() if isinstance(shapes, dict) else shapes
    sizes: dict[str, int] = {}
    for x, wanted in pairs:
        found = _shape(x)
        symbols = tuple(wanted) if isinstance(wanted, list | tuple | str) else (wanted,)
        fits = len(found) == len(symbols) and all(
            symbol is None or (sizes.setdefault(symbol, size) if isinstance(symbol, str) else symbol) == size
            for symbol, size in zip(symbols, found, strict=True)
        )
        if not fits:
            raise _failed(f"shape {symbols} of shape {found}, with {sizes}", message, [])


def assert_type(tensor: Any, tf_type: Any, message: str | None = None, name: str | None = None) -> None:
    """Check a tensor's dtype (`tf.debugging.assert_type`)."""
    if as_dtype(tensor.dtype) != as_dtype(tf_type):
        raise _failed(f"dtype {as_dtype(tf_type)!r} of {as_dtype(tensor.dtype)!r}", message, [])


def is_numeric_tensor(tensor: Any) -> bool:
    """Return whether a value is a tensor of numbers (`tf.debugging.is_numeric_tensor`)."""
    return isinstance(tensor, jax.Array) and tensor.dtype != np.bool_


def set_log_device_placement(enabled: bool) -> None:
    """Do nothing (`tf.debugging.set_log_device_placement`): `strategy` says once which devices it uses."""
    announce_once(
        "tf.debugging.set_log_device_placement has no effect; `jax.debug.visualize_array_sharding(x)` shows x."
    )
