"""Parameter servers: variables that live in their own tasks, workers that compute, a chief that hands out work."""

from __future__ import annotations

import importlib.util

from stratagem.core.errors import explain

for _package in ("cloudpickle", "ml_dtypes", "zmq"):
    if importlib.util.find_spec(_package) is None:
        raise ImportError(
            explain(
                f"Parameter servers need the package {_package!r}, which is not installed.",
                "pip install 'stratagem[ps]'",
            )
        )
