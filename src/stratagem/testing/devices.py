"""Virtual CPU devices: several devices on a machine that has one."""

from __future__ import annotations

import jax

from stratagem.cluster.compat import backends_started
from stratagem.core.described import described_devices
from stratagem.core.errors import InputError, UsageError


def virtual_devices(count: int) -> None:
    """Make JAX show `count` CPU devices, to try strategies without accelerators.

    The devices share the cores of the machine. Use them to check that a program is right; they are not faster. Outside
    Python, `JAX_NUM_CPU_DEVICES=4` or `stratagem run --devices-per-worker 4` do the same. The counterpart in TensorFlow
    is `tf.config.set_logical_device_configuration`.

    Args:
        count: Number of devices.

    Raises:
        InputError: `count` is not positive.
        UsageError: JAX has already started with another number of devices.

    Example:
        >>> import stratagem.testing
        >>> stratagem.testing.virtual_devices(4)
        >>> import jax
        >>> len(jax.devices("cpu"))
        4
    """
    if not isinstance(count, int) or count < 1:
        raise InputError(f"virtual_devices got {count!r}.", "Write a whole number of devices, 1 or more.")
    if described_devices() is not None:
        return  # a program that is planned; it has the devices that it is planned for
    if backends_started():
        shown = jax.local_device_count("cpu")
        if shown == count:
            return
        raise UsageError(
            f"virtual_devices({count}) was called after JAX had started with {shown} CPU devices.",
            "JAX fixes its devices at the first operation, so the program would continue with the old ones.",
            f"Call stratagem.testing.virtual_devices({count}) at the top of the program, before anything computes "
            f"or asks for devices, or start the program with JAX_NUM_CPU_DEVICES={count}.",
        )
    jax.config.update("jax_num_cpu_devices", count)
