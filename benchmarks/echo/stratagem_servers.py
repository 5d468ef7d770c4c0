"""Stratagem: all variables are read from a parameter server and sent back.

`stratagem_servers.py DATA STEPS [keys] [sockets] [apply]`: with keys (DATA has them); through sockets, as between
machines; as gradients, which the server applies (plain gradient descent), not as values.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import zmq
from model import SHAPES
from turns import Turns

import stratagem
from stratagem import keras
from stratagem.cluster.spec import Task
from stratagem.ps.changes import Change
from stratagem.ps.client import Servers
from stratagem.ps.placement import Placement
from stratagem.ps.serving import Serving
from stratagem.transport.keys import Keys
from stratagem.transport.memory import SharedMemory

cluster, task = (json.loads(os.environ["TF_CONFIG"])[part] for part in ("cluster", "task"))
keys = Keys.from_text(json.loads(Path(sys.argv[1]).read_text())[task["type"]]) if "keys" in sys.argv else None
(address,) = cluster["ps"]
if task["type"] == "ps":
    Serving(Task("ps", 0), address, keys=keys).wait()

turns = Turns(stratagem=stratagem.__version__, zeromq=zmq.zmq_version())
if "sockets" in sys.argv:
    SharedMemory.make = classmethod(lambda cls: None)  # as on a system that has none
servers = Servers([address], keys)
placement = Placement(servers)
rng = np.random.default_rng(0)
variables = [keras.Variable(rng.random(shape, np.float32)) for shape in SHAPES]
placement.place(variables)
sgd = placement.name_of(keras.optimizers.SGD(0.01))

everything = [variable.parts for variable in variables]
op, more = ("apply", {"optimizer": sgd, "iterations": 0, "rate": 0.01}) if "apply" in sys.argv else ("set", {})
while True:
    for _ in range(turns.steps):
        pulled = servers.read(everything)
        servers.change([Change(op, part, value, more) for part, value in zip(everything, pulled, strict=True)])
    if not turns.finish(0.0):
        break
