"""Checks of the arguments of the operations."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from stratagem.core.errors import InputError


def function(name: str, value: Any) -> Callable[..., Any]:
    """Return `value`, which must be callable."""
    if not callable(value):
        raise InputError(f"{name} is {value!r}.", "Give a function or a lambda.")
    return value


def integer(name: str, value: Any, least: int | None, remedy: str) -> int:
    """Return `value` as an int of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        wanted = "an integer" if least is None else f"an integer of at least {least}"
        raise InputError(f"{name} is {value!r}.", f"The dataset needs {wanted} there.", remedy)
    return number


def one_of(name: str, value: Any, known: Iterable[Any]) -> None:
    """Check that a value is one of those that are known."""
    if value not in (choices := list(known)):
        raise InputError(f"{name} is {value!r}.", f"Write one of {', '.join(map(repr, choices))}.")


def shard(num_shards: Any, index: Any) -> None:
    """Check that there is a part `index` of `num_shards`."""
    count = integer("num_shards", num_shards, 1, "Write the number of parts.")
    which = integer("index", index, 0, f"Write one of 0 ... {count - 1}.")
    if which >= count:
        raise InputError(f"index is {which}, num_shards is {count}.", f"Write an index from 0 to {count - 1}.")


def weights(value: Any, count: int) -> list[float]:
    """Return `count` weights, of which at least one is above 0; equal ones for None."""
    try:
        numbers = [1.0] * count if value is None else [float(weight) for weight in value]
    except TypeError:
        numbers = []
    if len(numbers) != count or not all(0 <= weight < float("inf") for weight in numbers) or not any(numbers):
        raise InputError(
            f"weights is {value!r}, for {count} datasets.",
            "Write a list with one number for each, 0 or above, not all of them 0.",
        )
    return numbers
