"""Check of Keras's backend at import: modules that build on Keras import this one before anything else."""

from __future__ import annotations

from stratagem.core.backend import require_jax_backend

require_jax_backend()
