"""Every name of TensorFlow is there, or its error says what to write instead."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from types import ModuleType

import pytest

import stratagem.tf as tf
from stratagem.tf.missing import DEFAULT, repair
from stratagem.tf.repairs import INSTEAD

NAMES = {
    area: names.split()
    for area, names in (
        line.split(": ", 1) for line in (Path(__file__).parent / "tensorflow_names.txt").read_text().splitlines()
    )
}
"""The public names of TensorFlow 2.21 by namespace, without those of Keras and `tf.raw_ops`."""


def unanswered(area: str) -> list[str]:
    """Return the names that are neither there nor have a repair of their own."""
    found = []
    for name in NAMES[area]:
        try:
            getattr(importlib.import_module(f"stratagem.{area}"), name)
        except (AttributeError, ModuleNotFoundError) as error:
            if DEFAULT in str(error) or "What to do" not in str(error):
                found.append(name)
    return found


def test_every_name_is_there_or_has_a_repair() -> None:
    assert {area: names for area in NAMES if (names := unanswered(area))} == {}


def test_what_is_there_has_no_repair() -> None:
    there = []
    for name in INSTEAD:
        try:
            found = functools.reduce(getattr, name.split(".")[1:], tf)
        except AttributeError:
            continue
        if not isinstance(found, ModuleType):  # a namespace has the repair of what it lacks
            there.append(name)
    assert there == []


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("tf.Session", "no graph to build and run"),
        ("tf.compat.v1.Session", "no graph to build and run"),
        ("tf.compat.v1.train.MonitoredTrainingSession", "tf.estimator"),
        ("tf.lite.TFLiteConverter", "model.save('model.keras')"),
        ("tf.sparse.reorder", "Dataset.padded_batch"),
        ("tf.contrib.layers.fully_connected", "tf.keras.layers"),
        ("tf.data.experimental.dense_to_sparse_batch", "Dataset.padded_batch"),
        ("tf.distribute.experimental.rpc.Server", "ClusterCoordinator"),
        ("tf.keras.backend.in_train_phase", "Write keras.ops or tf"),
        ("tf.keras.applications.ResNetRS200", "keras_hub"),
        ("tf.logaddexp", "Write keras.ops.logaddexp: Keras has it by this name."),
        ("tf.log", "Write tf.math.log."),
        ("tf.no_such_thing_at_all", DEFAULT),
    ],
)
def test_repair_of_a_name(name: str, answer: str) -> None:
    assert answer in repair(name)


def test_close_spelling_is_told() -> None:
    known = ["MirroredStrategy", "Strategy"]
    assert repair("tf.distribute.MirorredStrategy", known) == "Did you mean tf.distribute.MirroredStrategy?"
