"""Nobody waits in silence: a frozen worker is named within seconds, and workers that wait for each other end."""

from __future__ import annotations

import time
from typing import Any

import pytest

from stratagem.core import exits
from stratagem.testing import block_point, start_workers

pytestmark = pytest.mark.multiprocess

SECONDS = 30.0
"""Longest time until it is said: 3 to 6 s, and more on a busy machine. The limit that ends such waits is 600 s."""


def take_steps() -> int:
    """Take five steps; each worker stops before the last one."""
    import stratagem

    strategy = stratagem.MultiWorkerMirroredStrategy()

    def step() -> object:
        context = stratagem.get_replica_context()
        return context.all_reduce(stratagem.ReduceOp.SUM, context.replica_id_in_sync_group + 1)

    for _ in range(4):
        strategy.run(step)
    block_point("step 5")
    return int(strategy.experimental_local_results(strategy.run(step))[0])


def test_a_frozen_worker_is_named_within_seconds_and_may_go_on() -> None:
    with start_workers(take_steps, 2) as (chief, other):
        for worker in (chief, other):
            worker.wait_for_point("step 5")
        start = time.monotonic()
        other.freeze()
        chief.release("step 5")
        chief.wait_for(" The others wait. All end when that lasts 600 s.")
        assert time.monotonic() - start < SECONDS
        other.resume()
        chief.wait_for("goes on, after")
        other.release("step 5")
        ended = [worker.wait() for worker in (chief, other)]
    assert [(result.returncode, result.value) for result in ended] == [(0, 3), (0, 3)]
    name = f"worker 1 (host {ended[0].output.partition('worker 1 (host ')[2].partition(')')[0]})"
    assert f"{name} has been silent for " in ended[0].output
    assert f"{name} goes on, after " in ended[0].output
    assert "silent" not in ended[1].output


def only_one(call: str, caller: int) -> None:
    """Train; then one worker alone makes a call that all have to make."""
    import numpy as np

    import stratagem
    from stratagem import keras

    strategy = stratagem.MultiWorkerMirroredStrategy()
    x = np.ones((16, 2), "float32")
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")

    class Alone(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if call == "evaluate in a callback" and batch == 1 and strategy.worker_index == caller:
                model.evaluate(x, x[:, :1], verbose=0)

    def combine() -> object:
        return stratagem.get_replica_context().all_reduce(stratagem.ReduceOp.SUM, model.weights[0].value)

    model.fit(x, x[:, :1], batch_size=4, verbose=0, callbacks=[Alone()])
    if strategy.worker_index == caller:
        if call == "predict":
            model.predict(x, verbose=0)
        elif call == "save":
            model.save("never.keras")
        else:
            strategy.run(combine)
    model.fit(x, x[:, :1], batch_size=4, verbose=0)


@pytest.mark.parametrize(
    ("call", "caller", "said"),
    [
        ("evaluate in a callback", 0, "worker 0 called `evaluate` and worker 1 called `fit`."),
        ("predict", 1, "worker 0 called `fit` and worker 1 called `predict`."),
        ("save", 1, "worker 0 called `fit` and worker 1 came to saving 'never.keras'."),
        ("run", 0, "worker 0 came to the function `only_one.<locals>.combine` and worker 1 called `fit`."),
    ],
)
def test_a_call_of_one_worker_alone_ends_all_at_once(call: str, caller: int, said: str) -> None:
    start = time.monotonic()
    with start_workers(only_one, 2, args=[call, caller]) as workers:
        ended = [worker.wait() for worker in workers]
    assert time.monotonic() - start < SECONDS + 15  # of which some seconds are the start
    assert [result.returncode for result in ended] == [exits.HUNG] * 2, ended[0].output + ended[1].output
    for result in ended:
        assert "stratagem: worker 0 and worker 1 wait for each other in different places" in result.output
        assert f"What to do: {said} Make the same calls on all workers" in result.output
    alone = ended[caller].output
    assert alone.index("Thread 'MainThread':") < alone.index("in only_one" if "back" not in call else "Alone")
