"""Catalogue: the twelve networks, with the rows that they train on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import images
import numpy as np
import sequences
import wgan

SEED = 1

LEARNING_RATE = 1e-4
"""Of Adam; small, so that no network leaves the numbers that float32 can hold."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Network:
    """One network.

    Args:
        title: What it is, and on what.
        rows: Rows of each worker in every step.
        steps: Steps of an epoch.
        make: Makes it with a module that has Keras's interface; None where the loop is the program's own.
        draw: Draws so many rows: the inputs by name, in order, and the targets as `y`.
        loss: `classes` (of the last axis), `binary`, or `number`.
    """

    title: str
    rows: int
    steps: int
    make: Callable[[Any], Any] | None
    draw: Callable[[np.random.Generator, int], Arrays]
    loss: str = "classes"


def _pictures(*shape: int) -> Callable[[np.random.Generator, int], Arrays]:
    def draw(rng: np.random.Generator, rows: int) -> Arrays:
        return {"x": rng.random((rows, *shape), np.float32), "y": rng.integers(0, images.CLASSES, rows)}

    return draw


def _labelled_pixels(rng: np.random.Generator, rows: int) -> Arrays:
    return {"x": rng.random((rows, 64, 64, 3), np.float32), "y": rng.integers(0, images.CLASSES, (rows, 64, 64))}


def _text(rng: np.random.Generator, rows: int) -> Arrays:
    words = rng.integers(1, sequences.WORDS, (rows, sequences.LENGTH)).astype(np.int32)
    return {"words": words, "y": rng.integers(0, 2, (rows, 1)).astype(np.float32)}


def _next_words(rng: np.random.Generator, rows: int) -> Arrays:
    words = rng.integers(1, sequences.WORDS, (rows, sequences.LENGTH + 1)).astype(np.int32)
    return {"words": words[:, :-1], "y": words[:, 1:]}


def _padded_text(rng: np.random.Generator, rows: int) -> Arrays:
    drawn = _text(rng, rows)
    lengths = rng.integers(sequences.LENGTH // 2, sequences.LENGTH + 1, (rows, 1))
    mask = np.arange(sequences.LENGTH) < lengths
    return {"words": np.where(mask, drawn["words"], 0), "mask": mask, "y": drawn["y"]}


def _visits(rng: np.random.Generator, rows: int) -> Arrays:
    user = rng.integers(0, sequences.USERS, rows).astype(np.int32)
    item = rng.integers(0, sequences.ITEMS, rows).astype(np.int32)
    return {"user": user, "item": item, "y": rng.integers(0, 2, (rows, 1)).astype(np.float32)}


def _table(rng: np.random.Generator, rows: int) -> Arrays:
    x = rng.normal(size=(rows, 20)).astype(np.float32)
    return {"x": x, "y": x[:, :1] * x[:, 1:2]}


def _real(rng: np.random.Generator, rows: int) -> Arrays:
    return {"x": rng.random((rows, 28, 28, 1), np.float32) * 2 - 1, "y": np.zeros(rows, np.int32)}


NETWORKS = {
    "mnist_cnn": Network("CNN with pooling, 28x28", 64, 30, images.mnist_cnn, _pictures(28, 28, 1)),
    "resnet18": Network("ResNet-18, 64x64", 16, 4, images.resnet18, _pictures(64, 64, 3)),
    "resnet50": Network("ResNet-50, 64x64", 16, 3, images.resnet50, _pictures(64, 64, 3)),
    "mobilenet": Network("MobileNetV2, 96x96", 32, 3, images.mobilenet, _pictures(96, 96, 3)),
    "unet": Network("U-Net, 64x64", 16, 2, images.unet, _labelled_pixels),
    "vit": Network("Vision Transformer, 32x32", 32, 6, images.vit, _pictures(32, 32, 3)),
    "lstm": Network("text, LSTM in both directions", 32, 20, sequences.lstm, _text, "binary"),
    "gru": Network("text, GRU in both directions", 32, 20, sequences.gru, _text, "binary"),
    "gpt": Network("small GPT", 16, 4, sequences.gpt, _next_words),
    "bert": Network("encoder as BERT's, with masks", 32, 6, sequences.bert, _padded_text, "binary"),
    "recommender": Network("recommender, 250,000 embeddings", 512, 10, sequences.recommender, _visits, "binary"),
    "wgan": Network("WGAN with gradient penalty", 32, 6, None, _real),
    "tabular": Network("perceptron of 3,457 weights on a table", 256, 100, sequences.tabular, _table, "number"),
}


def compiled(keras: Any, network: Network) -> Any:
    """Return a compiled network, with the same weights wherever the same Keras makes it.

    Args:
        keras: Keras 3, or `tf_keras`.
        network: One with `make`.
    """
    assert network.make is not None
    keras.utils.set_random_seed(SEED)
    model = network.make(keras)
    losses = {
        "classes": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "binary": keras.losses.BinaryCrossentropy(from_logits=True),
        "number": keras.losses.MeanSquaredError(),
    }
    model.compile(keras.optimizers.Adam(LEARNING_RATE), losses[network.loss])
    return model


def drawn(network: Network, workers: int) -> Arrays:
    """Return the rows of one epoch on so many workers."""
    return network.draw(np.random.default_rng(SEED), network.steps * network.rows * workers)


def wgan_model(tf: Any, keras: Any) -> Any:
    """Return the WGAN, compiled, with its loop of tapes."""
    keras.utils.set_random_seed(SEED)
    return wgan.loop(tf, keras)
