"""The record of a tape outside compiled functions, or in a branch or loop of one: each operation runs at once, or is
traced, and how to differentiate it is kept.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from typing import Any

import jax
import keras
import numpy as np
from jax.core import Tracer

from stratagem.core import patches
from stratagem.core.errors import InputError
from stratagem.core.patches import Extent
from stratagem.loop.compat import Recording, concrete, in_scope, initialise
from stratagem.program.compat import enclosing_scope, stored_value


class Recorded(keras.StatelessScope):
    """Record of a tape outside compiled functions, where operations run at once.

    While it records, variables that are watched have values that are recorded; they are assigned at once, values that
    are not.

    Args:
        watches_variables: Whether trainable variables that are read are watched by themselves.
    """

    def __init__(self, watches_variables: bool) -> None:
        super().__init__(collect_losses=True)  # for `model.losses`
        self._recording = Recording()
        self._patched = contextlib.ExitStack()
        self._watches_variables = watches_variables
        self._explicit: set[int] = set()
        self._sources: dict[int, tuple[Any, Any]] = {}
        # Its arrays may outlive the tape, and would keep all that they were computed from.
        weakref.finalize(self, self._recording.release).atexit = False

    @property
    def recording(self) -> bool:
        """Whether operations are recorded at this point."""
        return self._recording.recording

    def begin(self) -> None:
        """Record from here on."""
        self._patched.enter_context(patches.during(Extent.DERIVATIVES))
        self.__enter__()
        self._recording.begin()

    def end(self) -> None:
        """Record no more."""
        self._recording.end()
        self.__exit__()
        self._patched.close()

    def release(self) -> None:
        """Forget what was recorded."""
        self._recording.release()

    def watch(self, leaf: Any) -> None:
        """Watch an array or a variable.

        Raises:
            InputError: An array of NumPy.
        """
        if isinstance(leaf, keras.Variable):
            self._explicit.add(id(leaf))
        elif isinstance(leaf, np.ndarray):
            raise InputError(
                f"tape.watch was given an array of NumPy, of shape {leaf.shape}.",
                "A tape cannot record what NumPy computes, so there would be no gradient.",
                "Make it a tensor first: x = keras.ops.convert_to_tensor(x), then tape.watch(x).",
            )
        else:
            self._recording.watch(leaf)

    def watched_variables(self) -> tuple[Any, ...]:
        """Return the variables read so far that are watched."""
        return tuple(variable for variable, _ in self._sources.values())

    def gradients(
        self, targets: Sequence[Any], sources: Sequence[Any], weights: Sequence[Any], *, several: bool
    ) -> list[Any]:
        """Return the gradients of weighted targets by each source, None where there is no connection.

        Args:
            targets: Floating-point tensors.
            sources: Variables and tensors.
            weights: Of the targets' shapes.
            several: Whether the weights have one more axis in front; then gradients have it too.
        """
        arrays = [self._source_of(leaf) if isinstance(leaf, keras.Variable) else leaf for leaf in sources]
        pull, connected = self._recording.pull(targets, arrays)
        found = iter((jax.vmap(pull) if several else pull)(list(weights)))
        return [next(found) if each else None for each in connected]

    def _source_of(self, variable: Any) -> Any:
        """Return the array that stands for a variable; None if it was not read."""
        return self._sources.get(id(variable), (variable, None))[1]

    def get_current_value(self, variable: Any) -> Any:
        """Return the value that a read of `variable` gives."""
        value = super().get_current_value(variable)
        outer = enclosing_scope(self)
        if value is None and outer is not None:
            value = outer.get_current_value(variable)
        if value is None:
            if stored_value(variable) is None:
                initialise(variable)
            value = stored_value(variable)
        watched = id(variable) in self._explicit or (self._watches_variables and variable.trainable)
        if not watched or not self.recording or not jax.numpy.issubdtype(value.dtype, jax.numpy.inexact):
            return value
        source = self._source_of(variable)
        if source is None or source.primal is not value:
            source = self._recording.source(value, like=source)
            self._sources[id(variable)] = variable, source
        return source

    def add_update(self, update: tuple[Any, Any]) -> None:
        """Assign: (variable, value)."""
        variable, value = update
        outer = enclosing_scope(self)
        if outer is not None:
            outer.add_update((variable, value))
            return
        value = concrete(value)
        if isinstance(value, Tracer):
            # In a function that JAX traces, as a recurrent layer's step: there until it ends, as in Keras.
            super().add_update((variable, value))
            return
        self.state_mapping.pop(id(variable), None)
        with in_scope(None):
            variable.assign(value)
