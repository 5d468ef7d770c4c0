from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest
from tests.conformance.runs import quick_compilation


@pytest.fixture(autouse=True, scope="package")
def compiles_quickly() -> Iterator[None]:
    """Hundreds of small programs run a few times each: compiling them is what the suite takes its time for."""
    before = jax.config.values["jax_disable_most_optimizations"]
    quick_compilation(True)
    yield
    quick_compilation(before)
