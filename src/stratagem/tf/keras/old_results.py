"""Metrics of a model as in Keras 2: for which outputs they are, what they are called, and when the loss is counted."""

from __future__ import annotations

import re
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final

import keras

from stratagem.program.tracing import current_tracing


def for_each_output(model: Any, metrics: Any) -> Any:
    """Return metrics as Keras 3 takes them, where a flat list was one for each output of a model with several.

    In Keras 2 each output has all metrics of a flat list; Keras 3 gives the first output the first one, and so on. One
    metric alone is a list of one, which Keras 3 refuses.

    Args:
        model: The model.
        metrics: What `compile` was given as `metrics` or `weighted_metrics`.
    """
    metrics = _of_classes(metrics)
    if isinstance(metrics, str) or callable(metrics):
        metrics = [metrics]
    names = getattr(model, "output_names", None)
    is_flat = isinstance(metrics, list | tuple) and not any(isinstance(each, list | tuple | dict) for each in metrics)
    if not names or len(names) < 2 or not metrics or not is_flat:
        return metrics
    each = [[_copied(metric) for metric in metrics] for _ in names]
    structure = getattr(model, "_outputs_struct", None)
    return dict(zip(names, each, strict=True)) if isinstance(structure, Mapping) else each


def _of_classes(metrics: Any) -> Any:
    """Return metrics of which those that are named as a class, such as "AUC", are objects of it.

    So their results are called as in Keras 2, "auc"; Keras 3 calls them by what `compile` was given.
    """
    if isinstance(metrics, list | tuple):
        return [_of_classes(each) for each in metrics]
    if isinstance(metrics, dict):
        return {name: _of_classes(each) for name, each in metrics.items()}
    if not isinstance(metrics, str) or metrics.lower() in _CHOSEN_BY_LOSS:
        return metrics
    named = vars(keras.metrics).get(metrics)
    if not (isinstance(named, type) and issubclass(named, keras.metrics.Metric)):
        return metrics
    return named(name=re.sub(r"_\d+$", "", named().name))  # not "auc_1" of the second in a process


_CHOSEN_BY_LOSS: Final = ("accuracy", "acc", "crossentropy", "ce")


def _copied(metric: Any) -> Any:
    """Return a metric of its own for an output: it has a state."""
    return type(metric).from_config(metric.get_config()) if isinstance(metric, keras.metrics.Metric) else metric


def names_of(metrics: Sequence[Any]) -> list[str]:
    """Return the names of a model's results in the order in which Keras 2 returned them as a list.

    The losses of outputs follow the loss; then come the metrics of `compile`, and those of layers.

    Args:
        metrics: Those of the model.
    """
    single = [metric.name for metric in metrics if not _is_compiled(metric)]
    losses = [name for name in single if name == "loss" or name.endswith("_loss")]
    compiled = [name for metric in metrics if _is_compiled(metric) and metric.built for name in metric.result()]
    return [*losses, *compiled, *(name for name in single if name not in losses)]


def _is_compiled(metric: Any) -> bool:
    """Whether it stands for all metrics that `compile` was given."""
    return metric.name == "compile_metrics" and hasattr(metric, "metrics")


_NOTED: Final[weakref.WeakKeyDictionary[Any, tuple[Any, Any, Any, int]]] = weakref.WeakKeyDictionary()
"""For each traced step, as a tape traces the beginning of a step once more: the tracker of the loss, what it held when
the loss was computed last, that loss, and its rows."""


def note_loss(model: Any, loss: Any, y_pred: Any) -> None:
    """Note what `compute_loss` returned in a step of the program's own.

    Args:
        model: The model.
        loss: It.
        y_pred: Outputs.
    """
    step, tracker = current_tracing(), getattr(model, "_loss_tracker", None)
    leaves = keras.tree.flatten(y_pred)
    if step is not None and tracker is not None and leaves and getattr(leaves[0], "shape", ()):
        _NOTED[step] = (tracker, tracker.total.value, loss, leaves[0].shape[0])


def count_noted_loss(model: Any) -> None:
    """Count the loss that was noted in the model's `loss`, as Keras 2 has done by then, unless the program has.

    Args:
        model: The model, whose results come next.
    """
    step = current_tracing()
    found = None if step is None else _NOTED.pop(step, None)
    if found is None:
        return
    tracker, before, loss, rows = found
    if tracker is getattr(model, "_loss_tracker", None) and tracker.total.value is before:
        tracker.update_state(loss, sample_weight=rows)
