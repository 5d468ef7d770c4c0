from __future__ import annotations

import jax
import pytest

from stratagem.core.errors import InputError, UsageError
from stratagem.testing import run_workers, virtual_devices


def devices_after(count: int) -> int:
    virtual_devices(count)
    return len(jax.devices())


@pytest.mark.quick
@pytest.mark.multiprocess
def test_devices_are_there_before_jax_starts() -> None:
    (result,) = run_workers(devices_after, 1, args=[3])

    assert result.value == 3


def test_number_cannot_change_after_jax_has_started() -> None:
    shown = len(jax.devices("cpu"))
    virtual_devices(shown)
    with pytest.raises(UsageError) as error:
        virtual_devices(shown + 1)

    message = str(error.value)
    assert message.startswith(
        f"virtual_devices({shown + 1}) was called after JAX had started with {shown} CPU devices."
    )
    assert f"JAX_NUM_CPU_DEVICES={shown + 1}" in message


def test_no_devices_is_an_error() -> None:
    with pytest.raises(InputError, match=r"virtual_devices got 0\."):
        virtual_devices(0)
