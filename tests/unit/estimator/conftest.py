"""What tests of the Estimator share."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import jax
import pytest


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """Return a list that gets the name of each program that XLA compiles."""
    events: list[str] = []

    def on_event(event: str, seconds: float, **facts: Any) -> None:
        if event.endswith("backend_compile_duration"):
            events.append(str(facts.get("fun_name", event)))

    jax.monitoring.register_event_duration_secs_listener(on_event)
    yield events
    if hasattr(jax.monitoring, "unregister_event_duration_listener"):
        jax.monitoring.unregister_event_duration_listener(on_event)
    else:  # before JAX 0.8
        importlib.import_module("jax._src.monitoring")._unregister_event_duration_listener_by_callback(on_event)
