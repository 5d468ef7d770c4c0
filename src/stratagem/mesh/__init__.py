"""The mesh of replicas: shares of a batch, placing of values, policies of variables, sums over replicas."""

from __future__ import annotations

import stratagem.core.needs_jax  # noqa: F401 - before Keras
