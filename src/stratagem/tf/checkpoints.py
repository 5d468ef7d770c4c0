"""Looking into a checkpoint (`tf.train.load_checkpoint`, `tf.train.list_variables`, ...)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from stratagem.checkpoint import file_names
from stratagem.checkpoint.shard_files import load
from stratagem.checkpoint.state_file import latest_checkpoint, read_state
from stratagem.core.errors import CheckpointError


class CheckpointReader:
    """The values in a checkpoint, by name (what `tf.train.load_checkpoint` returns).

    Args:
        path: The checkpoint, or a folder whose newest checkpoint is read.

    Raises:
        CheckpointError: There is no checkpoint, or it is damaged.

    Example:
        >>> import keras, stratagem.train
        >>> path = stratagem.train.Checkpoint(step=keras.Variable(3)).save(getfixture("tmp_path") / "ckpt")
        >>> reader = CheckpointReader(path)
        >>> reader.get_variable_to_shape_map()["step"], int(reader.get_tensor("step"))
        ([], 3)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        name = os.fspath(path)
        if os.path.isdir(name):
            found = latest_checkpoint(name)
            if found is None:
                raise CheckpointError(f"The folder {name!r} has no checkpoint.", "Name another folder.")
            name = found
        self._arrays = load(file_names.path_of(name)).arrays

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Return the shape of each value."""
        return {name: list(array.shape) for name, array in sorted(self._arrays.items())}

    def get_variable_to_dtype_map(self) -> dict[str, np.dtype]:
        """Return the dtype of each value."""
        return {name: array.dtype for name, array in sorted(self._arrays.items())}

    def has_tensor(self, name: str) -> bool:
        """Return whether there is a value of that name."""
        return name in self._arrays

    def get_tensor(self, name: str) -> np.ndarray:
        """Return a value.

        Raises:
            CheckpointError: No value has that name.
        """
        if name not in self._arrays:
            raise CheckpointError(
                f"The checkpoint has no value {name!r}; it has {', '.join(sorted(self._arrays))}.",
                "Use one of these names; they follow the program's own attributes, as in TensorFlow 2.",
            )
        return np.asarray(self._arrays[name])


def load_checkpoint(ckpt_dir_or_file: str | os.PathLike[str]) -> CheckpointReader:
    """Return the values in a checkpoint, or in the newest checkpoint of a folder (`tf.train.load_checkpoint`)."""
    return CheckpointReader(ckpt_dir_or_file)


def list_variables(ckpt_dir_or_file: str | os.PathLike[str]) -> list[tuple[str, list[int]]]:
    """Return the name and the shape of each value in a checkpoint (`tf.train.list_variables`)."""
    return list(CheckpointReader(ckpt_dir_or_file).get_variable_to_shape_map().items())


def load_variable(ckpt_dir_or_file: str | os.PathLike[str], name: str) -> np.ndarray:
    """Return one value of a checkpoint (`tf.train.load_variable`)."""
    return CheckpointReader(ckpt_dir_or_file).get_tensor(name)


@dataclass(frozen=True)
class CheckpointState:
    """The checkpoints of a folder (what `tf.train.get_checkpoint_state` returns), oldest first."""

    model_checkpoint_path: str
    all_model_checkpoint_paths: list[str]
    all_model_checkpoint_timestamps: list[float]


def get_checkpoint_state(checkpoint_dir: str | os.PathLike[str], latest_filename: Any = None) -> CheckpointState | None:
    """Return the checkpoints of a folder; None if there are none.

    Args:
        checkpoint_dir: The folder.
        latest_filename: Accepted as in TensorFlow; the file is called `checkpoint`.

    Example:
        >>> get_checkpoint_state(getfixture("tmp_path"))
    """
    newest = latest_checkpoint(checkpoint_dir)
    if newest is None:
        return None
    saved = read_state(os.fspath(checkpoint_dir)).saved
    return CheckpointState(newest, list(saved), list(saved.values()))
