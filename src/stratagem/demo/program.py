"""Workers train the network of TensorFlow's tutorial on handwritten digits: the program of `stratagem demo`.

Run a copy of it (`stratagem demo --copy train.py` writes one):
    stratagem run --workers 2 train.py
"""

from __future__ import annotations

import argparse

import stratagem
from stratagem import keras
from stratagem.demo import digits


def make_model() -> keras.Model:
    """Return the network, compiled."""
    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Reshape((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.001), loss, metrics=["accuracy"])
    return model


def train(epochs: int) -> None:
    """Train on all workers; the chief says how well it went."""
    strategy = stratagem.MultiWorkerMirroredStrategy()
    batch_size = 32 * strategy.num_replicas_in_sync  # 32 rows of each batch for each worker
    train_set, (x_test, y_test) = digits.load()
    dataset = stratagem.data.Dataset.from_tensor_slices(train_set).shuffle(1437).batch(batch_size, drop_remainder=True)

    with strategy.scope():
        model = make_model()

    model.fit(dataset, epochs=epochs)
    loss, accuracy = model.evaluate(x_test, y_test, batch_size=120)  # 360 digits: batches of one size compile once

    if strategy.is_chief:
        print(f"On {len(x_test)} digits it has not seen: loss {loss:.4f}, accuracy {accuracy:.1%}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    train(parser.parse_args().epochs)
