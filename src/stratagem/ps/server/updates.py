"""The Keras optimizer, applied where a variable lives.

Each part of a variable has its own slots (momentum and the like), updated by a program compiled from the optimizer's
`stateless_apply`. The count of updates and the learning rate come with the gradient, since schedules run on the worker.
So do clipping and loss scaling, which need whole gradients.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any, Final

import jax
import keras
import numpy as np

from stratagem.mesh.mesh import Device
from stratagem.ps.compat import fresh_optimizer

_BEFORE_SLOTS: Final = 2
"""Every optimizer's variables begin with its iterations and its learning rate."""


class Updater:
    """An optimizer for variables of one shape.

    Args:
        optimizer: Class, configuration and other settings of a Keras optimizer (`compat.optimizer_recipe`).
        shape: Shape of the variables.
        dtype: Their dtype.
        name: The variable's name, by which an optimizer may leave it out of weight decay.
        constraint: A Keras constraint, or None.
        device: Where the program runs.
    """

    def __init__(
        self, optimizer: Any, shape: Sequence[int], dtype: np.dtype, name: str, constraint: Any, device: Device
    ) -> None:
        self._device = device
        with jax.default_device(device):
            variable = keras.Variable(np.zeros(shape, dtype), name=name)
            variable.constraint = constraint
            self._optimizer = fresh_optimizer(optimizer)
            self._optimizer.build([variable])
        # Bound to the device, as all later ones are: the program would be compiled anew for those.
        self._initial = jax.device_put([slot.value for slot in self._optimizer.variables[_BEFORE_SLOTS:]], device)
        self._compiled = jax.jit(self._step)
        self._lock = threading.Lock()

    def new_slots(self) -> list[jax.Array]:
        """Return the slots of a variable that was never updated."""
        return list(self._initial)

    def _step(
        self, value: jax.Array, gradient: jax.Array, slots: list[jax.Array], iterations: jax.Array, rate: jax.Array
    ) -> tuple[jax.Array, list[jax.Array]]:
        (new,), state = self._optimizer.stateless_apply([iterations, rate, *slots], [gradient], [value])
        return new, state[_BEFORE_SLOTS:]

    def __call__(
        self, value: Any, gradient: Any, slots: Sequence[Any], iterations: int, rate: float
    ) -> tuple[jax.Array, list[jax.Array]]:
        """Return the new value and the new slots; the old arrays stay as they are.

        Args:
            value: The variable's value.
            gradient: The gradient, of the same shape.
            slots: The slots of the variable.
            iterations: Updates before this one.
            rate: The learning rate.
        """
        old, *rest = self._on_device([value, *slots])
        with self._lock:  # the first call traces, and Keras's scopes are not for two threads at once
            return self._compiled(old, gradient, rest, *_numbers(iterations, rate, self._device))

    def _on_device(self, arrays: Sequence[Any]) -> list[jax.Array]:
        """Return arrays on the device. After the first update they are there already.

        The program runs where they are, so it can be given a gradient as it is (20 us; 80 to put it there).
        """
        return [each if isinstance(each, jax.Array) else jax.device_put(each, self._device) for each in arrays]


@functools.lru_cache(maxsize=4)
def _numbers(iterations: int, rate: float, device: Device) -> tuple[jax.Array, jax.Array]:
    """Return the numbers of an update, which are the same for all variables of a model."""
    return jax.device_put((np.int32(iterations), np.float32(rate)), device)
