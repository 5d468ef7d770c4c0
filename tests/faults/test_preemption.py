"""SIGTERM on one of two workers: both stop behind the same step, and go on there when they are started again."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess

EPOCHS = 3
STEPS = 20


def program(folder: str, preempted: tuple[int, int] | None) -> dict[str, Any]:
    """Train with `fit`, then with a loop. SIGTERM comes to a worker at a step of both together."""
    import keras

    import stratagem

    strategy = stratagem.MultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(0).normal(size=(64, 5)).astype("float32")
    dataset = stratagem.data.Dataset.from_tensor_slices((x, x[:, :1])).shuffle(64).repeat().batch(8)

    def step_done(step: int) -> None:
        if preempted == (strategy.worker_index, step):
            os.kill(os.getpid(), signal.SIGTERM)

    class Sends(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            step_done(self.epoch * STEPS + batch + 1)

    with strategy.scope():
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01), "mse")
        optimizer = keras.optimizers.Adam(0.01)
        iterator = iter(strategy.experimental_distribute_dataset(dataset))
        checkpoint = stratagem.train.Checkpoint(model=model, optimizer=optimizer, iterator=iterator)

    backup = stratagem.callbacks.BackupAndRestore(
        f"{folder}/fit", save_freq=False, save_before_preemption=True, delete_checkpoint=False
    )
    model.fit(dataset, epochs=EPOCHS, steps_per_epoch=STEPS, verbose=0, callbacks=[Sends(), backup])
    iterations = int(model.optimizer.iterations)

    def train_step(batch: Any) -> None:
        features, labels = batch
        with stratagem.GradientTape() as tape:
            loss = stratagem.nn.compute_average_loss(keras.ops.mean((model(features) - labels) ** 2, axis=-1))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    handler = stratagem.train.PreemptionCheckpointHandler(None, checkpoint, f"{folder}/loop")
    while handler.total_run_calls < STEPS:
        step_done(EPOCHS * STEPS + handler.total_run_calls)
        handler.run(strategy.run, train_step, args=(next(iterator),))
    return {
        "values": [np.asarray(v.value).tobytes() for v in (*model.variables, *optimizer.variables)],
        "iterations": [iterations, int(optimizer.iterations)],
        "told": backup.model.history.history,
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_workers(program, 2, args=[str(tmp_path_factory.mktemp("undisturbed")), None])[0].value


def test_nobody_is_preempted(undisturbed: dict[str, Any]) -> None:
    assert undisturbed["iterations"] == [EPOCHS * STEPS, STEPS]
    assert len(undisturbed["told"]["loss"]) == EPOCHS


def test_both_workers_leave_behind_the_same_step(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    for worker, step in [(1, STEPS + 3), (0, EPOCHS * STEPS + 4)]:
        ended = run_workers(program, 2, args=[str(tmp_path), (worker, step)], check=False)
        assert [result.returncode for result in ended] == [42, 42], ended[0].output + ended[1].output
        said = [line for result in ended for line in result.output.splitlines() if "Preempted: saved" in line]
        assert len(said) == 2
        assert said[0] == said[1]
    chief, other = (result.value for result in run_workers(program, 2, args=[str(tmp_path), None]))
    assert chief["values"] == other["values"]
    assert chief == undisturbed


def program_with_grace(folder: str, preempted: bool) -> dict[str, Any]:
    """Count the steps; SIGTERM comes to worker 1 behind the third, and the machine stays for a second."""
    import keras

    import stratagem

    strategy = stratagem.MultiWorkerMirroredStrategy()
    with strategy.scope():
        total = keras.Variable(0.0, trainable=False)
    manager = stratagem.train.CheckpointManager(stratagem.train.Checkpoint(total=total), folder, max_to_keep=None)
    config = stratagem.train.TerminationConfig(grace_period=1.0)
    handler = stratagem.train.PreemptionCheckpointHandler(None, manager, termination_config=config)
    restored = [handler.total_run_calls, float(total)]

    @stratagem.function
    def step() -> None:
        strategy.run(lambda: total.assign_add(1.0))

    while preempted or handler.total_run_calls < restored[0] + STEPS:
        handler.run(step)
        if preempted and handler.total_run_calls == 3 and strategy.worker_index == 1:
            os.kill(os.getpid(), signal.SIGTERM)
    return {"restored": restored, "done": [handler.total_run_calls, float(total)]}


def test_both_workers_save_at_the_notice_and_at_the_end_of_the_grace_period(tmp_path: Path) -> None:
    ended = run_workers(program_with_grace, 2, args=[str(tmp_path), True], check=False)
    assert [result.returncode for result in ended] == [42, 42], ended[0].output + ended[1].output
    said = [line for result in ended for line in result.output.splitlines() if "Preempted: saved" in line]
    assert len(set(said)) == 1
    chief, other = (result.value for result in run_workers(program_with_grace, 2, args=[str(tmp_path), False]))
    assert sorted(file.name for file in tmp_path.glob("*.index")) == ["ckpt-1.index", "ckpt-2.index"]
    assert chief == other
    runs, total = chief["restored"]
    assert said[0].endswith(f"saved behind step {runs}")
    assert runs > 3
    assert total == runs
    assert chief["done"] == [runs + STEPS, total + STEPS]
