"""Scalars for TensorBoard, without TensorFlow."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from stratagem.core.errors import InputError, explain

WriteScalars = Callable[[int, Mapping[str, float]], None]
"""Writes values by name at a step."""


@contextmanager
def scalar_writer(log_dir: str | os.PathLike[str] | None) -> Iterator[WriteScalars]:
    """Open a new event file in a folder, and close it at the end.

    Args:
        log_dir: The folder, which is made; None writes nothing.

    Raises:
        InputError: The package that writes event files is not installed.
    """
    if log_dir is None:
        yield lambda _step, _values: None
        return
    try:
        library = importlib.import_module("tensorboardX")  # only who asks for event files needs it
    except ImportError as error:
        raise InputError(
            explain(
                f"Summaries shall go to {os.fspath(log_dir)!r}, and tensorboardX is not installed.",
                "No event file can be written.",
                'Install it (pip install "stratagem[summaries]"), or leave log_dir out.',
            )
        ) from error
    writer = library.SummaryWriter(os.fspath(log_dir))

    def write(step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    try:
        yield write
    finally:
        writer.close()
