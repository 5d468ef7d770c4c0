"""A small ResNet with batch normalization, on the devices of a machine, on several workers, or with parameter servers.

Run it:
    python examples/resnet.py --devices 2 --filters 8
    python examples/resnet.py --strategy central_storage --devices 2 --filters 8
    stratagem run --workers 2 examples/resnet.py --strategy multi_worker --filters 8
    stratagem run --ps 2 --workers 2 examples/resnet.py --strategy parameter_server --filters 8

The model and the call of `fit` are the same under every strategy; only the line that makes the strategy changes.
What differs from a program for one device is marked `differs`. On a CPU use few filters; 64 make ResNet-18.
"""

from __future__ import annotations

import argparse
import os

import digits
import numpy as np

import stratagem  # differs
from stratagem import keras  # differs

STRATEGIES = ("mirrored", "central_storage", "multi_worker", "parameter_server")


def batch_normalization(x: keras.KerasTensor) -> keras.KerasTensor:
    # Keras's momentum, 0.99, needs some hundred steps until validation shows what was learned; here an epoch has few.
    return keras.layers.BatchNormalization(momentum=0.9)(x)


def residual_block(x: keras.KerasTensor, filters: int, strides: int = 1) -> keras.KerasTensor:
    shortcut = x
    x = keras.layers.Conv2D(filters, 3, strides=strides, padding="same")(x)
    x = batch_normalization(x)
    x = keras.layers.Activation("relu")(x)
    x = keras.layers.Conv2D(filters, 3, padding="same")(x)
    x = batch_normalization(x)
    if strides != 1:
        shortcut = keras.layers.Conv2D(filters, 1, strides=strides, padding="same")(shortcut)
        shortcut = batch_normalization(shortcut)
    x = keras.layers.Add()([x, shortcut])
    return keras.layers.Activation("relu")(x)


def make_resnet(image_size: int, filters: int, blocks: int, num_classes: int = 10) -> keras.Model:
    inputs = keras.Input((image_size, image_size, 3))
    x = keras.layers.Conv2D(filters, 7, strides=2, padding="same")(inputs)
    x = batch_normalization(x)
    x = keras.layers.Activation("relu")(x)
    x = keras.layers.MaxPooling2D(3, strides=2, padding="same")(x)
    for stage in range(4):  # 64, 128, 256, 512 filters
        x = residual_block(x, filters * 2**stage, strides=1 if stage == 0 else 2)
        for _ in range(blocks - 1):
            x = residual_block(x, filters * 2**stage)
    x = keras.layers.GlobalAveragePooling2D()(x)
    outputs = keras.layers.Dense(num_classes, activation="softmax")(x)
    model = keras.Model(inputs, outputs)
    model.compile(optimizer="adam", loss="categorical_crossentropy", metrics=["accuracy"])
    return model


def make_dataset(images: np.ndarray, labels: np.ndarray, image_size: int) -> stratagem.data.Dataset:
    """Return a dataset of colour images and one-hot labels, from grey images of shape (n, 28, 28)."""
    resized = np.asarray(keras.ops.image.resize(images[..., None], (image_size, image_size)))
    return stratagem.data.Dataset.from_tensor_slices(
        (np.repeat(resized, 3, axis=-1), keras.utils.to_categorical(labels, 10))
    )


def make_strategy(name: str) -> stratagem.Strategy:
    match name:
        case "mirrored":
            return stratagem.MirroredStrategy()
        case "central_storage":
            return stratagem.CentralStorageStrategy()
        case "multi_worker":
            return stratagem.MultiWorkerMirroredStrategy()
        case _:  # in the tasks of workers and parameter servers the program goes no further
            return stratagem.ParameterServerStrategy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=STRATEGIES, default="mirrored")
    parser.add_argument("--devices", type=int, help="virtual CPU devices of each process, without accelerators")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="of one replica")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--filters", type=int, default=64, help="of the first stage; each later one has twice as many")
    parser.add_argument("--blocks", type=int, default=2, help="residual blocks of each stage")
    parser.add_argument("--save", help="file for the trained model, ending in .keras")
    parser.add_argument("--data", default=os.environ.get("STRATAGEM_DATA"), help="folder with mnist.npz")
    options = parser.parse_args()
    if options.devices:
        stratagem.testing.virtual_devices(options.devices)

    strategy = make_strategy(options.strategy)  # differs

    train, test = digits.load(options.data)
    batch_size = options.batch_size * strategy.num_replicas_in_sync  # differs: --batch-size for each replica
    train_dataset = make_dataset(*train, options.image_size).shuffle(60000).batch(batch_size, drop_remainder=True)
    val_dataset = make_dataset(*test, options.image_size).batch(batch_size)

    with strategy.scope():  # differs
        model = make_resnet(options.image_size, options.filters, options.blocks)

    model.fit(train_dataset, epochs=options.epochs, validation_data=val_dataset)
    loss, accuracy = model.evaluate(val_dataset, verbose=0)
    if strategy.is_chief:  # differs
        print(f"On digits it has not seen: loss {loss:.4f}, accuracy {accuracy:.1%}.")
    if options.save:
        model.save(options.save)


if __name__ == "__main__":
    main()
