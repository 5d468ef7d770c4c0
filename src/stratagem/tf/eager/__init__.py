"""Methods of `tf.Tensor` and `tf.Variable` on arrays and variables."""

from __future__ import annotations

import stratagem.core.needs_jax  # noqa: F401 - before Keras
