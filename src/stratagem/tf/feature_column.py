"""`tf.feature_column`: columns of features, for Estimators."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__, {}, behind="stratagem.estimator.feature_column")
