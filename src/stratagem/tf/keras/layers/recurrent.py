"""Recurrent layers whose `get_initial_state` takes inputs, as in Keras 2; the objects are Keras's own."""

from __future__ import annotations

import types
from typing import Any

import keras

from stratagem.tf.dtypes import as_dtype
from stratagem.tf.keras.layers.of_keras import MakingKeras


class _TakingInputs:
    """The method of Keras 2, before Keras's class."""

    def get_initial_state(self, inputs: Any = None, batch_size: Any = None, dtype: Any = None) -> Any:
        """Return the states with which a call begins if it is given none.

        Args:
            inputs: The inputs of a call, or the number of their rows, as in Keras 3.
            batch_size: The number of rows.
            dtype: The dtype of the states of a cell; None for the dtype in which the cell computes.
        """
        first = keras.tree.flatten(inputs)[0] if batch_size is None else batch_size
        rows = first.shape[0] if getattr(first, "shape", ()) else first
        layer: Any = self
        kind = next(each for each in type(layer).__mro__ if each.__module__.startswith("keras."))
        states: Any = kind.get_initial_state(layer, rows)
        if dtype is None:
            return states
        return keras.tree.map_structure(lambda state: keras.ops.cast(state, str(as_dtype(dtype))), states)


def _made(layer: Any) -> Any:
    layer.get_initial_state = types.MethodType(_TakingInputs.get_initial_state, layer)
    return layer


class GRU(_TakingInputs, keras.layers.GRU, metaclass=MakingKeras):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Keras's `GRU` (`tf.keras.layers.GRU`); see `RNN`."""

    @staticmethod
    def _made(*arguments: Any, **named: Any) -> keras.layers.GRU:
        return _made(keras.layers.GRU(*arguments, **named))


class LSTM(_TakingInputs, keras.layers.LSTM, metaclass=MakingKeras):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Keras's `LSTM` (`tf.keras.layers.LSTM`); see `RNN`."""

    @staticmethod
    def _made(*arguments: Any, **named: Any) -> keras.layers.LSTM:
        return _made(keras.layers.LSTM(*arguments, **named))


class SimpleRNN(_TakingInputs, keras.layers.SimpleRNN, metaclass=MakingKeras):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Keras's `SimpleRNN` (`tf.keras.layers.SimpleRNN`); see `RNN`."""

    @staticmethod
    def _made(*arguments: Any, **named: Any) -> keras.layers.SimpleRNN:
        return _made(keras.layers.SimpleRNN(*arguments, **named))


class RNN(_TakingInputs, keras.layers.RNN, metaclass=MakingKeras):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Keras's `RNN`, whose `get_initial_state` takes the inputs of a call too (`tf.keras.layers.RNN`).

    Args:
        arguments: Those of `keras.layers.RNN`.

    Example:
        >>> layer = RNN(keras.layers.GRUCell(3))
        >>> [state.shape for state in layer.get_initial_state(keras.ops.ones((2, 5, 4)))]
        [(2, 3)]
    """

    @staticmethod
    def _made(*arguments: Any, **named: Any) -> keras.layers.RNN:
        return _made(keras.layers.RNN(*arguments, **named))


class GRUCell(_TakingInputs, keras.layers.GRUCell, metaclass=MakingKeras):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Keras's `GRUCell` (`tf.keras.layers.GRUCell`); see `LSTMCell`."""

    @staticmethod
    def _made(*arguments: Any, **named: Any) -> keras.layers.GRUCell:
        return _made(keras.layers.GRUCell(*arguments, **named))


class SimpleRNNCell(_TakingInputs, keras.layers.SimpleRNNCell, metaclass=MakingKeras):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Keras's `SimpleRNNCell` (`tf.keras.layers.SimpleRNNCell`); see `LSTMCell`."""

    @staticmethod
    def _made(*arguments: Any, **named: Any) -> keras.layers.SimpleRNNCell:
        return _made(keras.layers.SimpleRNNCell(*arguments, **named))


class StackedRNNCells(_TakingInputs, keras.layers.StackedRNNCells, metaclass=MakingKeras):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Keras's `StackedRNNCells` (`tf.keras.layers.StackedRNNCells`); see `LSTMCell`."""

    @staticmethod
    def _made(*arguments: Any, **named: Any) -> keras.layers.StackedRNNCells:
        return _made(keras.layers.StackedRNNCells(*arguments, **named))


class LSTMCell(_TakingInputs, keras.layers.LSTMCell, metaclass=MakingKeras):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Keras's `LSTMCell`, whose `get_initial_state` takes inputs and a dtype too (`tf.keras.layers.LSTMCell`).

    Args:
        arguments: Those of `keras.layers.LSTMCell`.

    Example:
        >>> cell = LSTMCell(3)
        >>> [state.shape for state in cell.get_initial_state(batch_size=2, dtype="float32")]
        [(2, 3), (2, 3)]
    """

    @staticmethod
    def _made(*arguments: Any, **named: Any) -> keras.layers.LSTMCell:
        return _made(keras.layers.LSTMCell(*arguments, **named))
