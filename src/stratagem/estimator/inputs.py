"""Input functions: what they return becomes batches for replicas."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from typing import Any

import jax
import numpy as np

from stratagem.core.errors import InputError
from stratagem.core.types import InputContext
from stratagem.data.dataset import Dataset
from stratagem.data.one_shot import Upcoming, dataset_of_upcoming, standing_in
from stratagem.estimator import text
from stratagem.estimator.checks import unusable
from stratagem.estimator.log import say
from stratagem.estimator.spec import ModeKeys
from stratagem.mesh.mesh import Tree
from stratagem.mesh.values import DistributedValues

InputFn = Callable[..., Any]
"""`input_fn([mode, params, config, input_context])`: returns a dataset, arrays, or an iterable of batches."""

_ARGUMENTS = ("mode", "params", "config", "input_context")


def batches_of(
    input_fn: InputFn, mode: str, strategy: Any, params: Any, config: Any, *, forever: bool
) -> Generator[tuple[Tree, Tree]]:
    """Begin a pass over what an input function returns: (features, labels), for each replica a batch of its own.

    The batch size of the function is that of one replica: at each step every replica takes the next batch of its
    worker's dataset. In training, a step that would leave a replica without rows is left out, as in TensorFlow. With
    several workers, a function with an `input_context` shards its dataset itself; else the batches of its dataset are
    distributed to the workers one by one.

    Args:
        input_fn: The function. It is called once on each worker.
        mode: A `ModeKeys`.
        strategy: Whose replicas get the batches.
        params: What the function gets as `params`.
        config: What it gets as `config`.
        forever: Whether a function that returns arrays, which are one batch, gives it again and again.

    Raises:
        InputError: The function takes or returns something that cannot be used.
    """
    takes = _arguments_of(input_fn)
    if "input_context" in takes:
        say("The `input_fn` accepts an `input_context` which will be given by DistributionStrategy")

    def dataset_fn(context: InputContext) -> Any:
        given = {"mode": mode, "params": params, "config": config, "input_context": context}
        with standing_in():
            result = input_fn(**{name: given[name] for name in takes})
        dataset = _dataset_of(result, forever)
        workers = context.num_input_pipelines
        if workers > 1 and "input_context" not in takes and isinstance(dataset, Dataset):
            # All workers have the same batches in the same order: without this each example would count several times.
            say(f"The `input_fn` accepts no `input_context`: each of {workers} workers takes its batches")
            dataset = dataset.shard(workers, context.input_pipeline_id)
        return text.encoding(dataset)

    # Workers of parameter servers divide an Estimator's data; what they read otherwise is whole on each.
    distribute = getattr(strategy, "datasets_in_parts", strategy.distribute_datasets_from_function)
    elements = iter(distribute(dataset_fn))
    try:
        for element in elements:
            features, labels = text.restored(_parts(element))
            if mode == ModeKeys.TRAIN and not _rows_everywhere(features):
                break
            yield features, labels
    finally:
        elements.close()


def numpy_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> InputFn:
    """Return an input function that yields batches of arrays (`tf.compat.v1.estimator.inputs.numpy_input_fn`).

    Args:
        x: An array, or a dictionary of arrays, with a row for each example.
        y: Labels in the same form; None means no labels.
        batch_size: Rows in a batch of one replica.
        num_epochs: Number of passes over the arrays; None repeats for ever.
        shuffle: Whether to shuffle in each epoch; required.
        queue_capacity: Accepted as in TensorFlow.
        num_threads: Accepted as in TensorFlow.

    Raises:
        InputError: `shuffle` is missing.

    Example:
        >>> input_fn = numpy_input_fn(np.arange(4), np.arange(4) % 2, batch_size=2, shuffle=False)
        >>> [labels.tolist() for features, labels in input_fn()]
        [[0, 1], [0, 1]]
    """
    if not isinstance(shuffle, bool):
        raise unusable(
            "numpy_input_fn",
            "Training needs a different order in each epoch, and prediction needs the order of the arrays.",
            "Write shuffle=True to train, shuffle=False to evaluate and to predict.",
            shuffle=shuffle,
        )

    def input_fn() -> Dataset:
        dataset = Dataset.from_tensor_slices(x if y is None else (x, y))
        if shuffle:
            dataset = dataset.shuffle(len(dataset))
        return dataset.repeat(num_epochs).batch(batch_size)

    return input_fn


def pandas_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> InputFn:
    """Return an input function that yields batches of the columns of a table (`tf...inputs.pandas_input_fn`).

    Args:
        x: A `pandas.DataFrame`, or anything like a dictionary of columns.
        y: A `pandas.Series` of labels with the same index, or a DataFrame of several; None for none.
        batch_size: As for `numpy_input_fn`.
        num_epochs: As for `numpy_input_fn`.
        shuffle: As for `numpy_input_fn`.
        queue_capacity: Accepted as in TensorFlow.
        num_threads: Accepted as in TensorFlow.
        target_column: Accepted as in TensorFlow.

    Raises:
        InputError: `shuffle` is missing, or the labels have another index than the table.
    """
    if hasattr(x, "index") and hasattr(y, "index") and not x.index.equals(y.index):
        raise InputError(
            "pandas_input_fn was given x and y with different indices.",
            "Examples would get the labels of others.",
            "Take both from the same rows; or write y=pd.Series(y.values, index=x.index) if they are in order.",
        )
    columns = {name: np.asarray(x[name]) for name in x}
    labels = {name: np.asarray(y[name]) for name in y} if hasattr(y, "columns") else y
    return numpy_input_fn(columns, labels, batch_size, num_epochs, shuffle)


def _arguments_of(input_fn: InputFn) -> list[str]:
    if not callable(input_fn):
        raise InputError(
            f"input_fn is a {type(input_fn).__name__}.",
            "The data is read again for each training and evaluation, so a function must make it.",
            "Write input_fn=lambda: dataset, or a function that returns the dataset.",
        )
    parameters = inspect.signature(input_fn).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    unknown = [name for name in needed if name not in _ARGUMENTS]
    if unknown:
        raise InputError(
            f"input_fn needs the argument(s) {', '.join(unknown)}.",
            f"Take some of {', '.join(_ARGUMENTS)}; bind others with functools.partial or a lambda.",
        )
    return [p.name for p in parameters if p.name in _ARGUMENTS]


def _dataset_of(result: Any, forever: bool) -> Any:
    """Return something that can be iterated over in batches."""
    if result is None:
        raise InputError(
            "input_fn returned None.",
            "Return a stratagem.data.Dataset of (features, labels), batched by the batch size of one replica.",
        )
    dataset = dataset_of_upcoming(result) if isinstance(result, dict | list | tuple | Upcoming) else None
    if dataset is not None:
        return dataset
    if isinstance(result, dict | list | tuple | np.ndarray | jax.Array):
        batch = Dataset.from_tensors(jax.tree.map(np.asarray, _pair(result)))
        return batch.repeat() if forever else batch
    return result


def _pair(result: Any) -> Any:
    """Return (features, labels), or features alone, in a form that datasets take."""
    if not isinstance(result, list | tuple):
        return result
    if len(result) != 2:
        raise InputError(
            f"input_fn gave {len(result)} values.",
            "Give two, (features, labels), or features alone; several features go into a dictionary.",
        )
    features, labels = result
    return features if labels is None else (features, labels)


def _parts(element: Any) -> tuple[Tree, Tree]:
    pair = _pair(element)
    if isinstance(pair, list | tuple):
        return pair[0], pair[1]
    return pair, None


def _rows_everywhere(features: Tree) -> bool:
    leaves = jax.tree.leaves(features, is_leaf=lambda leaf: isinstance(leaf, DistributedValues))
    shares = [leaf.shares for leaf in leaves if isinstance(leaf, DistributedValues) and leaf.shares is not None]
    return all(min(share) > 0 for share in shares)
