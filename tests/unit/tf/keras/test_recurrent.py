"""States of recurrent layers as TensorFlow's text generation asks for them, and inputs that are not all tensors."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import stratagem.tf as tf

X = np.arange(24, dtype="float32").reshape(2, 3, 4)


@pytest.mark.parametrize(("name", "count"), [("GRU", 1), ("LSTM", 2), ("SimpleRNN", 1)])
def test_a_layer_begins_with_states_for_its_inputs(name: str, count: int) -> None:
    layer = getattr(tf.keras.layers, name)(5, return_state=True)
    assert type(layer) is getattr(keras.layers, name)
    assert isinstance(layer, getattr(tf.keras.layers, name))
    assert isinstance(layer, tf.keras.layers.RNN)
    output, *states = layer(X)
    begun, *_ = layer(X, initial_state=layer.get_initial_state(tf.constant(X)))
    np.testing.assert_array_equal(output, begun)
    for given in ({"inputs": X}, {"batch_size": 2}):
        assert [state.shape for state in layer.get_initial_state(**given)] == [(2, 5)] * count
    assert len(states) == count


class Doubled(tf.keras.layers.GRU):
    """A subclass of a program's own."""

    def call(self, sequences: Any, initial_state: Any = None, mask: Any = None, training: bool = False) -> Any:
        return super().call(2 * sequences, initial_state, mask, training)


def test_a_subclass_has_it_too() -> None:
    layer = Doubled(5)
    (state,) = layer.get_initial_state(X)
    assert state.shape == (2, 5)
    assert layer(X, initial_state=[state]).shape == (2, 5)
    wrapped = tf.keras.layers.RNN(tf.keras.layers.GRUCell(5))
    assert [each.shape for each in wrapped.get_initial_state(X)] == [(2, 5)]


@pytest.mark.parametrize(("name", "count"), [("GRUCell", 1), ("LSTMCell", 2), ("SimpleRNNCell", 1)])
def test_a_cell_is_asked_for_states_of_a_dtype(name: str, count: int) -> None:
    cell = getattr(tf.keras.layers, name)(5)
    assert type(cell) is getattr(keras.layers, name)
    for given in ({"inputs": X[:, 0]}, {"batch_size": 2, "dtype": tf.float16}):
        states = cell.get_initial_state(**given)
        assert [state.shape for state in states] == [(2, 5)] * count
    assert {str(state.dtype) for state in states} == {"float16"}
    output, _ = cell(X[:, 0], cell.get_initial_state(batch_size=2, dtype=tf.float32))
    np.testing.assert_allclose(tf.keras.layers.RNN(cell)(X[:, :1]), output, rtol=1e-6)
    stacked = tf.keras.layers.StackedRNNCells([cell, tf.keras.layers.GRUCell(4)])
    assert tf.keras.layers.RNN(stacked)(X).shape == (2, 4)
    assert len(keras.tree.flatten(stacked.get_initial_state(batch_size=2, dtype="float32"))) == count + 1


def test_a_batch_of_a_dataset_beside_a_tensor() -> None:
    """The discriminator of a GAN is called with both, before training begins."""
    one, two = tf.keras.Input((2,)), tf.keras.Input((2,))
    model = tf.keras.Model([one, two], tf.keras.layers.Add()([one, two]))
    batch = next(iter(tf.data.Dataset.from_tensor_slices(np.ones((4, 2))).batch(3)))
    assert model([batch, tf.ones((3, 2))]).numpy().tolist() == [[2.0, 2.0]] * 3
    assert model([batch[0][tf.newaxis, ...], tf.ones((1, 2))], training=False).numpy().tolist() == [[2.0, 2.0]]
