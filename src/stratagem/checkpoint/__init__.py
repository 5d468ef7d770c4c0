"""Checkpoints: objects written together and restored under any strategy; `stratagem.train` has the public names."""

from __future__ import annotations

import stratagem.core.needs_jax  # noqa: F401 - before Keras
