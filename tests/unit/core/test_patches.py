"""The table of what is replaced in Keras and JAX: short, complete, and undone by one call."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tests.fresh import run_python

import stratagem
from stratagem.core import patches
from stratagem.core.patches import PATCHES, Extent, during, install
from stratagem.fit.step_kinds import KIND_OF

PROGRAM = """
import stratagem.testing
stratagem.testing.virtual_devices(2)

import sys
import jax, keras
from jax._src import dtypes
from jax._src.array import ArrayImpl
from jax._src.interpreters import pxla
import numpy as np

CACHES = {"ifrt_device_iterator"}  # of jaxlib, which makes it when devices are first listed
MOST = 20

def theirs(name):
    return str(name).startswith(("keras.", "jax.", "jaxlib."))

modules = [module for name, module in sys.modules.items() if theirs(name)]
classes = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
owners = [*modules, *(each for each in {*classes, ArrayImpl} if theirs(each.__module__))]

def attributes_of(owner):
    return {**vars(owner), "__bases__": owner.__bases__} if isinstance(owner, type) else dict(vars(owner))

before = {owner: attributes_of(owner) for owner in owners}
registries = [each for each in (pxla.shard_arg_handlers, dtypes.canonicalize_value_handlers) if isinstance(each, dict)]
handlers = [dict(each) for each in registries]

def counts(value):
    return callable(value) or isinstance(value, (property, staticmethod, classmethod, tuple))

def changed():
    # Functions, properties and bases alone: notes of Python's and JAX's own change too, and modules load others.
    found = set()
    for owner, attributes in before.items():
        now = attributes_of(owner)
        for name in ({*attributes, *now} if isinstance(owner, type) else {*attributes}) - CACHES:
            old, new = attributes.get(name), now.get(name)
            if old is not new and any(map(counts, (old, new))) and not (isinstance(old, tuple) and old == new):
                found.add((owner, name))
    for now, old in zip(registries, handlers):
        assert {key: now[key] for key in old} == old
        found.update((id(now), key.__name__) for key in now.keys() - old.keys())
    return found

import stratagem
import stratagem.tf as tf
from stratagem.core import patches
from stratagem.core.patches import Extent, PATCHES
assert not changed(), changed()

def listed(of, *extents):
    rows = [patch for patch in PATCHES if patch.extent in (Extent.PROCESS, *extents) and patch.user.startswith(of)]
    places = [patches._place(name) for patch in rows for name in patch.names]
    return {(id(owner) if isinstance(owner, dict) else owner, name) for owner, name in places}

of_strategies = ("stratagem.fit.", "stratagem.strategy.")
x, y = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")

def train(strategy):
    with strategy.scope():
        layers = [keras.layers.BatchNormalization(synchronized=True), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((3,)), *layers])
        model.compile("sgd", "mse")
        inside = listed(of_strategies, Extent.SCOPE)
        assert changed() == inside, changed() ^ inside
    model.fit(x, y, batch_size=4, verbose=0)
    model.predict(x, verbose=0)

servers = stratagem.ParameterServerStrategy()
train(servers)
servers.close()
assert changed() == listed(of_strategies), changed() ^ listed(of_strategies)
for strategy in (
    stratagem.OneDeviceStrategy("cpu:0"),
    stratagem.MirroredStrategy(["cpu:0", "cpu:1"]),
    stratagem.CentralStorageStrategy(["cpu:0", "cpu:1"]),
    stratagem.MultiWorkerMirroredStrategy(),
):
    train(strategy)
    strategy.run(lambda: keras.losses.Dice(reduction="sum")(y, y))
assert changed() == listed(of_strategies), changed() ^ listed(of_strategies)

of_program = (*of_strategies, "stratagem.tf.", "stratagem.loop.")
assert tf.constant(1.0).numpy() == 1.0
assert float(abs(tf.Variable([-2.0])[0]) ** 2) == 4.0
with strategy.scope():  # what lasts stays when the scope is left, in which it came
    assert float(tf.keras.optimizers.Adam(lr=0.5).lr) == 0.5
with tf.GradientTape() as tape:
    assert changed() >= listed("stratagem.tf.", Extent.DERIVATIVES)
missing = listed(of_program) ^ changed()
assert {name for _, name in missing} <= {"RecordedArray"}, missing  # where JAX asks nothing more

def model_fn(features, labels, mode):
    inside = listed("stratagem.estimator.", Extent.MODEL_FUNCTION)
    assert changed() >= inside, inside - changed()
    loss = tf.reduce_mean(keras.layers.Dense(1)(features) - labels)
    train_op = keras.optimizers.SGD(0.1).minimize(loss)
    return stratagem.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

estimator = stratagem.estimator.Estimator(model_fn, FOLDER)
estimator.train(lambda: stratagem.data.Dataset.from_tensor_slices((x, y)).batch(4), steps=2)
of_all = listed("stratagem.")
assert {name for _, name in of_all ^ changed()} <= {"RecordedArray"}, of_all ^ changed()
assert len(changed()) <= len(of_all) <= MOST, len(of_all)

patches.undo("stratagem.fit.bind")  # alone, and the others stay
assert changed() < of_all, changed() - of_all
assert float(tf.keras.optimizers.Adam(lr=0.5).lr) == 0.5

patches.undo()
# CPython calls a `__new__` of Python's for ever where there was one. This one does what that of `object` did.
assert changed() == {(keras.Variable, "__new__")}, changed()
of_object = changed()
assert type(keras.Variable(1.0)) is keras.Variable
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, verbose=0)
assert changed() == of_object, changed()
train_again = stratagem.OneDeviceStrategy("cpu:0")  # it installs again what it needs
with train_again.scope():
    again = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    again.compile("sgd", "mse")
again.fit(x, y, verbose=0)
model.fit(stratagem.data.Dataset.from_tensor_slices((x, y)).batch(4), verbose=0)  # also for models that are older
assert changed() == listed(of_strategies) | of_object, changed()
"""


@pytest.mark.thorough
def test_nothing_else_changes_and_all_is_undone(tmp_path: Path) -> None:
    program = f"FOLDER = {str(tmp_path / 'estimator')!r}\n{PROGRAM}"
    ended = run_python("-c", program, home=tmp_path, variables={"KERAS_BACKEND": "jax"})
    assert ended.returncode == 0, ended.stderr


def test_the_table_is_short() -> None:
    """What stays for the life of a process that uses every part, each attribute once."""
    lasting = [patch for patch in PATCHES if patch.extent is Extent.PROCESS]
    assert len({name for patch in lasting for name in patch.names}) <= 20
    of_core = {name for patch in lasting if patch.user.startswith("stratagem.fit.") for name in patch.names}
    assert len(of_core) <= 6


def test_what_holds_for_a_while_stands_in_one_extent() -> None:
    """So it may be restored in any order, whichever thread is the last to leave."""
    for_a_while = [patch for patch in PATCHES if patch.extent is not Extent.PROCESS]
    names = [(name, patch.extent) for patch in for_a_while for name in patch.names]
    assert len({name for name, _ in names}) == len(set(names))


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


@pytest.mark.parametrize("extent", [each for each in Extent if each is not Extent.PROCESS])
def test_what_holds_for_a_while_is_restored_after_an_exception(extent: Extent) -> None:
    stratagem.OneDeviceStrategy("cpu:0")
    places = [patches._place(name) for patch in PATCHES if patch.extent is extent for name in patch.names]

    def found() -> list[Any]:
        return [vars(owner).get(name) for owner, name in places]

    before = found()
    with pytest.raises(RuntimeError, match="of the program"), during(extent):
        raise RuntimeError("of the program")
    assert all(a is b for a, b in zip(found(), before, strict=True))


def test_what_comes_while_something_else_holds_stays() -> None:
    """A part that is first used in a scope puts its rows under those of the scope."""
    compiled = keras.Model.compile
    with during(Extent.SCOPE), during(Extent.STEP):
        attached = keras.Model.compile
        patches.undo("stratagem.fit.bind")
        patches.undo("stratagem.fit.while_tracing")
        assert keras.Model.compile is compiled
        assert "apply" not in vars(keras.optimizers.Optimizer)
        stratagem.OneDeviceStrategy("cpu:0")
        assert keras.Model.compile not in (compiled, attached)
        assert "apply" in vars(keras.optimizers.Optimizer)
    assert keras.Model.compile is compiled
    assert "apply" not in vars(keras.optimizers.Optimizer)


def test_what_is_installed_again_stands_where_it_stood(tmp_path: Path) -> None:
    """Keras 2's `fit(workers=...)` and `save(folder)` stand round those of strategies, whoever came first."""
    importlib.import_module("stratagem.tf.keras.compat")
    stratagem.OneDeviceStrategy("cpu:0")
    patches.undo("stratagem.fit.bind")
    stratagem.OneDeviceStrategy("cpu:0")
    model: Any = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0, workers=2)
    model.save(tmp_path / "folder")
    assert (tmp_path / "folder" / "model.keras").is_file()


def test_a_base_that_goes_or_comes_takes_its_functions_with_it() -> None:
    """`Optimizer.stateless_apply` is inherited, from Keras or from what `stratagem.tf` adds."""
    compat = importlib.import_module("stratagem.tf.keras.compat")
    with stratagem.MirroredStrategy(["cpu:0"]).scope():
        models = [keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]) for _ in range(3)]
    for model, change in zip(models, (None, patches.undo, compat.install), strict=True):
        if change is not None:
            change(*[compat.__name__] if change is patches.undo else [])
        model.compile("sgd", "mse")
        model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
        assert int(model.optimizer.iterations) == 1
    models[0].trainable = False
    models[0].compile("sgd", "mse")  # with nothing to train, which Keras's own optimizers refuse
    models[0].fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
    assert int(models[0].optimizer.iterations) == 0


def test_what_stands_elsewhere_stays_while_something_is_installed() -> None:
    """A thread that read a dataset met models as Keras has them, while another installed the rest."""
    importlib.import_module("stratagem.tf.keras.compat")
    stratagem.OneDeviceStrategy("cpu:0")
    bases, seen = keras.Model.__bases__, []

    def look(original: Any) -> Any:
        seen.append(keras.Model.__bases__)
        return original

    patches.undo("stratagem.strategy.devices")
    install("stratagem.strategy.devices", {"device_scope": look})
    assert seen == [bases]
    patches.undo("stratagem.strategy.devices")
    stratagem.OneDeviceStrategy("cpu:0")


def test_a_base_of_ours_has_the_names_that_are_listed() -> None:
    user = "stratagem.fit.bind"
    wraps: dict[str, Any] = {key: None for patch in PATCHES if patch.user == user for key in patch.keys}
    wraps["Model.__bases__"] = type("Base", (), dict.fromkeys(KIND_OF))
    wraps["Optimizer.__bases__"] = type("Base", (), {"more": 1})
    patches.undo(user)
    with pytest.raises(LookupError, match=r"The bases of .* differ in \['add_variable', 'apply_gradients', 'more'\]"):
        install(user, wraps)
    stratagem.OneDeviceStrategy("cpu:0")


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
