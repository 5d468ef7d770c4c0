"""The checkpoints of a model_dir: variables by name, in `model.ckpt-<step>`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from stratagem.checkpoint.checkpoint import Checkpoint
from stratagem.checkpoint.manager import CheckpointManager
from stratagem.checkpoint.restoration import COUNTER
from stratagem.checkpoint.shard_files import load
from stratagem.checkpoint.state_file import latest_checkpoint, read_state
from stratagem.core.errors import CheckpointError, InputError, UnmatchedError, UsageError
from stratagem.estimator.variables import GLOBAL_STEP

BASENAME: Final = "model.ckpt"
"""Beginning of the names of checkpoints, as in TensorFlow."""


class ModelCheckpoints:
    """Saves the variables of a program into a folder, and restores them.

    With several workers all call `save` and the restoring functions at the same points; one file appears.

    Args:
        variables: What to save, by name; `global_step` among them.
        directory: The folder.
        keep: How many checkpoints to keep; None or 0 keeps all.
        keep_every_n_hours: Besides those, keep one for every period of this many hours.
        basename: Beginning of the names.
    """

    def __init__(
        self,
        variables: Mapping[str, Any],
        directory: str,
        keep: int | None = 5,
        keep_every_n_hours: float = 10000,
        basename: str = BASENAME,
    ) -> None:
        self.directory = directory
        self._step = variables[GLOBAL_STEP]
        self._manager = CheckpointManager(
            Checkpoint(dict(variables)),
            directory,
            max_to_keep=keep or None,
            keep_checkpoint_every_n_hours=keep_every_n_hours,
            checkpoint_name=basename,
        )

    def save(self) -> str:
        """Save as the checkpoint of this step.

        Returns:
            Its path.

        Raises:
            UsageError: Somebody else has saved to the folder meanwhile.
        """
        others = set(read_state(self.directory).saved) - set(self._manager.checkpoints)
        if others:
            raise UsageError(
                f"{self.directory!r} has checkpoints that this run did not save: {', '.join(sorted(others))}.",
                "Another run trains into the same folder; the two would overwrite each other's checkpoints.",
                "Give each run a model_dir of its own, and start the run that you want to continue.",
            )
        path = self._manager.save(checkpoint_number=int(self._step.value))
        assert path is not None, "without an interval every call saves"
        return path


def restore(variables: Mapping[str, Any], path: str | None) -> str | None:
    """Give variables their values of a checkpoint.

    Args:
        variables: The variables by name.
        path: The checkpoint, or None for none; with several workers, the chief's counts.

    Returns:
        The checkpoint that was restored.

    Raises:
        CheckpointError: The checkpoint is missing or damaged.
        InputError: It is one of another model.
    """
    checkpoint = Checkpoint(dict(variables))
    try:
        status, restored = checkpoint.restore_from_chief(path)
        if restored is not None:
            status.expect_partial().assert_existing_objects_matched()
        return restored
    except (InputError, UnmatchedError) as error:
        fault = str(error).split("\n", 1)[0]
        raise InputError(
            f"The checkpoint {path!r} is not one of this model: {fault.replace('%2F', '/')}",
            "Training would continue with a mixture of two models. The checkpoint was not changed.",
            "Give the new model another model_dir, or let model_fn make the same layers as when the checkpoint was "
            "saved. To use only a part of the weights, write warm_start_from.",
        ) from error


def values_in(path: str) -> dict[str, Any]:
    """Return the variables of a checkpoint by name: arrays, or `Divided`, which are read when they are asked for.

    Args:
        path: The checkpoint.

    Raises:
        CheckpointError: It is missing or damaged.
    """
    arrays = load(path).arrays
    return {name.replace("%2F", "/"): array for name, array in arrays.items() if name != COUNTER}


@dataclass(frozen=True)
class WarmStartSettings:
    """Initial weights from a checkpoint (`tf.estimator.WarmStartSettings`).

    Args:
        ckpt_to_initialize_from: A checkpoint, or a folder, whose newest checkpoint is used.
        vars_to_warm_start: Pattern to search for in the names of trainable variables; or a list of patterns.
        var_name_to_prev_var_name: Names of variables in the checkpoint, if they differ.

    Example:
        >>> WarmStartSettings("pretrained", vars_to_warm_start="conv").vars_to_warm_start
        'conv'
    """

    ckpt_to_initialize_from: str
    vars_to_warm_start: Any = ".*"
    var_name_to_prev_var_name: Mapping[str, str] | None = None


def warm_start(variables: Mapping[str, Any], settings: WarmStartSettings | str) -> list[str]:
    """Give trainable variables the values of another model's checkpoint.

    Args:
        variables: The variables by name.
        settings: Which, and from where; a path takes all trainable ones.

    Returns:
        The names of those that were given a value.

    Raises:
        CheckpointError: There is no such checkpoint.
        InputError: It has no such variable, or one of another shape.
    """
    if isinstance(settings, str | os.PathLike):
        settings = WarmStartSettings(os.fspath(settings))
    path = settings.ckpt_to_initialize_from
    if os.path.isdir(path):
        path = latest_checkpoint(path)
        if path is None:
            raise CheckpointError(
                f"warm_start_from is {settings.ckpt_to_initialize_from!r}, a folder without a checkpoint.",
                "Name a folder that an Estimator has trained into, or a checkpoint in it.",
            )
    values = values_in(path)
    patterns = settings.vars_to_warm_start
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    renamed = settings.var_name_to_prev_var_name or {}
    started = []
    for name, variable in variables.items():
        if not variable.trainable or not any(re.search(pattern, name) for pattern in patterns):
            continue
        value = values.get(renamed.get(name, name))
        if value is None or value.shape != tuple(variable.shape):
            raise InputError(
                f"warm_start_from: {name} has shape {tuple(variable.shape)}, and {path!r} has "
                f"{'no such variable' if value is None else f'one of shape {value.shape}'}.",
                "Name only variables that the checkpoint has: WarmStartSettings(path, vars_to_warm_start=..., "
                "var_name_to_prev_var_name=...).",
            )
        variable.assign(np.asarray(value))
        started.append(name)
    return started
