"""Functions that scale losses in a custom loop (`tf.nn`)."""

import stratagem.core.needs_jax  # noqa: F401 - before Keras
from stratagem.loop.loss import compute_average_loss, scale_regularization_loss

__all__ = ["compute_average_loss", "scale_regularization_loss"]
