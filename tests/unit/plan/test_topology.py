"""Devices of a place, as JAX and XLA's compilers know them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import SingleDeviceSharding

from stratagem.core.errors import UsageError
from stratagem.plan import compat
from stratagem.plan.hardware import KNOWN
from stratagem.plan.place import place_of
from stratagem.plan.settings import SETTINGS
from stratagem.plan.topology import devices_of


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # those of CPUs, at which libtpu aborts


@pytest.mark.parametrize("name", KNOWN)
def test_xla_compiles_for_each_device_that_is_known(name: str) -> None:
    place = place_of(f"{name}:2")
    if place.hardware.platform != "cpu" and not compat.has_compiler(place.hardware.platform):
        pytest.skip(f"the compiler for {place.hardware.title} is not installed")
    devices = devices_of(place)
    assert place.hardware.platform == "cpu" or len(devices) == place.devices == 2
    assert {device.platform for device in devices} == {place.hardware.platform}
    shape = jax.ShapeDtypeStruct((256, 256), jnp.bfloat16, sharding=SingleDeviceSharding(devices[0]))
    compiled = jax.jit(lambda x: x @ x).lower(shape).compile()
    assert compiled.memory_analysis().output_size_in_bytes == 256 * 256 * 2


def test_several_hosts() -> None:
    place = place_of("2x4xh100")
    if not compat.has_compiler("gpu"):
        with pytest.raises(UsageError, match=r"not installed here\.\n.*pip install 'jax\[cuda12\]'"):
            devices_of(place)
        return
    assert [device.process_index for device in devices_of(place)] == [0] * 4 + [1] * 4
