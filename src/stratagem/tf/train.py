"""`tf.train`: checkpoints, the cluster's description, examples."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "get_checkpoint_state": "stratagem.tf.checkpoints:get_checkpoint_state",
    "list_variables": "stratagem.tf.checkpoints:list_variables",
    "load_checkpoint": "stratagem.tf.checkpoints:load_checkpoint",
    "load_variable": "stratagem.tf.checkpoints:load_variable",
}
"""What is not in `stratagem.train`."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="stratagem.train")
