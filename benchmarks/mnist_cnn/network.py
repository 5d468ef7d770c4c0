"""The network of TensorFlow's multi-worker tutorials, for any module with the interface of Keras.

https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turns import Turns

ROWS_PER_WORKER = 64
"""Rows of each worker in every step."""

SEED = 1

_FOR_EVER = 1_000_000


def network(keras: Any) -> Any:
    """Return the model.

    Args:
        keras: Keras 3, or `tf_keras`.
    """
    return keras.Sequential(
        [
            keras.layers.InputLayer((28, 28)),
            keras.layers.Reshape((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def compiled_network(keras: Any) -> Any:
    """Return the compiled model, with the same weights wherever the same Keras makes it.

    Args:
        keras: Keras 3, or `tf_keras`.
    """
    keras.utils.set_random_seed(SEED)
    model = network(keras)
    model.compile(
        optimizer=keras.optimizers.SGD(0.001),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def fit_in_turns(
    keras: Any, model: Any, turns: Turns, *data: Any, callbacks: Sequence[Any] = (), **options: Any
) -> None:
    """Call `model.fit` once; a turn is what lies between the ends of two of its epochs.

    Args:
        keras: The Keras that made the model.
        model: What `compiled_network` returned.
        turns: When to run an epoch.
        *data: What `fit` takes first.
        callbacks: More callbacks of `fit`.
        **options: More options of `fit`.
    """

    def on_epoch_end(epoch: int, logs: dict[str, float]) -> None:
        model.stop_training = not turns.finish(float(logs["loss"]))

    end_of_turn = keras.callbacks.LambdaCallback(on_epoch_end=on_epoch_end)
    model.fit(*data, epochs=_FOR_EVER, callbacks=[*callbacks, end_of_turn], verbose=0, **options)
