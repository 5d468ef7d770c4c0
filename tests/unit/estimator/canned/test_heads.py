"""Heads: losses, predictions and metrics of logits, against numbers computed by hand."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.estimator import BinaryClassHead, MultiClassHead, MultiLabelHead, RegressionHead
from stratagem.estimator.canned.heads import classification_head

LOGITS = np.array([[0.0, 1.0, 2.0], [2.0, 0.0, 0.0]], "float32")
LOG_SOFTMAX = LOGITS - np.log(np.exp(LOGITS).sum(axis=1, keepdims=True))


def evaluated(head: Any, logits: Any, labels: Any, features: Any = None, **options: Any) -> Any:
    return head.create_estimator_spec(features or {}, "eval", logits, labels, **options)


def values(spec: Any) -> dict[str, float]:
    return {name: float(metric.result()) for name, metric in spec.eval_metric_ops.items()}


def test_several_classes() -> None:
    spec = evaluated(MultiClassHead(3, label_vocabulary=["a", "b", "c"], name="h"), LOGITS, np.array([2, 1]))
    np.testing.assert_allclose(spec.loss, -(LOG_SOFTMAX[0, 2] + LOG_SOFTMAX[1, 1]) / 2, rtol=1e-6)
    np.testing.assert_allclose(spec.predictions["probabilities"], np.exp(LOG_SOFTMAX), rtol=1e-5)
    assert spec.predictions["classes"].words().tolist() == [[b"c"], [b"a"]]
    assert spec.predictions["all_class_ids"].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert values(spec)["accuracy/h"] == 0.5
    assert np.isnan(MultiClassHead(3).losses(jnp.array([[3], [0]]), jnp.asarray(LOGITS))[0, 0])


def test_two_classes_with_weights_and_thresholds() -> None:
    logits, labels = np.array([[2.0], [-1.0], [0.5]], "float32"), np.array([1, 1, 0])
    head = BinaryClassHead("w", thresholds=[0.7], loss_reduction="sum")
    spec = evaluated(head, logits, labels, {"w": np.array([1.0, 2.0, 1.0])})
    each = np.log1p(np.exp(-np.array([2.0, -1.0, -0.5])))
    np.testing.assert_allclose(spec.loss, each @ [1, 2, 1], rtol=1e-5)
    found = values(spec)
    np.testing.assert_allclose(found["average_loss"], each @ [1, 2, 1] / 4, rtol=1e-5)
    assert (found["accuracy"], found["precision"], found["label/mean"]) == (0.25, 0.5, 0.75)
    np.testing.assert_allclose(found["recall"], 1 / 3, rtol=1e-6)
    assert found["accuracy_baseline"] == 0.75
    assert found["accuracy/positive_threshold_0.7"] == 0.5


def test_numbers_and_labels_that_do_not_exclude_each_other() -> None:
    spec = evaluated(RegressionHead(2), np.array([[1.0, 2.0]]), np.array([[0.0, 4.0]]), regularization_losses=[0.5])
    assert float(spec.loss) == (1 + 4) / 2 + 0.5
    assert values(spec) == {"average_loss": 2.5, "prediction/mean": 1.5, "label/mean": 2.0, "regularization_loss": 0.5}
    linked = RegressionHead(inverse_link_fn=jnp.exp).predictions(jnp.zeros((1, 1)))
    assert {name: float(value[0, 0]) for name, value in linked.items()} == {"predictions": 1.0, "logits": 0.0}
    several = evaluated(MultiLabelHead(2), np.zeros((1, 2), "float32"), np.array([[1, 0]]))
    np.testing.assert_allclose(several.loss, np.log(2), rtol=1e-6)


def test_a_loss_of_ones_own_is_one_number_for_each_example() -> None:
    def of_rows(labels: Any, logits: Any) -> Any:
        return jnp.sum(logits, axis=1)

    spec = evaluated(MultiClassHead(3, "w", loss_fn=of_rows), LOGITS, np.array([0, 0]), {"w": np.array([1.0, 3.0])})
    assert float(spec.loss) == (3 * 1 + 2 * 3) / 2
    with pytest.raises(InputError, match=r"shape \(2, 3\)"):
        evaluated(MultiClassHead(3, loss_fn=lambda labels, logits: logits), LOGITS, np.array([0, 0]))


def test_the_head_of_a_classifier() -> None:
    assert isinstance(classification_head(2, None, None, "sum"), BinaryClassHead)
    assert classification_head(4, None, None, "sum").logits_dimension == 4
