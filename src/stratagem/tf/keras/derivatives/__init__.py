"""TensorFlow's derivatives in Keras's backend."""

from __future__ import annotations

import stratagem.core.needs_jax  # noqa: F401 - before Keras
