"""Training that stops at its first NaN, and says which layer computed it from which rows.

    python examples/inspect_fit.py
    stratagem run --workers 2 examples/inspect_fit.py

The model takes the logarithm of prices. One of them is zero: log(0) is minus infinity, and a step later all weights
would be NaN.
"""

from __future__ import annotations

import argparse

import numpy as np

import stratagem
from stratagem import keras


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where the step, its batch and what was found are saved")
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    prices = rng.uniform(1, 100, (4096, 8)).astype("float32")
    sold = np.log(prices).sum(axis=1, keepdims=True)
    prices[2000, 3] = 0.0

    strategy = stratagem.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((8,)),
                keras.layers.Lambda(keras.ops.log, name="logarithm"),
                keras.layers.Dense(16, activation="relu"),
                keras.layers.Dense(1),
            ]
        )
        model.compile("adam", "mse")

    inspect = stratagem.callbacks.Inspect(every=20, folder=options.folder)
    try:
        model.fit(prices, sold, batch_size=64, shuffle=False, verbose=0, callbacks=[inspect])
    except stratagem.errors.InputError as error:
        if strategy.is_chief:
            print(error)
            finite = all(np.isfinite(weight).all() for weight in model.get_weights())
            print(f"The weights are {'finite' if finite else 'lost'}.")


if __name__ == "__main__":
    main()
