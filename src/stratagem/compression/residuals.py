"""Slots of the compression of gradients: arrays that it keeps from one step to the next, beside each variable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp

RESIDUAL: Final = "residual"
"""Name of the slot for what a replica has left out of the gradients that it sent."""


@dataclass(frozen=True)
class Slot:
    """One array of float32 that is kept for a gradient; zeros at first.

    Args:
        name: What it is.
        shape: Its shape.
        in_parts: Whether each replica has its own, of which only the sum counts, rather than all the same.
    """

    name: str
    shape: tuple[int, ...]
    in_parts: bool


def keep_in(variable: Any, slot: Slot) -> None:
    """Let a Keras variable be what a slot is kept in."""
    variable.compression_slot = slot


def slot_of(variable: Any) -> Slot | None:
    """Return the slot that a variable keeps; None of any other variable."""
    return getattr(variable, "compression_slot", None)


def is_in_parts(variable: Any) -> bool:
    """Whether each replica has its own part of a variable's value."""
    slot = slot_of(variable)
    return slot is not None and slot.in_parts


def finite_or(values: jax.Array, before: jax.Array) -> jax.Array:
    """Return values with the earlier ones in the place of infinities and NaNs, which would stay forever."""
    return jnp.where(jnp.isfinite(values), values, before)
