"""Binding to Keras: `fit`, `evaluate` and `predict` of a model that belongs to a strategy."""

from __future__ import annotations

import stratagem.core.needs_jax  # noqa: F401 - before Keras
