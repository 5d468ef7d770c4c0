"""Real workers that train with compressed gradients, through Gloo, through memory, and through both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.hosts import be_on_hosts

from stratagem.core.errors import PeerError
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess


def trained(hosts: str, x: np.ndarray, y: np.ndarray, names: list[Any], way: str) -> dict[str, Any]:
    """Train on handwritten digits; return of each compression the accuracy on others, and the weights."""
    import keras

    import stratagem

    be_on_hosts(hosts)
    found = {}
    for name in names:
        options = stratagem.CommunicationOptions(
            implementation=stratagem.CommunicationImplementation[way], compression=name
        )
        strategy = stratagem.MultiWorkerMirroredStrategy(communication_options=options)
        keras.utils.set_random_seed(5)
        with strategy.scope():
            layers = [keras.Input((64,)), keras.layers.Dense(96, activation="relu"), keras.layers.Dense(10)]
            model = keras.Sequential(layers)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.Adam(0.003), loss=loss, metrics=["accuracy"])
        model.fit(x[:1400], y[:1400], batch_size=64, epochs=6, verbose=0)
        accuracy = model.evaluate(x[1400:], y[1400:], batch_size=128, verbose=0)[1]
        weights = [np.asarray(variable.value.addressable_data(0)) for variable in model.trainable_variables]
        memory = strategy.mesh.memory is not None
        found[name or "none"] = {"accuracy": accuracy, "weights": weights, "memory": memory}
    return found


@pytest.mark.parametrize(("way", "hosts"), [("RING", "aa"), ("AUTO", "aa"), ("AUTO", "aab")])
def test_workers_learn_as_well(way: str, hosts: str) -> None:
    names = [None, "bf16", "int8", "powersgd"]
    from sklearn.datasets import load_digits  # not in the workers, which import this file and load less

    pixels, labels = load_digits(return_X_y=True)
    digits = (pixels / 16).astype("float32"), labels.astype("int32")
    results = [result.value for result in run_workers(trained, len(hosts), args=[hosts, *digits, names, way])]
    first = results[0]
    assert first["none"]["accuracy"] > 0.85
    for name in ("bf16", "int8", "powersgd"):
        assert first[name]["memory"] == (way == "AUTO")
        assert first[name]["accuracy"] > first["none"]["accuracy"] - 0.01
        assert not np.array_equal(first[name]["weights"][0], first["none"]["weights"][0])
        for other in results[1:]:
            for one, another in zip(first[name]["weights"], other[name]["weights"], strict=True):
                np.testing.assert_array_equal(one, another)


def differing_compressions() -> None:
    import json
    import os

    import keras

    import stratagem

    own: Any = ["bf16", None][json.loads(os.environ["TF_CONFIG"])["task"]["index"]]
    options = stratagem.CommunicationOptions(compression=own)
    with stratagem.MultiWorkerMirroredStrategy(communication_options=options).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", loss="mse")
    model.fit(np.zeros((4, 3), "float32"), np.zeros((4, 1), "float32"), verbose=0)


def test_workers_with_different_options_are_told() -> None:
    with pytest.raises(PeerError, match="compression"):
        run_workers(differing_compressions, 2)
