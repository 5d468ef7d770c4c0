"""Names of devices: the short one of logs, and the one that TensorFlow gives a tensor."""

from __future__ import annotations

import jax

from stratagem.mesh.mesh import Device


def device_name(device: Device) -> str:
    """Return the name of a device: `CPU:1`."""
    number = device.local_hardware_id
    return f"{device.platform.upper()}:{device.id if number is None else number}"


def device_of_task(device: Device) -> str:
    """Return the name of a device with its task: `/job:worker/replica:0/task:1/device:CPU:0` (`tf.Tensor.device`)."""
    job = "worker" if jax.process_count() > 1 else "localhost"
    return f"/job:{job}/replica:0/task:{device.process_index}/device:{device_name(device)}"
