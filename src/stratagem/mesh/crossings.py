"""The collectives of a replica, and the derivatives of their answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from stratagem.core.errors import InputError, UnsupportedError
from stratagem.mesh.exchange import Ragged
from stratagem.mesh.mesh import AXIS
from stratagem.mesh.shapes import cut


def is_floating(value: jax.Array) -> bool:
    """Whether values of this kind have derivatives."""
    return jnp.issubdtype(value.dtype, jnp.inexact)


def bounds(value: jax.Array) -> tuple[Any, Any]:
    """Return the least and the greatest value of a dtype."""
    if is_floating(value):
        return -jnp.inf, jnp.inf
    if value.dtype == jnp.bool_:
        return False, True
    facts = jnp.iinfo(value.dtype)
    return facts.min, facts.max


def linked(values: Sequence[jax.Array], answers: Sequence[jax.Array], pull: Callable[..., list[jax.Array]]) -> Any:
    """Return answers of an exchange, with a derivative by the values that were exchanged.

    The exchange itself cannot be differentiated: on an uneven batch its answer is put in from outside.

    Args:
        values: What went into the exchange.
        answers: What came out, one for each value.
        pull: Function of (values, answers, cotangents of the answers) that returns the cotangents of the
            values; it is given the floating-point ones only.
    """

    @jax.custom_vjp
    def link(values: list[jax.Array], answers: list[jax.Array]) -> list[jax.Array]:
        return answers

    def forward(values: list[jax.Array], answers: list[jax.Array]) -> tuple[list[jax.Array], tuple]:
        return link(values, answers), (values, answers)  # the link itself, so that it can be differentiated again

    def backward(known: tuple, cotangents: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        return pull(*known, cotangents), [jnp.zeros_like(ct) for ct in cotangents]

    link.defvjp(forward, backward)
    floating = [i for i, value in enumerate(values) if is_floating(value)]
    answered = iter(link([values[i] for i in floating], [answers[i] for i in floating]))
    return [next(answered) if i in floating else answer for i, answer in enumerate(answers)]


def as_number(what: str, value: Any) -> jax.Array:
    """Return a value as an array of JAX.

    Args:
        what: What it is, for the message.
        value: It.

    Raises:
        InputError: It is text or another object that no device holds.
    """
    if isinstance(value, jax.Array):
        return value
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError):
        raise InputError(
            f"{what} is {value!r}, of type {type(value).__name__}.",
            "A step that runs compiled on devices holds numbers and arrays only.",
            "Give numbers or arrays; keep text and other objects outside.",
        ) from None


def as_operand(caller: str, value: Any) -> jax.Array:
    """Return a value that a function was given, to combine it with those of other replicas, as an array of JAX.

    Args:
        caller: The function, for the message.
        value: It.

    Raises:
        UnsupportedError: It is text or another object, such as `tf.IndexedSlices`.
    """
    try:
        return as_number("A value", value)
    except InputError:
        raise UnsupportedError(
            f"{caller} does not support {type(value).__name__}: it was given {value!r}.",
            "Replicas can exchange only numbers and arrays.",
            "Give numbers or arrays, and keep other objects outside. For tf.IndexedSlices, give the values and the "
            "indices.",
        ) from None


def checked_axis(caller: str, axis: int, rank: int, what: str) -> int:
    """Return an axis to concatenate along as a number from 0.

    Args:
        caller: The function that was given it, for messages.
        axis: The axis.
        rank: Number of axes of the value.
        what: The value in words.

    Raises:
        InputError: The value has no such axis.
    """
    if not hasattr(axis, "__index__") or not -rank <= axis < rank:
        raise InputError(
            f"{caller} was given axis={axis!r} and {what}: there is no such axis to concatenate along.",
            "Give values of rank 1 or more, for example `value[None]`, and one of their axes.",
        )
    return axis % rank


def gathered(operands: list[Ragged]) -> list[Ragged]:
    """Concatenate the valid parts of every replica's arrays."""
    return [dataclasses.replace(operand, value=_gathered_leaf(operand)) for operand in operands]


def _gathered_leaf(operand: Ragged) -> jax.Array:
    value, axis = operand.value, operand.axis
    assert axis is not None, "what is gathered is gathered along an axis"
    if operand.shapes is None:
        return lax.all_gather(value, AXIS, axis=axis, tiled=True)
    parts = lax.all_gather(value, AXIS)
    return jnp.concatenate([cut(part, shape) for part, shape in zip(parts, operand.shapes, strict=True)], axis)


def own_part(whole: jax.Array, value: jax.Array, gathered: Ragged) -> jax.Array:
    """Return this replica's part of something as large as what was gathered.

    Args:
        whole: It.
        value: What this replica gave.
        gathered: What was gathered.
    """
    axis = gathered.axis
    assert axis is not None, "what is gathered is gathered along an axis"
    size = value.shape[axis]
    if gathered.shapes is None:
        sizes = (size,) * (whole.shape[axis] // size)
    else:
        sizes = tuple([shape[axis] for shape in gathered.shapes])
    starts = jnp.cumsum(jnp.asarray([0, *sizes[:-1]]))
    return lax.dynamic_slice_in_dim(whole, starts[lax.axis_index(AXIS)], size, axis)
