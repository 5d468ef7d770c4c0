"""`tf.sysconfig`: what the runtime was built with."""

from __future__ import annotations

from typing import Any

from stratagem.tf.namespace import explaining
from stratagem.tf.test import is_built_with_cuda


def get_build_info() -> dict[str, Any]:
    """Return whether JAX can use NVIDIA GPUs (`tf.sysconfig.get_build_info`).

    Example:
        >>> sorted(get_build_info())
        ['is_cuda_build', 'is_rocm_build', 'is_tensorrt_build']
    """
    return {"is_cuda_build": is_built_with_cuda(), "is_rocm_build": False, "is_tensorrt_build": False}


__getattr__ = explaining(__name__)
