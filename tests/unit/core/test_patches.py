"""The table of what is replaced in Keras and JAX: short, complete, and undone by one call."""

from __future__ import annotations

import threading
from pathlib import Path

import keras
import pytest
from tests.fresh import run_python

import stratagem
from stratagem.core import patches
from stratagem.core.patches import PATCHES, Extent, during, install

PROGRAM = """
import stratagem.testing
stratagem.testing.virtual_devices(2)

import sys
import jax, keras
from jax._src.array import ArrayImpl
import numpy as np

CACHES = {"ifrt_device_iterator"}  # of jaxlib, which makes it when devices are first listed

def theirs(name):
    return str(name).startswith(("keras.", "jax.", "jaxlib."))

modules = [module for name, module in sys.modules.items() if theirs(name)]
classes = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
owners = [*modules, *(each for each in {*classes, ArrayImpl} if theirs(each.__module__))]
before = {owner: dict(vars(owner)) for owner in owners}

def changed():
    # Functions and properties alone: notes of Python's and JAX's own change too, and modules load others.
    found = set()
    for owner, attributes in before.items():
        for name in ({*attributes, *vars(owner)} if isinstance(owner, type) else {*attributes}) - CACHES:
            old, new = attributes.get(name), vars(owner).get(name)
            if old is not new and any(callable(each) or isinstance(each, property) for each in (old, new)):
                found.add((owner, name))
    return found

import stratagem
import stratagem.tf as tf
from stratagem.core import patches
assert not changed(), changed()

def listed(of):
    rows = [patch for patch in patches.PATCHES if patch.extent is patches.Extent.PROCESS]
    return {patches._place(name) for patch in rows if patch.user.startswith(of) for name in patch.names}

x, y = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")

def train(strategy):
    with strategy.scope():
        layers = [keras.layers.BatchNormalization(synchronized=True), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((3,)), *layers])
        model.compile("sgd", "mse")
    model.fit(x, y, batch_size=4, verbose=0)
    model.predict(x, verbose=0)

servers = stratagem.ParameterServerStrategy()
train(servers)
servers.close()
assert changed() == listed("stratagem.fit."), changed() ^ listed("stratagem.fit.")
for strategy in (
    stratagem.OneDeviceStrategy("cpu:0"),
    stratagem.MirroredStrategy(["cpu:0", "cpu:1"]),
    stratagem.CentralStorageStrategy(["cpu:0", "cpu:1"]),
    stratagem.MultiWorkerMirroredStrategy(),
):
    train(strategy)
    strategy.run(lambda: keras.losses.Dice(reduction="sum")(y, y))
assert changed() == listed("stratagem.fit."), changed() ^ listed("stratagem.fit.")

assert tf.constant(1.0).numpy() == 1.0
assert float(abs(tf.Variable([-2.0])[0]) ** 2) == 4.0
assert float(tf.keras.optimizers.Adam(lr=0.5).lr) == 0.5
assert changed() <= listed(("stratagem.fit.", "stratagem.tf.")), changed() - listed(("stratagem.fit.", "stratagem.tf."))
assert len(changed()) > len(listed("stratagem.fit.")) + 30  # all but those names that this Keras has itself

patches.undo()
assert not changed(), changed()
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, verbose=0)
assert not changed(), changed()
train(stratagem.OneDeviceStrategy("cpu:0"))  # it installs again what it needs
model.fit(stratagem.data.Dataset.from_tensor_slices((x, y)).batch(4), verbose=0)  # also for models that are older
assert changed() == listed("stratagem.fit."), changed()
"""


def test_nothing_else_changes_and_all_is_undone(tmp_path: Path) -> None:
    ended = run_python("-c", PROGRAM, home=tmp_path, variables={"KERAS_BACKEND": "jax"})
    assert ended.returncode == 0, ended.stderr


def test_the_table_is_short() -> None:
    lasting = [patch for patch in PATCHES if patch.extent is Extent.PROCESS]
    assert len(lasting) <= 20
    of_core = [key for patch in lasting if patch.user.startswith("stratagem.fit.") for key in patch.keys]
    assert len(of_core) <= 15


def test_each_row_has_a_reason_and_nothing_twice() -> None:
    for user in {patch.user for patch in PATCHES}:
        names = [name for patch in PATCHES if patch.user == user for name in patch.names]
        assert len(names) == len(set(names))
    assert all(patch.reason and patch.names for patch in PATCHES)


def test_what_the_table_does_not_list_is_refused() -> None:
    with pytest.raises(LookupError, match=r"differ in \['Model.fit'\]"):
        install("stratagem.nobody", {"Model.fit": lambda original: original})


def test_what_holds_for_a_while_is_restored() -> None:
    stratagem.OneDeviceStrategy("cpu:0")
    inherited = keras.optimizers.Optimizer.apply
    assert "apply" not in vars(keras.optimizers.Optimizer)
    with during(Extent.STEP):
        first = keras.optimizers.Optimizer.apply
        assert first is not inherited
        with during(Extent.STEP):
            assert keras.optimizers.Optimizer.apply is first
        assert keras.optimizers.Optimizer.apply is first
    assert keras.optimizers.Optimizer.apply is inherited
    with during(Extent.STEP):  # the same object again: what has been traced with it is not traced anew
        assert keras.optimizers.Optimizer.apply is first


def test_what_holds_for_a_while_waits_for_the_last_thread() -> None:
    stratagem.OneDeviceStrategy("cpu:0")
    inherited = keras.optimizers.Optimizer.apply
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with during(Extent.STEP):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait(10)
    with during(Extent.STEP):
        pass
    assert keras.optimizers.Optimizer.apply is not inherited
    leave.set()
    thread.join()
    assert keras.optimizers.Optimizer.apply is inherited


def test_the_table_as_text() -> None:
    lines = patches.table().splitlines()
    assert [line for line in lines[1:] if not line.startswith(" ")] == [f"{extent.value}:" for extent in Extent]
    assert "    Model.save, Model.save_weights" in lines
    assert max(map(len, lines)) <= 120
