"""The heart: N replicas of a computation on one mesh, and what crosses between them."""

from __future__ import annotations

import stratagem.core.needs_jax  # noqa: F401 - before Keras
