"""Losses of symbolic tensors and of functions: `model.add_loss(loss)` of a functional model, which Keras 3 refuses.

A tensor becomes a layer behind the model's first output, which it passes on: so it is computed wherever the output is,
also in a model that was saved and loaded, or cloned. Functions are called where losses are read; as in Keras 2, no copy
has them.
"""

from __future__ import annotations

import functools
from typing import Any

import keras

from stratagem.core.errors import InputError
from stratagem.tf.keras.layers.compat import extend, has_losses_of_call, is_functional


@keras.saving.register_keras_serializable("stratagem")
class AddLoss(keras.layers.Layer):
    """Layer of an output and a loss that adds the loss to those of the model, and returns the output."""

    def call(self, output: Any, loss: Any) -> Any:
        """Return the output."""
        self.add_loss(loss)
        return output

    def compute_output_spec(self, output: Any, loss: Any) -> Any:
        """Return the shape and dtype of the output."""
        return keras.KerasTensor(output.shape, output.dtype)


def add_loss(model: Any, losses: Any) -> None:
    """Add losses to a functional model (`Model.add_loss` of Keras 2).

    Args:
        model: The model.
        losses: A tensor that is computed from the model's inputs; or a function without arguments, for example of
            weights; or a list of these. The sum of each is added to the loss.

    Raises:
        InputError: A loss is neither of these.
    """
    for loss in keras.tree.flatten(losses):
        if isinstance(loss, keras.KerasTensor):
            extend(model, lambda output, loss=loss: AddLoss()(output, loss))
        elif callable(loss):
            model.loss_functions.append(loss)
        else:
            raise InputError(
                f"add_loss of a functional model was given {loss!r}, of type {type(loss).__name__}.",
                "It was computed once, not in each call of the model, so it would have no gradient.",
                "Give a tensor that is computed from the model's inputs, or a function that computes it.",
            )


def give_method(model: Any) -> None:
    """Give a functional model its `add_loss`; it is the model's own, as its class has one that refuses.

    Args:
        model: A model that is being made.
    """
    if is_functional(model):
        object.__setattr__(model, "loss_functions", [])
        object.__setattr__(model, "add_loss", functools.partial(add_loss, model))


def with_functions(model: Any, losses: list[Any]) -> list[Any]:
    """Return the losses of a model, with those of functions.

    Args:
        model: The model.
        losses: What Keras says they are.
    """
    functions = vars(model).get("loss_functions", ())
    return losses if has_losses_of_call(model) else [*losses, *(function() for function in functions)]
