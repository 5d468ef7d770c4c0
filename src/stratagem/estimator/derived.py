"""Estimators made of a Keras model (`model_to_estimator`) and of another Estimator (`add_metrics`)."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from stratagem.core.errors import InputError
from stratagem.estimator.estimator import Estimator
from stratagem.estimator.run_config import RunConfig
from stratagem.estimator.spec import EstimatorSpec, ModeKeys

_ARGUMENTS = ("features", "labels", "predictions", "config")


def add_metrics(estimator: Estimator, metric_fn: Callable[..., Mapping[str, Any]]) -> Estimator:
    """Return an Estimator with additional metrics (`tf.estimator.add_metrics`).

    Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/add_metrics

    Args:
        estimator: An Estimator.
        metric_fn: Function of some of (features, labels, predictions, config) that returns metrics by name, as in
            `EstimatorSpec.eval_metric_ops`. Metrics of the same name are replaced.

    Returns:
        An Estimator with the same `model_dir`, configuration and model.

    Raises:
        InputError: The function has other arguments.
    """
    takes = list(inspect.signature(metric_fn).parameters)
    unknown = sorted(set(takes) - set(_ARGUMENTS))
    if unknown:
        raise InputError(f"metric_fn takes {', '.join(unknown)}.", f"Take some of {', '.join(_ARGUMENTS)}.")
    call = estimator.call_model_fn  # not the Estimator: the function travels to workers

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        spec = call(features, labels, mode)
        if mode != ModeKeys.EVAL:
            return spec
        given = {"features": features, "labels": labels, "predictions": spec.predictions, "config": config}
        more = metric_fn(**{name: given[name] for name in takes})
        return dataclasses.replace(spec, eval_metric_ops={**(spec.eval_metric_ops or {}), **more})

    return Estimator(model_fn, estimator.model_dir, estimator.config, warm_start_from=estimator.warm_start_from)


def model_to_estimator(
    keras_model: keras.Model,
    keras_model_path: str | None = None,
    custom_objects: Any = None,
    model_dir: str | os.PathLike[str] | None = None,
    config: RunConfig | None = None,
    checkpoint_format: str = "checkpoint",
    metric_names_map: dict[str, str] | None = None,
    export_outputs: Any = None,
) -> Estimator:
    """Return an Estimator that trains a compiled Keras model (`tf.keras.estimator.model_to_estimator`).

    It starts with the model's weights and trains a copy. The model itself does not change.

    Source of the semantics:
    https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/estimator/model_to_estimator

    Args:
        keras_model: A compiled model that its class can create from its configuration.
        keras_model_path: Not supported: write keras.models.load_model(path).
        custom_objects: Accepted as in TensorFlow.
        model_dir: As for `Estimator`.
        config: As for `Estimator`.
        checkpoint_format: Accepted as in TensorFlow.
        metric_names_map: New names of the metrics.
        export_outputs: Accepted as in TensorFlow.

    Raises:
        InputError: The model is not compiled, or not built.

    Example:
        >>> import numpy as np, stratagem
        >>> from stratagem import keras
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
        >>> model.compile("sgd", "mse")
        >>> estimator = model_to_estimator(model)
        >>> input_fn = lambda: stratagem.data.Dataset.from_tensors((np.ones((4, 2)), np.zeros((4, 1))))
        >>> float(estimator.evaluate(input_fn)["loss"])
        4.0
    """
    if not isinstance(keras_model, keras.Model) or not keras_model.compiled or not keras_model.built:
        raise InputError(
            f"model_to_estimator was given {keras_model!r}"
            + (f" and keras_model_path={keras_model_path!r}." if keras_model_path else "."),
            "It takes a model with weights, a loss and an optimizer.",
            "Give a model that begins with keras.Input, after model.compile(...), or one that is loaded.",
        )
    names = metric_names_map or {}
    kind, layers, compiled = type(keras_model), keras_model.get_config(), keras_model.get_compile_config()
    start = [np.asarray(variable.value) for variable in keras_model.variables]

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        model: Any = kind.from_config(copy.deepcopy(layers))  # a functional model's empties it
        for variable, value in zip(model.variables, start, strict=True):
            variable.assign(value)
        model.compile_from_config(compiled)
        outputs = model(features, training=mode == ModeKeys.TRAIN)
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions=_named(model, outputs))
        loss = model.compute_loss(features, labels, outputs, training=mode == ModeKeys.TRAIN)
        if mode == ModeKeys.TRAIN:
            train_op = model.optimizer.minimize(loss, model.trainable_variables)
            return EstimatorSpec(mode, loss=loss, train_op=train_op)
        model.compute_metrics(features, labels, outputs)
        metrics = [inner for metric in model.metrics for inner in getattr(metric, "metrics", [])]
        return EstimatorSpec(mode, loss=loss, eval_metric_ops={names.get(m.name, str(m.name)): m for m in metrics})

    return Estimator(model_fn, model_dir, config)


def _named(model: keras.Model, outputs: Any) -> Any:
    """Return outputs by the names of the model's outputs, as TensorFlow's predictions were."""
    if isinstance(outputs, dict):
        return outputs
    outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
    names = getattr(model, "output_names", None) or [model.layers[-1].name]
    return dict(zip(names, outputs, strict=True))
