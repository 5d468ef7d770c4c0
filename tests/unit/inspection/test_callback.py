"""`Inspect` in `fit` on several replicas of one process: replicas that differ, steps of every kind, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tests.flipped import flip_bit

import stratagem
from stratagem.callbacks import BackupAndRestore, Inspect
from stratagem.core.errors import InputError, PeerError
from stratagem.fit.steps import Step
from stratagem.inspection.callback import Looking
from stratagem.inspection.saving import Digests

RNG = np.random.default_rng(0)
X = RNG.uniform(0.5, 1.5, (34, 4)).astype("float32")
Y = RNG.uniform(0.5, 1.5, (34, 1)).astype("float32")


class Logarithm(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return keras.ops.log(x)


def made(strategy: Any = None, optimizer: Any = "sgd", layer: Any = Logarithm, **compiled: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    strategy = strategy or stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), layer(name="planted"), keras.layers.Dense(1, name="dense")])
        model.compile(optimizer, "mse", **compiled)
    return model


def with_rows(rows: list[int], value: float = -1.0) -> np.ndarray:
    x = X.copy()
    x[rows] = value
    return x


class Flips(keras.callbacks.Callback):
    """Flips a bit of a value of one replica, in memory, behind a step.

    Args:
        step: The step.
        path: A part of the variable's path.
        bit: The bit.
        group: Where Keras keeps the value meanwhile.
    """

    def __init__(self, step: int, path: str, bit: int, group: str = "trainable_variables") -> None:
        super().__init__()
        self._step, self._path, self._bit, self._group = step, path, bit, group
        self._steps = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._steps += 1
        if self._steps == self._step:
            variables = (
                self.model.optimizer.variables
                if self._group == "optimizer_variables"
                else getattr(self.model, self._group)
            )
            (place,) = [i for i, variable in enumerate(variables) if self._path in variable.path]
            flip_bit(self.model._jax_state[self._group][place].addressable_shards[-1].data, self._bit)


@pytest.mark.parametrize(
    ("group", "path", "bit"),
    [
        ("trainable_variables", "dense/kernel", 0),
        ("trainable_variables", "dense/bias", 31),
        ("optimizer_variables", "kernel_momentum", 0),
        ("optimizer_variables", "kernel_momentum", 96 + 30),
    ],
)
def test_a_flipped_bit_is_found_within_the_steps_that_are_looked_at_together(group: str, path: str, bit: int) -> None:
    model = made(optimizer=keras.optimizers.SGD(1e-3, momentum=0.5))
    callbacks = [Flips(13, path, bit, group), Inspect(every=10, nonfinite=None)]
    with pytest.raises(PeerError, match="hold different values between step 10 and 20:") as raised:
        model.fit(np.tile(X, (4, 1)), np.tile(Y, (4, 1)), batch_size=4, verbose=0, callbacks=callbacks)
    assert path in str(raised.value)
    assert "on this process" in str(raised.value)


def test_replicas_that_agree_train_as_without() -> None:
    plain, inspected = made(optimizer="adam"), made(optimizer="adam")
    for model, callbacks in ((plain, []), (inspected, [Inspect(every=3)])):
        model.fit(
            X, Y, batch_size=4, epochs=3, shuffle=False, verbose=0, callbacks=callbacks
        )  # the last batch has two rows
    for one, other in zip(plain.variables, inspected.variables, strict=True):
        np.testing.assert_array_equal(one.value, other.value)


@pytest.mark.thorough
def test_rows_on_the_second_replica_and_an_uneven_batch() -> None:
    model = made()
    with pytest.raises(InputError, match="Step 2 computed NaN or infinity: `log` was the first operation") as raised:
        model.fit(with_rows([5, 6]), Y, batch_size=4, shuffle=False, verbose=0, callbacks=[Inspect(every=50)])
    assert "in layer 'planted'" in str(raised.value)
    assert "on replica 0 of 2 (worker 0)" in str(raised.value)
    assert "Rows 1, 2 of the 4 of its global batch" in str(raised.value)
    model = made()
    with pytest.raises(InputError, match="Step 7 computed NaN or infinity: `log` was the first operation") as raised:
        model.fit(with_rows([32])[:33], Y[:33], batch_size=5, shuffle=False, verbose=0, callbacks=[Inspect(every=50)])
    assert "Row 2 of the 3 of its global batch" in str(raised.value)
    assert np.isfinite(model.get_weights()[0]).all()


def test_several_steps_that_run_as_one_are_told_apart() -> None:
    model = made(steps_per_execution=4)
    with pytest.raises(InputError, match="Step 7 computed NaN or infinity: `log` was the first operation") as raised:
        model.fit(with_rows([25]), Y, batch_size=4, shuffle=False, verbose=0, callbacks=[Inspect(every=8)])
    assert "Row 1 of the 4 of its global batch" in str(raised.value)
    assert int(model.optimizer.iterations) == 6


@pytest.mark.thorough
@pytest.mark.parametrize("shard", ["optimizer", "parameters"])
def test_state_in_shards_is_put_back(shard: Any) -> None:
    model = made(stratagem.MirroredStrategy(["cpu:0", "cpu:1"], shard=shard), optimizer="adam")
    with pytest.raises(InputError, match="Step 2 computed NaN or infinity: `log` was the first operation"):
        model.fit(with_rows([5]), Y, batch_size=4, shuffle=False, verbose=0, callbacks=[Inspect(every=5)])
    assert int(model.optimizer.iterations) == 1
    model.fit(X, Y, batch_size=4, verbose=0, callbacks=[Inspect(every=5)])
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


@pytest.mark.thorough
@pytest.mark.parametrize(
    "strategy", [None, lambda: stratagem.CentralStorageStrategy(["cpu:0", "cpu:1"], "cpu:2")], ids=["none", "central"]
)
def test_other_strategies(strategy: Any) -> None:
    if strategy is None:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((4,)), Logarithm(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    else:
        model = made(strategy())
    with pytest.raises(InputError, match=r"Step 3 computed .*Row 0 of the 4"):
        model.fit(
            with_rows([8]),
            Y,
            batch_size=4,
            shuffle=False,
            verbose=0,
            validation_data=(X, Y),
            class_weight={0: 1.0, 1: 2.0},
            callbacks=[Inspect(every=2)],
        )


def test_infinite_gradients_that_a_loss_scale_passes_over_are_no_fault() -> None:
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=2.0**127)
    model = made(optimizer=optimizer)
    model.fit(X, Y, batch_size=4, verbose=0, callbacks=[Inspect(every=2)])
    assert float(optimizer.dynamic_scale) < 2.0**127
    assert np.isfinite(model.get_weights()[0]).all()


class OwnStep(keras.Sequential):
    """A step of (data), as in TensorFlow, that returns the loss of its batch alone."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with stratagem.GradientTape() as tape:
            loss = keras.ops.mean((y - self(x)) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


@pytest.mark.parametrize(
    ("eager", "said"), [(False, "`log` was the first operation"), (True, "produced NaN or infinity")]
)
def test_a_step_of_ones_own_and_one_that_is_not_compiled(eager: bool, said: str) -> None:
    with stratagem.MirroredStrategy(["cpu:0"]).scope():
        model = OwnStep([keras.Input((4,)), Logarithm(), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse", run_eagerly=eager)
    with pytest.raises(InputError, match=rf"Step 2 .*{said}.*Row 1 of the 4 of its global batch") as raised:
        model.fit(with_rows([5])[:12], Y[:12], batch_size=4, shuffle=False, verbose=0, callbacks=[Inspect()])
    assert np.isfinite(model.get_weights()[0]).all()
    assert "Step 2 " in str(raised.value)


def test_what_workers_see_together_is_seen_at_the_end_of_an_epoch_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Looking, "_has_seen_bad_loss", lambda _: False)
    model = made()
    with pytest.raises(InputError, match=r"Step 3 computed .*Row 0 of the 4"):
        model.fit(with_rows([8]), Y, batch_size=4, epochs=2, shuffle=False, verbose=0, callbacks=[Inspect(every=99)])
    assert int(model.optimizer.iterations) == 2
    assert np.isfinite(model.get_weights()[0]).all()


class Assigns(keras.callbacks.Callback):
    """Assigns NaN to a weight, before a step."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self._batch = batch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == self._batch:
            self.model.jax_state_sync()
            self.model.layers[-1].bias.assign([np.nan])


def test_a_variable_that_the_program_gives_nan_is_named_and_put_back() -> None:
    model = made()
    with pytest.raises(InputError, match=r"'sequential.*/dense/bias' held NaN before step 5\. No step computed it"):
        model.fit(X, Y, batch_size=4, shuffle=False, verbose=0, callbacks=[Assigns(4), Inspect(every=50)])
    assert np.isfinite(model.layers[-1].bias.value).all()
    assert int(model.optimizer.iterations) == 4


def test_a_learning_rate_that_a_callback_changes_is_part_of_the_steps_that_run_again() -> None:
    class Warms(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.model.optimizer.learning_rate = 0.01 * (batch + 1)

    undisturbed, model = made(), made()
    undisturbed.fit(X[:12], Y[:12], batch_size=4, shuffle=False, verbose=0, callbacks=[Warms()])
    with pytest.raises(InputError, match="Step 4 computed"):
        model.fit(with_rows([12]), Y, batch_size=4, shuffle=False, verbose=0, callbacks=[Warms(), Inspect()])
    for one, other in zip(undisturbed.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_backups_beside_it_hold_finite_numbers_and_steps_are_counted_on(tmp_path: Path) -> None:
    backup = BackupAndRestore(tmp_path / "backup", save_freq=3)
    fit = {"batch_size": 4, "shuffle": False, "verbose": 0, "epochs": 2}
    with pytest.raises(InputError, match="Step 6 computed"):
        made().fit(with_rows([20]), Y, callbacks=[backup, Inspect(every=50)], **fit)
    model = made()
    again = Inspect(every=2, folder=tmp_path / "inspect")
    with pytest.raises(InputError, match=r"Step 9 computed .*Row 1 of the 2 of its global batch"):
        model.fit(with_rows([33]), Y, callbacks=[backup, again], **fit)  # from behind step 3
    assert np.isfinite(model.get_weights()[0]).all()
    steps = [json.loads(line)["step"] for line in (tmp_path / "inspect" / "digests.jsonl").read_text().splitlines()]
    assert steps == [4, 6, 8]


def test_digests_say_whether_two_runs_have_the_same_bits(tmp_path: Path) -> None:
    def digests(name: str, replicas: int) -> list[str | None]:
        strategy = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])
        inspect = Inspect(every=4, folder=tmp_path / name)
        made(strategy).fit(X[:32], Y[:32], batch_size=4, shuffle=False, verbose=0, callbacks=[inspect])
        return [Digests(str(tmp_path / name)).of_step(step) for step in (4, 8)]

    first, again = digests("first", 2), digests("again", 2)
    assert first == again
    assert None not in first
    assert first[0] != first[1]
    assert Digests(str(tmp_path / "first")).of_step(5) is None


def test_what_a_second_run_computes_otherwise_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, run = [], Step.__call__

    def disturbed(step: Step, values: Any, batch: Any) -> Any:
        logs = run(step, values, batch)
        steps.append(batch)
        return {**logs, "loss": logs["loss"] * np.nan} if len(steps) == 3 else logs

    monkeypatch.setattr(Step, "__call__", disturbed)
    model = made()
    with pytest.raises(InputError, match="These steps compute finite numbers when they run again"):
        model.fit(X, Y, batch_size=4, verbose=0, callbacks=[Inspect(every=5)])
    assert np.isfinite(model.get_weights()[0]).all()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"every": 0}, "every=0"),
        ({"every": True}, "every=True"),
        ({"nonfinite": "find"}, "nonfinite='find'"),
        ({"folder": ""}, "folder=''"),
    ],
)
def test_arguments_that_cannot_be_used(arguments: Any, said: str) -> None:
    with pytest.raises(InputError, match=f"Inspect was given {said}"):
        Inspect(**arguments)


def test_a_folder_that_cannot_be_written_to_is_told_before_any_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    model = made()
    with pytest.raises(InputError, match="cannot be written to"):
        model.fit(X, Y, verbose=0, callbacks=[Inspect(folder=tmp_path / "file" / "folder")])
    assert int(model.optimizer.iterations) == 0


def test_a_window_begins_behind_the_step_in_which_a_new_worker_meets_the_others() -> None:
    """The step in flight is left out on all workers, also on one that took its result from another."""
    model = made()
    inspect = Inspect(every=4)
    windows: list[tuple[int, int | None]] = []

    def note(batch: int, logs: Any) -> None:
        looking: Any = inspect._looking
        windows.append((looking.steps, looking._since))
        if looking.steps == 2:
            inspect.meet_new(2)  # this worker stands before step 3
        if looking.steps == 6:
            inspect.meet_new(7)  # it will take the result of step 7 from another worker

    callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=note), inspect]
    model.fit(np.tile(X, (5, 1)), np.tile(Y, (5, 1)), batch_size=len(X) // 2, verbose=0, callbacks=callbacks)
    # (steps that are done, where the window begins): every four steps a look ends it.
    assert windows == [(1, 0), (2, 0), (3, None), (4, None), (5, 4), (6, 4), (7, None), (8, None), (9, 8), (10, 8)]
