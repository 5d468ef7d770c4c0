"""Base of layers that compute on the host: of text, or by functions of NumPy arrays.

Text is no number that a device could hold. So these layers compute on the host: of values at once, as functions of
datasets; in the graph of a model before its step (`stratagem.tf.keras.on_host`).
"""

from __future__ import annotations

from typing import Any

import keras

from stratagem.data.lookup import plain
from stratagem.tf.keras.layers.compat import without_conversion


class HostLayer(keras.layers.Layer):
    """Layer of a function of NumPy arrays.

    Args:
        dtype: That of the layer.
        name: Its name; None for one of Keras's.

    Attributes:
        function: The function, with a method `output_spec(shape)`. A subclass sets it.
    """

    function: Any

    def __init__(self, dtype: str, name: str | None) -> None:
        super().__init__(name=name, dtype=dtype, autocast=False)
        without_conversion(self)
        self.built = True

    def __call__(self, inputs: Any, *others: Any, **named: Any) -> Any:
        """Return the function's result, or a symbolic tensor for symbolic inputs of a model."""
        if any(isinstance(each, keras.KerasTensor) for each in _each(inputs)):
            return super().__call__(inputs, *others, **named)
        return self.function(inputs)

    def call(self, inputs: Any) -> Any:
        """Return the function's result."""
        return self.function(inputs)

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        """Return the shape and dtype of the result."""
        shape, dtype = self.function.output_spec(_each(inputs)[0].shape)
        return keras.KerasTensor(shape, dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Return the shape of the result."""
        is_of_several = bool(input_shape) and isinstance(input_shape[0], tuple | list)
        return self.function.output_spec(input_shape[0] if is_of_several else input_shape)[0]

    def __reduce__(self) -> Any:
        return plain, (type(self.function), vars(self.function))  # processes that read data import no Keras


def _each(inputs: Any) -> Any:
    return inputs if isinstance(inputs, list | tuple) else [inputs]
