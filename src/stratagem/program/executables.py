"""Compiled programs, found again by what they compute."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

_MOST_PROGRAMS: Final = 32
"""How many are kept: a constant that differs each time, such as a learning rate, must not pile them up."""


class Executables:
    """Keeps compiled programs, so that a function that is traced anew and computes the same is not compiled anew.

    What is kept holds no values of variables. Constants are part of a program.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, Callable[..., Any]] = OrderedDict()

    def executable(self, function: Any, args: Sequence[Any], devices: Hashable) -> Callable[..., Any]:
        """Return the compiled program of a function, compiled now if none that computes the same is known.

        Args:
            function: What `jax.jit` returned.
            args: Arguments like those of the calls to come.
            devices: What it runs on.
        """
        lowered = function.lower(*args)
        key = (devices, hashlib.sha256(lowered.as_text().encode()).digest())
        if key not in self._known:
            self._known[key] = lowered.compile()
        self._known.move_to_end(key)
        while len(self._known) > _MOST_PROGRAMS:
            self._known.popitem(last=False)
        return self._known[key]
