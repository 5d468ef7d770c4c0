"""Custom training loops: gradient tapes, compiled functions, losses."""

from __future__ import annotations

import stratagem.core.needs_jax  # noqa: F401 - before Keras
