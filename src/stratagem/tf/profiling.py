"""`tf.profiler.experimental` and `tf.summary.trace_on`, through `jax.profiler`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/profiler/experimental
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax


class ProfilerOptions:
    """Options of the profiler (`tf.profiler.experimental.ProfilerOptions`): accepted; JAX's defaults are used.

    Args:
        options: TensorFlow's: `host_tracer_level`, `python_tracer_level`, `device_tracer_level`, `delay_ms`.

    Example:
        >>> ProfilerOptions(host_tracer_level=3).host_tracer_level
        3
    """

    def __init__(self, **options: Any) -> None:
        vars(self).update(options)


def start(logdir: str | os.PathLike[str], options: ProfilerOptions | None = None) -> None:
    """Start a recording of what runs, for TensorBoard's profile page.

    Args:
        logdir: The folder of the trace.
        options: Accepted as in TensorFlow.
    """
    jax.profiler.start_trace(os.fspath(logdir))


def stop(save: bool = True) -> None:
    """End the recording, and write it.

    Args:
        save: Accepted as in TensorFlow; JAX always writes the recording.
    """
    jax.profiler.stop_trace()


@contextmanager
def Profile(logdir: str | os.PathLike[str], options: ProfilerOptions | None = None) -> Iterator[None]:
    """Record what runs inside `with`.

    Args:
        logdir: The folder of the trace.
        options: Accepted as in TensorFlow.
    """
    start(logdir, options)
    try:
        yield
    finally:
        stop()


def Trace(name: str, **metadata: Any) -> Any:
    """Give a name to a part of a recording; `step_num` makes it a step.

    Args:
        name: The name.
        metadata: `step_num`, `_r` and others, shown with it.

    Example:
        >>> with Trace("train", step_num=3):
        ...     pass
    """
    metadata.pop("_r", None)
    if "step_num" in metadata:
        return jax.profiler.StepTraceAnnotation(name, **metadata)
    return jax.profiler.TraceAnnotation(name, **metadata)


_running: list[str] = []


def trace_on(graph: bool = True, profiler: bool = False, profiler_outdir: str | os.PathLike[str] | None = None) -> None:
    """Start a recording of what runs (`tf.summary.trace_on`).

    Args:
        graph: Accepted as in TensorFlow; there is no graph to show.
        profiler: Whether to record times.
        profiler_outdir: The folder of the recording; None for a temporary one.
    """
    if profiler and not _running:
        folder = tempfile.mkdtemp() if profiler_outdir is None else os.fspath(profiler_outdir)
        start(folder)
        _running.append(folder)


def trace_off() -> None:
    """End the recording (`tf.summary.trace_off`)."""
    if _running:
        _running.pop()
        stop()


def trace_export(name: str, step: Any = None, profiler_outdir: str | os.PathLike[str] | None = None) -> None:
    """End the recording, and write it (`tf.summary.trace_export`).

    Args:
        name: Accepted as in TensorFlow.
        step: Accepted as in TensorFlow.
        profiler_outdir: Accepted as in TensorFlow; the folder is that of `trace_on`.
    """
    trace_off()
