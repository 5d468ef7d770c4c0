"""The networks in Keras, compiled; under a strategy where the caller is in its scope."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "mnist_cnn"))

import numpy as np
from network import network as mnist_network
from workloads import LEARNING_RATE, SEED, Size, repeated


def compiled(keras: Any, name: str, size: Size, resident: np.ndarray | None = None) -> Any:
    """Return a network, with the same weights wherever it is made.

    Args:
        keras: Keras 3, as a module.
        name: Of WORKLOADS.
        size: Its size.
        resident: Images that lie on the device: the network then computes with these, whatever comes in.
    """
    keras.utils.set_random_seed(SEED)
    keras.config.set_dtype_policy("float32" if name == "mnist" else "mixed_bfloat16")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if name == "resnet50":
        model, optimizer = resnet50(keras, size, resident), keras.optimizers.SGD(LEARNING_RATE, momentum=0.9)
    elif name == "gpt2":
        model, optimizer = gpt2(keras, size), keras.optimizers.AdamW(LEARNING_RATE, weight_decay=0.1)
    else:
        model, optimizer = mnist_network(keras), keras.optimizers.SGD(LEARNING_RATE)
    model.compile(optimizer, loss)
    return model


def resnet50(keras: Any, size: Size, resident: np.ndarray | None) -> Any:
    """Return ResNet-50 of `keras.applications` for images of bytes, which come in or lie on the device."""
    edge = size.length
    if resident is None:
        inputs = images = keras.Input((edge, edge, 3), dtype="uint8")
    else:
        inputs = keras.Input((1,))
        images = _resident(keras, resident)(inputs)
    scaled = keras.layers.Rescaling(1 / 127.5, -1.0)(images)
    body = keras.applications.ResNet50(
        weights=None, input_shape=(edge, edge, 3), classes=size.classes, classifier_activation=None
    )
    return keras.Model(inputs, body(scaled))


def _resident(keras: Any, images: np.ndarray) -> Any:
    """Return a layer that returns images which are its weight, and passes over what comes in.

    Else each step of `fit` would copy its images to the device, with Keras alone not beside a running step.
    """

    class Resident(keras.layers.Layer):
        def build(self, input_shape: Any) -> None:
            self.images = self.add_weight(
                shape=images.shape, dtype="uint8", initializer="zeros", trainable=False, autocast=False
            )

        def call(self, inputs: Any) -> Any:
            if inputs.shape[0] in (None, len(images)):
                return self.images
            # A model is built for the rows of all replicas; in a step each of them has as many as there are images.
            return keras.ops.take(self.images, np.arange(inputs.shape[0]) % len(images), axis=0)

        def compute_output_spec(self, inputs: Any) -> Any:
            return keras.KerasTensor((inputs.shape[0], *images.shape[1:]), dtype="uint8")

    layer = Resident(dtype="float32")
    layer.build((None, 1))
    layer.images.assign(images)
    return layer


def gpt2(keras: Any, size: Size) -> Any:
    """Return GPT-2 without dropout; the weights of the embedding also compute the logits."""
    layers = keras.layers
    inputs = keras.Input((size.length,), dtype="int32")
    words = layers.ReversibleEmbedding(size.classes, size.width, embeddings_initializer=_normal(keras))
    places = layers.Embedding(size.length, size.width, embeddings_initializer=_normal(keras))
    x = words(inputs) + places(keras.ops.arange(size.length))
    for _ in range(size.blocks):
        attention = layers.MultiHeadAttention(size.heads, size.width // size.heads, kernel_initializer=_normal(keras))
        normal = layers.LayerNormalization(epsilon=1e-5)(x)
        x = x + attention(normal, normal, use_causal_mask=True)
        normal = layers.LayerNormalization(epsilon=1e-5)(x)
        wide = layers.Dense(4 * size.width, activation=_gelu(keras), kernel_initializer=_normal(keras))(normal)
        x = x + layers.Dense(size.width, kernel_initializer=_normal(keras))(wide)
    return keras.Model(inputs, words(layers.LayerNormalization(epsilon=1e-5)(x), reverse=True))


def _normal(keras: Any) -> Any:
    return keras.initializers.RandomNormal(stddev=0.02)


def _gelu(keras: Any) -> Any:
    return lambda x: keras.activations.gelu(x, approximate=True)


def rows_of_an_epoch(x: np.ndarray, y: np.ndarray, name: str, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what `fit` takes: as many rows as an epoch has; for images that lie on the device something small."""
    inputs = np.zeros((number, 1), np.float32) if name == "resnet50" else repeated(x, number)
    return inputs, repeated(y, number)
