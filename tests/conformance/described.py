"""Steps of training of many kinds, for devices that are only described."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import jax
import keras
import numpy as np

import stratagem
from stratagem import GradientTape, MirroredStrategy, MultiWorkerMirroredStrategy
from stratagem.data import Dataset
from stratagem.strategy.base import Strategy

ROWS: Final = 8
"""Of a replica."""


def dense(**options: Any) -> keras.Model:
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(256), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adam(**options), "mean_squared_error", metrics=["mae"])
    return model


def convolutions() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            keras.layers.Conv2D(32, 3, use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.DepthwiseConv2D(3),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mean_squared_error")
    return model


def attention() -> keras.Model:
    inputs = keras.Input((32, 64))
    half: Any = keras.DTypePolicy("mixed_bfloat16")
    x = keras.layers.MultiHeadAttention(4, 16, dtype=half)(inputs, inputs, use_causal_mask=True)
    x = keras.layers.LayerNormalization(dtype=half)(x)
    outputs = keras.layers.Dense(1, dtype="float32")(keras.layers.Dense(256, activation="gelu", dtype=half)(x)[:, 0])
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.AdamW(), "mean_squared_error")
    return model


def embeddings() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            keras.layers.Embedding(5000, 32),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    model.compile("adagrad", "mean_squared_error")
    return model


def resnet() -> keras.Model:
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        model = keras.applications.ResNet50(weights=None)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy")
    return model


def transformer() -> keras.Model:
    """The blocks of the small GPT-2, for 8,192 words."""
    half: Any = keras.DTypePolicy("mixed_bfloat16")
    tokens = keras.Input((256,), dtype="int32")
    x = keras.layers.Embedding(8192, 768, dtype=half)(tokens)
    for _ in range(12):
        normal = keras.layers.LayerNormalization(dtype=half)(x)
        x += keras.layers.MultiHeadAttention(12, 64, dtype=half)(normal, normal, use_causal_mask=True)
        wide = keras.layers.Dense(3072, activation="gelu", dtype=half)(keras.layers.LayerNormalization(dtype=half)(x))
        x += keras.layers.Dense(768, dtype=half)(wide)
    scores = keras.layers.Dense(8192, dtype="float32")(keras.layers.LayerNormalization(dtype=half)(x))
    model = keras.Model(tokens, scores)
    model.compile(keras.optimizers.AdamW(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


class Calls(keras.layers.Layer):
    """A layer that calls Python on the host."""

    def call(self, x: Any) -> Any:
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return x + jax.pure_callback(np.asarray, shape, jax.lax.stop_gradient(x))


def calling() -> keras.Model:
    model = keras.Sequential([keras.Input((64,)), Calls(), keras.layers.Dense(1)])
    model.compile("sgd", "mean_squared_error")
    return model


MODELS: Final[Mapping[str, Callable[[], keras.Model]]] = {
    "dense": dense,
    "accumulated": lambda: dense(gradient_accumulation_steps=4),
    "clipped": lambda: dense(global_clipnorm=1.0),
    "convolutions": convolutions,
    "attention in bfloat16": attention,
    "embeddings": embeddings,
}


LARGE: Final[Mapping[str, Callable[[], keras.Model]]] = {"resnet": resnet, "transformer": transformer}


def wide() -> keras.Model:
    """Twelve layers of a million weights, three groups of them where weights rest in shards."""
    hidden = [keras.layers.Dense(1024, activation="relu") for _ in range(12)]
    model = keras.Sequential([keras.Input((1024,)), *hidden, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(), "mean_squared_error")
    return model


def rows_of(model: keras.Model, number: int) -> tuple[np.ndarray, np.ndarray]:
    spec, labels = model.inputs[0], (256,) if model.output_shape[1:] == (256, 8192) else (1,)
    return np.zeros((number, *spec.shape[1:]), spec.dtype), np.zeros((number, *labels), np.float32)


def fit(make: Callable[[], keras.Model], strategy: Strategy, *, uneven: bool = False, steps: int = 1) -> None:
    with strategy.scope():
        model = make()
        model.steps_per_execution = steps
    batch = ROWS * strategy.num_replicas_in_sync - uneven
    x, y = rows_of(model, batch * steps)
    model.fit(x, y, batch_size=batch, verbose=0)


def adversarial(strategy: Strategy) -> None:
    """A GAN's step: two networks, two tapes, two optimizers, in a function that calls `strategy.run`."""
    with strategy.scope():
        generator, critic = (
            keras.Sequential([keras.Input((a,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(b)])
            for a, b in ((16, 64), (64, 1))
        )
        seeds = keras.random.SeedGenerator(1)
        optimizers = keras.optimizers.Adam(), keras.optimizers.Adam()

    def step(real: Any) -> Any:
        noise = keras.random.normal((ROWS, 16), seed=seeds)
        with GradientTape() as of_generator, GradientTape() as of_critic:
            fake = generator(noise, training=True)
            judged = critic(fake, training=True)
            loss = keras.ops.mean(judged) - keras.ops.mean(critic(real, training=True))
            own = -keras.ops.mean(judged)
        for network, tape, value, optimizer in zip(
            (generator, critic), (of_generator, of_critic), (own, loss), optimizers, strict=True
        ):
            gradients = tape.gradient(value, network.trainable_variables)
            optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return loss

    @stratagem.function
    def whole(batch: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None)

    images = np.zeros((ROWS * strategy.num_replicas_in_sync, 64), np.float32)
    dataset = Dataset.from_tensor_slices(images).batch(len(images))
    for batch in strategy.experimental_distribute_dataset(dataset):
        whole(batch)


STRATEGIES: Final[Mapping[str, Callable[[], Strategy]]] = {
    "mirrored": MirroredStrategy,
    "multi_worker": MultiWorkerMirroredStrategy,
}
