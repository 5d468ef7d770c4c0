"""`DatasetCreator`: a function as the input of `fit`, called on each worker."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from stratagem.core.errors import InputError
from stratagem.core.types import InputContext, InputOptions
from stratagem.feed.adapter import check_alone


class DatasetCreator:
    """Makes the dataset of each worker, where that worker runs (`tf.keras.utils.experimental.DatasetCreator`).

    `fit` and `evaluate` take it in place of a dataset, under every strategy, and then need to be told the number of
    steps. Each worker reads its own dataset only; under `ParameterServerStrategy` no batch passes through the chief.
    The dataset is used as it is: batched by the batch size of one replica, and sharded and shuffled by the function.
    Source of the semantics:
    https://github.com/keras-team/tf-keras/blob/master/tf_keras/utils/dataset_creator.py

    Args:
        dataset_fn: Gets an `InputContext`, returns a dataset: a `stratagem.data.Dataset`, or another input of `fit`
            besides arrays.
        input_options: How it is read.

    Raises:
        InputError: `dataset_fn` is no function of one argument, or `input_options` are none.

    Example:
        >>> import numpy as np
        >>> import stratagem
        >>> from stratagem import keras
        >>> def dataset_fn(context):
        ...     x = np.arange(8.0).reshape(8, 1)
        ...     dataset = stratagem.data.Dataset.from_tensor_slices((x, 2 * x)).shuffle(8).repeat()
        ...     dataset = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
        ...     return dataset.batch(context.get_per_replica_batch_size(4))
        >>> strategy = stratagem.OneDeviceStrategy("cpu:0")
        >>> with strategy.scope():
        ...     model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        ...     model.compile(keras.optimizers.SGD(0.01), "mse")
        >>> creator = stratagem.experimental.DatasetCreator(dataset_fn)
        >>> history = model.fit(creator, epochs=2, steps_per_epoch=5, verbose=0).history
        >>> history["loss"][1] < history["loss"][0]
        True
    """

    def __init__(self, dataset_fn: Callable[[InputContext], Any], input_options: InputOptions | None = None) -> None:
        if not callable(dataset_fn) or not _takes_one(dataset_fn):
            raise InputError(
                f"DatasetCreator was given {dataset_fn!r}, which is no function of one argument.",
                "Each worker calls it with an InputContext, which says which of the workers it is.",
                "Write def dataset_fn(context): ... and return a dataset in it.",
            )
        if input_options is not None and not isinstance(input_options, InputOptions):
            raise InputError(
                f"DatasetCreator was given input_options={input_options!r}.",
                "Give a stratagem.InputOptions, or leave it out.",
            )
        self.dataset_fn = dataset_fn
        self.input_options = input_options

    def __call__(self, context: InputContext) -> Any:
        """Return the dataset of one worker."""
        return self.dataset_fn(context)


def creator_among(arguments: dict[str, Any]) -> DatasetCreator | None:
    """Return the creator that `fit` or a sibling was given as `x`, if it was one or a plain function.

    Args:
        arguments: x, y, sample_weight, steps_per_epoch, as Keras hands them to its own choice of adapter.

    Raises:
        InputError: The number of steps is not said; or targets were given beside it.
    """
    x = arguments["x"]
    if not isinstance(x, DatasetCreator):
        if not inspect.isroutine(x) and not isinstance(x, functools.partial):
            return None
        x = DatasetCreator(x)
    check_alone(x, arguments.get("y"), arguments.get("sample_weight"))
    if arguments.get("steps_per_epoch") is None:
        raise InputError(
            "A DatasetCreator, or a function, was given as the input, and how many steps to run is not said.",
            "Each worker has a dataset of its own, so nobody knows where an epoch ends.",
            "Write steps_per_epoch=... in fit, validation_steps=... for its validation_data, steps=... in evaluate "
            "and predict.",
        )
    return x


def _takes_one(dataset_fn: Callable[..., Any]) -> bool:
    try:
        inspect.signature(dataset_fn).bind(None)
    except TypeError:
        return False
    except ValueError:  # of a function that tells no signature
        return True
    return True
