"""`tf.config`: which devices there are and which are used; switches of TensorFlow's runtime."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

DEVICES: Final = {
    name: f"stratagem.tf.config.devices:{name}"
    for name in (
        "LogicalDevice",
        "LogicalDeviceConfiguration",
        "PhysicalDevice",
        "get_logical_device_configuration",
        "get_visible_devices",
        "list_logical_devices",
        "list_physical_devices",
        "set_logical_device_configuration",
        "set_visible_devices",
    )
}
"""What `tf.config` and `tf.config.experimental` both have."""

_NAMES: Final = {
    **DEVICES,
    "experimental": "stratagem.tf.config.experimental",
    "optimizer": "stratagem.tf.config.optimizer",
    "threading": "stratagem.tf.config.threading",
    **{
        name: f"stratagem.tf.config.runtime:{name}"
        for name in (
            "experimental_connect_to_cluster",
            "experimental_connect_to_host",
            "experimental_functions_run_eagerly",
            "experimental_run_functions_eagerly",
            "functions_run_eagerly",
            "get_soft_device_placement",
            "run_functions_eagerly",
            "set_soft_device_placement",
        )
    },
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
