"""Checks of what `fit`, `evaluate` and `predict` are given, before any worker waits for another."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Sequence
from typing import Any, Final

import keras
import numpy as np

from stratagem.core.errors import InputError, UsageError, explain, name_some
from stratagem.core.log import logger
from stratagem.data.dataset import Dataset
from stratagem.feed.batch import check_numbers
from stratagem.feed.compat import unpack
from stratagem.feed.on_host import begins_on_host
from stratagem.fit import compat
from stratagem.fit.step_kinds import PREDICT, StepKind
from stratagem.mesh.mesh import Tree
from stratagem.replica.context import inside_step

_COUNTS: Final = {
    "batch_size": (1, "the number of rows of a global batch, such as 32"),
    "validation_batch_size": (1, "the number of rows of a global batch, such as 32"),
    "epochs": (0, "a number of epochs"),
    "initial_epoch": (0, "the number of epochs that were trained before"),
    "steps_per_epoch": (1, "a number of batches, such as len(x) // batch_size"),
    "validation_steps": (1, "a number of batches, such as len(x) // batch_size"),
    "steps": (1, "a number of batches, such as len(x) // batch_size"),
}
"""Arguments that are whole numbers: the least that each may be, and what it means."""


def check_outside_step(model: Any, method: str) -> None:
    """Make sure that `fit` or a sibling is not called while a step is traced.

    Raises:
        UsageError: It is.
    """
    if inside_step():
        raise UsageError(
            f"model.{method} of {model.name!r} was called inside a function that strategy.run or a step runs.",
            f"{method} runs a loop over batches, and this loop already shares them among the replicas.",
            f"Call {method} outside; inside, call the model: model(x, training=True).",
        )


def check_arguments(model: Any, method: str, arguments: dict[str, Any]) -> None:
    """Make sure that a call of `fit` or one of its siblings means something.

    Args:
        model: Whose.
        method: Which of them.
        arguments: The bound arguments, with defaults.

    Raises:
        InputError: An argument is of the wrong type, or a number out of its bounds.
    """
    if arguments.get("x") is None:
        raise InputError(f"{method} was given no data: x is None.", f"Write model.{method}(x, ...), or give a dataset.")
    for name in ("y", "sample_weight") if begins_on_host(model) else ("x", "y", "sample_weight", "validation_data"):
        check_numbers(name, arguments.get(name))
    for name in _COUNTS:
        _check_count(name, arguments.get(name))
    _check_split(arguments.get("validation_split"))
    _check_class_weight(arguments.get("class_weight"))
    _check_callbacks(method, arguments.get("callbacks"))
    together = getattr(model, "steps_per_execution", 1)
    if together != "auto" and int(together) < 1:
        raise InputError(
            f"Model {model.name!r} was compiled with steps_per_execution={together}.",
            "Write the number of steps that one program runs, 1 or more.",
        )
    if isinstance(arguments["x"], Dataset) and arguments.get("batch_size") is not None and "_on_batch" not in method:
        logger.warning(
            explain(
                f"{method} was given batch_size={arguments['batch_size']} beside a dataset.",
                "The dataset is batched already, and batch_size is ignored.",
                "Write dataset.batch(GLOBAL_BATCH_SIZE), and leave batch_size out.",
            )
        )


def _check_count(name: str, value: Any) -> None:
    if value is None:
        return
    least, meaning = _COUNTS[name]
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise InputError(
            f"{name} is {value!r}, of type {type(value).__name__}.",
            f"Write {meaning}: a whole number of at least {least}.",
        )


def _check_split(split: Any) -> None:
    if split is not None and not (isinstance(split, int | float) and 0 <= split < 1):
        raise InputError(
            f"validation_split is {split!r}.",
            "Write the share of the rows for validation as a number below 1, such as 0.2.",
        )


def _check_class_weight(class_weight: Any) -> None:
    if class_weight is None:
        return
    if not isinstance(class_weight, dict):
        raise InputError(
            f"class_weight is of type {type(class_weight).__name__}.",
            "Write a dict from the number of each class to its weight: {0: 1.0, 1: 5.0}.",
        )
    strange = [key for key in class_weight if isinstance(key, str | bytes)]
    if strange:
        raise InputError(
            f"class_weight has the key {strange[0]!r}.",
            "No label is equal to it, so its class would count as if it had no weight.",
            "Write the classes as numbers, as in the labels: {0: 1.0, 1: 5.0}.",
        )


def _check_callbacks(method: str, callbacks: Any) -> None:
    for callback in compat.flattened_callbacks(callbacks):
        if inspect.isclass(callback):
            raise InputError(
                f"{method} was given the class {callback.__name__} as a callback.",
                f"Give an object of the class: callbacks=[{callback.__name__}(...)].",
            )
        if not hasattr(callback, "set_model"):
            raise InputError(
                f"{method} was given {callback!r} as a callback, of type {type(callback).__name__}.",
                "Give objects of subclasses of keras.callbacks.Callback; a plain function goes into "
                "keras.callbacks.LambdaCallback(on_epoch_end=...).",
            )


def check_model(model: Any, kind: StepKind, batch: Tree) -> None:
    """Make sure that a model can make a step of Keras's own on a batch. A step of the program's own may do otherwise.

    Args:
        model: A compiled model.
        kind: Which step.
        batch: Structure of arrays (x, y, sample_weight), as the step gets it.

    Raises:
        InputError: There are no targets, and the loss needs them.
        UsageError: The optimizer was built for other variables than those that are trained now.
    """
    if kind is PREDICT or not _is_of_keras(model, kind.method):
        return
    _, y, _ = unpack(batch)
    if y is None and getattr(model, "loss", None) is not None and _is_of_keras(model, "compute_loss"):
        raise InputError(
            f"Model {model.name!r} has a loss, and the data has no targets for it.",
            "Give fit(x, y), validation_data=(x, y), or a dataset of pairs: Dataset.from_tensor_slices((x, y)).",
        )
    optimizer = model.optimizer
    if kind.trains and optimizer is not None and optimizer.built:
        _check_optimizer(model, compat.applied_to(optimizer))


def _check_optimizer(model: Any, known: Sequence[Any]) -> None:
    trained = model.trainable_variables
    if [id(variable) for variable in known] == [id(variable) for variable in trained]:
        return
    others = [variable.path for variable in known if all(variable is not each for each in trained)]
    others += [variable.path for variable in trained if all(variable is not each for each in known)]
    raise UsageError(
        f"The optimizer of model {model.name!r} was built for {len(known)} variables, and the model trains "
        f"{len(trained)} now; they differ in {name_some(others, 4)}.",
        "The optimizer's state of a variable, such as its momentum, would be used for another variable, or be lost.",
        "After layers are added or `trainable` is changed, compile again: model.compile(keras.optimizers.Adam(), ...). "
        "Give each model an optimizer of its own.",
    )


def check_labels(model: Any, y: Any) -> None:
    """Make sure that a built model has an output for each class among the labels of arrays.

    Args:
        model: A compiled model.
        y: The targets as `fit` or a sibling got them.

    Raises:
        InputError: A label has no output. TensorFlow raises too; JAX counts such a row as no loss.
    """
    loss, outputs = getattr(model, "loss", None), getattr(model, "outputs", None) or ()
    sparse = isinstance(loss, keras.losses.SparseCategoricalCrossentropy) and loss.ignore_class is None
    if not (sparse or loss == "sparse_categorical_crossentropy") or len(outputs) != 1:
        return
    classes = outputs[0].shape[-1]
    if not isinstance(y, np.ndarray) or not y.size or classes is None:
        return
    least, most = y.min(), y.max()
    if least < 0 or most >= classes:
        raise InputError(
            f"The labels go from {least} to {most}, and the last layer of model {model.name!r} has {classes} outputs.",
            "A row whose label has no output would count as if its loss were 0.",
            f"Number the classes from 0 to {classes - 1}, or make the last layer wider: Dense({int(most) + 1}).",
        )


def _is_of_keras(model: Any, method: str) -> bool:
    # Keras's, or ours in its place; not the program's.
    return getattr(type(model), method).__module__.partition(".")[0] in ("keras", "stratagem")
