"""Settings for `RunConfig(session_config=...)` in Estimator programs: they are kept and have no effect.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/compat/v1/ConfigProto
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final


class _Settings(SimpleNamespace):
    """Attributes by any name: those that were not set are made, so that groups of settings can be set."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        group = _Settings()
        setattr(self, name, group)
        return group

    def CopyFrom(self, other: Any) -> None:
        """Copy the settings of another object."""
        vars(self).update(vars(other))

    MergeFrom = CopyFrom


class ConfigProto(_Settings):
    """Settings of a session (`tf.compat.v1.ConfigProto`).

    Args:
        settings: Settings by name. Those that programs compare or fill have TensorFlow's initial values.

    Example:
        >>> config = ConfigProto(allow_soft_placement=True)
        >>> config.gpu_options.allow_growth = True
        >>> config.allow_soft_placement, config.gpu_options.allow_growth
        (True, True)
        >>> config.device_count["GPU"] = 0
        >>> config.inter_op_parallelism_threads < 4
        True
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**self._FIRST, "device_count": {}, **settings})

    _FIRST: Final = {"inter_op_parallelism_threads": 0, "intra_op_parallelism_threads": 0}


class GPUOptions(_Settings):
    """Settings of GPUs (`tf.compat.v1.GPUOptions`)."""


class GraphOptions(_Settings):
    """Settings of a graph (`tf.compat.v1.GraphOptions`)."""


class OptimizerOptions(_Settings):
    """Settings of TensorFlow's graph optimizer (`tf.compat.v1.OptimizerOptions`)."""
