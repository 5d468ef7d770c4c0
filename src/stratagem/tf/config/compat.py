"""Private names of JAX: the number of TPU chips, without starting JAX. Checked with JAX 0.7 to 0.10."""

from __future__ import annotations

import importlib.util

from jax._src import hardware_utils


def tpu_chips() -> int:
    """Return how many TPU chips this machine has that JAX can use."""
    if importlib.util.find_spec("libtpu") is None:
        return 0
    return hardware_utils.num_available_tpu_chips_and_device_id()[0]
