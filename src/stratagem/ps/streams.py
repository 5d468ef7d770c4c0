"""Random streams that lie on the parameter servers: the states of seed generators.

All workers, and the chief, draw from one stream. Who draws takes the next number from its server, which goes on at the
same moment; so no two draw the same, and together they draw what one process would, whoever is quicker. A compiled
program takes all that it draws when it reads its variables (`program.rules.streams`).

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/random/Generator
"""

from __future__ import annotations

from typing import Any, Final

import jax.numpy as jnp
import keras
import numpy as np

from stratagem.program.compat import innermost_scope
from stratagem.ps.variables import RemoteVariable

_FURTHER: Final = 0x9E3779B9
"""As in `mesh.variable_policies`: multiples of it differ in many bits."""


class RemoteStream(RemoteVariable):
    """The state of a seed generator, on a parameter server.

    Attributes:
        begins: Where the stream began, on the chief.
    """

    is_stream: Final = True
    begins: np.ndarray

    def assign_add(self, value: Any) -> Any:
        """Go on, and return the new position."""
        step = jnp.asarray(value, self.stored_dtype)
        if innermost_scope() is not None:
            return self.assign(self.value + step)
        return self.taken(step) + step

    def taken(self, step: Any) -> Any:
        """Return the position, and go on at the same moment."""
        return jnp.asarray(self.residence.take(self, np.asarray(step)))

    def begun_anew(self, times: int) -> np.ndarray:
        """Return where another stream begins, for when a server was lost and with it the position.

        Args:
            times: How often that has happened.
        """
        other = self.begins.copy()
        other[0] ^= np.asarray((times * _FURTHER) & 0xFFFFFFFF, "uint32").astype(other.dtype)
        other[1] = 0
        return other


class SharedSeedGenerator(keras.random.SeedGenerator):
    """A seed generator whose state is a `RemoteStream`."""

    def next(self, ordered: bool = True) -> Any:
        """Return the position, and go on."""
        if innermost_scope() is not None or not ordered:  # a program's, which takes what it draws all at once
            return super().next(ordered)
        return self.state.taken(np.array([0, 1]))


def shared(generator: Any) -> Any:
    """Let a seed generator whose state has moved to the servers draw there; it stays the same object."""
    if type(generator) is keras.random.SeedGenerator:
        generator.__class__ = SharedSeedGenerator
    return generator


def is_seed(variable: keras.Variable) -> bool:
    """Whether a variable is the state of a seed generator."""
    return variable.name == "seed_generator_state" and tuple(variable.shape) == (2,)
