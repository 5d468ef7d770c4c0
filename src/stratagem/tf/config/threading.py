"""`tf.config.threading`: how many threads compute."""

from __future__ import annotations

import os

from stratagem.cluster.compat import backends_started
from stratagem.core import environment
from stratagem.core.log import announce_once
from stratagem.tf.namespace import explaining


def set_inter_op_parallelism_threads(num_threads: int) -> None:
    """Accept the number: XLA has one pool of threads, whose size `set_intra_op_parallelism_threads` sets."""
    announce_once("tf.config.threading.set_inter_op_parallelism_threads has no effect: XLA has one pool of threads.")


def set_intra_op_parallelism_threads(num_threads: int) -> None:
    """Let XLA compute with so many threads on the CPU; 0 leaves it to XLA: one for each core.

    Call it at the top of the program; when JAX has started it has no effect.

    Args:
        num_threads: How many.
    """
    if num_threads > 0 and not backends_started():
        os.environ[environment.THREAD_COUNTS[0]] = str(num_threads)
    elif num_threads > 0:
        announce_once("tf.config.threading.set_intra_op_parallelism_threads came after JAX had started: no effect.")


def get_inter_op_parallelism_threads() -> int:
    """Return 0: the runtime decides.

    Example:
        >>> get_inter_op_parallelism_threads()
        0
    """
    return 0


def get_intra_op_parallelism_threads() -> int:
    """Return how many threads XLA computes with on the CPU; 0: as many as the process has cores.

    Example:
        >>> get_intra_op_parallelism_threads() >= 0
        True
    """
    return int(os.environ.get(environment.THREAD_COUNTS[0], "0"))


__getattr__ = explaining(__name__)
