"""Which backend Keras runs on. Told without loading Keras, which would load the wrong backend too."""

from __future__ import annotations

import os
import sys
from typing import Final

from stratagem.core.environment import KERAS_BACKEND
from stratagem.core.errors import UsageError, explain

NEEDED: Final = "jax"


def require_jax_backend() -> None:
    """Check that Keras runs, or will run, on JAX.

    Raises:
        UsageError: Keras is loaded with another backend, or KERAS_BACKEND names another.
    """
    keras = sys.modules.get("keras")
    loaded = getattr(keras, "backend", None)
    backend = os.environ.get(KERAS_BACKEND, NEEDED) if loaded is None else loaded.backend()
    if backend == NEEDED:
        return
    how = "was loaded with" if loaded is not None else f"would be loaded ({KERAS_BACKEND} is set) with"
    raise UsageError(
        explain(
            f"Keras {how} the backend {backend!r}.",
            "Stratagem compiles Keras's steps with JAX; models of another backend cannot run on its replicas.",
            "Write `import stratagem` before `import keras`, or set KERAS_BACKEND=jax in the environment.",
        )
    )
