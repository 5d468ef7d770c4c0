"""Guess what an expression is (a dataset, a model, not an `int`) from how the program made it."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import libcst as cst

from stratagem.migrate.modules import Presence
from stratagem.migrate.names import canonical, is_there
from stratagem.migrate.scopes import Scope, dotted

_DATASETS: Final = {
    "tf.data.FixedLengthRecordDataset",
    "tf.data.TFRecordDataset",
    "tf.data.TextLineDataset",
    "tf.keras.preprocessing.image_dataset_from_directory",
    "tf.keras.preprocessing.text_dataset_from_directory",
    "tf.keras.utils.image_dataset_from_directory",
    "tf.keras.utils.text_dataset_from_directory",
}
"""Functions and classes that return a dataset, beside the methods of `tf.data.Dataset`."""

_RETURN_OTHERS: Final = {"reduce", "cardinality", "as_numpy_iterator", "save", "get_single_element"}
"""Methods of a dataset that return something else."""


def is_dataset(expression: cst.BaseExpression, scope: Scope, seen: frozenset[str] = frozenset()) -> bool:
    """Return whether an expression is a dataset: one that `tf.data` made, or the result of operations on one.

    Args:
        expression: The expression.
        scope: The scope that it is in.
        seen: Names that are being followed already.

    Example:
        >>> from stratagem.migrate.scopes import scopes_of
        >>> program = cst.parse_module("import tensorflow as tf; rows = tf.data.Dataset.range(8); rows = rows.batch(2)")
        >>> scope = scopes_of(program)[program]
        >>> is_dataset(cst.parse_expression("rows.shuffle(8)"), scope), is_dataset(cst.parse_expression("tf"), scope)
        (True, False)
    """
    match expression:
        case cst.Name(value=name) if name in seen:
            return True  # `rows = rows.batch(2)`: as the other assignments say
        case cst.Name(value=name):
            holder = scope.holder(name)
            values = [] if holder is None else holder.bindings[name]
            made = [v for v in values if isinstance(v, cst.BaseExpression) and name not in _names_in(v)]
            return bool(made) and all(
                isinstance(v, cst.BaseExpression) and is_dataset(v, scope, seen | {name}) for v in values
            )
        case cst.Call(func=function):
            names = [canonical(name) for name in scope.full_names(function)]
            if names:
                return any(n is not None and (n in _DATASETS or _is_method(n)) for n in names)
            return (
                isinstance(function, cst.Attribute)
                and function.attr.value not in _RETURN_OTHERS
                and is_there(f"tf.data.Dataset.{function.attr.value}") is Presence.PRESENT
                and is_dataset(function.value, scope, seen)
            )
    return False


def _is_method(name: str) -> bool:
    return name.startswith("tf.data.Dataset.") and name.rpartition(".")[2] not in _RETURN_OTHERS


def is_model(expression: cst.BaseExpression) -> bool:
    """Return whether the name of an expression says that it is a model: `model`, `self.model`, `multi_worker_model`.

    Example:
        >>> is_model(cst.parse_expression("self.base_model")), is_model(cst.parse_expression("checkpoint"))
        (True, False)
    """
    return "model" in dotted(expression).rpartition(".")[2].lower()


def is_no_int(
    expression: cst.BaseExpression, scope: Scope, attributes: Container[str], seen: frozenset[str] = frozenset()
) -> bool:
    """Return whether an expression is a number of another type than `int`: a quotient, or a number of NumPy.

    Args:
        expression: The expression.
        scope: Where it stands.
        attributes: Attributes that the program has assigned such a number: `proj_dim` after `self.proj_dim = n / 2`.
        seen: Names that are being followed already.

    Example:
        >>> from stratagem.migrate.scopes import scopes_of
        >>> program = cst.parse_module("width = 64; half = width / 2; size = np.prod(shape)")
        >>> scope = scopes_of(program)[program]
        >>> texts = ("half * 3", "size", "tf.reduce_prod(shape).numpy()", "width", "int(half)")
        >>> [is_no_int(cst.parse_expression(text), scope, ()) for text in texts]
        [True, True, True, False, False]
    """
    match expression:
        case cst.BinaryOperation(operator=cst.Divide()):
            return True
        case cst.BinaryOperation(
            left=left, operator=cst.Add() | cst.Subtract() | cst.Multiply() | cst.FloorDivide(), right=right
        ):
            return any(is_no_int(part, scope, attributes, seen) for part in (left, right))
        case cst.Call(func=cst.Attribute(value=of, attr=cst.Name(value=name))):
            return name == "numpy" or dotted(of) in ("np", "numpy")
        case cst.Name(value=name) if name not in seen:
            value = scope.value_of(name)
            return value is not None and is_no_int(value, scope, attributes, seen | {name})
        case cst.Attribute(attr=cst.Name(value=name)):
            return name in attributes
    return False


def _names_in(expression: cst.BaseExpression) -> set[str]:
    """Return the names that an expression begins with, along its calls and attributes."""
    while isinstance(expression, cst.Attribute | cst.Call):
        expression = expression.value if isinstance(expression, cst.Attribute) else expression.func
    return {expression.value} if isinstance(expression, cst.Name) else set()
