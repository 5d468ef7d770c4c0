"""Entries of a step's logs that are results of metrics.

A step returns logs computed from its replica's own metric state. The global result exists only
after the states of all replicas are summed, outside the step. So while a step is traced every
metric's `result` is watched; entries of the logs that are such results are computed again from
the summed state. Other entries are averaged over replicas by rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import keras

from stratagem.mesh.mesh import Tree


@dataclass(frozen=True)
class Entry:
    """One entry of the logs: leaf `index` of the result of `metric`."""

    metric: Any
    index: int


class ResultWatch:
    """Remembers which traced values are results of which metrics.

    Args:
        metrics: The metrics of the model.
    """

    def __init__(self, metrics: Sequence[Any]) -> None:
        self._metrics = list(metrics)
        # The values are kept so that an id cannot be used again while the watch lives.
        self._seen: dict[int, tuple[Any, Entry]] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the metrics while a step is traced, or traced again within that."""
        before = [vars(metric).get("result") for metric in self._metrics]
        for metric in self._metrics:
            object.__setattr__(metric, "result", self._watched(metric, type(metric).result))
        try:
            yield
        finally:
            for metric, result in zip(self._metrics, before, strict=True):
                if result is None:
                    object.__delattr__(metric, "result")
                else:
                    object.__setattr__(metric, "result", result)

    def _watched(self, metric: Any, result: Any) -> Any:
        def watched() -> Tree:
            values = keras.tree.map_structure(keras.ops.convert_to_tensor, result(metric))
            for index, leaf in enumerate(keras.tree.flatten(values)):
                self._seen[id(leaf)] = (leaf, Entry(metric, index))
            return values

        return watched

    def entry(self, value: object) -> Entry | None:
        """Return which metric's result `value` is, or None."""
        seen = self._seen.get(id(value))
        return seen[1] if seen is not None else None


def as_returned(logs: Tree, own: bool) -> Tree:
    """Return the logs of a step so that Keras reports what the step returned.

    Where logs are a dictionary with the names of the model's metrics, Keras reports these metrics instead: 0 for a
    `{"loss": loss}` whose tracker nobody has updated.

    Args:
        logs: What the step returned.
        own: Whether it holds values that are no results of metrics.
    """
    return MappingProxyType(logs) if own and isinstance(logs, dict) else logs


def global_results(entries: Sequence[Entry]) -> list[Any]:
    """Compute entries again. Call it in a `keras.StatelessScope` that holds the summed metric state."""
    results: dict[int, list[Any]] = {}
    for entry in entries:
        if id(entry.metric) not in results:
            values = keras.tree.map_structure(keras.ops.convert_to_tensor, entry.metric.result())
            results[id(entry.metric)] = keras.tree.flatten(values)
    return [results[id(entry.metric)][entry.index] for entry in entries]
