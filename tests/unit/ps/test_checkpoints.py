"""What is saved with parameter servers opens with other servers, under other strategies, and under none; and back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tests.unit.ps.servers import Cluster

import stratagem
from stratagem.ps.partitioners import FixedShardsPartitioner, MinSizePartitioner
from stratagem.train import Checkpoint, CheckpointManager

X = np.random.default_rng(1).normal(size=(24, 6)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def make_model() -> Any:
    keras.utils.set_random_seed(3)
    layers = [
        keras.layers.Dense(5, activation="tanh"),
        keras.layers.BatchNormalization(synchronized=True),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input((6,)), *layers])
    model.compile(keras.optimizers.AdamW(0.02, weight_decay=0.1), "mse", metrics=["mae"])
    return model


def train(model: Any, epochs: int = 1) -> None:
    model.fit(X, Y, batch_size=8, epochs=epochs, shuffle=False, verbose=0)


def numbers(model: Any) -> list[np.ndarray]:
    return [np.asarray(v.value) for v in (*model.variables, *model.optimizer.variables)]


@contextlib.contextmanager
def served(partitioner: Any, servers: int) -> Iterator[Any]:
    """Yield a model under parameter servers, with one worker: its numbers are those of one process."""
    with contextlib.closing(Cluster(servers)) as cluster:
        strategy = stratagem.ParameterServerStrategy(cluster.resolver, partitioner)
        with strategy.scope():
            model = make_model()
        yield model
        strategy.close()


@contextlib.contextmanager
def mirrored() -> Iterator[Any]:
    with stratagem.MirroredStrategy().scope():
        model = make_model()
    yield model


@contextlib.contextmanager
def plain() -> Iterator[Any]:
    yield make_model()


PLACES = {
    "three servers": lambda: served(FixedShardsPartitioner(3), 3),
    "one server": lambda: served(None, 1),
    "mirrored": mirrored,
    "Keras alone": plain,
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[np.ndarray], list[np.ndarray]]:
    """A checkpoint of each kind, made in the middle of training, with the numbers then and an epoch later."""
    folder = tmp_path_factory.mktemp("saved")
    with served(MinSizePartitioner(min_shard_bytes=16, max_shards=2), 2) as model:
        train(model)
        assert max(len(v.parts) for v in model.trainable_variables) == 2
        checkpoint = Checkpoint(model=model, optimizer=model.optimizer)
        CheckpointManager(checkpoint, folder, max_to_keep=1).save()
        model.save_weights(folder / "model.weights.h5")
        model.save(folder / "model.keras")
        then = numbers(model)
        train(model)
        return folder, then, numbers(model)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("place", PLACES)
def test_a_checkpoint_of_two_servers_goes_on_elsewhere(place: str, saved: Any) -> None:
    folder, then, later = saved
    with PLACES[place]() as model:
        model.optimizer.build(model.trainable_variables)
        checkpoint = Checkpoint(model=model, optimizer=model.optimizer)
        checkpoint.restore(stratagem.train.latest_checkpoint(folder)).assert_consumed()
        for own, expected in zip(numbers(model), then, strict=True):
            np.testing.assert_array_equal(own, expected)
        train(model)
        for own, expected in zip(numbers(model), later, strict=True):
            np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("place", ["three servers", "mirrored"])
def test_weights_and_whole_models_open_elsewhere(place: str, saved: Any) -> None:
    folder, then, later = saved
    with PLACES[place]() as model:
        model.optimizer.build(model.trainable_variables)
        model.load_weights(folder / "model.weights.h5")
        for own, expected in zip(numbers(model), then, strict=True):
            np.testing.assert_array_equal(own, expected)
    model = keras.models.load_model(folder / "model.keras")
    for own, expected in zip(numbers(model), then, strict=True):
        np.testing.assert_array_equal(own, expected)
    train(model)
    for own, expected in zip(numbers(model), later, strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
def test_what_keras_alone_saved_goes_on_with_servers(tmp_path: Path) -> None:
    model = make_model()
    train(model)
    path = Checkpoint(model=model, optimizer=model.optimizer).save(tmp_path / "ckpt")
    then = numbers(model)
    train(model)
    with PLACES["three servers"]() as other:
        backup = keras.callbacks.ModelCheckpoint(str(tmp_path / "best.keras"), monitor="loss")
        other.fit(X, Y, batch_size=8, shuffle=False, verbose=0, callbacks=[backup])
        Checkpoint(model=other, optimizer=other.optimizer).restore(path).assert_consumed()
        for own, expected in zip(numbers(other), then, strict=True):
            np.testing.assert_array_equal(own, expected)
        train(other)
        for own, expected in zip(numbers(other), numbers(model), strict=True):
            np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-6)
    best = keras.models.load_model(tmp_path / "best.keras")
    for own, expected in zip(numbers(best), then, strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-6)
