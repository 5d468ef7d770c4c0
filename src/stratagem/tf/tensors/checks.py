"""Assertions (`tf.debugging`) on known values. In compiled functions only shapes are known.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/debugging
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError
from stratagem.core.log import announce_once
from stratagem.program.tracing import is_traced
from stratagem.tf.dtypes import as_dtype
from stratagem.tf.tensors.operation import tensor


def _failed(what: str, message: str | None, values: Sequence[Any]) -> InputError:
    shown = "; ".join(np.array2string(np.asarray(value), threshold=6) for value in values)
    return InputError(
        f"{message + ': ' if message else ''}{what} does not hold: {shown}.", "Correct the values, or the assertion."
    )


def _holds(what: str, check: Callable[..., Any], values: Sequence[Any], message: str | None) -> None:
    tensors = [tensor(value) for value in values]
    if any(is_traced(value) for value in tensors):
        announce_once(f"tf.debugging.{what} is not checked in compiled functions: values are not known there.")
    elif not np.all(check(*(np.asarray(value) for value in tensors))):
        raise _failed(what, message, tensors)


def _of_two(name: str, check: Callable[[Any, Any], Any]) -> Callable[..., None]:
    def function(
        x: Any, y: Any, message: str | None = None, summarize: int | None = None, name: str | None = None
    ) -> None:
        _holds(function.__name__, check, (x, y), message)

    function.__name__ = function.__qualname__ = f"assert_{name}"
    function.__doc__ = f"Check that x {name.replace('_', ' ')} y, element by element (`tf.debugging.assert_{name}`)."
    return function


def _of_one(name: str, check: Callable[[Any], Any]) -> Callable[..., None]:
    def function(x: Any, message: str | None = None, summarize: int | None = None, name: str | None = None) -> None:
        _holds(function.__name__, check, (x,), message)

    function.__name__ = function.__qualname__ = f"assert_{name}"
    function.__doc__ = f"Check that all elements are {name.replace('_', ' ')} (`tf.debugging.assert_{name}`)."
    return function


assert_equal: Final = _of_two("equal", np.equal)
assert_less: Final = _of_two("less", np.less)
assert_less_equal: Final = _of_two("less_equal", np.less_equal)
assert_greater: Final = _of_two("greater", np.greater)
assert_greater_equal: Final = _of_two("greater_equal", np.greater_equal)
assert_positive: Final = _of_one("positive", lambda x: x > 0)
assert_negative: Final = _of_one("negative", lambda x: x < 0)
assert_non_negative: Final = _of_one("non_negative", lambda x: x >= 0)
assert_non_positive: Final = _of_one("non_positive", lambda x: x <= 0)


def assert_none_equal(
    x: Any, y: Any, summarize: int | None = None, message: str | None = None, name: str | None = None
) -> None:
    """Check that no element of x is the one of y (`tf.debugging.assert_none_equal`)."""
    _holds("assert_none_equal", np.not_equal, (x, y), message)


def assert_near(
    x: Any,
    y: Any,
    rtol: float | None = None,
    atol: float | None = None,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> None:
    """Check that x and y differ little: without tolerances by ten times the precision (`tf.debugging.assert_near`)."""
    kind = jnp.result_type(tensor(x), jnp.float32)
    least = 10 * float(jnp.finfo(kind).eps)
    relative, absolute = (least if tolerance is None else tolerance for tolerance in (rtol, atol))
    _holds("assert_near", lambda a, b: np.abs(a - b) <= absolute + relative * np.abs(b), (x, y), message)


def Assert(condition: Any, data: Any, summarize: int | None = None, name: str | None = None) -> None:
    """Check a condition; the error shows the data (`tf.debugging.Assert`)."""
    _holds("Assert", lambda c: c, (condition,), " ".join(str(part) for part in data))


def check_numerics(tensor: Any, message: str, name: str | None = None) -> Any:
    """Return a tensor, checked to hold neither NaN nor infinity (`tf.debugging.check_numerics`).

    In compiled functions nothing is checked; `enable_check_numerics` checks there for NaN.

    Raises:
        InputError: It does.
    """
    x = _tensor(tensor)
    _holds("check_numerics", np.isfinite, (x,), message)
    return x


_tensor = tensor


def assert_all_finite(x: Any, message: str, name: str | None = None) -> Any:
    """Return a tensor, checked as by `check_numerics` (`tf.debugging.assert_all_finite`)."""
    return check_numerics(x, message)


def enable_check_numerics(stack_height_limit: int = 30, path_length_limit: int = 50) -> None:
    """Let every operation that makes a NaN raise FloatingPointError (`tf.debugging.enable_check_numerics`).

    JAX does it (`jax_debug_nans`); steps become slower.
    """
    jax.config.update("jax_debug_nans", True)


def disable_check_numerics() -> None:
    """Undo `enable_check_numerics` (`tf.debugging.disable_check_numerics`)."""
    jax.config.update("jax_debug_nans", False)


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(x.shape) if hasattr(x, "shape") else np.shape(x)


def assert_rank(x: Any, rank: Any, message: str | None = None, name: str | None = None) -> None:
    """Check how many axes a tensor has (`tf.debugging.assert_rank`)."""
    if len(_shape(x)) != int(rank):
        raise _failed(f"rank {int(rank)} of shape {_shape(x)}", message, [])


def assert_rank_at_least(x: Any, rank: Any, message: str | None = None, name: str | None = None) -> None:
    """Check that a tensor has at least so many axes (`tf.debugging.assert_rank_at_least`)."""
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
        message: What to say.
        name: No effect.

    Raises:
        InputError: A shape is another.
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
    """Return whether something is a tensor of numbers (`tf.debugging.is_numeric_tensor`)."""
    return isinstance(tensor, jax.Array) and tensor.dtype != np.bool_


def set_log_device_placement(enabled: bool) -> None:
    """Do nothing (`tf.debugging.set_log_device_placement`): `strategy` says once which devices it uses."""
    announce_once(
        "tf.debugging.set_log_device_placement has no effect; `jax.debug.visualize_array_sharding(x)` shows x."
    )
