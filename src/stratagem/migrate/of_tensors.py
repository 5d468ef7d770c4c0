"""Rewrite attributes of `x.dtype` and `x.shape`, which are a NumPy dtype and a tuple here, so that they work in both.

NumPy's dtypes are C objects of JAX's arrays and take no new attributes, so TensorFlow's attributes cannot be added
while the program runs. Neither dtypes nor tuples have any of the names below: a program that writes one means
TensorFlow's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import libcst as cst

from stratagem.migrate.scopes import Scope

_OF_DTYPES: Final = frozenset(
    [
        "as_numpy_dtype",
        "base_dtype",
        "is_bool",
        "is_compatible_with",
        "is_complex",
        "is_floating",
        "is_integer",
        "is_numpy_compatible",
        "is_quantized",
        "is_unsigned",
        "limits",
        "max",
        "min",
        "real_dtype",
        "size",
    ]
)
"""Attributes of `tf.DType` that NumPy's dtypes do not have."""

_RANKS: Final = ("ndims", "rank")

WHY: Final = "Tensors have NumPy's dtypes, and their shapes are tuples."


def in_both(node: cst.CSTNode, scope: Scope, tensorflow: str) -> Callable[[Any], Any] | None:
    """Return the edit that makes an expression work with TensorFlow's tensors and ours; None if it already does.

    Args:
        node: An attribute or a call.
        scope: The scope that it is in.
        tensorflow: The name of `tensorflow` there.

    Example:
        >>> from stratagem.migrate.scopes import scopes_of
        >>> program = cst.parse_module("kind = x.dtype")
        >>> scope = scopes_of(program)[program]
        >>> for text in ("y.dtype.max", "kind.is_floating", "y.shape.as_list()", "y.shape.rank", "y.max"):
        ...     expression = cst.parse_expression(text)
        ...     edit = in_both(expression, scope, "tf")
        ...     print(program.code_for_node(expression if edit is None else edit(expression)))
        tf.as_dtype(y.dtype).max
        tf.as_dtype(kind).is_floating
        list(y.shape)
        len(y.shape)
        y.max
    """
    match node:
        case cst.Attribute(value=value, attr=cst.Name(value=name)) if name in _OF_DTYPES and _is(value, "dtype", scope):
            return lambda new: new.with_changes(value=_called(f"{tensorflow}.as_dtype", new.value))
        case cst.Attribute(value=value, attr=cst.Name(value=name)) if name in _RANKS and _is(value, "shape", scope):
            return lambda new: _called("len", new.value)
        case cst.Call(func=cst.Attribute(value=value, attr=cst.Name(value="as_list")), args=[]) if _is(
            value, "shape", scope
        ):
            return lambda new: _called("list", new.func.value)
    return None


def _is(expression: cst.BaseExpression, attribute: str, scope: Scope) -> bool:
    """Whether an expression is this attribute of something, or a name that was given it and nothing else."""
    if isinstance(expression, cst.Name):
        value = scope.value_of(expression.value)
        return isinstance(value, cst.Attribute) and value.attr.value == attribute
    return isinstance(expression, cst.Attribute) and expression.attr.value == attribute


def _called(function: str, argument: cst.BaseExpression) -> cst.Call:
    return cst.Call(cst.parse_expression(function), [cst.Arg(argument)])
