"""Devices of the tests that need a GPU, and CPU devices for a rehearsal of these (`make gpu ON=cpu`)."""

from __future__ import annotations

import os
from typing import Final

import jax
import pytest

REHEARSAL: Final = "STRATAGEM_GPU_REHEARSAL"


def kind() -> str:
    """Return "gpu", or "cpu" in a rehearsal."""
    return "cpu" if os.environ.get(REHEARSAL) else "gpu"


@pytest.fixture
def one() -> str:
    """Return the name of a device."""
    return f"{kind()}:0"


@pytest.fixture(params=[1, 2])
def names(request: pytest.FixtureRequest) -> list[str]:
    """Return the names of one device, and of two where there are two."""
    if len(jax.local_devices(backend=kind())) < request.param:
        pytest.skip(f"needs {request.param} GPUs")
    return [f"{kind()}:{i}" for i in range(request.param)]
