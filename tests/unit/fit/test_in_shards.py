"""Methods of models whose weights rest in shards: what files hold is divided, and int8 weights are made."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import stratagem
from stratagem.mesh.mesh import spec_of


def network(shard: str | None) -> tuple[stratagem.MirroredStrategy, keras.Model]:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"], shard=shard, shard_min_size=shard and 8)
    with strategy.scope():
        return strategy, keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)])


def test_weights_in_shards_are_read_into_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "it.weights.h5")
    source = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)])
    source.save_weights(path)
    strategy, model = network("parameters")
    agreed: list[str] = []
    monkeypatch.setattr(strategy, "check_agreement", lambda name, fields: agreed.append(name))
    model.load_weights(path)
    assert [strategy.mesh.rests(each.value, spec_of(0)) for each in model.weights] == [True, True, True, False]
    for own, wanted in zip(model.get_weights(), source.get_weights(), strict=True):
        np.testing.assert_array_equal(own, wanted)
    assert agreed == ["load_weights", f"values that load_weights of model {model.name!r} reads"]


def test_a_callback_reads_a_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "it.weights.h5")
    strategy, model = network("parameters")
    x, y = np.ones((4, 4), "float32"), np.ones((4, 2), "float32")
    model.compile("sgd", "mse")
    model.fit(x, y, verbose=0)
    model.save_weights(path)
    expected = model.get_weights()
    agreed: list[str] = []

    class Reads(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            monkeypatch.setattr(strategy, "check_agreement", lambda name, fields: agreed.append(name))
            model.load_weights(path)
            monkeypatch.undo()

    model.fit(x, y, verbose=0, callbacks=[Reads()])
    assert agreed == []
    for own, wanted in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(own, wanted)


@pytest.mark.usefixtures("plain_keras")  # those of Keras 2 have one that takes any name
def test_only_models_in_shards_have_methods_of_their_own() -> None:
    _, whole = network(None)
    assert "load_weights" not in vars(whole)
    assert "quantize_whole" not in vars(whole)
    _, model = network("parameters")
    assert {"load_weights", "quantize", "quantize_whole"} <= vars(model).keys()
    for same in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), keras.models.clone_model(model)):
        for own, wanted in zip(same.get_weights(), model.get_weights(), strict=True):
            assert own.shape == wanted.shape
        assert getattr(same.load_weights, "__self__", None) is same


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.filterwarnings("ignore:Layer InputLayer does not have a `quantize`:UserWarning")
def test_a_model_in_shards_is_quantized_as_one_that_is_whole(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, whole = network(None)
    strategy, model = network("parameters")
    model.set_weights(whole.get_weights())
    agreed: list[tuple[str, Any]] = []
    monkeypatch.setattr(strategy, "check_agreement", lambda *facts: agreed.append(facts))
    model.quantize(mode)
    assert agreed == [("quantize", {"model": model.name, "variables": 4})]
    monkeypatch.undo()
    whole.quantize(mode)
    x = np.linspace(-1, 1, 32, dtype="float32").reshape(8, 4)
    assert [each.dtype for each in model.weights] == [each.dtype for each in whole.weights]
    assert "int8" in {each.dtype for each in model.weights}
    np.testing.assert_allclose(model.predict(x, verbose=0), whole.predict(x, verbose=0), rtol=1e-6)
    for own, wanted in zip(model.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(own, wanted)
