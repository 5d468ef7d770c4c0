"""Recordings for TensorBoard's profile page (`tf.summary.trace_on`, ...), by JAX's profiler."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import jax

_running: list[str] = []


def trace_on(graph: bool = True, profiler: bool = False, profiler_outdir: str | os.PathLike[str] | None = None) -> None:
    """Begin to record what runs (`tf.summary.trace_on`).

    Args:
        graph: Accepted as in TensorFlow; there is no graph to show.
        profiler: Whether to record times.
        profiler_outdir: Folder of the recording; None for a temporary one.
    """
    if profiler and not _running:
        folder = tempfile.mkdtemp() if profiler_outdir is None else os.fspath(profiler_outdir)
        jax.profiler.start_trace(folder)
        _running.append(folder)


def trace_off() -> None:
    """End the recording (`tf.summary.trace_off`)."""
    if _running:
        _running.pop()
        jax.profiler.stop_trace()


def trace_export(name: str, step: Any = None, profiler_outdir: str | os.PathLike[str] | None = None) -> None:
    """End the recording, and write it (`tf.summary.trace_export`).

    Args:
        name: Accepted as in TensorFlow.
        step: Accepted as in TensorFlow.
        profiler_outdir: Accepted as in TensorFlow; `trace_on` says where it goes.
    """
    trace_off()
