#!/bin/sh
# Make the environment of the peer TensorFlow with Keras 2: benchmarks/peers/tensorflow/.venv. PYTHON names the interpreter.
set -eu
cd "$(dirname "$0")"
"${PYTHON:-python3}" -m venv .venv
.venv/bin/python -m pip install --quiet numpy tensorflow-cpu tf_keras
.venv/bin/python -c 'import tensorflow, tf_keras; print("tensorflow", tensorflow.__version__, "tf_keras", tf_keras.__version__)'
