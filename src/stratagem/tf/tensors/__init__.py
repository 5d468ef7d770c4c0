"""Operations of TensorFlow on arrays of JAX, by area."""

from __future__ import annotations

import stratagem.core.needs_jax  # noqa: F401 - before Keras
