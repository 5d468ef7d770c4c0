"""Devices that are only described: a program that is planned finds them in the place of this machine's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

_described: list[tuple[Any, ...]] = []
"""The devices of each context of `describing` that is open. Threads of the program find them too."""


@contextlib.contextmanager
def describing(devices: Sequence[Any]) -> Iterator[None]:
    """Let strategies that are made in this context have these devices, as all that this machine has.

    Args:
        devices: Those of a topology of JAX, or virtual ones of this CPU.

    Example:
        >>> with describing(["a device"]):
        ...     described_devices()
        ('a device',)
    """
    _described.append(tuple(devices))
    try:
        yield
    finally:
        _described.pop()


def described_devices() -> tuple[Any, ...] | None:
    """Return the devices that are described; None where programs run on real ones."""
    return _described[-1] if _described else None
