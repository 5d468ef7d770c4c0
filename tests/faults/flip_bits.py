"""Trials: one bit flips in the memory of one of two workers while they train, and `Inspect` must name the variable.

    PYTHONPATH=. python tests/faults/flip_bits.py --flips 100

Each trial flips a random bit of a random weight, or of an optimizer's slot or a moving statistic, on a random worker
behind a random step. It is found if `fit` ends within `EVERY` steps, and named if the error names the variable and both
workers. A bit that makes a number huge may turn all values into NaN in the next step, on both workers alike: then the
error says that a machine computed something else, and names no variable.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
from collections import Counter
from typing import Any, NamedTuple

from tests.flipped import flip_bit

from stratagem.testing import run_workers

EVERY = 20
STEPS = 60
WEIGHTS, OTHERS = ("trainable_variables",), ("optimizer_variables", "non_trainable_variables")


class Flip(NamedTuple):
    """A bit that flips.

    Args:
        group: Where Keras keeps the values of the variables while it trains.
        place: Place of the variable among them.
        bit: Its number in the variable.
        worker: On whom.
        step: Behind which step.
    """

    group: str
    place: int
    bit: int
    worker: int
    step: int


def make_model() -> Any:
    """Return a network whose values are larger together than what is added up before each step."""
    import keras

    import stratagem

    keras.utils.set_random_seed(1)
    with stratagem.MultiWorkerMirroredStrategy().scope():
        layers = keras.layers
        hidden = [layers.Dense(512, "relu"), layers.BatchNormalization(), layers.Dense(512, "relu")]
        model = keras.Sequential([keras.Input((64,)), *hidden, layers.Dense(10, "softmax")])
        model.compile("adam", "sparse_categorical_crossentropy")
    return model


def flips(count: int, groups: tuple[str, ...], seed: int) -> list[str]:
    """Train once for each flip; return what became of each."""
    import keras
    import numpy as np

    from stratagem.callbacks import Inspect
    from stratagem.core.errors import StratagemError

    model, generator = make_model(), random.Random(seed)
    worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(STEPS * 16, 64)).astype("float32"), rng.integers(0, 10, STEPS * 16)
    model.fit(x[:16], y[:16], batch_size=16, verbose=0)
    variables = {
        "trainable_variables": model.trainable_variables,
        "non_trainable_variables": model.non_trainable_variables,
        "optimizer_variables": model.optimizer.variables,
    }
    at_first = [(each, np.asarray(each)) for group in variables.values() for each in group]
    outcomes = []
    for _ in range(count):
        group = generator.choice(groups)
        floats = [i for i, each in enumerate(variables[group]) if each.dtype == "float32" and each.ndim]
        place = generator.choice(floats)
        variable = variables[group][place]
        bits = 32 * int(np.prod(variable.shape))
        flip = Flip(group, place, generator.randrange(bits), generator.randrange(2), generator.randrange(1, STEPS))
        for each, value in at_first:
            each.assign(value)

        def flip_now(batch: int, logs: Any, flip: Flip = flip) -> None:
            if batch + 1 == flip.step and worker == flip.worker:
                flip_bit(model._jax_state[flip.group][flip.place].addressable_data(0), flip.bit)

        said = ""
        callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=flip_now), Inspect(every=EVERY)]
        try:
            model.fit(x, y, batch_size=16, shuffle=False, verbose=0, callbacks=callbacks)
        except StratagemError as error:
            said = str(error)
        outcomes.append(outcome_of(flip, variable.path, said))
    return outcomes


def outcome_of(flip: Flip, path: str, said: str) -> str:
    """Return what became of a flip."""
    between = re.search(r"between step (\d+) and (\d+)", said)
    if between is None or not int(between[1]) <= flip.step <= int(between[2]) <= flip.step + EVERY:
        return f"not found: {flip} of {path}: {said[:300]}"
    if "compute finite numbers when they run again" in said:
        return "found as numbers that another run does not compute"
    if path not in said or "on worker 0" not in said or "on worker 1" not in said:
        return f"not named: {flip} of {path}: {said[:300]}"
    return "found and named"


def main() -> None:
    """Run the trials, and print how many were found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for name, groups in (("weights", WEIGHTS), ("slots and statistics", OTHERS)):
        results = run_workers(flips, 2, args=[asked.flips, groups, asked.seed], timeout_seconds=20.0 * asked.flips)
        assert results[0].value == results[1].value, "both workers hear the same"
        for outcome, count in Counter(results[0].value).most_common():
            print(f"{name}: {outcome}: {count} of {asked.flips}", flush=True)


if __name__ == "__main__":
    main()
