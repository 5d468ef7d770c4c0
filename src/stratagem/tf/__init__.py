"""`import stratagem.tf as tf` in place of `import tensorflow as tf`: the names that distributed Keras programs use.

`stratagem.tf.names` says where each name lives. Nothing is loaded before it is used.
"""

from __future__ import annotations

from stratagem.tf.namespace import install, lazy

__version__: str

__getattr__, __dir__ = lazy(__name__)

install()
