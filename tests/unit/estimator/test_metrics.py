"""Metrics by their old names: their values after one batch and after two, against numbers computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stratagem.estimator import metrics

LABELS, GUESSES = np.array([1, 1, 0, 0, 1]), np.array([1, 0, 1, 0, 1])
WEIGHTS = np.array([1.0, 2.0, 1.0, 1.0, 1.0], "float32")


@pytest.mark.parametrize(
    ("function", "value", "weighted"),
    [
        (metrics.accuracy, 3 / 5, 3 / 6),
        (metrics.precision, 2 / 3, 2 / 3),
        (metrics.recall, 2 / 3, 2 / 4),
        (metrics.true_positives, 2, 2),
        (metrics.true_negatives, 1, 1),
        (metrics.false_positives, 1, 1),
        (metrics.false_negatives, 1, 2),
        (metrics.mean_absolute_error, 2 / 5, 3 / 6),
        (metrics.mean_squared_error, 2 / 5, 3 / 6),
        (metrics.root_mean_squared_error, (2 / 5) ** 0.5, (3 / 6) ** 0.5),
    ],
)
def test_values(function: Any, value: float, weighted: float) -> None:
    metric, found = function(LABELS, GUESSES)
    np.testing.assert_allclose(found, value, rtol=1e-6)
    assert metric.name == {
        "true_positives": "tp",
        "true_negatives": "tn",
        "false_positives": "fp",
        "false_negatives": "fn",
    }.get(function.__name__, function.__name__)
    np.testing.assert_allclose(function(LABELS, GUESSES, WEIGHTS)[1], weighted, rtol=1e-6)


def test_a_metric_goes_on_with_the_next_batch() -> None:
    metric, found = metrics.mean([1.0, 3.0])
    assert float(found) == 2.0
    metric.update_state([8.0])
    assert float(metric.result()) == 4.0


def test_areas_and_classes() -> None:
    likely = np.array([0.9, 0.4, 0.6, 0.1, 0.8])  # of six pairs of a true and a false one, five are in order
    np.testing.assert_allclose(metrics.auc(LABELS == 1, likely)[1], 5 / 6, rtol=1e-2)
    assert float(metrics.auc(LABELS == 1, likely, curve="PR")[1]) > 0.8
    assert metrics.precision(LABELS == 1, GUESSES == 1)[1] == metrics.precision(LABELS, GUESSES)[1]
    classes, guesses = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1])
    np.testing.assert_allclose(metrics.mean_per_class_accuracy(classes, guesses, 4)[1], (0.5 + 1 + 0) / 3, rtol=1e-6)
    np.testing.assert_allclose(metrics.mean_iou(classes, guesses, 3)[1], (1 / 2 + 1 / 3 + 0) / 3, rtol=1e-6)
