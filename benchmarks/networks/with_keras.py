"""A network in plain Keras 3, in one process: `with_keras.py DATA STEPS NETWORK BACKEND`."""

from __future__ import annotations

import importlib
import os
import sys

os.environ["KERAS_BACKEND"] = sys.argv[4]

import keras
from catalogue import NETWORKS, compiled
from turns import Turns, fit_in_turns

network = NETWORKS[sys.argv[3]]
backend = importlib.import_module(sys.argv[4])
turns = Turns(**{"keras": keras.__version__, sys.argv[4]: backend.__version__})
x, y = turns.inputs_and_targets(network.rows)
fit_in_turns(keras, compiled(keras, network), turns, x, y, batch_size=network.rows, shuffle=False)
