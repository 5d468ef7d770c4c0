"""Reading batches: from what the user gave to rows on this worker's devices."""

from __future__ import annotations

import stratagem.core.needs_jax  # noqa: F401 - before Keras
