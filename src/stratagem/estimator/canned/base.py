"""The base of Estimators that come with a model: logits of one or several parts, trained by one optimizer each."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, cast

import keras

from stratagem.core.errors import InputError
from stratagem.estimator.canned.heads import Head
from stratagem.estimator.estimator import Estimator
from stratagem.estimator.graph import trainable_variables
from stratagem.estimator.run_config import RunConfig
from stratagem.estimator.spec import EstimatorSpec
from stratagem.estimator.updates import group

Folder = Any
"""A path of a folder, or None."""

Logits = Callable[[Any, str], Any]
"""Takes features and mode, returns logits of shape (rows, logits_dimension); makes its layers anew in each call."""

_OPTIMIZERS: Final = {
    "Adagrad": keras.optimizers.Adagrad,
    "Adam": keras.optimizers.Adam,
    "Ftrl": keras.optimizers.Ftrl,
    "RMSProp": keras.optimizers.RMSprop,
    "SGD": keras.optimizers.SGD,
}


class Part(NamedTuple):
    """A model whose logits are added to those of the other parts.

    Args:
        logits: Computes them.
        train: Returns the `train_op` of a loss, as `minimizing` makes it.
    """

    logits: Logits
    train: Callable[[Any], Any]


class Canned(Estimator):
    """An Estimator whose model_fn is made of a head and of parts.

    Args:
        head: Makes loss, predictions and metrics of logits.
        parts: Their logits are added; each trains itself.
        model_dir: As for `Estimator`.
        config: As for `Estimator`.
        warm_start_from: As for `Estimator`.
    """

    def __init__(
        self,
        head: Head,
        parts: Sequence[Part],
        model_dir: Folder,
        config: RunConfig | None,
        warm_start_from: Any = None,
    ) -> None:
        def train_op(loss: Any) -> Any:
            return group(*(part.train(loss) for part in parts))

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            if not isinstance(features, dict):
                raise InputError(
                    f"input_fn gives features of type {type(features).__name__}.",
                    "Feature columns find features by name.",
                    'Let input_fn return ({"age": ..., "sex": ...}, labels).',
                )
            logits = functools.reduce(operator.add, [part.logits(features, mode) for part in parts])
            return head.create_estimator_spec(features, mode, logits, labels, train_op_fn=train_op)

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


def minimizing(name: str, optimizer: Any, learning_rate: float, scope: str | None = None) -> Callable[[Any], Any]:
    """Return a function that makes the `train_op` of a loss.

    An optimizer that was made outside is made again in each call of a model_fn, whose variables it needs. Its arguments
    are read now, since a call that is traced has no values.

    Args:
        name: Of the argument, for the error message.
        optimizer: What the argument is.
        learning_rate: Of an optimizer that is given by name.
        scope: Beginning of the names of the variables to train; None for all.

    Raises:
        InputError: It is not an optimizer.
    """
    make = optimizer
    if isinstance(optimizer, str) and optimizer in _OPTIMIZERS:
        make = functools.partial(_OPTIMIZERS[optimizer], learning_rate)
    elif isinstance(optimizer, keras.optimizers.Optimizer):
        make = functools.partial(type(optimizer).from_config, optimizer.get_config())
    elif not callable(optimizer):
        raise InputError(
            f"{name} is {optimizer!r}.",
            f"Write one of the names {', '.join(_OPTIMIZERS)}, an optimizer of Keras or of "
            "stratagem.estimator.optimizers, or a function that returns one.",
        )

    def train_op(loss: Any) -> Any:
        variables = None if scope is None else trainable_variables(scope)
        return cast("Any", make()).minimize(loss, var_list=variables)

    return train_op
