"""Contents of a backup: the model, the place in epoch and data, the other callbacks, random generators."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from stratagem.backup.states import Arrays, CallbackStates, check_decodable, decode, encode
from stratagem.checkpoint.shard_files import placed_like
from stratagem.checkpoint.storage import Contents
from stratagem.compression.residuals import is_in_parts
from stratagem.core.errors import CheckpointError, InputError, name_some
from stratagem.feed.adapter import FitPosition
from stratagem.fit.named_variables import METRICS, is_variable, named_variables
from stratagem.fit.resuming import Session
from stratagem.mesh.shards import resting_spec

_SHOWN: Final = 3


@dataclass(frozen=True)
class Progress:
    """How far a `fit` is.

    Args:
        epoch: The epoch, from 0.
        batch: Batches of it that are done.
        within_epoch: Whether the epoch has begun, so that its metrics count and its `on_epoch_begin` has run.
        stopped: Whether a callback has ended training.
        since_last: Batches since the last backup that was due by number of batches.
        steps: Steps of training that are done in all epochs.
    """

    epoch: int = 0
    batch: int = 0
    within_epoch: bool = False
    stopped: bool = False
    since_last: int = 0
    steps: int = 0


def take(session: Session, progress: Progress, states: CallbackStates) -> tuple[dict[str, Any], Arrays]:
    """Return what a backup holds beside variables: JSON, and arrays by name. Only the worker that writes needs it.

    Args:
        session: The `fit`, its model's state gathered.
        progress: How far it is.
        states: Its other callbacks.
    """
    arrays: Arrays = {}
    metadata = {
        "backup": asdict(progress),
        "steps_per_execution": int(session.model.steps_per_execution),
        "inputs": [place._asdict() for place in session.places(epoch_ended=not progress.within_epoch)],
        "callbacks": states.save(arrays),
        "random": encode(random_state(), "random", arrays),
    }
    return metadata, arrays


class Snapshot:
    """A backup that was read.

    Args:
        contents: The file's.
        path: Which it was, for messages.

    Raises:
        CheckpointError: It is no backup.
    """

    def __init__(self, contents: Contents, path: str) -> None:
        if not isinstance(contents.metadata, dict) or "backup" not in contents.metadata:
            raise CheckpointError(
                f"{path!r} is a checkpoint, but not a backup of `fit`.",
                "It does not hold the position of training.",
                "Give BackupAndRestore a folder of its own, or restore it with stratagem.train.Checkpoint.",
            )
        said, self._arrays, self._path = contents.metadata, contents.arrays, path
        try:
            self.progress = _progress(said["backup"])
            self.inputs = [FitPosition(place["source"], int(place["taken"])) for place in said["inputs"]]
            if not self.inputs:
                raise ValueError("it has no place in the data")
            self.callbacks = dict(said["callbacks"])
            check_decodable(self.callbacks, self._arrays)
            self._random = decode(said["random"], self._arrays)
            set_random_state(self._random, random.Random(), np.random.RandomState())
            self._steps_per_execution = int(said["steps_per_execution"])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"The backup {path!r} is not damaged, but cannot be understood ({type(error).__name__}: {error}).",
                "Training would continue from a wrong position. Nothing was restored.",
                "Put a copy back, or move the file away. Then the backup before it is used.",
            ) from error

    def check_steps(self, steps_per_execution: int) -> None:
        """See that training can begin at the batch where it was.

        Raises:
            InputError: `steps_per_execution` has changed, and leaps over that batch.
        """
        if self.progress.batch % steps_per_execution:
            raise InputError(
                f"The backup was made after batch {self.progress.batch} of an epoch, with steps_per_execution="
                f"{self._steps_per_execution}; now it is {steps_per_execution}.",
                "Steps run in groups of that size, and no group begins after this batch.",
                "Compile the model with the same steps_per_execution as before.",
            )

    def check_length(self, batches: int | None) -> None:
        """See that an epoch has batches left behind the one where training was.

        Args:
            batches: How many batches an epoch has; None where that is not known.

        Raises:
            InputError: It has no more, because the data or `steps_per_epoch` has changed.
        """
        if batches is not None and 0 < batches <= self.progress.batch:
            raise InputError(
                f"The backup {self._path!r} was made after batch {self.progress.batch} of an epoch; now an epoch has "
                f"{batches}.",
                "No batch of that epoch is left to continue with.",
                "Give fit the same data, batch_size and steps_per_epoch as before. Or delete the folder, to start "
                "training from the beginning.",
            )

    def restore(self, session: Session, states: CallbackStates) -> None:
        """Give the model's variables their values, all of them or none, and the callbacks and generators their states.

        Raises:
            InputError: It is another model; the message names what differs.
        """

        def counts(name: str) -> bool:
            return self.progress.within_epoch or METRICS not in name

        own = dict(named_variables(session.model))
        kept = {name: variable for name, variable in own.items() if counts(name)}
        saved = {name: array for name, array in self._arrays.items() if is_variable(name)}
        faults = [*_unequal(kept, saved), *sorted(filter(counts, saved.keys() - own.keys()))]
        if faults:
            raise InputError(
                f"The backup {self._path!r} is of another model or optimizer: {name_some(faults, _SHOWN, '; ')}.",
                "Training cannot continue from it. Nothing was changed, neither in the model nor in the backup.",
                "Make and compile the model as in the run that made the backup, or choose another folder for backups.",
            )
        mesh = session.strategy.mesh
        for name, variable in kept.items():
            spec = resting_spec(variable)
            if spec != PartitionSpec():
                variable.assign(placed_like(saved[name], NamedSharding(mesh.mesh, spec)))
            else:
                keep = mesh.keep_on_first if is_in_parts(variable) else mesh.keep
                variable.assign(keep(np.asarray(saved[name])))
        states.restore(self.callbacks, self._arrays)
        set_random_state(self._random, random, np.random)


def _unequal(variables: Mapping[str, Any], saved: Mapping[str, Any]) -> Iterator[str]:
    for name, variable in variables.items():
        own, array = f"{variable.dtype}{list(variable.shape)}", saved.get(name)
        if array is None:
            yield f"{variable.path} {own} is not in it"
        elif own != f"{array.dtype.name}{list(array.shape)}":
            yield f"{variable.path} is {own} here, {array.dtype.name}{list(array.shape)} there"


def random_state() -> dict[str, Any]:
    """Return the states of Python's and NumPy's random generators, as plain data."""
    return random_state_of(random.getstate(), np.random.get_state(legacy=False))


def random_state_of(python: Any, numpy: Any) -> dict[str, Any]:
    """Return states of random generators as plain data, as `set_random_state` takes them.

    Args:
        python: What `random.getstate` returned.
        numpy: What `numpy.random.get_state(legacy=False)` returned.
    """
    version, words, gauss = python
    return {"python": [version, np.array(words, np.uint32), gauss], "numpy": numpy}


def set_random_state(state: Mapping[str, Any], python: Any, numpy: Any) -> None:
    """Set random generators.

    Args:
        state: What `random_state` returned.
        python: The module `random`, or a generator of it.
        numpy: The module `numpy.random`, or a generator of it.
    """
    version, words, gauss = state["python"]
    python.setstate((version, tuple(words.tolist()), gauss))
    numpy.set_state(state["numpy"])


def _progress(said: Mapping[str, Any]) -> Progress:
    """Return what a backup says of how far training was.

    Raises:
        ValueError: That cannot be.
    """
    said = {"steps": 0, **said}  # backups of 2026 before November have no such number
    kinds = {name: type(value) for name, value in asdict(Progress()).items()}
    if {name: type(value) for name, value in said.items()} != kinds or min(map(int, said.values())) < 0:
        raise ValueError(f"it says it was made at {dict(said)}")
    return Progress(**said)
