"""A program of the test of layouts: `collectives_of_gpt.py ours | keras` fits a small GPT on 2x2 devices.

It prints the losses. XLA writes its programs where XLA_FLAGS says.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import jax
import numpy as np

import stratagem
from stratagem import keras
from stratagem.mesh.layouts import Layouts

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
make_gpt = importlib.import_module("gpt").make_gpt
SIZES = (16, 64, 1, 4)


def by_keras() -> keras.Model:
    """Return the model under Keras's ModelParallel, with the layouts that "auto" finds."""
    layouts = Layouts(2, None)
    layout_map = keras.distribution.LayoutMap(keras.distribution.DeviceMesh((2, 2), ("batch", "model"), jax.devices()))
    for weight in make_gpt(*SIZES).weights:
        axis = layouts.axis_of(weight.path, weight.shape, min_size=1)
        if axis is not None:
            names = ["model" if place == axis else None for place in range(len(weight.shape))]
            layout_map[f"^{re.escape(weight.path)}$"] = tuple(names)
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layout_map, batch_dim_name="batch"))
    return make_gpt(*SIZES)


def by_strategy() -> keras.Model:
    """Return the model under a strategy of two replicas of two devices."""
    with stratagem.MirroredStrategy(model_parallel=2, layout_map="auto", shard_min_size=1).scope():
        return make_gpt(*SIZES)


if __name__ == "__main__":
    keras.utils.set_random_seed(1)
    letters = np.random.default_rng(0).integers(0, 128, (16, SIZES[0]), dtype="int32")
    model = {"ours": by_strategy, "keras": by_keras}[sys.argv[1]]()
    print(json.dumps(model.fit(letters, letters, batch_size=16, epochs=2, verbose=0).history["loss"]))
