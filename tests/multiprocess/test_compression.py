"""Real workers that train with compressed gradients, through Gloo, through memory, and through both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.hosts import be_on_hosts

from stratagem.core.errors import PeerError
from stratagem.demo import digits
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess


BATCH = 48
"""Divides the rows, and by two and three: the uneven batch is in tests/unit/fit/test_compression.py."""
TRAINED = 29 * BATCH
EVALUATED = 8 * BATCH


def trained(
    hosts: str, x: np.ndarray, y: np.ndarray, ways: list[str], names: list[Any]
) -> dict[tuple[str, Any], dict[str, Any]]:
    """Train on handwritten digits; return of each way and compression the accuracy on others, and the weights."""
    import keras

    import stratagem

    be_on_hosts(hosts)

    def train(way: str, name: Any) -> dict[str, Any]:
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
        model.fit(x[:TRAINED], y[:TRAINED], batch_size=BATCH, epochs=6, verbose=0)
        accuracy = model.evaluate(x[TRAINED:], y[TRAINED:], batch_size=BATCH, verbose=0)[1]
        weights = [np.asarray(variable.value.addressable_data(0)) for variable in model.trainable_variables]
        return {"accuracy": accuracy, "weights": weights, "memory": strategy.mesh.memory is not None}

    compressed = {(way, name): train(way, name) for way in ways for name in names}
    return {(ways[0], None): train(ways[0], None), **compressed}


@pytest.mark.parametrize(
    ("hosts", "ways"),
    [("aa", ["RING", "AUTO"]), ("aab", ["AUTO"])],
    ids=["two, through Gloo and memory", "three, through both"],
)
def test_workers_learn_as_well(hosts: str, ways: list[str]) -> None:
    """Two workers send each other all codes, of three each adds up a part for all."""
    names = ["bf16", "int8", "powersgd"]
    images, labels = digits.read()
    rows = TRAINED + EVALUATED
    given = (images[:rows].reshape(rows, 64) / 16).astype("float32"), labels[:rows].astype("int32")
    first, *others = [result.value for result in run_workers(trained, len(hosts), args=[hosts, *given, ways, names])]
    plain = first.pop((ways[0], None))
    assert plain["accuracy"] > 0.85
    assert len(first) == len(names) * len(ways)
    for (way, name), found in first.items():
        assert found["memory"] == (way == "AUTO")
        assert found["accuracy"] > plain["accuracy"] - 0.01
        assert not np.array_equal(found["weights"][0], plain["weights"][0])
        for other in others:
            for one, another in zip(found["weights"], other[way, name]["weights"], strict=True):
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
