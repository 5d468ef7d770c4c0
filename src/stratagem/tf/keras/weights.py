"""`save_weights` and `load_weights` with any file name, as in Keras 2.

Keras 3 knows one kind of file, `.weights.h5`. A name that ends in `.h5` alone is a file of Keras 2, which Keras 3 still
reads; a name without an ending is a checkpoint, which `tf.train.latest_checkpoint` and `tf.train.Checkpoint` find.
Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/Model#save_weights
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, Final

import keras

from stratagem.checkpoint import file_names, storage
from stratagem.checkpoint.checkpoint import append_to_folder, read_alone, write_alone
from stratagem.cluster.bootstrap import current_peers
from stratagem.core import optional
from stratagem.core.errors import InputError
from stratagem.fit import bind

_OF_KERAS: Final = (".weights.h5", ".weights.json", ".keras")
_HDF5: Final = (".h5", ".hdf5")


def saving_to_any_name(write_group: Callable[[Any, Any], None], original: Callable[..., None]) -> Callable[..., None]:
    """Wrap `Model.save_weights`.

    Args:
        write_group: Writes a model's weights into an HDF5 file as Keras 2 did.
        original: Keras's.
    """

    @bind.by_one_worker
    def write_hdf5(model: Any, filepath: str) -> None:
        with optional.load("h5py", "files", "A file of weights").File(filepath, "w") as file:
            write_group(file, model)

    @functools.wraps(original)
    def save_weights(
        self: Any,
        filepath: str | os.PathLike[str],
        overwrite: bool = True,
        save_format: str | None = None,
        options: Any = None,
        **kwargs: Any,
    ) -> None:
        path = os.fspath(filepath)
        if kwargs or path.endswith(_OF_KERAS):
            original(self, path, overwrite, **kwargs)
            return
        hdf5 = path.endswith(_HDF5) if save_format is None else save_format in ("h5", "hdf5", "keras")
        if hdf5:
            write_hdf5(self, path)
            return
        file = os.fspath(file_names.file_of(path))
        peers = current_peers()
        alone = peers is None or peers.own_index == 0 or not bind.is_fitting()  # within `fit` all workers write it
        if _write_checkpoint(self, file) and alone:
            append_to_folder(file_names.path_of(path))
            storage.mark(path)

    return save_weights


@bind.by_one_worker
def _write_checkpoint(model: Any, filepath: str) -> bool:
    """Write it; True on a worker that has."""
    model.jax_state_sync()
    write_alone(model, filepath)
    return True


def give_method(model: Any) -> None:
    """Give a model a `load_weights` of its own, which takes any file name. A class that has another keeps that.

    Args:
        model: A model that is being made.
    """
    if type(model).load_weights is keras.Model.load_weights:
        object.__setattr__(model, "load_weights", functools.partial(_load_weights, model))


def _load_weights(model: Any, filepath: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Any:
    if filepath is None:
        raise InputError(
            "load_weights was given None.",
            "The model would keep the weights it has.",
            "Check the folder: latest_checkpoint(folder) returns None if the folder has no checkpoint.",
        )
    path = os.fspath(filepath)
    if path.endswith((*_OF_KERAS, *_HDF5)) or not file_names.file_of(path).exists():
        return keras.Model.load_weights(model, path, *args, **kwargs)
    try:
        return read_alone(model, path)
    except InputError:  # it may have another optimizer than the model that was saved
        return read_alone(model, path, optimizers=False)
