"""The backend of Keras, found out without loading Keras, which would load the wrong backend too."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from stratagem.core.environment import KERAS_BACKEND
from stratagem.core.errors import BackendError

NEEDED: Final = "jax"


def settle_backend() -> None:
    """Let Keras take JAX where it is not loaded yet; what `import stratagem` does.

    A Keras that is loaded with another backend is no error yet: `stratagem.data` and other modules work beside it, and
    those that build on Keras refuse it when they are first named (`require_jax_backend`). The command
    `stratagem` runs in any environment, since it sets the variable for the processes that it starts.

    Raises:
        BackendError: KERAS_BACKEND names another.
    """
    if _loaded_backend() is not None or is_own_command():
        return
    require_jax_backend()
    os.environ[KERAS_BACKEND] = NEEDED


def require_jax_backend() -> None:
    """Check that Keras runs, or will run, on JAX.

    Raises:
        BackendError: Keras is loaded with another backend, or KERAS_BACKEND names another.
    """
    loaded, named = _loaded_backend(), named_backend()
    if (named if loaded is None else loaded) == NEEDED:
        return
    if loaded is not None:
        found = f"Keras was loaded with the backend {loaded!r}."
        remedy = (
            "Write `from stratagem import keras` in place of `import keras` (or `import stratagem` above it), "
            "or set KERAS_BACKEND=jax in the environment."
        )
    else:
        found = f"Keras would be loaded with the backend {named!r}: the environment has {KERAS_BACKEND}={named}."
        remedy = (
            'Set KERAS_BACKEND=jax in the environment, or write os.environ["KERAS_BACKEND"] = "jax" above '
            "`import stratagem`. `stratagem run` sets it for its tasks."
        )
    raise BackendError(
        found,
        "Stratagem compiles Keras's steps with JAX; a model of another backend cannot run on its replicas.",
        remedy,
    )


def named_backend() -> str:
    """Return the backend that KERAS_BACKEND names; JAX where it is not set, or empty, which Keras takes for not set."""
    return os.environ.get(KERAS_BACKEND) or NEEDED


def is_own_command() -> bool:
    """Tell whether this process is the command `stratagem`, or `python -m stratagem`."""
    arguments = getattr(sys, "argv", [""]) or [""]
    if arguments[0] == "-m":  # Python is still looking for the module, whose name sys.argv does not tell
        return sys.orig_argv[-len(arguments)].removeprefix("-m") in ("stratagem", "stratagem.__main__")
    return Path(arguments[0]).stem == "stratagem"


def _loaded_backend() -> str | None:
    backend = getattr(sys.modules.get("keras"), "backend", None)
    return None if backend is None else backend.backend()
