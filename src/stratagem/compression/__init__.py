"""Compression of gradients: what is sent in place of them, and what is kept for the next step."""

from __future__ import annotations

import stratagem.core.needs_jax  # noqa: F401 - before Keras
