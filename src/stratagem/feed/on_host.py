"""Computation on the host that a model begins with, before its step: lookups of text, which no device could hold.

A model that has such a part has two methods: `begins_on_host()`, and `host_part(example)`, which returns the function
of a batch of inputs. The step begins with what that returns. It is applied to whole global batches, so that what
depends on the other rows, such as the length of the longest text, is the same on all workers.
"""

from __future__ import annotations

import math
import weakref
from typing import Any, Final

import jax
import keras
import numpy as np

from stratagem.data.dataset import Dataset
from stratagem.data.structure import encoded
from stratagem.feed import compat
from stratagem.mesh.mesh import Tree


def begins_on_host(model: Any) -> bool:
    """Whether a model has a part that the host computes."""
    ask = getattr(model, "begins_on_host", None)
    return ask is not None and ask()


def as_texts(x: Any) -> Any:
    """Return a list of text as an array; other inputs as they are."""
    listed = isinstance(x, list | tuple) and bool(x) and isinstance(x[0], str | bytes)
    return encoded(list(x)) if listed else x


def row_numbers(x: Tree) -> Tree:
    """Return arrays of the numbers of the rows of some arrays, in their structure."""
    return keras.tree.map_structure(lambda leaf: np.arange(len(leaf)), x)


def with_inputs(x: Tree, batch: Tree) -> Tree:
    """Return a batch (x, y, sample_weight) with other inputs."""
    return keras.utils.pack_x_y_sample_weight(x, *compat.unpack(batch)[1:])


def split_off(arguments: dict[str, Any]) -> None:
    """Make `validation_data` of the rows that `validation_split` names, which Keras does for arrays of numbers alone.

    Args:
        arguments: Those of `fit`; they are changed.
    """
    part = arguments["validation_split"]
    if not part or arguments["validation_data"] is not None:
        return
    arrays = tuple(arguments[name] for name in ("x", "y", "sample_weight"))
    first = math.floor(len(keras.tree.flatten(arrays[0])[0]) * (1.0 - part))
    ahead, behind = (
        jax.tree.map(lambda leaf, rows=rows: leaf[rows], arrays) for rows in (slice(first), slice(first, None))
    )
    arguments.update(zip(("x", "y", "sample_weight"), ahead, strict=True))
    arguments.update(validation_data=keras.utils.pack_x_y_sample_weight(*behind), validation_split=0.0)


class HostPart:
    """The part of a model that the host computes, of batches (x, y, sample_weight). It does not keep the model.

    Args:
        model: A model that begins on the host, and is built.
    """

    def __init__(self, model: Any) -> None:
        self._model = weakref.ref(model)

    def of_inputs(self, x: Tree) -> Tree:
        """Return what the step takes of the inputs of a batch."""
        return self._model().host_part(x)(x)  # pyright: ignore[reportOptionalMemberAccess]  it is running

    def __call__(self, *components: Tree) -> Tree:
        """Return a batch as the step takes it.

        Args:
            components: x, y and sample_weight, as many as there are; or the batch as one.
        """
        batch = components if len(components) != 1 else components[0]
        return with_inputs(self.of_inputs(compat.unpack(batch)[0]), batch)

    def of_dataset(self, dataset: Dataset) -> Dataset:
        """Return a dataset of batches as the step takes them.

        The same dataset gives the same object again, so that a second `fit` goes on to new orders.
        """
        known = _datasets.setdefault(dataset, weakref.WeakKeyDictionary())
        model = self._model()
        if model not in known:
            known[model] = dataset.map(self)
        return known[model]

    def __reduce__(self) -> Any:
        return HostPart, (self._model(),)


_datasets: Final[weakref.WeakKeyDictionary[Dataset, weakref.WeakKeyDictionary[Any, Dataset]]] = (
    weakref.WeakKeyDictionary()
)
"""By the dataset that a program gave and the model: the same one in the form that the step takes."""


def host_part(model: Any, x: Any) -> HostPart:
    """Return the part of a model that the host computes. A model that has not been built is built here.

    Args:
        model: A model that begins on the host.
        x: What `fit` or a sibling was given.
    """
    model.host_part(compat.unpack(x.element_spec)[0] if isinstance(x, Dataset) else x)
    return HostPart(model)
