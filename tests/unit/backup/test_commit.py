"""The state of a loop: what is held of it, what is put back, and what another worker takes."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stratagem
from stratagem import keras
from stratagem.backup.commit import Commit, commit_of, stateful_in, taken
from stratagem.core.errors import InputError, UnsupportedError
from stratagem.mesh.divided import is_in_shards
from stratagem.mesh.given import Given

STRATEGY = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])


Root = SimpleNamespace
"""What has the objects of a loop as attributes."""


def held(root: Root, before: Commit | None = None) -> Commit:
    return commit_of(vars(root), STRATEGY.mesh, before)


def trained(seed: int) -> Root:
    """Return a model with an optimizer that has made a step, an iterator in the midst of its data, and plain data."""
    keras.utils.set_random_seed(seed)
    dataset = stratagem.data.Dataset.range(40).shuffle(40, seed=seed).batch(4)
    batches = STRATEGY.experimental_distribute_dataset(dataset)
    with STRATEGY.scope():
        layers = [keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)]
        model = keras.Sequential([keras.Input((2,)), *layers])
        optimizer = keras.optimizers.Adam(0.1)
        optimizer.build(model.trainable_variables)
        mean = keras.metrics.Mean()

    def step(x: Any) -> None:
        optimizer.apply([variable * 0 + 0.5 for variable in model.trainable_variables])
        mean.update_state(model(x, training=True))

    STRATEGY.run(step, args=(np.full((4, 2), seed, "float32"),))
    iterator = iter(batches)
    for _ in range(seed):
        next(iterator)
    return Root(model=model, optimizer=optimizer, others=(mean, iterator), epoch=seed, history=[0.5] * seed)


def values_of(root: Root) -> dict[str, Any]:
    return {name: np.asarray(variable) for name, variable in held(root).stateful.variables.items()}


def test_everything_is_put_back() -> None:
    root = trained(1)
    before, commit = values_of(root), held(root)
    drawn = [random.random(), float(np.random.uniform())]
    following = [np.asarray(part) for part in STRATEGY.experimental_local_results(next(root.others[1]))]
    for variable in commit.stateful.variables.values():
        variable.assign(np.asarray(variable) + 1)
    root.history.append(9.0)
    commit.put_back(STRATEGY.mesh)
    after = values_of(root)
    assert before.keys() == after.keys()
    assert len(before) == 19  # 6 of the layers and a seed, 8 slots and 2 numbers of Adam, 2 of the metric
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
    assert [random.random(), float(np.random.uniform())] == drawn
    again = [np.asarray(part) for part in STRATEGY.experimental_local_results(next(root.others[1]))]
    for one, other in zip(following, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert commit.plain == {"epoch": 1, "history": [0.5]}


def test_another_worker_takes_it_through_json_and_arrays() -> None:
    donor, newcomer = trained(3), trained(1)
    said, arrays = held(donor).as_given()
    drawn = [random.random(), float(np.random.uniform())]
    given = Given(json.loads(json.dumps(said)), [array.copy() for array in arrays])
    assert taken(given, held(newcomer), STRATEGY.mesh) == {"epoch": 3, "history": [0.5, 0.5, 0.5]}
    assert [random.random(), float(np.random.uniform())] == drawn
    expected, found = values_of(donor), values_of(newcomer)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    ahead = [np.concatenate(STRATEGY.experimental_local_results(next(root.others[1]))) for root in (donor, newcomer)]
    np.testing.assert_array_equal(*ahead)
    assert STRATEGY.mesh.is_replicated(newcomer.model.weights[0].value)  # no program has to place it


def test_the_state_of_other_objects_is_not_taken() -> None:
    with STRATEGY.scope():
        of_two = Root(weight=keras.Variable(np.zeros(2, "float32")))
        of_three = Root(weight=keras.Variable(np.ones(3, "float32")))
    with pytest.raises(UnsupportedError, match=r"They differ in weight float32\[2\], weight float32\[3\]"):
        taken(held(of_two).as_given(), held(of_three), STRATEGY.mesh)
    np.testing.assert_array_equal(np.asarray(of_three.weight), np.ones(3))


def test_objects_are_looked_for_again_only_where_they_are_others() -> None:
    root = trained(1)
    first = held(root)
    root.epoch = 2
    second = held(root, first)
    assert second.stateful is first.stateful
    root.others = (root.others[0],)
    assert "others/1" in first.stateful.others
    assert "others/1" not in held(root, second).stateful.others


def made_from_function() -> Any:
    return iter(STRATEGY.distribute_datasets_from_function(lambda context: stratagem.data.Dataset.range(4).batch(2)))


def in_shards() -> Any:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"], shard="parameters", shard_min_size=1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
        model.compile("sgd", "mse")
    model.fit(np.zeros((4, 8)), np.zeros((4, 4)), verbose=0)
    return model


def test_what_rests_in_shards_is_held_as_it_is() -> None:
    model = in_shards()
    kernel = model.layers[0].kernel
    before = kernel.value
    assert is_in_shards(before)
    commit = commit_of({"thing": model}, STRATEGY.mesh, None)
    kernel.assign(np.zeros((8, 4)))
    commit.put_back(STRATEGY.mesh)
    np.testing.assert_array_equal(np.asarray(kernel), np.asarray(before))


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (lambda: keras.layers.Dense(2), InputError, r"not built yet: thing\."),
        (lambda: keras.optimizers.Adam(), InputError, r"not built yet: thing\."),
        (lambda: [keras.Variable(1.0)], InputError, r"ElasticState\.thing is .* of type list"),
        (lambda: iter([1, 2]), InputError, r"ElasticState\.thing is .* of type list_iterator"),
        (made_from_function, UnsupportedError, r"thing of an ElasticState reads a dataset that was made from a func"),
    ],
)
def test_what_cannot_be_taken_is_refused(value: Any, kind: type[Exception], message: str) -> None:
    thing = value()
    with pytest.raises(kind, match=message):
        stateful_in({"thing": thing}, STRATEGY.mesh)
