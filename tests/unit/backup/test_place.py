"""Place of a `fit` whose workers may change, and the backups that it keeps beside."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras

from stratagem.backup.callback import Backup
from stratagem.backup.place import PlaceInFit
from stratagem.backup.states import CallbackStates


class Best(keras.callbacks.Callback):
    """Callback with a state."""

    def __init__(self) -> None:
        super().__init__()
        self.best = 0.0


def place_in(others: list[Any], skipped: int, steps: int) -> PlaceInFit:
    """Return the place in a `fit` that begins, for instance from a backup."""
    session: Any = SimpleNamespace(
        skipped=skipped,
        steps=steps,
        strategy=SimpleNamespace(worker_count=2),
        places=lambda epoch_ended: [],
        adapters=[SimpleNamespace(epoch_batches=None)],
    )
    place = PlaceInFit(1, None)
    place.begin_session(session, others)
    place.set_others(others)
    return place


def test_the_first_epoch_may_go_on_from_a_backup() -> None:
    place = place_in([], skipped=3, steps=11)
    place.on_train_begin()
    place.on_epoch_begin(1)
    assert (place._progress.epoch, place._progress.batch, place._progress.steps) == (1, 3, 11)
    place.on_epoch_begin(2)
    assert (place._progress.epoch, place._progress.batch) == (2, 0)


def test_what_a_backup_has_restored_is_handed_on(tmp_path: Path) -> None:
    """A new worker has not read that backup."""
    best, keeps = Best(), Backup(tmp_path)
    keeps.states = CallbackStates([best])
    best.best = 0.75  # restored
    place = place_in([best, keeps], skipped=0, steps=0)
    place.on_train_begin()
    saved = place._states.save({})
    (name,) = [each for each in saved if "Best" in each]
    assert saved[name]["attributes"] == {"best": 0.75}
