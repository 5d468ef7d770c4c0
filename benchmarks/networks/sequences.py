"""Networks for text and tables, for any module with the interface of Keras: Keras 3 or `tf_keras`."""

from __future__ import annotations

from typing import Any

from images import with_places

WORDS = 10_000
"""Size of the vocabulary; word 0 is padding."""

LENGTH = 64
"""Words of a text."""

USERS, ITEMS = 200_000, 50_000


def lstm(keras: Any) -> Any:
    """Return a classifier of text: an embedding and an LSTM in both directions."""
    return _recurrent(keras, keras.layers.LSTM)


def gru(keras: Any) -> Any:
    """Return a classifier of text: an embedding and a GRU in both directions."""
    return _recurrent(keras, keras.layers.GRU)


def _recurrent(keras: Any, cell: Any) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.InputLayer((LENGTH,), dtype="int32"),
            layers.Embedding(WORDS, 64),
            layers.Bidirectional(cell(64)),
            layers.Dense(64, activation="relu"),
            layers.Dense(1),
        ]
    )


def gpt(keras: Any) -> Any:
    """Return a small GPT that tells each next word: two blocks, 128 wide, causal attention."""
    layers = keras.layers
    inputs = keras.Input((LENGTH,), dtype="int32")
    x = with_places(keras, LENGTH, 128)(layers.Embedding(WORDS, 128)(inputs))
    for _ in range(2):
        normal = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(4, 32)(normal, normal, use_causal_mask=True)])
        x = layers.Add()([x, _fed_forward(keras, layers.LayerNormalization()(x))])
    return keras.Model(inputs, layers.Dense(WORDS)(layers.LayerNormalization()(x)))


def bert(keras: Any) -> Any:
    """Return an encoder as BERT's that classifies text with padding: four blocks, 128 wide, masked attention."""
    layers = keras.layers
    words = keras.Input((LENGTH,), dtype="int32", name="words")
    mask = keras.Input((LENGTH,), dtype="bool", name="mask")
    x = with_places(keras, LENGTH, 128)(layers.Embedding(WORDS, 128)(words))
    x = layers.LayerNormalization()(x)
    attended = layers.Reshape((1, LENGTH))(mask)
    for _ in range(4):
        x = layers.LayerNormalization()(
            layers.Add()([x, layers.MultiHeadAttention(4, 32)(x, x, attention_mask=attended)])
        )
        x = layers.LayerNormalization()(layers.Add()([x, _fed_forward(keras, x)]))
    first = layers.Flatten()(layers.Cropping1D((0, LENGTH - 1))(x))
    return keras.Model([words, mask], layers.Dense(1)(layers.Dense(128, activation="tanh")(first)))


def _fed_forward(keras: Any, x: Any) -> Any:
    return keras.layers.Dense(128)(keras.layers.Dense(512, activation="gelu")(x))


def recommender(keras: Any) -> Any:
    """Return a recommender: embeddings of 200,000 users and 50,000 items, and a perceptron."""
    layers = keras.layers
    user = keras.Input((), dtype="int32", name="user")
    item = keras.Input((), dtype="int32", name="item")
    x = layers.Concatenate()([layers.Embedding(USERS, 32)(user), layers.Embedding(ITEMS, 32)(item)])
    for units in (64, 32):
        x = layers.Dense(units, activation="relu")(x)
    return keras.Model([user, item], layers.Dense(1)(x))


def tabular(keras: Any) -> Any:
    """Return a perceptron for tables, of a few thousand weights."""
    layers = keras.layers
    return keras.Sequential(
        [
            layers.InputLayer((20,)),
            layers.Dense(64, activation="relu"),
            layers.Dense(32, activation="relu"),
            layers.Dense(1),
        ]
    )
