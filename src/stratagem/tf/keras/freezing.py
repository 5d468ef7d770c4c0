"""Layers that are frozen after `compile`: in Keras 2 a model trains what was trainable when it was compiled.

In many GANs the discriminator is compiled and then frozen, for the model that trains the generator. It goes on training
by its own `train_on_batch` (https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/Model#compile).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from stratagem.fit.compat import layers_of

_WHEN_COMPILED: Final = "_stratagem_trainable_when_compiled"


class _WhenCompiled:
    """Layers, and whether each was trainable. No list, as Keras and checkpoints go through a model's lists."""

    def __init__(self, states: list[tuple[Any, bool]]) -> None:
        self.states = states


def note_trainable(model: Any) -> None:
    """Note which layers of a model are trainable: it is being compiled.

    Args:
        model: The model.
    """
    object.__setattr__(model, _WHEN_COMPILED, _WhenCompiled(_trainable(model)))


@contextlib.contextmanager
def as_compiled(model: Any) -> Iterator[None]:
    """Make those layers trainable that were when the model was compiled, and then those that are now.

    Args:
        model: The model that trains.
    """
    noted, now = vars(model).get(_WHEN_COMPILED), _trainable(model)
    then = [] if noted is None else noted.states
    known = {id(layer): trainable for layer, trainable in now}
    if all(known.get(id(layer), trainable) == trainable for layer, trainable in then):
        yield
        return
    try:
        _set(then)
        yield
    finally:
        _set(now)


def _trainable(model: Any) -> list[tuple[Any, bool]]:
    return [(layer, layer.trainable) for layer in layers_of(model)]


def _set(states: list[tuple[Any, bool]]) -> None:
    for _ in states:  # a layer changes those that it consists of, and two may share one
        differing = [(layer, trainable) for layer, trainable in states if layer.trainable != trainable]
        if not differing:
            return
        for layer, trainable in differing:
            layer.trainable = trainable
