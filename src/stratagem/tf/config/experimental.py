"""`tf.config.experimental`: older spellings, and memory."""

from __future__ import annotations

from typing import Final

from stratagem.tf.config import DEVICES
from stratagem.tf.namespace import lazy

_NAMES: Final = {
    **DEVICES,
    "VirtualDeviceConfiguration": "stratagem.tf.config.devices:LogicalDeviceConfiguration",
    "get_virtual_device_configuration": "stratagem.tf.config.devices:get_logical_device_configuration",
    "set_virtual_device_configuration": "stratagem.tf.config.devices:set_logical_device_configuration",
    **{
        name: f"stratagem.tf.config.memory:{name}"
        for name in (
            "get_device_details",
            "get_memory_growth",
            "get_memory_info",
            "get_memory_usage",
            "reset_memory_stats",
            "set_memory_growth",
        )
    },
    **{
        name: f"stratagem.tf.config.runtime:{name}"
        for name in (
            "disable_mlir_bridge",
            "enable_mlir_bridge",
            "enable_op_determinism",
            "enable_tensor_float_32_execution",
            "get_device_policy",
            "get_synchronous_execution",
            "set_device_policy",
            "set_synchronous_execution",
            "tensor_float_32_execution_enabled",
        )
    },
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
