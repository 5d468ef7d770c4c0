"""`tf.autograph`: functions are not rewritten here; what marks them is accepted."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "experimental": "stratagem.tf.autograph.experimental",
    "set_verbosity": "stratagem.tf.autograph.experimental:set_verbosity",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
