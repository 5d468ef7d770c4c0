"""Places that `--on` names: a number of devices of one kind, on a number of hosts."""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass

from stratagem.core.errors import InputError
from stratagem.plan.hardware import KNOWN, Hardware

_HOSTS_FIRST = re.compile(r"(\d+)x(\d+)x([a-z][\w-]*)")
_COUNTED = re.compile(r"(?:(?:gpu|cuda|tpu):)?([a-z][\w-]*)(?::(\d+(?:x\d+)*))?")
_REMEDY = (
    "Write a device and how many there are: --on h100:8. With several hosts: --on 2x8xh100. A slice of TPUs by its "
    f"shape: --on tpu:v5e:4x4. Known are {', '.join(KNOWN)}."
)


@dataclass(frozen=True)
class Place:
    """Devices to compile for.

    Args:
        hardware: Their kind.
        hosts: Number of hosts; 1 for TPUs, because all chips of a slice are connected in the same way.
        per_host: Devices of each host.
        shape: Shape of a slice of TPUs, as Google names it: "4x4".
    """

    hardware: Hardware
    hosts: int
    per_host: int
    shape: str = ""

    @property
    def devices(self) -> int:
        """Number of all devices."""
        return self.hosts * self.per_host

    def __str__(self) -> str:
        number = f"{self.devices} x {self.hardware.title}"
        if self.shape:
            return f"{number} ({self.shape})"
        return f"{number} on {self.hosts} hosts" if self.hosts > 1 else number


def place_of(text: str) -> Place:
    """Return the place that a user names.

    Args:
        text: `h100:8`, `2x8xh100` (two hosts of eight), `tpu:v5e:4x4`, `cpu:4`; without a number one device.

    Raises:
        InputError: There is no such device, or the number is not possible.

    Example:
        >>> print(place_of("2x8xh100"))
        16 x NVIDIA H100 80GB HBM3 on 2 hosts
        >>> print(place_of("tpu:v5e:4x4"))
        16 x TPU v5e (4x4)
    """
    wanted = text.strip().lower()
    hosts_first = _HOSTS_FIRST.fullmatch(wanted)
    if hosts_first is not None:
        hosts, per_host, name = hosts_first.groups()
        hardware = _hardware(text, name)
        if hardware.platform == "tpu":
            raise _refusal(text, f"{hardware.title} needs the shape of a slice")
        return _checked(text, Place(hardware, int(hosts), int(per_host)))
    counted = _COUNTED.fullmatch(wanted)
    if counted is None:
        raise _refusal(text, "it is not a device and a number")
    name, number = counted.groups()
    hardware = _hardware(text, name)
    sizes = [int(size) for size in (number or "1").split("x")]
    if hardware.platform == "tpu":
        shape = number if len(sizes) > 1 else _row(hardware, sizes[0])
        return _checked(text, Place(hardware, 1, math.prod(sizes), shape))
    if len(sizes) > 1:
        raise _refusal(text, "only a slice of TPUs has a shape")
    return _checked(text, Place(hardware, 1, sizes[0]))


def _row(hardware: Hardware, chips: int) -> str:
    """Return the shape of a slice of so many chips in a row."""
    return "x".join([str(chips), *["1"] * (2 if hardware.name == "v5p" else 1)])


def _hardware(text: str, name: str) -> Hardware:
    if name in KNOWN:
        return KNOWN[name]
    alike = difflib.get_close_matches(name, KNOWN, n=1, cutoff=0.5)
    raise _refusal(text, f"{name} is not known" + (f"; {alike[0]} is" if alike else ""))


def _checked(text: str, place: Place) -> Place:
    if place.devices < 1:
        raise _refusal(text, "it has no devices")
    return place


def _refusal(text: str, found: str) -> InputError:
    return InputError(f"--on is {text!r}: {found}.", _REMEDY)
