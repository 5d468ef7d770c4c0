#!/bin/sh
# Make the environment of the peer gRPC: benchmarks/peers/grpc/.venv. PYTHON names the interpreter.
set -eu
cd "$(dirname "$0")"
"${PYTHON:-python3}" -m venv .venv
.venv/bin/python -m pip install --quiet numpy grpcio
.venv/bin/python -c 'import grpc; print("grpcio", grpc.__version__)'
