"""Losses by their old names, against the formulas."""

from __future__ import annotations

import numpy as np
import pytest
import tensorboardX  # noqa: F401 - sets an environment variable, once; no test should be blamed for it

from stratagem.core.errors import InputError
from stratagem.estimator import (
    losses,
)

LABELS, LOGITS = np.array([2, 0, 1]), np.random.default_rng(0).normal(size=(3, 3)).astype("float32")
ONE_HOT = np.eye(3, dtype="float32")[LABELS]


LOG_SOFTMAX = LOGITS - np.log(np.exp(LOGITS).sum(axis=1, keepdims=True))


WEIGHTS = np.array([1.0, 0.0, 3.0], "float32")


def test_losses_are_those_of_the_formulas() -> None:
    cross = -np.take_along_axis(LOG_SOFTMAX, LABELS[:, None], 1)[:, 0]
    smooth = -(LOG_SOFTMAX * (ONE_HOT * 0.9 + 0.1 / 3)).sum(axis=1)
    error = LOGITS - ONE_HOT
    clipped = np.minimum(np.abs(error), 0.5)
    sigmoid = np.log1p(np.exp(LOGITS)) - ONE_HOT * LOGITS
    chances = 1 / (1 + np.exp(-LOGITS))
    expected = {
        "sparse": (losses.sparse_softmax_cross_entropy(LABELS, LOGITS), cross.mean()),
        "column": (losses.sparse_softmax_cross_entropy(LABELS[:, None], LOGITS), cross.mean()),
        "weights": (losses.sparse_softmax_cross_entropy(LABELS, LOGITS, WEIGHTS), (cross @ WEIGHTS) / 2),
        "softmax": (losses.softmax_cross_entropy(ONE_HOT, LOGITS, label_smoothing=0.1), smooth.mean()),
        "sigmoid": (losses.sigmoid_cross_entropy(ONE_HOT, LOGITS), sigmoid.mean()),
        "squares": (losses.mean_squared_error(ONE_HOT, LOGITS), (error**2).mean()),
        "row weights": (
            losses.mean_squared_error(ONE_HOT, LOGITS, WEIGHTS[:, None]),
            (error**2 * WEIGHTS[:, None]).sum() / 6,
        ),
        "absolute": (losses.absolute_difference(ONE_HOT, LOGITS), np.abs(error).mean()),
        "huber": (
            losses.huber_loss(ONE_HOT, LOGITS, delta=0.5),
            (0.5 * clipped**2 + 0.5 * (np.abs(error) - clipped)).mean(),
        ),
        "hinge": (losses.hinge_loss(ONE_HOT, LOGITS), np.maximum(0, 1 - (2 * ONE_HOT - 1) * LOGITS).mean()),
        "log": (
            losses.log_loss(ONE_HOT, chances),
            -np.log(np.where(ONE_HOT == 1, chances, 1 - chances) + 1e-7).mean(),
        ),
        "cosine": (losses.cosine_distance(ONE_HOT, LOGITS, axis=1), (1 - (ONE_HOT * LOGITS).sum(1)).mean()),
    }
    for name, (found, wanted) in expected.items():
        np.testing.assert_allclose(found, wanted, rtol=2e-5, err_msg=name)
    kinds = losses.Reduction
    for kind, wanted in (
        (kinds.SUM, cross @ WEIGHTS),
        (kinds.MEAN, cross @ WEIGHTS / 4),
        (kinds.SUM_OVER_BATCH_SIZE, cross @ WEIGHTS / 3),
        (kinds.NONE, cross * WEIGHTS),
    ):
        np.testing.assert_allclose(losses.compute_weighted_loss(cross, WEIGHTS, reduction=kind), wanted, rtol=1e-5)
    with pytest.raises(InputError, match=r"labels of shape \(3,\) and predictions of shape \(3, 1\)"):
        losses.mean_squared_error(np.zeros(3), np.zeros((3, 1)))
    with pytest.raises(InputError, match="reduction is 'total'"):
        losses.compute_weighted_loss(cross, reduction="total")
