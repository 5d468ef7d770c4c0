"""Estimators made of others (`tf.estimator.add_metrics`)."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from stratagem.core.errors import InputError
from stratagem.estimator.estimator import Estimator
from stratagem.estimator.spec import EstimatorSpec, ModeKeys

_ARGUMENTS = ("features", "labels", "predictions", "config")


def add_metrics(estimator: Estimator, metric_fn: Callable[..., Mapping[str, Any]]) -> Estimator:
    """Return an Estimator that is evaluated by more metrics (`tf.estimator.add_metrics`).

    Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/add_metrics

    Args:
        estimator: An Estimator.
        metric_fn: Takes some of (features, labels, predictions, config), returns metrics by name as
            `EstimatorSpec.eval_metric_ops` has them; those of the same name are replaced.

    Returns:
        One with the same `model_dir`, configuration and model.

    Raises:
        InputError: The function takes something else.
    """
    takes = list(inspect.signature(metric_fn).parameters)
    unknown = sorted(set(takes) - set(_ARGUMENTS))
    if unknown:
        raise InputError(
            f"metric_fn takes {', '.join(unknown)}.",
            "Arguments are given by name; these names are not known.",
            f"Take some of {', '.join(_ARGUMENTS)}.",
        )

    call = estimator.call_model_fn  # not the Estimator: the function travels to workers

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        spec = call(features, labels, mode)
        if mode != ModeKeys.EVAL:
            return spec
        given = {"features": features, "labels": labels, "predictions": spec.predictions, "config": config}
        more = metric_fn(**{name: given[name] for name in takes})
        return dataclasses.replace(spec, eval_metric_ops={**(spec.eval_metric_ops or {}), **more})

    return Estimator(model_fn, estimator.model_dir, estimator.config, warm_start_from=estimator.warm_start_from)
