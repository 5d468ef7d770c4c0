#!/bin/sh
# Make the environment of the peer Horovod with PyTorch: benchmarks/peers/horovod/.venv. PYTHON names the interpreter.
# Its last release is built here, which takes cmake, a C++ compiler and some minutes.
set -eu
cd "$(dirname "$0")"
rm -rf .venv .venv-unfinished
"${PYTHON:-python3}" -m venv .venv-unfinished  # a peer takes part once .venv exists
cd .venv-unfinished
bin/python -m pip install --quiet numpy "torch==2.13.0" cffi cloudpickle packaging psutil pyyaml "setuptools<81" wheel
bin/python -m pip download --quiet --no-deps --no-build-isolation --no-binary horovod --dest . "horovod==0.28.1"
tar -xzf horovod-0.28.1.tar.gz
# It asks for C++14, PyTorch's headers for more.
sed -i 's/CMAKE_CXX_STANDARD 14/CMAKE_CXX_STANDARD 20/' horovod-0.28.1/CMakeLists.txt horovod-0.28.1/horovod/torch/CMakeLists.txt
MAKEFLAGS="${MAKEFLAGS:--j$(nproc)}" HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITH_PYTORCH=1 \
  HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
  bin/python -m pip install --no-deps --no-build-isolation ./horovod-0.28.1
rm -r horovod-0.28.1 horovod-0.28.1.tar.gz
cd ..
mv .venv-unfinished .venv
.venv/bin/python -c 'import horovod.torch, torch; print("horovod", horovod.__version__, "torch", torch.__version__)'
