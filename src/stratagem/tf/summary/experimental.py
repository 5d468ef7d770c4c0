"""`tf.summary.experimental`: the step that counts where none is given, and scopes of names."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {name: f"stratagem.tf.summary.writer:{name}" for name in ("get_step", "set_step", "summary_scope")}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
