"""One replica on one device."""

from __future__ import annotations

from stratagem.mesh.described import mesh_on
from stratagem.mesh.mesh import Device
from stratagem.strategy.base import Strategy
from stratagem.strategy.devices import named_device


class OneDeviceStrategy(Strategy):
    """Training on one device, to try code that will run under a larger strategy.

    Args:
        device: Name of the device, for example "gpu:0" or "cpu:0".

    Example:
        >>> import stratagem
        >>> stratagem.OneDeviceStrategy("cpu:0").num_replicas_in_sync
        1
    """

    def __init__(self, device: str | Device) -> None:
        super().__init__(mesh_on([named_device(device)]))
