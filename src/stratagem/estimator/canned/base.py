"""What the Estimators that come with a model share: the call of their model_fn, and their optimizers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import keras

from stratagem.core.errors import InputError
from stratagem.estimator.estimator import Estimator
from stratagem.estimator.graph import trainable_variables
from stratagem.estimator.run_config import RunConfig
from stratagem.estimator.spec import EstimatorSpec

Folder = Any
"""A path of a folder, or None."""

_OPTIMIZERS: Final = {
    "Adagrad": keras.optimizers.Adagrad,
    "Adam": keras.optimizers.Adam,
    "Ftrl": keras.optimizers.Ftrl,
    "RMSProp": keras.optimizers.RMSprop,
    "SGD": keras.optimizers.SGD,
}


class Canned(Estimator):
    """An Estimator whose model_fn is made of a head and of what computes its logits."""

    def __init__(
        self, model_fn: Callable[..., EstimatorSpec], model_dir: Folder, config: RunConfig | None, warm_start_from: Any
    ) -> None:
        def call(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            if not isinstance(features, dict):
                raise InputError(
                    f"input_fn gives features of type {type(features).__name__}.",
                    "Feature columns find features by name.",
                    'Let input_fn return ({"age": ..., "sex": ...}, labels).',
                )
            return model_fn(features, labels, mode)

        super().__init__(call, model_dir, config, warm_start_from=warm_start_from)


def minimizing(name: str, optimizer: Any, learning_rate: float, scope: str | None = None) -> Callable[[Any], Any]:
    """Return what makes the `train_op` of a loss.

    Args:
        name: Of the argument, for the error message.
        optimizer: What the argument is.
        learning_rate: Of an optimizer that is given by name.
        scope: What the names of the variables that are trained begin with; None for all.

    Raises:
        InputError: It is no optimizer.
    """
    if optimizer not in _OPTIMIZERS if isinstance(optimizer, str) else not _can_optimize(optimizer):
        raise InputError(
            f"{name} is {optimizer!r}.",
            "It makes no loss smaller.",
            f"Write one of the names {', '.join(_OPTIMIZERS)}, an optimizer of Keras or of "
            "stratagem.estimator.optimizers, or a function that returns one.",
        )
    make = _maker_of(optimizer, learning_rate)

    def train_op(loss: Any) -> Any:
        variables = None if scope is None else trainable_variables(scope)
        return make().minimize(loss, var_list=variables)

    return train_op


def _can_optimize(optimizer: Any) -> bool:
    return isinstance(optimizer, keras.optimizers.Optimizer) or callable(optimizer)


def _maker_of(optimizer: Any, learning_rate: float) -> Callable[[], Any]:
    """Return what makes an optimizer for a call of a model_fn.

    One that was made outside is made again: its variables have to be those of the call. Its arguments are read now,
    since a call that is traced has no values.
    """
    if isinstance(optimizer, str):
        return functools.partial(_OPTIMIZERS[optimizer], learning_rate)
    if isinstance(optimizer, keras.optimizers.Optimizer):
        return functools.partial(type(optimizer).from_config, optimizer.get_config())
    return optimizer
