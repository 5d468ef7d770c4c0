#!/bin/sh
# Make the environment of the peer TorchFT: benchmarks/peers/torchft/.venv. PYTHON names the interpreter.
set -eu
cd "$(dirname "$0")"
"${PYTHON:-python3}" -m venv .venv
.venv/bin/python -m pip install --quiet numpy "torch==2.13.0" "torchft==0.2.0"
.venv/bin/python -c 'import torch, torchft; print("torch", torch.__version__, "torchft")'
