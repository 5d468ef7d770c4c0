"""`tf.version`: which TensorFlow this looks like, and which Stratagem it is."""

from __future__ import annotations

import sys
from typing import Final

from stratagem.tf.namespace import explaining

VERSION: Final = f"2.16.0+stratagem.{sys.modules['stratagem'].__version__.replace('+', '.')}"
"""2.16 is the first TensorFlow whose Keras is Keras 3; what follows says that this is none. `split(".")` and
`LooseVersion` read it as they read TensorFlow's. A development version has a plus sign of its own."""

GIT_VERSION: Final = VERSION
COMPILER_VERSION: Final = "XLA, through JAX"
GRAPH_DEF_VERSION: Final = 0
GRAPH_DEF_VERSION_MIN_CONSUMER: Final = 0
GRAPH_DEF_VERSION_MIN_PRODUCER: Final = 0


__getattr__ = explaining(__name__)
