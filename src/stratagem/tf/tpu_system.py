"""TPUs as programs ask for them: a resolver that fails where there are none, and a system to initialize."""

from __future__ import annotations

from typing import Any

from stratagem.cluster.resolver import ClusterResolver
from stratagem.cluster.spec import ClusterSpec
from stratagem.core.errors import InputError
from stratagem.tf.config.devices import count_devices


class TPUClusterResolver(ClusterResolver):
    """The TPUs of this machine (`tf.distribute.cluster_resolver.TPUClusterResolver`).

    JAX finds TPUs by itself, so this object only says that there are some. It has never run on a TPU so far.

    Args:
        tpu: "", "local" or a name; accepted, as JAX knows which TPU the machine belongs to.
        options: TensorFlow's other arguments; accepted.

    Raises:
        InputError: There is no TPU. This is a ValueError, as programs that fall back on GPUs expect.
    """

    def __init__(self, tpu: str | None = None, **options: Any) -> None:
        if not count_devices("TPU"):
            raise InputError(
                "TPUClusterResolver was made, and this machine has no TPU that JAX can use.",
                "Training would run on the CPU without saying so.",
                "Install jax[tpu] on a TPU VM, or use MirroredStrategy here.",
            )
        self.task_type, self.task_id = "worker", 0

    def cluster_spec(self) -> ClusterSpec:
        """Return an empty cluster: JAX knows the hosts of a slice."""
        return ClusterSpec({})

    @classmethod
    def connect(cls, tpu: str | None = None, **options: Any) -> TPUClusterResolver:
        """Return the resolver (TensorFlow's short way to connect and initialize)."""
        return cls(tpu, **options)


def initialize_tpu_system(cluster_resolver: Any = None) -> None:
    """Accept the call: JAX starts the TPUs at the first operation (`tf.tpu.experimental.initialize_tpu_system`)."""


def shutdown_tpu_system(cluster_resolver: Any = None) -> None:
    """Accept the call: JAX releases the TPUs when the process ends (`tf.tpu.experimental.shutdown_tpu_system`)."""
