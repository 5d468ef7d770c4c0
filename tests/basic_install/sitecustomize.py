"""Python runs this first in processes that are to find what `pip install stratagem` brings, and no extra.

`make versions` tries the same in an environment of its own. The variable WITH_PACKAGES names packages of extras that
are there all the same.
"""

import os
import sys

EXTRAS = (
    "array_record",
    "flatbuffers",
    "fsspec",
    "google",  # protobuf
    "google_crc32c",
    "grain",
    "libcst",
    "matplotlib",
    "pandas",
    "PIL",
    "pyarrow",
    "sklearn",
    "tensorboardX",
    "zmq",
)

for module in set(EXTRAS) - set(os.environ.get("WITH_PACKAGES", "").split()):
    sys.modules[module] = None  # pyright: ignore[reportArgumentType] - Python's own way to say that it is not there
