"""Scalars that a model function sends to TensorBoard (`tf.compat.v1.summary`)."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any

from stratagem.checkpoint.summary import WriteScalars, scalar_writer
from stratagem.core.log import announce_once
from stratagem.estimator.running_call import current_call


def scalar(name: str, tensor: Any, collections: Any = None, family: str | None = None) -> Any:
    """Write a scalar every `RunConfig.save_summary_steps` of training (`tf.compat.v1.summary.scalar`).

    Args:
        name: Its name in TensorBoard.
        tensor: A scalar that the model function has computed. With several replicas, the first one's is written.
        collections: Accepted as in TensorFlow.
        family: Prefix of the name.

    Returns:
        The tensor.

    Raises:
        UsageError: Called outside a model_fn.
    """
    summaries = current_call("summary.scalar").summaries
    summaries[name if family is None else f"{family}/{name}"] = tensor
    return tensor


def histogram(name: str, values: Any, collections: Any = None, family: str | None = None) -> Any:
    """Return the values; they are not written (`tf.compat.v1.summary.histogram`).

    Args:
        name: Their name.
        values: A tensor.
        collections: Accepted as in TensorFlow.
        family: Accepted as in TensorFlow.
    """
    announce_once("summary.histogram, image, audio and text are not written: event files get scalars only.")
    return values


def image(name: str, tensor: Any, max_outputs: int = 3, collections: Any = None, family: str | None = None) -> Any:
    """Return the images; they are not written (`tf.compat.v1.summary.image`); see `histogram`."""
    return histogram(name, tensor)


def audio(
    name: str, tensor: Any, sample_rate: Any, max_outputs: int = 3, collections: Any = None, family: str | None = None
) -> Any:
    """Return the sounds; they are not written (`tf.compat.v1.summary.audio`); see `histogram`."""
    return histogram(name, tensor)


def text(name: str, tensor: Any, collections: Any = None) -> Any:
    """Return the text; it is not written (`tf.compat.v1.summary.text`); see `histogram`."""
    return histogram(name, tensor)


def merge_all(key: Any = None, scope: str | None = None, name: str | None = None) -> dict[str, Any]:
    """Return the scalars of this call of the model_fn by name, for a `SummarySaverHook`.

    Args:
        key: Accepted as in TensorFlow.
        scope: Accepted as in TensorFlow.
        name: Accepted as in TensorFlow.
    """
    return dict(current_call("summary.merge_all").summaries)


@contextlib.contextmanager
def event_file(folder: str | None) -> Iterator[WriteScalars | None]:
    """Open an event file if one can be written; otherwise log once that none will be.

    Args:
        folder: Where; None for none.
    """
    if folder is None:
        yield None
    elif importlib.util.find_spec("tensorboardX") is None:
        announce_once('No event files for TensorBoard: they need tensorboardX (pip install "stratagem[summaries]").')
        yield None
    else:
        with scalar_writer(folder) as write:
            yield write
