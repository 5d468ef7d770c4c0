#!/bin/sh
# Make the environment of the peer PyTorch: benchmarks/peers/torch/.venv. PYTHON names the interpreter.
set -eu
cd "$(dirname "$0")"
"${PYTHON:-python3}" -m venv .venv
.venv/bin/python -m pip install --quiet numpy "torch==2.13.0" keras
KERAS_BACKEND=torch .venv/bin/python -c 'import keras, torch; print("torch", torch.__version__, "keras", keras.__version__)'
