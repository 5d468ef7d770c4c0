#!/bin/sh
# Make the environment of the peer JAX with optax: benchmarks/peers/jax/.venv. PYTHON names the interpreter.
set -eu
cd "$(dirname "$0")"
"${PYTHON:-python3}" -m venv .venv
.venv/bin/python -m pip install --quiet numpy "jax==0.10.2" "optax==0.2.8"
.venv/bin/python -c 'import jax, optax; print("jax", jax.__version__, "optax", optax.__version__)'
