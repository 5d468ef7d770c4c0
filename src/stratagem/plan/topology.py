"""Describe the devices of a place to JAX so that XLA compiles for them. None of them have to be here."""

from __future__ import annotations

from typing import Any, Final

import jax

from stratagem.core.errors import InputError, UsageError
from stratagem.plan import compat
from stratagem.plan.hardware import target_config
from stratagem.plan.place import Place

_INSTALLED: Final = {"gpu": "'jax[cuda12]'", "tpu": "libtpu"}
"""Names by which pip installs the compilers; neither needs a driver or a device."""


def devices_of(place: Place) -> list[Any]:
    """Return the devices of a place, as JAX describes them.

    Args:
        place: The place. `settings.prepare` was called for it.

    Raises:
        UsageError: The compiler for them is not installed.
        InputError: The compiler knows no such slice of TPUs.
    """
    platform = place.hardware.platform
    if platform == "cpu":
        return list(jax.local_devices(backend="cpu"))
    try:
        if platform == "tpu":
            return compat.tpu_devices(f"{place.hardware.name}:{place.shape}")
        return compat.gpu_devices(target_config(place.hardware), place.hosts, place.per_host)
    except Exception as error:  # of whatever class: the plugins' own
        raise _refusal(place, error) from error


def _refusal(place: Place, error: Exception) -> UsageError | InputError:
    platform = place.hardware.platform
    if not compat.has_compiler(platform):
        return UsageError(
            f"XLA's compiler for {place.hardware.title} is not installed here.",
            f"Install it: pip install {_INSTALLED[platform]}. It needs neither the device nor a driver.",
        )
    return InputError(
        f"XLA's compiler cannot describe {place}: {str(error).splitlines()[0]}",
        "Name a slice that exists, for instance --on tpu:v5e:2x4 or --on tpu:v5p:2x2x2."
        if platform == "tpu"
        else "Ask for fewer devices, for instance --on h100:8.",
    )
