"""`tf.distribute.cluster_resolver`: who is in the cluster."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {"TPUClusterResolver": "stratagem.tf.distribute.tpu:TPUClusterResolver"}
"""What is not in `stratagem.cluster_resolver`."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="stratagem.cluster_resolver")
