"""The network of TensorFlow's multi-worker tutorials, for any module with the interface of Keras.

https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras
"""

from __future__ import annotations

from typing import Any

ROWS_PER_WORKER = 64
"""Rows of each worker in every step."""

SEED = 1


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
