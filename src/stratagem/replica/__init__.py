"""Replicas of a computation on one mesh: their context, `run`, `reduce`, and batches that do not divide."""

from __future__ import annotations

import stratagem.core.needs_jax  # noqa: F401 - before Keras
