"""Names of devices in parts (`tf.DeviceSpec`).

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/DeviceSpec
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from dataclasses import replace as _replaced
from typing import Any, Final

import jax

from stratagem.core.errors import InputError


@dataclass(frozen=True, repr=False)
class DeviceSpec:
    """The parts of a device's name. A part that the name leaves open is None.

    Args:
        job: The type of the task.
        replica: The number of the replica.
        task: The index of the task.
        device_type: "CPU", "GPU" or "TPU".
        device_index: The number of the device.

    Example:
        >>> spec = DeviceSpec.from_string("/job:worker/task:1/gpu:0")
        >>> spec.device_type, spec.to_string()
        ('GPU', '/job:worker/task:1/device:GPU:0')
    """

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    device_type: str | None = None
    device_index: int | None = None

    def __post_init__(self) -> None:
        kinds = {"job": str, "replica": int, "task": int, "device_type": str, "device_index": int}
        for name, kind in kinds.items():
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else kind(value))

    @classmethod
    def from_string(cls, spec: Any) -> DeviceSpec:
        """Return the parts of a name.

        Args:
            spec: As "/job:worker/task:1/device:GPU:0", "/gpu:0" or ""; or a device of JAX, such as `tensor.device`.

        Raises:
            InputError: A part is unknown or is not a number, there are two devices, or the argument is not a name.
        """
        if isinstance(spec, jax.Device):
            return cls(device_type=spec.platform.upper(), device_index=spec.id)
        if not isinstance(spec, str):
            raise InputError(f"{spec!r} is not the name of a device.", _AS_THIS)
        found: dict[str, Any] = {}
        for part in filter(None, spec.split("/")):
            new = _parsed(part.split(":"), spec)
            if "device_type" in new and "device_type" in found:
                raise InputError(f"{spec!r} names two devices.", "Write one of them.")
            found |= new
        try:
            return cls(**found)
        except ValueError as error:
            raise InputError(f"{spec!r} is not the name of a device: {error}.", _AS_THIS) from error

    def parse_from_string(self, spec: str) -> DeviceSpec:
        """Return the parts of another name (`from_string`)."""
        return self.from_string(spec)

    def make_merged_spec(self, dev: DeviceSpec) -> DeviceSpec:
        """Return these parts, replaced by those that another spec names.

        Args:
            dev: The other spec.
        """
        named = {field.name: getattr(dev, field.name) for field in fields(dev)}
        return self.replace(**{name: value for name, value in named.items() if value is not None})

    def replace(self, **parts: Any) -> DeviceSpec:
        """Return these parts with some of them replaced.

        Args:
            parts: The new parts by name, as in the constructor.
        """
        return _replaced(self, **parts)

    def to_string(self) -> str:
        """Return the name."""
        numbers = ("job", self.job), ("replica", self.replica), ("task", self.task)
        text = "".join(f"/{name}:{value}" for name, value in numbers if value is not None)
        if self.device_type is None:
            return text
        return f"{text}/device:{self.device_type}:{'*' if self.device_index is None else self.device_index}"

    def __repr__(self) -> str:
        parts = ", ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))
        return f"<DeviceSpec({parts})>"


_AS_THIS: Final = 'Write it as "/job:worker/replica:0/task:1/device:GPU:0", or a part of that.'
_NAMED: Final = 2
"""How many words a part has that has a name and a value."""


def _parsed(words: list[str], spec: str) -> dict[str, Any]:
    """Return what a part of a name says."""
    name, *values = words
    if len(words) == _NAMED and name in ("job", "replica", "task"):
        return {name: values[0]}
    if len(words) <= _NAMED and name.upper() in ("CPU", "GPU", "TPU"):
        name, values = "device", [name, *(values or ["*"])]
    if name == "device" and len(values) == _NAMED:
        return {"device_type": values[0].upper(), "device_index": None if values[1] == "*" else values[1]}
    raise InputError(f"{name!r} in {spec!r} is not a part of a device's name.", _AS_THIS)
