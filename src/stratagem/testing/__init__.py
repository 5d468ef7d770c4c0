"""Tools to test distributed programs: real workers, virtual devices."""

from __future__ import annotations

from stratagem.testing.devices import virtual_devices
from stratagem.testing.processes import WorkerResult, run_workers

__all__ = ["WorkerResult", "run_workers", "virtual_devices"]
