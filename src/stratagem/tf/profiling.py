"""`tf.profiler.experimental`, through `jax.profiler`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/profiler/experimental
"""

from __future__ import annotations

import os
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
    """Begin to record what runs, for TensorBoard's profile page.

    Args:
        logdir: Folder of the trace.
        options: Accepted as in TensorFlow.
    """
    jax.profiler.start_trace(os.fspath(logdir))


def stop(save: bool = True) -> None:
    """End the recording, and write it.

    Args:
        save: Accepted as in TensorFlow; JAX always writes.
    """
    jax.profiler.stop_trace()


@contextmanager
def Profile(logdir: str | os.PathLike[str], options: ProfilerOptions | None = None) -> Iterator[None]:
    """Record what runs inside `with`.

    Args:
        logdir: Folder of the trace.
        options: Accepted as in TensorFlow.
    """
    start(logdir, options)
    try:
        yield
    finally:
        stop()


def Trace(name: str, **metadata: Any) -> Any:
    """Name a stretch of a recording; `step_num` makes it a step.

    Args:
        name: What it is called.
        metadata: `step_num`, `_r` and others, shown with it.

    Example:
        >>> with Trace("train", step_num=3):
        ...     pass
    """
    metadata.pop("_r", None)
    if "step_num" in metadata:
        return jax.profiler.StepTraceAnnotation(name, **metadata)
    return jax.profiler.TraceAnnotation(name, **metadata)
